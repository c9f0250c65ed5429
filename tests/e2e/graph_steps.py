#!/usr/bin/env python3
"""Training steps of few ops, as TinyJit makes them: an input, two graphs, a result. In three quarters of the memory, in modelled time,
each graph fits and is launched whole: a step is four ops. It must run by plan, with the same bits, and not take longer than on demand.
Where a graph's ops take longer than their memory takes to move, the plan launches it node by node, and hides the moves.
Graphs of more buffers than a lease lists, most of them named twice, are followed as they were recorded.
"""
import pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FOLLOWED, WORKLOADS, Run, Suite, environment

GRAPHS, BUFFERS, STEPS, WORD = 2, 16, 40, 16384
MEMORY = (GRAPHS * BUFFERS + 2) * 4 * WORD * 3 // 4
BEFORE = 16   # steps that do not run by plan, at most: until it is learned, and again node by node
HIDDEN = 1.05   # of the time with all memory
TRIED = 1.05    # of the time on demand: steps node by node, to see whether that pays, take a little longer


def model(link):
    return dict(SOFTGPU_TIME="model:5e9:3e9", SOFTGPU_H2D=link, SOFTGPU_D2H=link, SOFTGPU_GRANULARITY=4096)


def main():
    suite = Suite()
    for repeats, link, hides in ((1, 1e9, False), (16, 3e8, True)):
        label = "ops longer than moves" if hides else "moves longer than ops"
        run = lambda **options: Run([WORKLOADS / "graph_steps", GRAPHS, BUFFERS, STEPS, repeats], environment(UDNNMEM_TEST_LOOK_MS=500, **model(link), **options), limit=120)
        plain = run()
        suite.check(plain.status == 0, f"{label}: without the library", plain.tail())
        took = {}
        for policy in ("udnn",) if hides else ("demand", "udnn"):
            done = run(preload=True, UDNNMEM_BUDGET=MEMORY, UDNNMEM_POLICY=policy, UDNNMEM_DEBUG="info", UDNNMEM_RECOMPUTE="off", **({} if hides else {"UDNNMEM_VERIFY": 1}))
            suite.check(done.status == 0 and done.output == plain.output and done.report["faults"] == 0, f"{label}, {policy}: the same bits", done.tail())
            took[policy] = done.report["virtual_ns"] / 1e6 if done.report else 0
        found = FOLLOWED.search(done.error)
        suite.check(found and int(found[2]) >= STEPS - BEFORE, f"{label}: by plan", done.tail(20))
        suite.check(("launched whole again" in done.error) != hides, f"{label}: graphs are launched node by node only where that pays", done.tail(20))
        ideal = plain.report["virtual_ns"] / 1e6
        if hides:
            suite.check(found and 0 < int(found[3]) * STEPS <= HIDDEN * ideal * 1e3, f"{label}: the moves are hidden", f"    {found and found[0]}; {ideal:.1f} ms with all memory")
        else:
            suite.check(0 < took["udnn"] <= TRIED * took["demand"], f"{label}: no slower than on demand", f"    {took}")
        print(f"{label}: {found and found[0]}; ms in all: {ideal:.1f} with all memory, " + ", ".join(f"{ms:.1f} {policy}" for policy, ms in took.items()))
    many, steps = 130, 16
    command = [WORKLOADS / "graph_steps", GRAPHS, many, steps]
    plain = Run(command, environment(**model(1e9)), limit=120)
    done = Run(command, environment(preload=True, UDNNMEM_BUDGET=(GRAPHS * many - 4) * 4 * WORD, UDNNMEM_DEBUG="info", UDNNMEM_RECOMPUTE="off", UDNNMEM_TEST_LOOK_MS=0, **model(1e9)), limit=120)
    suite.check(done.status == 0 and done.output == plain.output, "graphs of many buffers: the same bits", done.tail())
    suite.check(FOLLOWED.search(done.error) and done.error.count("of 4 ops is known") == 1, "graphs of many buffers: what was recorded is followed", done.tail(20))
    suite.finish()


if __name__ == "__main__":
    main()
