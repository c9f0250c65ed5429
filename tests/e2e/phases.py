#!/usr/bin/env python3
"""Training that comes after a loop that fits in memory, and is another one: it is learned when its memory begins to be moved, whether
what the first loop used is still there or gone, and runs by plan with the same bits.
"""
import pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FOLLOWED, Run, Suite, environment

BYTES, FEW, MANY, BUDGET = 1 << 18, 9, 18, 14 << 18
# Beyond the 2,048 ops for which an iteration is watched; and until a plan is made of the second one.
ROUNDS, TRAINED = 400, 40

PROGRAM = f"""
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)

def buffers(count, size):
    made = [ctypes.c_uint64() for _ in range(count)]
    for i, at in enumerate(made):
        assert not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)) and not cuda.cuMemsetD32_v2(at, i, ctypes.c_size_t(size // 4))
    return made

def loop(made, size, rounds, pause):
    for _ in range(rounds):
        for one, next in zip(made, made[1:] + made[:1]):
            assert not cuda.cuMemcpyDtoD_v2(next, one, ctypes.c_size_t(size))
        time.sleep(pause)

first = buffers({FEW}, {BYTES // 2})
loop(first, {BYTES // 2}, {ROUNDS}, 0)
time.sleep(0.5)
if sys.argv[1] == "gone":
    for at in first:
        assert not cuda.cuMemFree_v2(at)
second = buffers({MANY}, {BYTES})
loop(second, {BYTES}, {TRAINED}, 0.05)
words = (ctypes.c_uint32 * {BYTES // 4})()
for at in second:
    assert not cuda.cuMemcpyDtoH_v2(words, at, ctypes.c_size_t({BYTES}))
    print(sum(words))
"""


def main():
    suite = Suite()
    for first in ("there", "gone"):
        program = [sys.executable, "-c", PROGRAM, first]
        plain = Run(program, environment(SOFTGPU_GRANULARITY=4096))
        done = Run(program, environment(preload=True, UDNNMEM_BUDGET=BUDGET, UDNNMEM_DEBUG="info", UDNNMEM_RECOMPUTE="off", UDNNMEM_TEST_LOOK_MS=0, SOFTGPU_GRANULARITY=4096))
        suite.check(plain.status == 0 and done.status == 0 and done.output == plain.output, f"first loop {first}: the same bits", plain.tail() + done.tail())
        found = FOLLOWED.search(done.error)
        suite.check(found and int(found[2]) > 0, f"first loop {first}: the second runs by plan", done.tail(20))
        print(f"first loop {first}: {found and found[0]}; {done.seconds:.1f} s")
    suite.finish()


if __name__ == "__main__":
    main()
