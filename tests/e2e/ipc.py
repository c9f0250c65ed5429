#!/usr/bin/env python3
"""Memory that cannot be shared with another process after all: the program is told by a CUDA error and goes on right.

The traps of tests/e2e/traps/ipc.cpp share two allocations by IPC handles, and send the words by a pipe where a handle cannot
be made or opened. Here the calls by which the library makes and opens them fail: each of the first two for good, or once, and are
then made again. What the process says must be the same but for whether it was opened; nothing is left in the driver.
"""
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.faults import HELD
from tests.e2e.harness import BUILD, WORKLOADS, Run, Suite, environment

PROGRAM = WORKLOADS / "traps"
LIBRARY = BUILD / "breakable" / "libudnnmem.so"
OPTIONS = {"SOFTGPU_MEMORY": "64MiB", "SOFTGPU_DEVICES": 2, "SOFTGPU_SEED": 1, "UDNNMEM_BUDGET": "1MiB", "UDNNMEM_HOST_BUDGET": "32MiB", "UDNNMEM_VERIFY": 1}
FAULTS = {
    "cuMemExportToShareableHandle": "ipc-to-with",
    "cuMemImportFromShareableHandle": "ipc-from-with",
}


def main():
    suite = Suite()
    for symbol, trap in FAULTS.items():
        plain = Run([PROGRAM, trap, 1], environment(**{k: v for k, v in OPTIONS.items() if k.startswith("SOFTGPU")})).output
        for n, times in ((1, 1), (2, 1), (1, 9), (2, 9)):
            done = Run([PROGRAM, trap, 1], environment(preload=True, LD_PRELOAD=LIBRARY, UDNNMEM_FAIL=f"{symbol}:{n}:999:{times}", **OPTIONS), limit=60)
            # One that passes is asked again; one that stays leaves the second allocation unopened, or both.
            expected = plain if times == 1 else plain.replace("opened 1", "opened 0")
            what = f"{symbol} fails {times} times from call {n} on"
            suite.check(done.status == 0 and done.output == expected, what, f"    status {done.status}\n{done.output}{done.tail()}")
            suite.check("injected" in done.error, f"{what}: it did fail", done.tail())
            held = HELD.findall(done.error)[-1:]  # this process ends last
            suite.check(done.report and [(str(done.report["frames"]), str(done.report["mappings"]))] == held and not done.report["faults"],
                        f"{what}: no fault, nothing left", f"    {done.report}\n{done.tail()}")
    suite.finish()


if __name__ == "__main__":
    main()
