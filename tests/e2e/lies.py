#!/usr/bin/env python3
"""Plans that lie (wrong op, wrong buffer, wrong time; with drops and replays too) cost time only: digits in 50 and 65 % of its memory, on
shuffled schedules, computes the same bits, without a fault, within the device.

4 seeds in `make test`, 500 with UDNNMEM_TEST_FULL=1. `lies.py SEED...` tries some.
"""
import concurrent.futures, pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FOLLOWED, FULL, WORKLOADS, Run, Suite, environment, settled

COMMAND = [WORKLOADS / "digits-driver", "--depth", 60, "--width", 32, "--batch", 256, "--iterations", 30, "--report-peak"]
PLANNED = 3   # iterations at least; those in which ops are watched or run again are not counted


def by_plan(done):
    found = FOLLOWED.search(done.error)
    return int(found[2]) if found else 0


def one(seed, expected, peak):
    """What is wrong with a seed; "": nothing."""
    memory = peak // 2 if seed % 2 else peak * 65 // 100
    lie = environment(preload=True, SOFTGPU_MEMORY=memory, SOFTGPU_SEED=seed, UDNNMEM_TEST_LIE=seed, UDNNMEM_TEST_LOOK_MS=200, UDNNMEM_DEBUG="info")
    # On a crowded machine the plan may come late.
    done = settled(lambda d: by_plan(d) >= PLANNED, lambda: Run(COMMAND, lie, limit=300))
    good = done.status == 0 and done.output == expected and done.report and done.report["faults"] == 0 and done.report["device_bytes_peak"] <= memory
    return "" if good and by_plan(done) >= PLANNED else f"    status {done.status} {done.report}, {by_plan(done)} iterations by plan\n{done.tail(20)}"


def main():
    suite = Suite()
    plain = Run(COMMAND, environment(SOFTGPU_MEMORY="1GiB")).output
    seeds = [int(s) for s in sys.argv[1:]] or range(500 if FULL else 4)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for seed, wrong in zip(seeds, pool.map(lambda s: one(s, plain, int(plain.split("peak live bytes ")[1])), seeds)):
            suite.check(not wrong, f"lie {seed}", wrong)
    suite.finish()


if __name__ == "__main__":
    main()
