#!/usr/bin/env python3
"""Taichi under the library: a training script of taichi_scripts/ that does not know it, an array a tensor.

Taichi's core is loaded with RTLD_DEEPBIND, and its run-time is one PTX module that calls through pointers. Without the library
the losses and weights must be those of Taichi's own CPU back end; with it, on a device of a share of the peak of live bytes, the
same text bit for bit, no fault, within the memory, and evictions. UDNNMEM_TEST_FULL=1: 20 steps for 5, and 10 seeds of the
software GPU's schedule.
"""
import tempfile
from paged import FULL, HERE, REAL, live_bytes, verdict
from tests.e2e.harness import Run, Suite, environment

PYTHON = REAL / "taichi" / "venv" / "bin" / "python"
SCRIPT = HERE / "taichi_scripts" / "layers.py"
TOLERANCE = 1e-5   # of the largest value of each line; the back ends round differently


def run(home, *arguments, preload=False, **options):
    # Without a place for its cache it crashes at its end, on the CPU too.
    env = environment(preload=preload, HOME=home, XDG_CACHE_HOME=home, STEPS=20 if FULL else 5, PYTHONDONTWRITEBYTECODE=1, UDNNMEM_VERIFY=1, **options)
    return Run([PYTHON, SCRIPT, *arguments], env, limit=300)


def numbers(text):
    lines = [line.split() for line in text.splitlines() if line.startswith(("loss ", "weights "))]
    return [(name, [float.fromhex(v) for v in values]) for name, *values in lines]


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as home:
        plain = run(home, SOFTGPU_MEMORY="1GiB")
        oracle = run(home, "--oracle")
        got, right = numbers(plain.output), numbers(oracle.output)
        suite.check(plain.status == 0 and oracle.status == 0 and plain.report["faults"] == 0 and len(got) > 8 and [(n, len(v)) for n, v in got] == [(n, len(v)) for n, v in right],
                    "trains without the library", plain.tail() + "\n" + oracle.tail())
        off = max((max(abs(x - y) for x, y in zip(a, b)) / max(abs(y) for y in b) for (_, a), (_, b) in zip(got, right)), default=1)
        suite.check(off < TOLERANCE, "as its CPU back end has it", f"    off by {off:.2g}")
        roomy = run(home, preload=True, SOFTGPU_MEMORY="1GiB")
        live = live_bytes(roomy)
        if suite.check(roomy.status == 0 and roomy.output == plain.output and live, "the same bits with room to spare", roomy.tail()):
            for share, seed in [(75, 1), (50, 1), (45, 1)] + [(50, s) for s in range(2, 12) if FULL]:
                memory = int(live * share / 100)
                done = run(home, preload=True, SOFTGPU_MEMORY=memory, SOFTGPU_SEED=seed)
                wrong = verdict(done, plain.output, memory)
                suite.check(not wrong, f"in {share} %, seed {seed}: the same bits within the memory, paged", f"    {wrong}\n" + done.tail())
    suite.finish()


if __name__ == "__main__":
    main()
