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
SEEDS = 20 if FULL else 2
ITERATIONS = 400
LAYER, LAYERS = 4 * 16384, 18
MODEL = dict(SOFTGPU_GRANULARITY=4096, UDNNMEM_BUDGET=LAYER * LAYERS // 2, UDNNMEM_TEST_LOOK_MS=200, UDNNMEM_DEBUG="info")


def run(seed, preload, **options):
    env = environment(preload=preload, **(MODEL | options if preload else {"SOFTGPU_GRANULARITY": 4096}))
    return Run([WORKLOADS / "detours", seed, ITERATIONS], env)


def main():
    suite = Suite()
    for seed in range(1, SEEDS + 1):
        plain = run(seed, False)
        for recompute in ("off", "auto"):
            done = run(seed, True, UDNNMEM_RECOMPUTE=recompute)
            suite.check(done.status == plain.status == 0 and done.output == plain.output, f"seed {seed}, recompute {recompute}: the same bits", done.tail())
            followed = FOLLOWED.search(done.error)
            suite.check(followed and int(followed[2]) > ITERATIONS // 4, f"seed {seed}, recompute {recompute}: by plan", done.tail())
    if BREAKABLE.exists():
        intact = run(1, True, UDNNMEM_RECOMPUTE="off", LD_PRELOAD=BREAKABLE, UDNNMEM_FAIL="cuMemCreate:2:999:2")
        suite.check(intact.status == 0, "with every rule in force", intact.tail())
        broken = [run(seed, True, UDNNMEM_RECOMPUTE="off", LD_PRELOAD=BREAKABLE, UDNNMEM_BREAK="recall", UDNNMEM_FAIL="cuMemCreate:2:999:2") for seed in range(1, 4)]
        suite.check(any(b.status != 0 or b.output != run(seed, False).output for seed, b in enumerate(broken, 1)), "without the rule", broken[0].tail())
    suite.finish()


if __name__ == "__main__":
    main()
