"""A training loop as people write them, in numba: layers of weights over a vector, a new array for each activation. The batch comes
`rebound` (the name takes the new one, then the old one goes), `scoped` (the step's own) or `prefetched` (made a step ahead).
"""
import hashlib
import sys
import warnings

import numpy as np
from numba import cuda
from numba.core.errors import NumbaPerformanceWarning

warnings.simplefilter("ignore", NumbaPerformanceWarning)
BATCH, STEPS = sys.argv[1], int(sys.argv[2])
N, LAYERS, THREADS = 16384, 12, 256
rng = np.random.default_rng(1)


@cuda.jit
def forward(x, w, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i] * np.float32(0.9) + w[i]


@cuda.jit
def backward(gy, y, w, gx):
    i = cuda.grid(1)
    if i < gy.size:
        gx[i] = gy[i] * np.float32(0.9) + y[i] * np.float32(0.01)
        w[i] -= np.float32(0.001) * gy[i]


def batch():
    return cuda.to_device(rng.random(N, dtype=np.float32))


weights = [batch() for _ in range(LAYERS)]
ones = cuda.to_device(np.ones(N, np.float32))


def step(x):
    kept = [x]
    for w in weights:
        y = cuda.device_array(N, np.float32)
        forward[N // THREADS, THREADS](kept[-1], w, y)
        kept.append(y)
    g = ones
    for w in reversed(weights):
        h = cuda.device_array(N, np.float32)
        backward[N // THREADS, THREADS](g, kept.pop(), w, h)
        g = h
    return g


total = 0.0
ahead = batch() if BATCH == "prefetched" else None
for _ in range(STEPS):
    if BATCH == "rebound":
        x = batch()
        g = step(x)
    elif BATCH == "scoped":
        g = step(batch())
    else:
        x, ahead = ahead, batch()
        g = step(x)
    total += float(g.copy_to_host()[0])
digest = hashlib.sha256()
for w in weights:
    digest.update(w.copy_to_host().tobytes())
print(total, digest.hexdigest())
