#!/usr/bin/env python3
"""Zero-copy landing: launches whose buffers are not on the device run from host frames, with the right bits, counted.

Forced for every miss (UDNNMEM_TEST_FORCE_HOST), and as it happens by itself: one op over more memory than the budget.
"""
import pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import WORKLOADS, Run, Suite, environment

HASHER = 320 << 10  # bytes of shim/pager/hasher.hpp's Pinned
SERVED = re.compile(r"(\d+) launches served from host frames")


def served(run):
    found = SERVED.search(run.error)
    return int(found.group(1)) if found else -1


def main():
    suite, passed = Suite(), 0
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

    # Whatever the host budget, no more than that is pinned, beside the answers of the pager's own kernels.
    command = [WORKLOADS / "digits-driver", "--depth", "12", "--width", "32", "--batch", "256", "--iterations", "4"]
    alone = Run(command, environment())
    for budget in (2816, 2560, 2304, 2048, 1536, 1024):
        run = Run(command, environment(preload=True, SOFTGPU_MEMORY="1200KiB", UDNNMEM_HOST_BUDGET=f"{budget}KiB", UDNNMEM_VERIFY=1))
        suite.check((run.status == 0 and run.output == alone.output) or (run.status == 3 and "out of memory" in run.error), f"host budget {budget} KiB: right, or out of memory",
                    f"    status {run.status}\n{run.tail()}")
        suite.check(run.report and run.report["host_bytes_peak"] <= (budget << 10) + HASHER, f"host budget {budget} KiB: kept", str(run.report))
        passed += run.status == 0
    suite.check(passed > 0, "one of them is enough", f"    {passed}")

    command = [WORKLOADS / "bigop", str(2 << 20)]
    none = Run(command, environment(preload=True, SOFTGPU_MEMORY="3MiB", UDNNMEM_HOST_BUDGET="1MiB"))
    suite.check(none.status == 3, "out of both memories is out of memory", f"    status {none.status}\n{none.tail()}")
    suite.finish()


if __name__ == "__main__":
    main()
