"""A U-Net: three resolutions with skip connections, trained to remove noise from images."""
import numpy as np
from tinygrad import Tensor, nn
from training import train


class Pair:
    def __init__(self, inputs, outputs):
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm = nn.GroupNorm(4, outputs)

    def __call__(self, x):
        return self.norm(self.second(self.first(x).silu())).silu()


class UNet:
    def __init__(self):
        self.down = [Pair(1, 8), Pair(8, 16)]
        self.middle = Pair(16, 32)
        self.up = [Pair(32 + 16, 16), Pair(16 + 8, 8)]
        self.out = nn.Conv2d(8, 1, 1)

    def __call__(self, x):
        kept = []
        for pair in self.down:
            kept.append(pair(x))
            x = kept[-1].avg_pool2d()
        x = self.middle(x)
        for pair in self.up:
            x = x.interpolate((x.shape[2] * 2, x.shape[3] * 2), mode="nearest")
            x = pair(x.cat(kept.pop(), dim=1))
        return self.out(x)


Tensor.manual_seed(5)
random = np.random.RandomState(0)
clean = random.rand(16, 1, 32, 32).astype(np.float32)
X, Y = Tensor(clean + 0.1 * random.randn(*clean.shape).astype(np.float32)), Tensor(clean)
model = UNet()
train(model, lambda: (model(X) - Y).square().mean())
