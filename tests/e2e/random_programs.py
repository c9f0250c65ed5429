#!/usr/bin/env python3
"""Random programs (tests/workloads/small/random.cpp carries its own model) on a device that holds a part of them.

Each seed runs once without the library on a large device, and under it on devices of different sizes; the checksums
must agree, the software GPU must count no fault and no byte too many. 24 seeds in `make test`, 10,000 with
UDNNMEM_TEST_FULL=1. A failing program is shrunk: ops are left out, many at a time, then one by one, as long as it fails
still; what is left is printed, with the command that repeats it. `random_programs.py SEED...` tries some.
"""
import concurrent.futures, pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, environment

LIVE = 6 << 20
SIZES = [2 << 20, 3 << 20, 5 << 20]


def one(seed, only=()):
    """What is wrong with a program, or with some ops of it; the ops, and the command that repeats it."""
    ops = 100 + seed % 5 * 60
    command = [WORKLOADS / "random", seed, ops, LIVE]
    chosen = {"RANDOM_ONLY": ",".join(map(str, only))} if only else {}
    memory = SIZES[seed % len(SIZES)]
    paged = {"SOFTGPU_MEMORY": memory, "SOFTGPU_SEED": seed + 7, "UDNNMEM_HOST_BUDGET": "64MiB", "UDNNMEM_VERIFY": "1"} | chosen
    plain = Run(command, environment(SOFTGPU_MEMORY="64MiB", SOFTGPU_SEED=seed, **chosen), limit=120)
    again = "    " + " ".join(f"{k}={v}" for k, v in (paged | {"RANDOM_PRINT": 1}).items()) + " LD_PRELOAD=build/libudnnmem.so " + " ".join(map(str, command))
    if plain.status != 0:
        return f"    status {plain.status} without the library\n{plain.output}{plain.tail()}", range(1, ops + 1), again
    done = Run(command, environment(preload=True, **paged), limit=120)
    report = done.report or {"faults": -1, "device_bytes_peak": 1 << 62}
    wrong = done.status != 0 or done.output != plain.output or report["faults"] or report["device_bytes_peak"] > memory
    return f"    status {done.status}, {report}\n{done.output}\n{done.tail()}" if wrong else "", range(1, ops + 1), again


def shrunk(seed, ops):
    """The fewest ops found that still fail (a failure that comes only now and then is tried three times)."""
    fails = lambda only: bool(only) and any(one(seed, only)[0] for _ in range(3))
    ops, step = list(ops), len(ops) // 2
    if not fails(ops):
        return ops
    while step:
        for at in range(0, len(ops), step):
            rest = ops[:at] + ops[at + step:]
            if len(rest) < len(ops) and fails(rest):
                ops = rest
                break
        else:
            step //= 2
    return ops


def printed(seed, ops):
    command = [WORKLOADS / "random", seed, max(ops), LIVE]
    return Run(command, environment(SOFTGPU_MEMORY="64MiB", RANDOM_PRINT=1, RANDOM_ONLY=",".join(map(str, ops)))).output


def main():
    suite = Suite()
    seeds = [int(s) for s in sys.argv[1:]] or range(1, 10001 if FULL else 25)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for seed, (wrong, ops, _) in zip(seeds, pool.map(one, seeds)):
            if wrong:
                least = shrunk(seed, ops) if suite.failed < 3 else ops
                wrong += f"\n  {len(least)} ops are left:\n{printed(seed, least)}{one(seed, least)[2]}"
            suite.check(not wrong, f"seed {seed}", wrong)
    suite.finish()


if __name__ == "__main__":
    main()
