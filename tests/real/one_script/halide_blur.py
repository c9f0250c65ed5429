"""Blurs an image in twelve stages, each a kernel with its own buffer, again and again. `--oracle` runs on the CPU."""
import os
import sys

import halide as hl
import numpy as np

ORACLE = "--oracle" in sys.argv
STAGES, SIZE = 12, 512
target = hl.get_host_target() if ORACLE else hl.Target("x86-64-linux-cuda-cuda_capability_75")
x, y, xi, yi, xo, yo = (hl.Var(name) for name in ("x", "y", "xi", "yi", "xo", "yo"))
source = hl.ImageParam(hl.Float(32), 2, "source")
last, stages = hl.BoundaryConditions.repeat_edge(source), []
for k in range(STAGES):
    stage = hl.Func(f"stage{k}")
    stage[x, y] = (last[x - 1, y] + last[x, y] * 2 + last[x + 1, y] + last[x, y - 1] + last[x, y + 1]) * hl.f32(1 / 6) + hl.f32(0.01 * k)
    stages.append(stage)
    last = stage
for stage in stages:
    stage.compute_root()
    if not ORACLE:
        stage.gpu_tile(x, y, xo, yo, xi, yi, 16, 16)
last.compile_jit(target)
image = np.fromfunction(lambda i, j: (i * 37 + j * 11) % 101 / 50, (SIZE, SIZE)).astype(np.float32)
for step in range(int(os.environ.get("STEPS", "20"))):
    source.set(hl.Buffer(image))
    image = np.array(last.realize([SIZE, SIZE], target))
    print("loss", float(image.astype("f8").mean()).hex())
for row in image[:: SIZE // 4]:
    print("weights", *(float(v).hex() for v in row[:: SIZE // 16]))
