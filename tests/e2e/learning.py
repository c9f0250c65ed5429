#!/usr/bin/env python3
"""What learning costs, in modelled time: at most 3 iterations and at most 2 s; and afterwards an iteration takes what it takes
without the library.

A program of launches on the modelled device, room to spare, for some iterations and for more, with and without the library. Both
are far beyond what is watched (16 iterations, at least 2,048 ops), so that the iterations between them are after learning. Long
ops tell what is added to the run; short ones, for which the host is the slower side, what is added to launches. What a launch
costs on this machine before and after is in `make bench`.
"""
import pathlib, random, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e import listed
from tests.e2e.harness import WORKLOADS, Run, Suite, environment, settled

OPS, FEW, MANY = 24, 100, 140
MOST_NS = 2_000_000_000


def program(ns):
    draw = random.Random(3)   # no part of the iteration repeats
    return "\n".join(["persistent 6"] + ["buffer 20000"] * 6 + [f"op {ns} ; {a} {b} ; {c} ;" for a, b, c in (draw.sample(range(6), 3) for _ in range(OPS))]) + "\n"


class Costs:
    """Modelled ns: of an iteration without the library and, once it has learned, with it; what it added to the shorter run."""

    def __init__(self, suite, folder, ns):
        (folder / "program").write_text(program(ns))
        (folder / "table").write_text("play @0\nroofline 1e12 1e11\n")
        self.trace = folder / "t.jsonl"
        took = {}
        for preload in (False, True):
            for count in (FEW, MANY):
                self.trace.unlink(missing_ok=True)
                done = Run([WORKLOADS / "player", folder / "program", count], environment(preload=preload, SOFTGPU_MEMORY="64MiB", SOFTGPU_TIME=f"table:{folder / 'table'}", **({"UDNNMEM_TRACE": self.trace} if preload else {})))
                suite.check(done.status == 0, f"ops of {ns} ns, {count} iterations, preload {preload}: runs", done.tail())
                took[preload, count] = done.report["virtual_ns"]
        self.plain, self.after = ((took[p, MANY] - took[p, FEW]) / (MANY - FEW) for p in (False, True))
        self.added = took[True, FEW] - took[False, FEW]


# Stages data: allocates, copies, frees, and launches nothing. Prints who is at work in its process.
STAGES = '''
import ctypes, pathlib, time
cuda = ctypes.CDLL("libcuda.so.1")
context, at, data = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.create_string_buffer(4096)
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
for _ in range(100):
    assert not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4096)) and not cuda.cuMemcpyHtoD_v2(at, data, ctypes.c_size_t(4096)) and not cuda.cuMemFree_v2(at)
for _ in range(100):
    names = {task.joinpath("comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()}
    if "udnnmem-learn" in names:
        break
    time.sleep(0.01)
print(*sorted(names))
'''


def main():
    suite = Suite()
    staged = Run([sys.executable, "-c", STAGES], environment(preload=True))
    suite.check(staged.status == 0 and "udnnmem-learn" in staged.output, "what a program tells that only copies is taken", f"    {staged.output}{staged.tail()}")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        slow = settled(lambda c: c.added <= 3 * c.plain and c.after <= 1.01 * c.plain, lambda: Costs(suite, folder, 200_000))
        learned, _, ops, _ = listed.read_trace(slow.trace)
        suite.check(learned and len(ops) == OPS and learned["first_op"] <= OPS, "it is learned from the first iterations", f"    {learned}")
        suite.check(slow.added <= 3 * slow.plain and slow.added <= MOST_NS, "learning costs at most 3 iterations, and at most 2 s", f"    {slow.added} ns added, {slow.plain} an iteration")
        suite.check(slow.after <= 1.01 * slow.plain, "then an iteration takes what it takes without the library", f"    {slow.after} ns, {slow.plain} without")
        quick = settled(lambda c: c.after <= 1.1 * c.plain, lambda: Costs(suite, folder, 100))
        suite.check(quick.after <= 1.1 * quick.plain, "also where launching takes longer than the ops", f"    {quick.after} ns, {quick.plain} without")
        # Ops are timed by pairs of events until the iteration is found. Were there but one event a launch, the driver would say so. On a
        # crowded machine it may be found late, once.
        silent = lambda run: run.status == 0 and "SOFTGPU_FAIL: call" not in run.error
        done = settled(silent, lambda: Run([WORKLOADS / "player", folder / "program", MANY], environment(preload=True, SOFTGPU_MEMORY="64MiB", SOFTGPU_FAIL=f"cuEventRecord:{OPS * MANY}")))
        suite.check(silent(done), "then no event is recorded for a launch", done.tail())
        print(f"{slow.added / 1e6:.3f} ms added by learning, {slow.added / slow.plain:.2f} iterations; then {slow.after / slow.plain:.4f} and {quick.after / quick.plain:.3f} of the time without the library")
    suite.finish()


if __name__ == "__main__":
    main()
