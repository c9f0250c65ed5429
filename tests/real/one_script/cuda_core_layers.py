"""The training of taichi_layers.py in CUDA C++ through cuda.core, with activations that come and go. `--oracle` is NumPy."""
import ctypes
import os
import sys

import numpy as np

LAYERS, N, STEPS = 24, 160_000, int(os.environ.get("STEPS", "20"))
SOURCE = r"""
#define EACH for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
extern "C" __global__ void forward(const float* x, const float* w, float* y, int n) {
    EACH { const float v = x[i] * w[i] + 0.25f * x[(i * 7 + 1) % n]; y[i] = v / (1 + fabsf(v)); }
}
extern "C" __global__ void error(const float* y, const float* goal, float* g, int n) { EACH g[i] = y[i] - goal[i]; }
extern "C" __global__ void backward(const float* x, float* w, const float* gy, float* gx, int n) {
    EACH {
        const float v = x[i] * w[i] + 0.25f * x[(i * 7 + 1) % n], d = gy[i] / ((1 + fabsf(v)) * (1 + fabsf(v)));
        gx[i] = d * w[i];
        w[i] -= 0.5f * d * x[i];
    }
}
"""


def filled(step, scale):
    return (scale * ((np.arange(N) * 37 % 101 - 50) / 50) + step).astype(np.float32)


class OnTheHost:
    other = (np.arange(N) * 7 + 1) % N

    def array(self, values=None):
        return np.zeros(N, np.float32) if values is None else values.copy()

    def free(self, array):
        pass

    def to_numpy(self, array):
        return array

    def v(self, x, w):
        return x * w + np.float32(0.25) * x[self.other]

    def forward(self, x, w, y):
        v = self.v(x, w)
        y[:] = v / (1 + abs(v))

    def error(self, y, goal, g):
        g[:] = y - goal

    def backward(self, x, w, gy, gx):
        v = self.v(x, w)
        d = gy / ((1 + abs(v)) * (1 + abs(v)))
        gx[:] = d * w
        w -= np.float32(0.5) * d * x


class OnTheDevice:
    def __init__(self):
        from cuda.bindings import driver
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
        self.driver, self.launch, self.device = driver, launch, Device()
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.config = LaunchConfig(grid=32, block=128)
        names = ("forward", "error", "backward")
        module = Program(SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch="sm_75")).compile("ptx", name_expressions=names)
        for name in names:
            setattr(self, name, lambda *arrays, kernel=module.get_kernel(name): self.launch(self.stream, self.config, kernel, *arrays, ctypes.c_int(N)))

    def array(self, values=None):
        buffer = self.device.memory_resource.allocate(4 * N, stream=self.stream)
        if values is not None:
            self.stream.sync()
            self.driver.cuMemcpyHtoD(int(buffer.handle), values.ctypes.data, values.nbytes)
        return buffer

    def free(self, buffer):
        buffer.close(self.stream)

    def to_numpy(self, buffer):
        values = np.empty(N, np.float32)
        self.stream.sync()
        self.driver.cuMemcpyDtoH(values.ctypes.data, int(buffer.handle), values.nbytes)
        return values


on = OnTheHost() if "--oracle" in sys.argv else OnTheDevice()
weights = [on.array(filled(0.01 * l, 0.5)) for l in range(LAYERS)]
first, target = on.array(filled(0.1, 1.0)), on.array(filled(0.0, 0.3))
for step in range(STEPS):
    values = [first]
    for w in weights:
        values.append(on.array())
        on.forward(values[-2], w, values[-1])
    gradient = on.array()
    on.error(values[-1], target, gradient)
    print("loss", float((on.to_numpy(gradient).astype("f8") ** 2).mean()).hex())
    for l in reversed(range(LAYERS)):
        before = on.array()
        on.backward(values[l], weights[l], gradient, before)
        on.free(gradient)
        on.free(values[l + 1])
        gradient = before
    on.free(gradient)
for w in weights[:: LAYERS // 4]:
    print("weights", *(float(v).hex() for v in on.to_numpy(w)[:: N // 16]))
