"""A small transformer that predicts the next token: four blocks of 64 with four heads, causal attention, dropout, layer norm."""
import numpy as np
from tinygrad import Tensor, nn
from training import train

TOKENS, LENGTH, WIDTH, HEADS, BLOCKS, BATCH = 64, 32, 64, 4, 4, 16


class Block:
    def __init__(self):
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x):
        b, t, _ = x.shape
        q, k, v = (y.reshape(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.out(mixed).dropout(0.1)
        return x + self.down(self.up(self.norm2(x)).gelu()).dropout(0.1)


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


Tensor.manual_seed(3)
text = np.random.RandomState(0).randint(0, TOKENS, (BATCH, LENGTH + 1)).astype(np.int32)
X, Y = Tensor(text[:, :-1]), Tensor(text[:, 1:])
model = Transformer()
train(model, lambda: model(X).reshape(-1, TOKENS).sparse_categorical_crossentropy(Y.reshape(-1)))
