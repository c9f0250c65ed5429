"""A convolutional network with batch normalisation (its running statistics are part of the hash) and max pooling."""
from tinygrad import Tensor, nn
from training import images, train


class Block:
    def __init__(self, inputs, outputs):
        self.conv, self.norm = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm(outputs)

    def __call__(self, x):
        return self.norm(self.conv(x)).relu()


class Network:
    def __init__(self, classes=10):
        self.blocks = [Block(3, 16), Block(16, 16), Block(16, 32), Block(32, 32)]
        self.head = nn.Linear(32 * 16, classes)

    def __call__(self, x):
        x = self.blocks[1](self.blocks[0](x)).max_pool2d()
        x = self.blocks[3](self.blocks[2](x)).max_pool2d()
        return self.head(x.flatten(1))


Tensor.manual_seed(2)
X, Y = images(64, 3, 16)
model = Network()
train(model, lambda: model(X).sparse_categorical_crossentropy(Y))
