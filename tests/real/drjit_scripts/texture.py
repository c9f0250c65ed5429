"""A picture is learnt from what it shows at random places: bilinear look-ups, whose gradients are scattered back."""
import sys
import numpy as np
from data import STEPS, Adam, show, uniform

SIZE, SAMPLES = 96, 65536
PLACES = uniform(2, SAMPLES) * np.float32(SIZE - 1.001)
TRUTH = np.fromfunction(lambda y, x: 0.5 + 0.5 * np.sin(x / 9) * np.cos(y / 13), (SIZE, SIZE)).astype(np.float32)
CORNER = np.floor(PLACES).astype(np.uint32)
PART = (PLACES - CORNER).astype(np.float32)
INDEX = [((CORNER[1] + j) * SIZE + CORNER[0] + i).astype(np.uint32) for j in (0, 1) for i in (0, 1)]
WEIGHT = [((PART[1] if j else 1 - PART[1]) * (PART[0] if i else 1 - PART[0])).astype(np.float32) for j in (0, 1) for i in (0, 1)]
TARGET = sum(w * TRUTH.ravel()[i] for w, i in zip(WEIGHT, INDEX)).astype(np.float32)
RATE = 0.05


def train():
    import drjit as dr
    import drjit.opt
    from drjit.cuda.ad import Float, UInt32
    index, weight, target = [UInt32(i) for i in INDEX], [Float(w) for w in WEIGHT], Float(TARGET)
    optimiser = dr.opt.Adam(lr=RATE, params={"picture": dr.full(Float, 0.5, SIZE * SIZE)})
    for _ in range(STEPS):
        picture = optimiser["picture"]
        value = sum(w * dr.gather(Float, picture, i) for w, i in zip(weight, index))
        loss = dr.mean(dr.square(value - target))
        dr.backward(loss)
        optimiser.step()
        show("loss", loss.numpy())
    show("picture", optimiser["picture"].numpy())


def oracle():
    p = {"picture": np.full(SIZE * SIZE, 0.5)}
    adam = Adam(p, RATE)
    for _ in range(STEPS):
        error = sum(w * p["picture"][i] for w, i in zip(WEIGHT, INDEX)) - TARGET
        gradient = np.zeros(SIZE * SIZE)
        for w, i in zip(WEIGHT, INDEX):
            np.add.at(gradient, i, w * 2 * error / SAMPLES)
        adam.step({"picture": gradient})
        show("loss", (error * error).mean())
    show("picture", p["picture"])


oracle() if "--oracle" in sys.argv else train()
