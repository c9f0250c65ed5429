#!/usr/bin/env python3
"""Drivers that refuse part of what paging likes to have: a large range of addresses, the first frame, pinned memory at once. The
program runs managed all the same, with the same words, and no fault. Likewise where calls on memory find the driver busy for a while,
where one NUMA node of the host is full, and on a card of 2016. And drivers that say once that they have no memory for a graph:
the call is made again, and the program does not hear of it (that memory is given up in between is not seen here)."""
import pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import WORKLOADS, Run, Suite, environment

PROGRAM = [WORKLOADS / "vadd", 65536, 24]
REFUSALS = {"a range of addresses": "cuMemAddressReserve:1:2", "the first frame": "cuMemCreate:1:801", "pinned memory": "cuMemHostAlloc:1:2", "a mapping": "cuMemMap:1:2"}
# In a guest the driver may be busy for a while: each of those calls, 20 times in a row, in the middle of the run.
BUSY = [f"{call}:{n}:600:20" for call, n in (("cuMemSetAccess", 40), ("cuMemMap", 40), ("cuMemUnmap", 20), ("cuMemCreate", 3))]

GRAPH = [WORKLOADS / "traps", "table-in-graph-memory", 1]
GRAPH_CALLS = ["cuGraphInstantiateWithFlags:1:2", "cuGraphLaunch:1:2"]


def main():
    suite = Suite()
    plain = Run(PROGRAM, environment(SOFTGPU_MEMORY="64MiB"))
    for what, call in REFUSALS.items():
        done = Run(PROGRAM, environment(preload=True, SOFTGPU_MEMORY="3MiB", SOFTGPU_FAIL=call, UDNNMEM_VERIFY=1), limit=60)
        suite.check(done.status == 0 and done.output == plain.output, f"{what} is refused once: the same words", done.tail())
        suite.check("manages device 0" in done.error and done.report and done.report["faults"] == 0, f"{what} is refused once: managed, no fault", done.tail())
    for call in BUSY:
        done = Run(PROGRAM, environment(preload=True, SOFTGPU_MEMORY="3MiB", SOFTGPU_FAIL=call, UDNNMEM_VERIFY=1), limit=60)
        suite.check(done.status == 0 and done.output == plain.output and done.report and done.report["faults"] == 0 and "fails with 600" in done.error, f"{call}: the same words, no fault", done.tail())
    # Host memory that cannot be mapped, or copied to when it is: nothing runs from there.
    for how, what in (("0", "host memory cannot be mapped"), ("uncopied", "mapped host memory cannot be copied to")):
        done = Run(PROGRAM, environment(preload=True, SOFTGPU_MEMORY="3MiB", SOFTGPU_HOST_FRAMES=how, UDNNMEM_VERIFY=1), limit=60)
        suite.check(done.status == 0 and done.output == plain.output and done.report and done.report["faults"] == 0, f"{what}: the same words, no fault", done.tail())
        suite.check("manages device 0" in done.error and re.search(r"moved [1-9]\S* MiB in.*; 0 launches served from host frames", done.error), f"{what}: moved, and nothing runs from there", done.tail())
    # The device's own node of the host has little memory, and the driver takes none of another by itself.
    done = Run(PROGRAM, environment(preload=True, SOFTGPU_MEMORY="3MiB", SOFTGPU_NUMA="1048576,67108864", UDNNMEM_TEST_NODES="0-1", UDNNMEM_VERIFY=1), limit=60)
    suite.check(done.status == 0 and done.output == plain.output and done.report and done.report["faults"] == 0 and done.report["device_bytes_peak"] <= 3 << 20, "a node that is full: the same words, within the memory", f"    {done.report}\n{done.tail()}")
    plain = Run(PROGRAM, environment(SOFTGPU_MEMORY="64MiB", SOFTGPU_SM=60))
    done = Run(PROGRAM, environment(preload=True, SOFTGPU_MEMORY="3MiB", SOFTGPU_SM=60, UDNNMEM_VERIFY=1), limit=60)
    suite.check(done.status == 0 and done.output == plain.output and done.output, "an old card: the same words", done.tail())
    suite.check("manages device 0" in done.error and re.search(r"moved [1-9]\S* MiB in", done.error), "an old card: managed", done.tail())
    plain = Run(GRAPH, environment(SOFTGPU_MEMORY="64MiB"))
    for call in GRAPH_CALLS:
        alone = Run(GRAPH, environment(SOFTGPU_MEMORY="64MiB", SOFTGPU_FAIL=call))
        suite.check(alone.status != 0, f"{call} ends the program alone", alone.tail())
        done = Run(GRAPH, environment(preload=True, SOFTGPU_MEMORY="64MiB", UDNNMEM_BUDGET="1MiB", SOFTGPU_FAIL=call), limit=60)
        suite.check(done.status == 0 and done.output == plain.output and done.report and done.report["faults"] == 0, f"{call}: the same words, no fault", done.tail())
    suite.finish()


if __name__ == "__main__":
    main()
