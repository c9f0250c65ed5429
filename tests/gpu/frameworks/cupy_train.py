#!/usr/bin/env python3
"""cupy_train.py NETWORK --batch B --steps N [--exact]: an ordinary training script in CuPy, gradients by hand.

Knows nothing of the library. Residual layers y = x + tanh(x w + b), momentum, numbers from a formula. Prints one JSON object: losses with
all their bits, seconds of the second half of the steps, what CuPy's own pool held. Ends with 3 when memory is out, with 77 when CuPy or a
card is missing. (--exact changes nothing: cuBLAS and CuPy's sums are deterministic on one stream.)
"""
import argparse, json, struct, sys, time


def missing(why):
    print(why, file=sys.stderr)
    sys.exit(77)


try:
    import cupy
except ImportError as error:
    missing(f"CuPy is not here: {str(error).strip().splitlines()[0]}")

# network: (layers, width, default batch)
NETWORKS = {"mlp": (96, 2048, 4096), "deep-2000": (2000, 1024, 1024), "tiny": (4, 64, 64)}


def numbers(seed, *shape):
    """Numbers between -1 and 1 that look like chance."""
    count = 1
    for n in shape:
        count *= n
    i = cupy.arange(count, dtype=cupy.uint32) * cupy.uint32(2654435761) + cupy.uint32(seed * 40503 % 2**32)
    i ^= i >> 15
    i *= cupy.uint32(2246822519)
    return ((i >> 8).astype(cupy.float32) / cupy.float32(1 << 23) - cupy.float32(1)).reshape(shape)


class Layer:
    def __init__(self, seed, width):
        self.w, self.b = numbers(seed, width, width) * cupy.float32(width**-0.5), cupy.zeros(width, cupy.float32)
        self.moments = [cupy.zeros_like(self.w), cupy.zeros_like(self.b)]

    def forward(self, x):
        self.x, self.t = x, cupy.tanh(x @ self.w + self.b)
        return x + self.t

    def back(self, g):
        """Gives the gradient of the input, and learns."""
        h = g * (1 - self.t * self.t)
        for p, m, d in zip((self.w, self.b), self.moments, (self.x.T @ h, h.sum(0))):
            m *= cupy.float32(0.9)
            m += d
            p -= cupy.float32(1e-3) * m
        self.x = self.t = None
        return g + h @ self.w.T


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--exact", action="store_true")
    options = parser.parse_args()
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        missing(f"no card: CuPy finds none ({error})")
    depth, width, batch = NETWORKS[options.network]
    batch = options.batch or batch
    losses, marks = [], []
    try:
        layers = [Layer(i, width) for i in range(depth)]
        x, target = numbers(depth, batch, width), numbers(depth + 1, batch, width)
        for _ in range(options.steps):
            y = x
            for layer in layers:
                y = layer.forward(y)
            error = y - target
            losses.append(struct.pack("<f", float((error * error).mean())).hex())  # waits for it
            g = error * cupy.float32(2 / batch)
            for layer in reversed(layers):
                g = layer.back(g)
            cupy.cuda.get_current_stream().synchronize()
            marks.append(time.perf_counter())
    except cupy.cuda.memory.OutOfMemoryError as error:
        print(f"{options.network} batch {batch}: {error}", file=sys.stderr)
        sys.exit(3)
    half = len(marks) // 2
    print(json.dumps({"network": options.network, "batch": batch, "steps": options.steps, "losses": losses, "seconds_per_step": (marks[-1] - marks[half - 1]) / (len(marks) - half) if half else None,
                      "peak_allocated": cupy.get_default_memory_pool().total_bytes(), "parameters": sum(l.w.size + l.b.size for l in layers), "cupy": cupy.__version__}))


if __name__ == "__main__":
    main()
