#!/usr/bin/env python3
"""Random networks of kernels that work in place, on a part, with state, by atomics, by copies and fills (replays random), on a
link so slow that all is dropped and computed again that may be. Every other one runs in three streams.

Each computes the bits of the run without the library, within its memory. 6 seeds in `make test`, 10,000 with
UDNNMEM_TEST_FULL=1. `random_replays.py SEED...` tries some.
"""
import concurrent.futures, os, pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, environment

ITERATIONS = 22
MODEL = dict(SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=5e7, SOFTGPU_D2H=5e7, SOFTGPU_GRANULARITY=4096, UDNNMEM_TEST_LOOK_MS=100)
QUEUES = (0, 2, 16)   # calls whose work a stream holds; 0: any number
MEMORY = (360_000, 420_000, 500_000)  # of 720,000 bytes
DROPPED = re.compile(r"(\d+) buffers dropped and computed again")


def one(seed):
    """What is wrong with it, and how many buffers were dropped."""
    command = [WORKLOADS / "replays", "random_streams" if seed % 2 else "random", ITERATIONS, 8192, seed]
    plain = Run(command, environment(SOFTGPU_MEMORY="64MiB", **MODEL), limit=120)
    memory = MEMORY[seed % len(MEMORY)]
    done = Run(command, environment(preload=True, SOFTGPU_MEMORY=memory, UDNNMEM_DEBUG="info", SOFTGPU_SEED=seed, SOFTGPU_QUEUE=QUEUES[seed % 3], **MODEL), limit=120)
    found = DROPPED.search(done.error)
    report = done.report or {"faults": -1, "device_bytes_peak": 1 << 62}
    wrong = plain.status or done.status or done.output != plain.output or report["faults"] or report["device_bytes_peak"] > memory
    return f"    {plain.status} {done.status} {report}\n{done.tail(20)}" if wrong else "", int(found[1]) if found else 0


def main():
    suite = Suite()
    seeds = [int(s) for s in sys.argv[1:]] or range(1, 10001 if FULL else 7)
    drops = dropping = 0
    with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        for seed, (wrong, dropped) in zip(seeds, pool.map(one, seeds)):
            suite.check(not wrong, f"seed {seed}", wrong)
            drops += dropped
            dropping += dropped > 0
    print(f"{drops} buffers dropped and computed again, in {dropping} of {len(seeds)} programs")
    suite.check(len(seeds) < 6 or dropping * 2 > len(seeds), "most programs drop something", f"    {dropping} of {len(seeds)}")
    suite.finish()


if __name__ == "__main__":
    main()
