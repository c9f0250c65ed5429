#!/usr/bin/env python3
"""Training steps of few ops, as TinyJit makes them: an input, two graphs, a result. In three quarters of the memory, in modelled time,
each graph fits and is launched whole: a step is four ops. It must run by plan, with the same bits, and not take longer than on demand.
"""
import pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FOLLOWED, WORKLOADS, Run, Suite, environment

GRAPHS, BUFFERS, STEPS, WORD = 2, 16, 40, 16384
MEMORY = (GRAPHS * BUFFERS + 2) * 4 * WORD * 3 // 4
BEFORE = 12   # steps until it runs by plan, at most
MODEL = dict(SOFTGPU_TIME="model:5e9:3e9", SOFTGPU_H2D=1e9, SOFTGPU_D2H=1e9, SOFTGPU_GRANULARITY=4096)


def main():
    suite = Suite()
    run = lambda **options: Run([WORKLOADS / "graph_steps", GRAPHS, BUFFERS, STEPS], environment(**MODEL, **options), limit=120)
    plain = run()
    suite.check(plain.status == 0, "without the library", plain.tail())
    took = {}
    for policy in ("demand", "udnn"):
        done = run(preload=True, UDNNMEM_BUDGET=MEMORY, UDNNMEM_POLICY=policy, UDNNMEM_DEBUG="info", UDNNMEM_RECOMPUTE="off", UDNNMEM_VERIFY=1)
        suite.check(done.status == 0 and done.output == plain.output and done.report["faults"] == 0, f"{policy}: the same bits", done.tail())
        took[policy] = done.report["virtual_ns"] / 1e6 if done.report else 0
    found = FOLLOWED.search(done.error)
    suite.check(found and int(found[2]) >= STEPS - BEFORE, "by plan", done.tail(20))
    suite.check(0 < took["udnn"] <= 1.02 * took["demand"], "no slower than on demand", f"    {took}")
    print(f"{found and found[0]}; {took['demand']:.1f} ms on demand, {took['udnn']:.1f} by plan")
    suite.finish()


if __name__ == "__main__":
    main()
