#!/usr/bin/env python3
"""A training loop in numba under the library: however its batch is held, and whether numba frees at once or late (its way), it
computes the same bits in half of its memory, and runs by plan.
"""
from paged import HERE, REAL, verdict
from tests.e2e.harness import FOLLOWED, Run, Suite, environment

PYTHON = REAL / "numba" / "venv" / "bin" / "python"
STEPS = 40
BUDGET = 1 << 20   # of 1.9 MiB that live at once, or 2.5 where frees are late
MODULES = 4096     # bytes that variables of modules take beside it


def main():
    suite = Suite()
    for batch in ("rebound", "scoped", "prefetched"):
        command = [PYTHON, HERE / "numba_scripts" / "loop.py", batch, STEPS]
        device = dict(SOFTGPU_MEMORY="64MiB", SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=1e9, SOFTGPU_D2H=1e9)
        plain = Run(command, environment(**device))
        suite.check(plain.status == 0, f"{batch}: without the library", plain.tail())
        for frees in ("at once", "late"):
            more = dict(NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT=0) if frees == "at once" else {}
            done = Run(command, environment(preload=True, UDNNMEM_BUDGET=BUDGET, UDNNMEM_VERIFY=1, UDNNMEM_DEBUG="info", UDNNMEM_TRACE="off", **device, **more))
            wrong = verdict(done, plain.output, BUDGET + MODULES)
            suite.check(not wrong, f"{batch}, frees {frees}: the same bits, within the memory", f"    {wrong}\n{done.tail()}")
            found = FOLLOWED.search(done.error)
            suite.check(found and int(found[2]) >= STEPS // 2, f"{batch}, frees {frees}: by plan", done.tail(10))
            print(f"{batch}, frees {frees}: {found and found[0]}", flush=True)
    suite.finish()


if __name__ == "__main__":
    main()
