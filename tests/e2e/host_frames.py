#!/usr/bin/env python3
"""Zero-copy landing: launches whose buffers are not on the device run from host frames, with the right bits, counted.

Forced for every miss (UDNNMEM_TEST_FORCE_HOST), and as it happens by itself: one op over more memory than the budget.
"""
import pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import WORKLOADS, Run, Suite, environment

SERVED = re.compile(r"(\d+) launches served from host frames")


def served(run):
    found = SERVED.search(run.error)
    return int(found.group(1)) if found else -1


def main():
    suite = Suite()
    command = [WORKLOADS / "random", "11", "150", str(6 << 20)]
    plain = Run(command, environment(SOFTGPU_MEMORY="64MiB"))
    forced = Run(command, environment(preload=True, SOFTGPU_MEMORY="3MiB", UDNNMEM_HOST_BUDGET="64MiB", UDNNMEM_TEST_FORCE_HOST=1))
    suite.check(plain.status == 0 and forced.status == 0 and forced.output == plain.output, "every miss served from host frames: the same bits",
                f"    status {plain.status}, {forced.status}\n{forced.output}{forced.tail()}")
    suite.check(served(forced) > 0, "and counted", forced.tail())
    suite.check(forced.report and forced.report["faults"] == 0, "and no fault", str(forced.report))

    command = [WORKLOADS / "bigop", str(2 << 20)]
    alone = Run(command, environment(SOFTGPU_MEMORY="64MiB"))
    small = Run(command, environment(preload=True, SOFTGPU_MEMORY="3MiB", UDNNMEM_HOST_BUDGET="64MiB"))
    suite.check(alone.status == 0 and small.status == 0 and small.output == alone.output, "an op larger than the budget runs partly from host frames",
                f"    status {small.status}\n{small.output}{small.tail()}")
    suite.check(served(small) > 0, "and that is counted", small.tail())
    suite.check(small.report and small.report["faults"] == 0 and small.report["device_bytes_peak"] <= 3 << 20, "within the budget", str(small.report))

    none = Run(command, environment(preload=True, SOFTGPU_MEMORY="3MiB", UDNNMEM_HOST_BUDGET="1MiB"))
    suite.check(none.status == 3, "out of both memories is out of memory", f"    status {none.status}\n{none.tail()}")
    suite.finish()


if __name__ == "__main__":
    main()
