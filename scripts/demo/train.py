"""Trains a transformer of 12 blocks on synthetic text with tinygrad. An ordinary script: it knows nothing of udnnmem.

The text is a fixed random table of "the next token, mostly"; the network learns it. Prints every loss and a hash of
all weights, with all their bits. STEPS from the environment, default 8.
"""
import hashlib, os
import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn

TOKENS, LENGTH, WIDTH, HEADS, BLOCKS, BATCH = 64, 32, 128, 4, 12, 16
STEPS = int(os.environ.get("STEPS", "8"))


class Block:
    def __init__(self):
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x):
        b, t, _ = x.shape
        q, k, v = (y.reshape(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        x = x + self.out(q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(self.up(self.norm2(x)).gelu())


class Transformer:
    def __init__(self):
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(BLOCKS)]
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS, bias=False)

    def __call__(self, x):
        x = self.tokens(x) + self.places(Tensor.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text(random):
    follows = np.random.RandomState(0).permutation(TOKENS)
    out = np.empty((BATCH, LENGTH + 1), np.int32)
    out[:, 0] = random.randint(0, TOKENS, BATCH)
    for i in range(LENGTH):
        out[:, i + 1] = np.where(random.rand(BATCH) < 0.9, follows[out[:, i]], random.randint(0, TOKENS, BATCH))
    return out


def main():
    Tensor.manual_seed(1)
    model, random = Transformer(), np.random.RandomState(1)
    weights = nn.state.get_state_dict(model)
    optimiser = nn.optim.Adam(list(weights.values()), lr=1e-3)

    @TinyJit
    def step(x, y):
        optimiser.zero_grad()
        loss = model(x).reshape(-1, TOKENS).sparse_categorical_crossentropy(y.reshape(-1)).backward()
        return loss.realize(*optimiser.schedule_step())

    with Context(TRAINING=1):
        for i in range(STEPS):
            batch = text(random)
            loss = step(Tensor(batch[:, :-1].copy()).realize(), Tensor(batch[:, 1:].copy()).realize()).item()
            print(f"step {i} loss {loss:.4f} {loss.hex()}", flush=True)
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].numpy().tobytes())
    print(f"weights {digest.hexdigest()}")


if __name__ == "__main__":
    main()
