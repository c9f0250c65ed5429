#!/usr/bin/env python3
"""torch_train.py NETWORK --batch B --steps N [--mode native|checkpoint|offload|both] [--exact] [--cpu]: an ordinary training script.

Knows nothing of the library. Random weights and data from a seed, no download. Prints one JSON object: losses with all their bits,
seconds of the second half of the steps, the card's own peak. --mode uses PyTorch's own ways of saving memory; --exact asks for
deterministic kernels; --cpu tries the script itself. Ends with 3 when memory is out, with 77 when PyTorch or a card is missing.
"""
import argparse, json, os, struct, sys, time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def missing(why):
    print(why, file=sys.stderr)
    sys.exit(77)


try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    missing(f"PyTorch is not here: {error}")


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.out(self.norm(x)))


class Deep(nn.Module):
    """`depth` residual layers of `width`: the network of thousands of layers."""

    def __init__(self, depth, width=1024):
        super().__init__()
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ConvBlock(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU())

    def forward(self, x):
        return self.body(x)


class UNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList(ConvBlock(a, b) for a, b in zip((3, *widths), widths))
        self.up = nn.ModuleList(ConvBlock(a + b, b) for a, b in zip(reversed(widths[1:]), reversed(widths[:-1])))
        self.out = nn.Conv2d(widths[0], 3, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x)
            if i < len(self.down) - 1:
                skips.append(x)
                x = F.max_pool2d(x, 2)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), skips.pop()], 1))
        return self.out(x)


def language(kind, **size):
    """A transformer of the size of BERT-large or GPT-2 medium; PyTorch's own layers, so that nothing but PyTorch is needed."""

    class Model(nn.Module):
        def __init__(self, layers=24, width=1024, heads=16, words=30522, length=512):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=kind == "gpt") for _ in range(layers))
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, ids):
            x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device) if kind == "gpt" else None
            for block in self.blocks:
                x = block(x, src_mask=mask, is_causal=kind == "gpt")
            return self.head(x)

    return Model(**size)


def vision(name):
    try:
        import torchvision
    except ImportError as error:
        missing(f"torchvision is not here: {error}")
    return getattr(torchvision.models, name)(weights=None)


# network: (model, data(batch) -> input and target, loss, default batch)
def images(side):
    return lambda batch, device: (torch.randn(batch, 3, side, side, device=device), torch.randint(0, 1000, (batch,), device=device))


def text(words, length):
    def data(batch, device):
        ids = torch.randint(0, words, (batch, length), device=device)
        return ids, ids.roll(1, 1)
    return data


def words_loss(out, target):
    return F.cross_entropy(out.flatten(0, 1), target.flatten())


NETWORKS = {
    "resnet50": (lambda: vision("resnet50"), images(224), F.cross_entropy, 128),
    "resnet101": (lambda: vision("resnet101"), images(224), F.cross_entropy, 128),
    "vit-b": (lambda: vision("vit_b_16"), images(224), F.cross_entropy, 64),
    "bert-large": (lambda: language("bert"), text(30522, 512), words_loss, 16),
    "gpt2-medium": (lambda: language("gpt", words=50257, length=1024), text(50257, 1024), words_loss, 8),
    "unet": (UNet, lambda batch, device: (torch.randn(batch, 3, 256, 256, device=device), torch.randn(batch, 3, 256, 256, device=device)), F.mse_loss, 32),
    "small-transformer": (lambda: language("gpt", layers=6, width=512, heads=8, words=10000, length=256), text(10000, 256), words_loss, 32),
    "deep-2000": (lambda: Deep(2000), lambda batch, device: (torch.randn(batch, 1024, device=device), torch.randint(0, 10, (batch,), device=device)), F.cross_entropy, 1024),
    "tiny": (lambda: Deep(4, 64), lambda batch, device: (torch.randn(batch, 64, device=device), torch.randint(0, 10, (batch,), device=device)), F.cross_entropy, 64),
}


def checkpointed(model):
    """Every block of the network computes its activations again on the way back."""
    blocks = [m for name, m in model.named_modules() if type(m).__name__ in ("Bottleneck", "EncoderBlock", "TransformerEncoderLayer", "ConvBlock", "Residual")]
    for block in blocks:
        block.forward = (lambda forward: lambda *a, **k: checkpoint(forward, *a, use_reentrant=False, **k))(block.forward)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--mode", choices=("native", "checkpoint", "offload", "both"), default="native")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        missing("no card: PyTorch finds none")
    make, data, loss_of, batch = NETWORKS[options.network]
    batch = options.batch or batch
    if options.exact:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        for fused in ("flash", "mem_efficient", "cudnn"):   # whose gradients come in another order each time
            getattr(torch.backends.cuda, f"enable_{fused}_sdp", bool)(False)
    torch.manual_seed(1)
    device = "cpu" if options.cpu else "cuda"
    losses, marks = [], []
    try:
        model = make().to(device).train()
        if options.mode in ("checkpoint", "both"):
            checkpointed(model)
        optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        x, y = data(batch, device)
        offload = options.mode in ("offload", "both")
        for step in range(options.steps):
            optimiser.zero_grad(set_to_none=True)
            if offload:
                with torch.autograd.graph.save_on_cpu(pin_memory=not options.cpu):
                    loss = loss_of(model(x), y)
            else:
                loss = loss_of(model(x), y)
            loss.backward()
            optimiser.step()
            losses.append(struct.pack("<f", loss.item()).hex())  # waits for the step
            marks.append(time.perf_counter())
    except torch.cuda.OutOfMemoryError as error:
        print(f"{options.network} batch {batch}: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(3)
    half = len(marks) // 2
    seconds = (marks[-1] - marks[half - 1]) / (len(marks) - half) if half else None
    backend = "cpu" if options.cpu else torch.cuda.get_allocator_backend()
    print(json.dumps({"network": options.network, "batch": batch, "steps": options.steps, "mode": options.mode, "losses": losses, "seconds_per_step": seconds, "backend": backend,
                      "peak_allocated": torch.cuda.max_memory_allocated() if backend == "native" else None, "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
