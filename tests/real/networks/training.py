"""The training loop of these scripts: trains a model with Adam, prints each loss and a hash of all weights, with all their bits.

From the environment: STEPS (default 6), JIT=1 to capture the step with TinyJit. Nothing in this folder knows about
memory: these are ordinary tinygrad scripts, and they run wherever tinygrad runs.
"""
import hashlib, os
import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn

STEPS = int(os.environ.get("STEPS", "6"))


def images(count, channels, size, classes=10, seed=0):
    """Random images and labels, as tensors."""
    random = np.random.RandomState(seed)
    return (Tensor(random.rand(count, channels, size, size).astype(np.float32)),
            Tensor(random.randint(0, classes, count).astype(np.int32)))


def train(model, loss_of, rate=1e-3):
    """`loss_of()` gives the loss of one step on `model`; returns nothing, prints everything."""
    state = nn.state.get_state_dict(model)
    optimiser = nn.optim.Adam(nn.state.get_parameters(model), lr=rate)
    statistics = [t for name, t in state.items() if "running" in name or "batches" in name]

    def step():
        optimiser.zero_grad()
        loss = loss_of().backward()
        return loss.realize(*optimiser.schedule_step(), *statistics)

    if os.environ.get("JIT") == "1":
        step = TinyJit(step)
    with Context(TRAINING=1):
        for i in range(STEPS):
            print(f"step {i} loss {step().item().hex()}", flush=True)
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode() + state[name].numpy().tobytes())
    print(f"weights {digest.hexdigest()}")
