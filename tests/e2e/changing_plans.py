#!/usr/bin/env python3
"""Bits stay the same while plans change under way: digits that is no simple loop, so that sequences are learned, planned for,
switched, improved and given up during the run, on shuffled schedules of the software GPU.

3 seeds in `make test`, 1,000 with UDNNMEM_TEST_FULL=1. `changing_plans.py SEED...` tries some.
"""
import concurrent.futures, functools, pathlib, re, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, environment

PROGRAMS = [["--random-depth", 3], ["--evaluate", 4], ["--last", "5,64"], ["--models", "2,4"], ["--accumulate", 2]]
SHARES = [60, 75, 52]
STEPS = 18


@functools.lru_cache(maxsize=None)
def plain(program):
    command = [WORKLOADS / "digits-driver", "--depth", 14, "--width", "32", "--batch", 128, "--iterations", STEPS, "--report-peak", *PROGRAMS[program]]
    done = Run(command, environment(SOFTGPU_MEMORY="1GiB", SOFTGPU_GRANULARITY=4096))
    return command, done.output, int(done.output.split("peak live bytes ")[1])


def one(seed):
    """What is wrong with a seed ("": nothing), and how many plans it had."""
    command, expected, peak = plain(seed % len(PROGRAMS))
    memory = peak * SHARES[seed // len(PROGRAMS) % len(SHARES)] // 100
    done = Run(command, environment(preload=True, SOFTGPU_MEMORY=memory, SOFTGPU_GRANULARITY=4096, SOFTGPU_SEED=seed, UDNNMEM_VERIFY=1, UDNNMEM_DEBUG="info"), limit=300)
    good = done.status == 0 and done.output == expected and done.report and done.report["faults"] == 0 and done.report["device_bytes_peak"] <= memory
    return "" if good else f"    status {done.status} {done.report}\n{done.tail(20)}", len(re.findall(r"plan by udnn for sequence", done.error))


def main():
    suite = Suite()
    seeds = [int(s) for s in sys.argv[1:]] or range(1, 1001 if FULL else 4)
    plans = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for seed, (wrong, made) in zip(seeds, pool.map(one, seeds)):
            suite.check(not wrong, f"seed {seed}", wrong)
            plans += made
    print(f"{plans} plans in {len(seeds)} runs")
    suite.check(plans >= len(seeds), "plans were made")
    suite.finish()


if __name__ == "__main__":
    main()
