"""Layers of weights over a vector, trained by gradients written by hand: a kernel a layer, an array a tensor. In Taichi, or in
what PACKAGE names that has its interface. `--oracle` runs on the CPU."""
import importlib
import os
import sys

ti = importlib.import_module(os.environ.get("PACKAGE", "taichi"))

ti.init(arch=ti.cpu if "--oracle" in sys.argv else ti.cuda, offline_cache=False, log_level=ti.ERROR)
LAYERS, N = 24, 160_000
Array = ti.types.ndarray(dtype=ti.f32, ndim=1)
weights = [ti.ndarray(ti.f32, shape=N) for _ in range(LAYERS)]
values = [ti.ndarray(ti.f32, shape=N) for _ in range(LAYERS + 1)]
gradients = [ti.ndarray(ti.f32, shape=N) for _ in range(LAYERS + 1)]
target = ti.ndarray(ti.f32, shape=N)


@ti.kernel
def fill(x: Array, step: ti.f32, scale: ti.f32):
    for i in x:
        x[i] = scale * ti.cast((i * 37) % 101 - 50, ti.f32) / 50 + step


@ti.kernel
def forward(x: Array, w: Array, y: Array):
    for i in x:
        v = x[i] * w[i] + 0.25 * x[(i * 7 + 1) % N]
        y[i] = v / (1 + ti.abs(v))


@ti.kernel
def error(y: Array, goal: Array, gy: Array):
    for i in y:
        gy[i] = y[i] - goal[i]


@ti.kernel
def backward(x: Array, w: Array, gy: Array, gx: Array):
    for i in x:
        v = x[i] * w[i] + 0.25 * x[(i * 7 + 1) % N]
        d = gy[i] / ((1 + ti.abs(v)) * (1 + ti.abs(v)))
        gx[i] = d * w[i]
        w[i] -= 0.5 * d * x[i]


for l, w in enumerate(weights):
    fill(w, 0.01 * l, 0.5)
fill(values[0], 0.1, 1.0)
fill(target, 0.0, 0.3)
for step in range(int(os.environ.get("STEPS", "20"))):
    for l in range(LAYERS):
        forward(values[l], weights[l], values[l + 1])
    error(values[LAYERS], target, gradients[LAYERS])
    for l in reversed(range(LAYERS)):
        backward(values[l], weights[l], gradients[l + 1], gradients[l])
    print("loss", float((gradients[LAYERS].to_numpy().astype("f8") ** 2).mean()).hex())
for w in weights[:: LAYERS // 4]:
    print("weights", *(float(x).hex() for x in w.to_numpy()[:: N // 16]))
