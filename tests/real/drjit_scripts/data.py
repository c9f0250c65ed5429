"""What the scripts of this folder and their oracle share: the data, from one seed, and the printing of numbers with all their bits."""
import os
import numpy as np

STEPS = int(os.environ.get("STEPS", "5"))
random = np.random.RandomState(7)


def uniform(*shape, low=0.0, high=1.0):
    return random.uniform(low, high, shape).astype(np.float32)


def show(name, values):
    print(name, " ".join(float(v).hex() for v in np.ravel(values)), flush=True)


class Adam:
    """The textbook's, on a dictionary of NumPy arrays;"""

    def __init__(self, parameters, rate):
        self.parameters, self.rate, self.step_number = parameters, rate, 0
        self.moments = {n: (np.zeros_like(p), np.zeros_like(p)) for n, p in parameters.items()}

    def step(self, gradients):
        self.step_number += 1
        for n, g in gradients.items():
            m, v = self.moments[n]
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            size = self.rate * np.sqrt(1 - 0.999**self.step_number) / (1 - 0.9**self.step_number)
            self.parameters[n] -= size * m / np.sqrt(v + 1e-16)  # where Dr.Jit puts the epsilon
