#!/usr/bin/env python3
"""What the library adds to a launch when everything is resident: pairs of runs without and with it, in turn. And what is left of
that when it has learned the iteration: the last launches of a run against those of a run in which nothing is learned.
"""
import json, pathlib, statistics, subprocess, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, environment


def measure(preload, threads, when=0, **options):
    """ns a launch: of the whole run, of its first tenth (when=1: 2,000 launches, fewer than are watched), of its last half (2)."""
    env = environment(preload=preload, SOFTGPU_MEMORY="1GiB", UDNNMEM_QUIET=1, **options)
    done = subprocess.run([str(BUILD / "tests/launch_path"), "200", str(threads)], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[when])


def main():
    for threads, name, goal in ((1, "launch", 300), (8, "launch_8_threads", 600)):
        pairs = [(measure(False, threads), measure(True, threads)) for _ in range(9)]
        native = statistics.median(a for a, _ in pairs)
        added = statistics.median(b - a for a, b in pairs)
        print(json.dumps({"name": f"{name}_native_ns", "value": round(native, 1), "unit": "ns", "goal": None}))
        print(json.dumps({"name": f"{name}_added_ns", "value": round(added, 1), "unit": "ns", "goal": goal}))
        print(json.dumps({"name": f"{name}_ratio", "value": round(statistics.median(b / a for a, b in pairs), 3), "unit": "", "goal": None}))
    unlearned = dict(UDNNMEM_POLICY="demand")   # and no trace
    learning, learned = ([(measure(True, 1, when, **unlearned), measure(True, 1, when)) for _ in range(9)] for when in (1, 2))
    print(json.dumps({"name": "launch_learning_added_ns", "value": round(statistics.median(b - a for a, b in learning), 1), "unit": "ns", "goal": None}))
    print(json.dumps({"name": "launch_after_learning_ratio", "value": round(statistics.median(b / a for a, b in learned), 3), "unit": "", "goal": 1.05}))


if __name__ == "__main__":
    main()
