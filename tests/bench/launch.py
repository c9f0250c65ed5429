#!/usr/bin/env python3
"""What the library adds to a launch when everything is resident: pairs of runs without and with it, in turn, by the last half of
their launches. While it looks for the iteration that is another figure: by the first launches. With one thread the iteration is
found; with eight, whose launches come in another order each time, there is none, and the search rests. Undisturbed is the fastest tenth of
the rounds, of the best run of each kind: it says what a launch can cost, not what it does cost, which is the median.
What it adds while a plan holds is told of launches in the middle of stretches where the plan moves nothing (launch_by_plan): all of it,
the plan's part and the pager's, of the median launch, and of the mean one, for one in some records events too. Runs that went on demand,
or gave their plan up, do not count. Times come in two kinds, one about twice as long: what else runs on the same core, on its other
hyperthread, takes half of it, and on a virtual machine that is anybody's. Fixed work is timed beside each round to tell them apart; "own
core" are the rounds in which it took at most a quarter longer than at best.
Its buffers are small: what the software GPU copies and hashes for the pager goes through the CPU's caches, as a card's does not, and
what a launch reads would have left them each round.
The software GPU allocates for each launch, and what that costs with glibc depends on what has become of the heap: all runs use jemalloc.
"""
import json, pathlib, statistics, subprocess, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FOLLOWED, environment


JEMALLOC = "libjemalloc.so.2"
ROUNDS = {1: 400, 8: 600}   # of 100 launches a thread: by half of them the search is over, or rests


GROUPS, BUFFER = 3, 16 << 10   # of 8 buffers each, and bytes of one; a plan has memory for two groups
PLANNED = 2400                 # rounds, of which one iteration takes as many as there are groups: by half of them ops are timed rarely
OWN_CORE = 1.25                # fixed work takes so many times as long as at best, at most
FEWEST = 100                   # such rounds, or they tell nothing


def measure(preload, threads, rounds=None, groups=1, buffer=256 << 10, **options):
    """ns a launch: of the first launches, which are fewer than are watched for an iteration, of the last half, of its fastest tenth; of the
    launches of that half by themselves, if there are groups. Of its rounds, then: fixed work, the median launch and the mean one. And how
    many iterations were followed, and by plan."""
    env = environment(preload=preload, SOFTGPU_MEMORY="1GiB", UDNNMEM_DEBUG="info", **options)
    env["LD_PRELOAD"] = ":".join(filter(None, (env.get("LD_PRELOAD"), JEMALLOC)))
    done = subprocess.run([str(BUILD / "tests/launch_path"), str(rounds or ROUNDS[threads]), str(threads), str(groups), str(buffer)], env=env, capture_output=True, text=True, check=True)
    followed = FOLLOWED.search(done.stderr)
    *by_round, all_rounds = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    return all_rounds[1:], by_round, tuple(map(int, followed.groups()[:2])) if followed else (0, 0)


def figure(name, value, unit, goal=None):
    print(json.dumps({"name": name, "value": round(value, 3 if not unit else 1), "unit": unit, "goal": goal}))


def main():
    for threads, name, goal in ((1, "launch", 300), (8, "launch_8_threads", 600)):
        runs = [(measure(False, threads)[0], measure(True, threads)[0], measure(True, threads, UDNNMEM_POLICY="demand")[0]) for _ in range(9)]   # the last: nothing is learned, no trace
        figure(f"{name}_native_ns", statistics.median(a[1] for a, _, _ in runs), "ns")
        figure(f"{name}_added_ns", statistics.median(b[1] - a[1] for a, b, _ in runs), "ns", goal)
        figure(f"{name}_added_undisturbed_ns", min(b[2] for _, b, _ in runs) - min(a[2] for a, _, _ in runs), "ns", goal)
        figure(f"{name}_ratio", statistics.median(b[1] / a[1] for a, b, _ in runs), "")
        figure(f"{name}_learning_added_ns", statistics.median(b[0] - c[0] for _, b, c in runs), "ns")
        figure(f"{name}_after_learning_ratio", statistics.median(b[1] / c[1] for _, b, c in runs), "", 1.05 if threads == 1 else None)
    by_plan(9)


def by_plan(pairs):
    granule = dict(SOFTGPU_GRANULARITY=BUFFER)
    options = dict(UDNNMEM_BUDGET=2 * 8 * BUFFER, UDNNMEM_RECOMPUTE="off", UDNNMEM_TEST_LOOK_MS=200)
    runs = [(measure(False, 1, PLANNED, GROUPS, BUFFER, **granule), measure(True, 1, PLANNED, GROUPS, BUFFER, **granule, **options)) for _ in range(pairs)]
    held = [(a, b) for a, b in runs if b[2][0] > PLANNED // GROUPS // 2 and b[2][1] > 0.95 * b[2][0]]
    print(f"launch_by_plan: {len(held)} of {pairs} runs by plan", file=sys.stderr)
    if not held:
        return
    figure("launch_by_plan_added_ns", statistics.median(b[0][3] - a[0][3] for a, b in held), "ns", 300)
    figure("launch_by_plan_mean_added_ns", statistics.median(b[0][1] - a[0][1] for a, b in held), "ns")
    native, ours = ([r for pair in held for r in pair[i][1]] for i in range(2))
    at_best = sorted(r[0] for r in native + ours)[len(held)]
    native, ours = ([r for r in rounds if r[0] <= OWN_CORE * at_best] for rounds in (native, ours))
    print(f"launch_by_plan: {len(native)} and {len(ours)} rounds without and with the library had the core to themselves", file=sys.stderr)
    if min(len(native), len(ours)) < FEWEST:
        return
    figure("launch_by_plan_own_core_added_ns", statistics.median(r[1] for r in ours) - statistics.median(r[1] for r in native), "ns", 300)
    figure("launch_by_plan_own_core_mean_added_ns", statistics.median(r[2] for r in ours) - statistics.median(r[2] for r in native), "ns")


if __name__ == "__main__":
    main()
