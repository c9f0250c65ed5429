#!/usr/bin/env python3
"""What the library adds to a launch when everything is resident: pairs of runs without and with it, in turn, by the last half of
their launches. While it looks for the iteration that is another figure: by the first launches. With one thread the iteration is
found; with eight, whose launches come in another order each time, there is none, and the search rests. Undisturbed is the fastest tenth of
the rounds, of the best run of each kind: on some machines all times come in two kinds, one about half as long again, for a reason that is not
known. It says what a launch can cost, not what it does cost: that is the median.
The software GPU allocates for each launch, and what that costs with glibc depends on what has become of the heap: all runs use jemalloc.
"""
import json, pathlib, statistics, subprocess, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, environment


JEMALLOC = "libjemalloc.so.2"
ROUNDS = {1: 400, 8: 600}   # of 100 launches a thread: by half of them the search is over, or rests


def measure(preload, threads, **options):
    """ns a launch: of the first launches, which are fewer than are watched for an iteration, of the last half, of its fastest tenth."""
    env = environment(preload=preload, SOFTGPU_MEMORY="1GiB", UDNNMEM_QUIET=1, **options)
    env["LD_PRELOAD"] = ":".join(filter(None, (env.get("LD_PRELOAD"), JEMALLOC)))
    done = subprocess.run([str(BUILD / "tests/launch_path"), str(ROUNDS[threads]), str(threads)], env=env, capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))[1:]


def figure(name, value, unit, goal=None):
    print(json.dumps({"name": name, "value": round(value, 3 if not unit else 1), "unit": unit, "goal": goal}))


def main():
    for threads, name, goal in ((1, "launch", 300), (8, "launch_8_threads", 600)):
        runs = [(measure(False, threads), measure(True, threads), measure(True, threads, UDNNMEM_POLICY="demand")) for _ in range(9)]   # the last: nothing is learned, no trace
        figure(f"{name}_native_ns", statistics.median(a[1] for a, _, _ in runs), "ns")
        figure(f"{name}_added_ns", statistics.median(b[1] - a[1] for a, b, _ in runs), "ns", goal)
        figure(f"{name}_added_undisturbed_ns", min(b[2] for _, b, _ in runs) - min(a[2] for a, _, _ in runs), "ns", goal)
        figure(f"{name}_ratio", statistics.median(b[1] / a[1] for a, b, _ in runs), "")
        figure(f"{name}_learning_added_ns", statistics.median(b[0] - c[0] for _, b, c in runs), "ns")
        figure(f"{name}_after_learning_ratio", statistics.median(b[1] / c[1] for _, b, c in runs), "", 1.05 if threads == 1 else None)


if __name__ == "__main__":
    main()
