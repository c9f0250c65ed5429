#!/usr/bin/env python3
"""triton_train.py NETWORK --batch B --steps N [--exact] [--cpu]: trains a network whose every layer, forward and back, is Triton kernels.

Knows nothing of the library. Residual layers y = x + gelu(x w) under PyTorch's autograd. Prints one JSON object: losses with all their bits,
seconds of the second half of the steps, PyTorch's own peak. --cpu tries the script itself, in Triton's interpreter. Ends with 3 when
memory is out, with 77 when Triton, PyTorch or a card is missing. (--exact changes nothing: no kernel here adds in an order that may vary.)
"""
import argparse, json, os, struct, sys, time

if "--cpu" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported


def missing(why):
    print(why, file=sys.stderr)
    sys.exit(77)


try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    missing(f"{'PyTorch' if error.name == 'torch' else 'Triton'} is not here: {error}")


@triton.jit
def multiply(a, b, c, M, N, K, am, ak, bk, bn, ADD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c (rows of N) = a b, with the strides of a and b; ADD: on top of what is in c."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * am + k[None, :] * ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * bk + n[None, :] * bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    at = c + m[:, None] * N + n[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    if ADD:
        total += tl.load(at, mask=inside, other=0.0)
    tl.store(at, total, mask=inside)


@triton.jit
def add_gelu(x, h, y, count, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(h + i, mask=i < count)
    tl.store(y + i, tl.load(x + i, mask=i < count) + v / (1 + tl.exp(-1.702 * v)), mask=i < count)


@triton.jit
def gelu_back(g, h, d, count, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(h + i, mask=i < count)
    s = 1 / (1 + tl.exp(-1.702 * v))
    tl.store(d + i, tl.load(g + i, mask=i < count) * (s + 1.702 * v * s * (1 - s)), mask=i < count)


@triton.jit
def momentum(p, m, g, count, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = 0.9 * tl.load(m + i, mask=i < count) + tl.load(g + i, mask=i < count)
    tl.store(m + i, v, mask=i < count)
    tl.store(p + i, tl.load(p + i, mask=i < count) - 1e-3 * v, mask=i < count)


def product(a, b, into=None):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device) if into is None else into
    multiply[(triton.cdiv(m, 64), triton.cdiv(n, 64))](a, b, c, m, n, k, *a.stride(), *b.stride(), ADD=into is not None, BM=64, BN=64, BK=32)
    return c


def each(kernel, *arrays):
    count = arrays[0].numel()
    kernel[(triton.cdiv(count, 1024),)](*arrays, count, B=1024)


class Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        h = product(x, w)
        y = torch.empty_like(x)
        each(add_gelu, x, h, y)
        ctx.save_for_backward(x, w, h)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w, h = ctx.saved_tensors
        g = g.contiguous()
        d = torch.empty_like(h)
        each(gelu_back, g, h, d)
        return product(d, w.t(), into=g.clone()), product(x.t(), d)  # the way past the layer, and through it


# network: (layers, width, default batch)
NETWORKS = {"mlp": (48, 1024, 4096), "deep-2000": (2000, 1024, 512), "tiny": (4, 64, 64)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        missing("no card: PyTorch finds none")
    device = "cpu" if options.cpu else "cuda"
    depth, width, batch = NETWORKS[options.network]
    batch = options.batch or batch
    torch.manual_seed(1)
    losses, marks = [], []
    try:
        weights = [(torch.randn(width, width, device=device) * width**-0.5).requires_grad_() for _ in range(depth)]
        moments = [torch.zeros_like(w) for w in weights]
        x, target = torch.randn(batch, width, device=device), torch.randn(batch, width, device=device)
        for _ in range(options.steps):
            y = x
            for w in weights:
                y = Residual.apply(y, w)
            loss = (y - target).square().mean()
            loss.backward()
            for w, m in zip(weights, moments):
                each(momentum, w.detach(), m, w.grad)
                w.grad = None
            losses.append(struct.pack("<f", loss.item()).hex())
            if device == "cuda":
                torch.cuda.synchronize()
            marks.append(time.perf_counter())
    except torch.cuda.OutOfMemoryError as error:
        print(f"{options.network} batch {batch}: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(3)
    half = len(marks) // 2
    peak = torch.cuda.max_memory_allocated() if device == "cuda" and torch.cuda.get_allocator_backend() == "native" else None
    print(json.dumps({"network": options.network, "batch": batch, "steps": options.steps, "losses": losses, "seconds_per_step": (marks[-1] - marks[half - 1]) / (len(marks) - half) if half else None,
                      "peak_allocated": peak, "parameters": depth * width * width, "triton": triton.__version__, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
