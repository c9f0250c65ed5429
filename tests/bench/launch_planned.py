#!/usr/bin/env python3
"""What the library adds to a launch while the program is followed by plan: to ops without orders, and to those after which some are given.

Which ops those are is in the stored plan. Pairs of runs without and with the library, in turn; ops that name what may have to be waited for do
not count.
"""
import json, pathlib, statistics, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, environment

OPS = 512


def measure(**options):
    done = subprocess.run([str(BUILD / "tests/launch_planned"), "80", str(OPS)], env=environment(SOFTGPU_MEMORY="12MiB" if options else "1GiB", UDNNMEM_QUIET=1, **options), capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines()]


def ordered(file):
    """Ops of the stored plan after which orders are given."""
    courses = []
    for line in map(json.loads, subprocess.run(["zstd", "-dcq", file], capture_output=True, text=True, check=True).stdout.splitlines()):
        if line["kind"] == "course":
            courses.append(([], set()))
        elif line["kind"] == "op":
            courses[-1][0].append(line)
        elif line["kind"] == "order":
            courses[-1][1].add(line["after_op"])
    return next(orders for ops, orders in courses if len(ops) == OPS)


def main():
    added = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(7):
            file = pathlib.Path(folder) / f"plan{i}"
            native, planned = measure(), measure(preload=True, UDNNMEM_PLAN=file)
            if not file.exists():   # a crowded machine: demand paging measured better
                continue
            orders = ordered(file)
            for k, (a, b) in enumerate(zip(native, planned)):
                if a and b:
                    added[k in orders].append(b - a)
    for orders, name, goal in ((False, "plan_launch_added_ns", 300), (True, "plan_launch_with_orders_added_ns", 1000)):
        print(json.dumps({"name": name, "value": round(statistics.median(added[orders]), 1) if added[orders] else None, "unit": "ns", "goal": goal}))


if __name__ == "__main__":
    main()
