#!/usr/bin/env python3
"""Packages that are tried with one script each, of one_script/, that does not know the library: `one_script.py [PACKAGE...]`.

Taichi and Quadrants, which came of it: the core is loaded with RTLD_DEEPBIND, the run-time is one PTX module that calls through
pointers, an array is a tensor. Halide: compiled pipelines, a buffer a stage. cuda.core: NVRTC and the driver's pool.
Without the library what the script prints must be what its `--oracle` on the CPU prints, but for how the last bits are rounded; with
it, on a device of a share of the peak of live bytes, the same text bit for bit, no fault, within the memory, and evictions.
UDNNMEM_TEST_FULL=1: 20 steps for 5, and 10 seeds of the software GPU's schedule.
"""
import sys, tempfile
from paged import FULL, HERE, REAL, SOFTGPU, live_bytes, verdict
from tests.e2e.harness import Run, Suite, environment

PACKAGES = {"taichi": ("taichi_layers.py", (75, 50, 45)), "quadrants": ("taichi_layers.py", (75, 50, 45)),
            "halide": ("halide_blur.py", (75, 60)), "cuda_core": ("cuda_core_layers.py", (75, 50, 35))}
TOLERANCE = 1e-5   # of the largest value of each line; the back ends round differently


def run(package, home, *arguments, preload=False, **options):
    venv = REAL / package / "venv"
    compiler = next(venv.glob("lib/python3*/site-packages/nvidia/cu13/lib"), None)   # NVRTC, where the package brought it
    # Without a place for its cache Taichi crashes at its end, on the CPU too.
    env = environment(preload=preload, libraries=f"{SOFTGPU}:{compiler}" if compiler else SOFTGPU, HOME=home, XDG_CACHE_HOME=home, PACKAGE=package,
                      STEPS=20 if FULL else 5, PYTHONDONTWRITEBYTECODE=1, UDNNMEM_VERIFY=1, **options)
    return Run([venv / "bin" / "python", HERE / "one_script" / PACKAGES[package][0], *arguments], env, limit=300)


def numbers(done):
    lines = [line.split() for line in done.output.splitlines() if line.startswith(("loss ", "weights "))]
    return [(name, [float.fromhex(v) for v in values]) for name, *values in lines]


def try_package(suite, package, home):
    plain, oracle = run(package, home, SOFTGPU_MEMORY="1GiB"), run(package, home, "--oracle")
    got, right = numbers(plain), numbers(oracle)
    suite.check(plain.status == 0 and oracle.status == 0 and plain.report["faults"] == 0 and len(got) > 8 and [(n, len(v)) for n, v in got] == [(n, len(v)) for n, v in right],
                f"{package}: runs without the library", plain.tail() + "\n" + oracle.tail())
    off = max((max(abs(x - y) for x, y in zip(a, b)) / max(abs(y) for y in b) for (_, a), (_, b) in zip(got, right)), default=1)
    suite.check(off < TOLERANCE, f"{package}: as on the CPU", f"    off by {off:.2g}")
    roomy = run(package, home, preload=True, SOFTGPU_MEMORY="1GiB")
    live = live_bytes(roomy)
    if suite.check(roomy.status == 0 and roomy.output == plain.output and live, f"{package}: the same bits with room to spare", roomy.tail()):
        shares = PACKAGES[package][1]
        for share, seed in [(s, 1) for s in shares] + [(shares[1], s) for s in range(2, 12) if FULL]:
            memory = int(live * share / 100)
            done = run(package, home, preload=True, SOFTGPU_MEMORY=memory, SOFTGPU_SEED=seed)
            wrong = verdict(done, plain.output, memory)
            suite.check(not wrong, f"{package} in {share} %, seed {seed}: the same bits within the memory, paged", f"    {wrong}\n" + done.tail())


def main():
    suite = Suite()
    for package in sys.argv[1:] or PACKAGES:
        with tempfile.TemporaryDirectory() as home:
            try_package(suite, package, home)
    suite.finish()


if __name__ == "__main__":
    main()
