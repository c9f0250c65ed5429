#!/usr/bin/env python3
"""Random programs (tests/workloads/small/random.cpp carries its own model) on a device that holds a part of them.

Each seed runs once without the library on a large device, and under it on devices of different sizes; the checksums
must agree, the software GPU must count no fault and no byte too many. 40 seeds in `make test`, 10,000 with
UDNNMEM_TEST_FULL=1. A failing seed is printed with the command that repeats it.
"""
import concurrent.futures, pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, environment

LIVE = 6 << 20
SIZES = [2 << 20, 3 << 20, 5 << 20]


def one(seed):
    ops = str(100 + seed % 5 * 60)
    command = [WORKLOADS / "random", str(seed), ops, str(LIVE)]
    plain = Run(command, environment(SOFTGPU_MEMORY="64MiB", SOFTGPU_SEED=seed), limit=120)
    memory = SIZES[seed % len(SIZES)]
    paged = Run(command, environment(preload=True, SOFTGPU_MEMORY=memory, SOFTGPU_SEED=seed + 7, UDNNMEM_HOST_BUDGET="64MiB", UDNNMEM_VERIFY="1"), limit=120)
    return seed, memory, command, plain, paged


def main():
    suite = Suite()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for seed, memory, command, plain, paged in pool.map(one, range(1, 10001 if FULL else 41)):
            again = f"    SOFTGPU_MEMORY={memory} SOFTGPU_SEED={seed + 7} LD_PRELOAD=build/libudnnmem.so " + " ".join(map(str, command))
            if not suite.check(plain.status == 0, f"seed {seed}: right without the library", f"    status {plain.status}\n{plain.output}{plain.tail()}"):
                continue
            report = paged.report or {"faults": -1, "device_bytes_peak": 1 << 62}
            suite.check(paged.status == 0 and paged.output == plain.output and report["faults"] == 0 and report["device_bytes_peak"] <= memory,
                        f"seed {seed} on {memory} bytes: right, no fault, within the device",
                        f"    status {paged.status}, {report}\n{paged.output}\n{paged.tail()}\n{again}")
    suite.finish()


if __name__ == "__main__":
    main()
