"""A perceptron of two hidden layers learns a function of two numbers; every weight is a variable of its own."""
import sys
import numpy as np
from data import STEPS, Adam, show, uniform

SAMPLES, WIDTH = 32768, 6
X = uniform(2, SAMPLES, low=-1, high=1)
TARGET = (np.sin(3 * X[0]) * X[1]).astype(np.float32)
SHAPES = {"w1": (WIDTH, 2), "b1": (WIDTH,), "w2": (WIDTH, WIDTH), "b2": (WIDTH,), "w3": (1, WIDTH), "b3": (1,)}
START = {n: uniform(*s, low=-1, high=1) * np.float32(0.7) for n, s in SHAPES.items()}
RATE = 0.02


def train():
    import drjit as dr
    import drjit.opt
    from drjit.cuda.ad import Float
    x, target = [Float(row) for row in X], Float(TARGET)
    parameters = {f"{n}{list(i)}": Float(float(a[i])) for n, a in START.items() for i in np.ndindex(a.shape)}
    optimiser = dr.opt.Adam(lr=RATE, params=parameters)

    def layer(number, inputs):
        outputs = SHAPES[f"b{number}"][0]
        values = []
        for o in range(outputs):
            value = optimiser[f"b{number}[{o}]"]
            for i, v in enumerate(inputs):
                value = dr.fma(optimiser[f"w{number}[{o}, {i}]"], v, value)
            values.append(value)
        return values

    for _ in range(STEPS):
        hidden = [dr.tanh(v) for v in layer(1, x)]
        dr.eval(hidden)
        hidden = [dr.tanh(v) for v in layer(2, hidden)]
        dr.eval(hidden)
        loss = dr.mean(dr.square(layer(3, hidden)[0] - target))
        dr.backward(loss)
        optimiser.step()
        show("loss", loss.numpy())
    for n, s in SHAPES.items():
        show(n, [optimiser[f"{n}{list(i)}"].numpy() for i in np.ndindex(s)])


def oracle():
    p = {n: a.astype(np.float64) for n, a in START.items()}
    x, adam = X.astype(np.float64), Adam(p, RATE)
    for _ in range(STEPS):
        h1 = np.tanh(p["w1"] @ x + p["b1"][:, None])
        h2 = np.tanh(p["w2"] @ h1 + p["b2"][:, None])
        error = (p["w3"] @ h2 + p["b3"][:, None])[0] - TARGET
        d3 = 2 * error[None] / SAMPLES
        d2 = (p["w3"].T @ d3) * (1 - h2 * h2)
        d1 = (p["w2"].T @ d2) * (1 - h1 * h1)
        adam.step({"w1": d1 @ x.T, "b1": d1.sum(1), "w2": d2 @ h1.T, "b2": d2.sum(1), "w3": d3 @ h2.T, "b3": d3.sum(1)})
        show("loss", (error * error).mean())
    for n in SHAPES:
        show(n, p[n])


oracle() if "--oracle" in sys.argv else train()
