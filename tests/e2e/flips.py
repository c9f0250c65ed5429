#!/usr/bin/env python3
"""One bit is wrong: of what a replay made, or of what was saved for replays to work on (the state of a generator).

A result that is wrong ends the program with CUDA's error and one line, and no wrong number was given before. So does what a wrong
input makes, or the bit did not matter and the bits are right. 14 trials in `make test`, 1,004 with UDNNMEM_TEST_FULL=1.
`flips.py KIND:{result|saved}:N...` tries some: the N-th of a kind of replays.py.
"""
import concurrent.futures, os, re, sys
from replays import ITERATIONS, MAY, MEMORY, OTHERS, REFUSED, MODEL
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, asked_for_help, environment, refuse

RESULTS = {kind: 170 for kind in ("pure", "in_place", "update", "integer_atomics", "statistics", "mask", "aliasing", "cooperative", "copied", "filled", "with_state", "held")}
SAVED = {"with_state": 200}   # so many replays, and saves, there are at least: behind the last one no bit is wrong
OPTION = {"result": "UDNNMEM_TEST_FLIP", "saved": "UDNNMEM_TEST_FLIP_SAVED"}


def trials():
    """Kind, what is wrong, and of the how many-th."""
    spread = lambda kinds, what, each: [(kind, what, 1 + n * last // each) for kind, last in kinds.items() for n in range(each)]
    if FULL:
        return spread(RESULTS, "result", 67) + spread(SAVED, "saved", 200)
    return [(kind, "result", 40) for kind in RESULTS] + spread(SAVED, "saved", 2)


def one(trial, plain):
    """What is wrong with it, and whether the program was stopped."""
    kind, what, n = trial
    done = Run([WORKLOADS / "replays", kind, ITERATIONS], environment(preload=True, SOFTGPU_MEMORY=MEMORY, **{OPTION[what]: n}, **MODEL), limit=120)
    said = [line for line in done.error.splitlines() if "is not what it was" in line]
    stopped = done.status == 1 and len(said) == 1 and "LAUNCH_FAILED" in done.error and plain.startswith(done.output) and done.output != plain
    right = done.status == 0 and not said and done.output == plain
    return "" if stopped or (right and what == "saved") else f"    status {done.status}\n{done.output[-200:]}\n{done.tail()}", stopped


def main():
    asked_for_help(__doc__)
    known = re.compile(rf"({'|'.join((*MAY, *REFUSED, *OTHERS))}):(result|saved):(\d+)")
    for argument in sys.argv[1:]:
        if not known.fullmatch(argument):
            refuse(f"{argument}: expected KIND:result:N or KIND:saved:N")
    wanted = [known.fullmatch(argument).groups() for argument in sys.argv[1:]]
    suite = Suite()
    all_of = wanted or trials()
    plain = {kind: Run([WORKLOADS / "replays", kind, ITERATIONS], environment(SOFTGPU_MEMORY="64MiB", **MODEL)).output for kind in {t[0] for t in all_of}}
    stops = {"result": 0, "saved": 0}
    with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        for trial, (wrong, stopped) in zip(all_of, pool.map(lambda t: one(t, plain[t[0]]), all_of)):
            suite.check(not wrong, f"{trial[0]}, {trial[1]} {trial[2]}: the clear stop, and no wrong number", wrong)
            stops[trial[1]] += stopped
    print(f"of {len(all_of)} wrong bits {sum(stops.values())} stopped the program, {stops['saved']} of them in what was saved")
    saves = sum(trial[1] == "saved" for trial in all_of)
    suite.check(wanted or 2 * stops["saved"] > saves, "most of what was saved mattered", f"    {stops['saved']} of {saves}")
    suite.finish()


if __name__ == "__main__":
    main()
