#!/usr/bin/env python3
"""For half an hour digits and random programs, under budgets that change all the time: the right bits, no fault, no hang.

In turn each build of digits and random programs of 2,000 ops, half of them under the library that walks its invariants
after every change (`make VARIANT=breakable`). The budget is another one every few milliseconds, of three drawn for each run; the
bytes that the software GPU counts may not exceed the largest, nor the memory that the device has. UDNNMEM_TEST_FULL=1: 30 minutes,
else 20 seconds.
"""
import concurrent.futures, itertools, pathlib, random, sys, time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, PRELOAD, WORKLOADS, Run, Suite, environment

SECONDS = 1800 if FULL else 20
DIGITS = ["--depth", "30", "--width", "32", "--batch", "512", "--iterations", "12"]
PEAK = 7 << 20            # bytes of digits; random programs hold fewer
LIVE = 6 << 20
BUILDS = ["runtime", "static", "driver", "streams", "ptds", "async", "graph"]
HANGS = 300


def one(number):
    """What is wrong with the number-th run; empty if nothing is."""
    draw = random.Random(number)
    if number % 2:
        command, most = [WORKLOADS / f"digits-{BUILDS[number // 2 % len(BUILDS)]}"] + DIGITS, PEAK
    else:
        command, most = [WORKLOADS / "random", 10_000_000 + number, 400 if not FULL else 2000, LIVE], LIVE
    budgets = [draw.randrange(most // 4, most) for _ in range(3)]
    turn = draw.choice([1, 5, 20])
    library = PRELOAD if number // 2 % 2 else BUILD / "breakable" / "libudnnmem.so"
    plain = Run(command, environment(SOFTGPU_MEMORY="4GiB"), limit=HANGS)
    done = Run(command, environment(preload=True, LD_PRELOAD=library, SOFTGPU_MEMORY="4GiB", SOFTGPU_SEED=number, UDNNMEM_HOST_BUDGET="64MiB", UDNNMEM_VERIFY=1,
                                    UDNNMEM_BUDGET=max(budgets), UDNNMEM_TEST_BUDGETS=f"{turn}:{','.join(map(str, budgets))}"), limit=HANGS)
    if plain.status != 0 or done.status != 0 or done.output != plain.output or not done.report or done.report["faults"]:
        return f"    {' '.join(map(str, command))}, budgets {turn}:{budgets}: status {done.status}, {done.report}\n{done.output[-400:]}{done.tail()}"
    # Beside the frames there are modules' variables, a few KiB.
    if "exceeded" not in done.error and done.report["device_bytes_peak"] > max(budgets) + (64 << 10):
        return f"    {' '.join(map(str, command))}, budgets {turn}:{budgets}: {done.report['device_bytes_peak']} bytes held"
    return ""


def main():
    suite = Suite()
    end = time.monotonic() + SECONDS
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for pair in (range(n, n + 8) for n in itertools.count(1, 8)):
            for number, wrong in zip(pair, pool.map(one, pair)):
                suite.check(not wrong, f"run {number}", wrong)
            if time.monotonic() > end or suite.failed > 5:
                break
    suite.finish()


if __name__ == "__main__":
    main()
