"""A multi-layer perceptron: ten layers of 256, cross entropy."""
import numpy as np
from tinygrad import Tensor, nn
from training import train


class Perceptron:
    def __init__(self, inputs=64, width=256, depth=10, classes=10):
        sizes = [inputs] + [width] * (depth - 1) + [classes]
        self.layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


Tensor.manual_seed(1)
random = np.random.RandomState(0)
X, Y = Tensor(random.rand(512, 64).astype(np.float32)), Tensor(random.randint(0, 10, 512).astype(np.int32))
model = Perceptron()
train(model, lambda: model(X).sparse_categorical_crossentropy(Y))
