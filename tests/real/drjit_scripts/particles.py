"""Particles on springs, thirty steps of time; the push each gets at the start is learnt so that all end where they should.
Every step is evaluated by itself, so that what the way back needs stays in memory."""
import sys
import numpy as np
from data import STEPS, Adam, show, uniform

COUNT, TIME, DT, STIFF = 16384, 30, 0.05, 3.0
PLACE, GOAL = uniform(2, COUNT, low=-1, high=1), uniform(2, COUNT, low=-1, high=1)
RATE = 0.1


def train():
    import drjit as dr
    import drjit.opt
    from drjit.cuda.ad import Float
    place, goal = [Float(a) for a in PLACE], [Float(a) for a in GOAL]
    optimiser = dr.opt.Adam(lr=RATE, params={"push0": dr.zeros(Float, COUNT), "push1": dr.zeros(Float, COUNT)})
    for _ in range(STEPS):
        at, speed = list(place), [optimiser["push0"], optimiser["push1"]]
        for _ in range(TIME):
            pull = -STIFF / (1 + at[0] * at[0] + at[1] * at[1])
            speed = [v + DT * pull * a for v, a in zip(speed, at)]
            at = [a + DT * v for v, a in zip(speed, at)]
            dr.eval(at, speed)
        loss = dr.mean(dr.square(at[0] - goal[0]) + dr.square(at[1] - goal[1]))
        dr.backward(loss)
        optimiser.step()
        show("loss", loss.numpy())
    show("push", [optimiser["push0"].numpy(), optimiser["push1"].numpy()])


def oracle():
    p = {"push": np.zeros((2, COUNT))}
    adam = Adam(p, RATE)
    for _ in range(STEPS):
        at, speed, history = PLACE.astype(np.float64), p["push"], []
        for _ in range(TIME):
            history.append(at)
            speed = speed - DT * STIFF * at / (1 + (at * at).sum(0))
            at = at + DT * speed
        error = at - GOAL
        to_at, to_speed = 2 * error / COUNT, np.zeros((2, COUNT))
        for at in reversed(history):
            to_speed = to_speed + DT * to_at
            below = 1 + (at * at).sum(0)
            to_at = to_at - DT * STIFF * (to_speed / below - 2 * at * (to_speed * at).sum(0) / below**2)
        adam.step({"push": to_speed})
        show("loss", (error * error).sum(0).mean())
    show("push", p["push"])


oracle() if "--oracle" in sys.argv else train()
