#!/usr/bin/env python3
"""A program that does the same each iteration, and now and then gives one of its launches another buffer.

While a plan is followed, launches that look as they did an iteration before are not read again; these must be. In half of the memory, with
and without recompute: the bits of the run with enough of it, no fault, and most iterations by plan. Without the rule by which
such launches are told apart the same runs must fail: else they would test nothing.
"""
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FOLLOWED, FULL, WORKLOADS, Run, Suite, environment

BREAKABLE = BUILD / "breakable" / "libudnnmem.so"
SEEDS = 20 if FULL else 1
ITERATIONS = 300
LAYER, LAYERS = 4 * 16384, 18
# In modelled time, so that a plan is not given up for how busy the machine is.
MODEL = dict(SOFTGPU_GRANULARITY=4096, SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=5e9, SOFTGPU_D2H=5e9)
UNREACHED = dict(UDNNMEM_FAIL="cuMemCreate:2:999:2")   # host frames, from where a launch would run that nobody expects
PAGED = dict(UDNNMEM_BUDGET=LAYER * LAYERS // 2, UDNNMEM_TEST_LOOK_MS=200, UDNNMEM_DEBUG="info")


def run(seed, preload, iterations=ITERATIONS, **options):
    return Run([WORKLOADS / "detours", seed, iterations], environment(preload=preload, **MODEL, **(PAGED | options if preload else {})))


def notices(seed):
    """Whether it fails without the rule."""
    done = run(seed, True, UDNNMEM_RECOMPUTE="off", LD_PRELOAD=BREAKABLE, UDNNMEM_BREAK="recall", **UNREACHED)
    return done.status != 0 or done.output != run(seed, False).output


def main():
    suite = Suite()
    iterations = ITERATIONS if FULL else 120
    for seed in range(1, SEEDS + 1):
        plain = run(seed, False, iterations)
        for recompute in ("off", "auto"):
            done = run(seed, True, iterations, UDNNMEM_RECOMPUTE=recompute)
            suite.check(done.status == plain.status == 0 and done.output == plain.output, f"seed {seed}, recompute {recompute}: the same bits", done.tail())
            followed = FOLLOWED.search(done.error)
            suite.check(followed and int(followed[2]) > iterations // 4, f"seed {seed}, recompute {recompute}: by plan", done.tail())
    if BREAKABLE.exists():
        intact = run(1, True, UDNNMEM_RECOMPUTE="off", LD_PRELOAD=BREAKABLE, **UNREACHED)
        suite.check(intact.status == 0, "with every rule in force", intact.tail())
        suite.check(any(notices(seed) for seed in range(1, 4)), "without the rule")
    suite.finish()


if __name__ == "__main__":
    main()
