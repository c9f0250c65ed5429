"""A deep residual network: 12 blocks of two layers each around a skip connection."""
import numpy as np
from tinygrad import Tensor, nn
from training import train

WIDTH, DEPTH, BATCH, CLASSES = 128, 12, 256, 10


class Block:
    def __init__(self):
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def __call__(self, x):
        return x + self.second(self.first(x).relu()) * (1 / DEPTH)


class Residual:
    def __init__(self):
        self.blocks, self.head = [Block() for _ in range(DEPTH)], nn.Linear(WIDTH, CLASSES)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


Tensor.manual_seed(4)
random = np.random.RandomState(0)
X, Y = Tensor(random.rand(BATCH, WIDTH).astype(np.float32)), Tensor(random.randint(0, CLASSES, BATCH).astype(np.int32))
model = Residual()
train(model, lambda: model(X).sparse_categorical_crossentropy(Y))
