#!/usr/bin/env python3
"""Every driver call that the library makes for itself fails once, in short trainings, and at random in longer ones.

A run either prints what it prints without faults, or ends with an error of the driver API that it says, and what it
had printed until then is right. Nothing hangs, no kernel faults, no invariant breaks, nothing is left in the driver that
the library does not know of. The library is the one of `make VARIANT=breakable`, which counts its calls by name
(interpose/own_calls.hpp): the n-th of each name fails, with one of two errors, once or several times in a row; also
where the device does not reach host frames, and where no host memory can be pinned. All of them with
UDNNMEM_TEST_FULL=1, a fair sample else. `faults.py NAME:N:ERROR:TIMES [BUILD]` runs one.
"""
import concurrent.futures, pathlib, random, re, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, WORKLOADS, Run, Suite, environment

LIBRARY = BUILD / "breakable" / "libudnnmem.so"
SHORT = ["--depth", "4", "--width", "32", "--batch", "256", "--iterations", "2"]
LONGER = ["--depth", "12", "--width", "32", "--batch", "256", "--iterations", "12"]
MEMORY = ["900KiB", "1200KiB"]  # of the device, with and without landing: less than the programs want in granules
BUILDS = ["driver", "graph", "async"]
NO_LANDING = "cuMemCreate:2:999:2"            # the trial whether the device reaches host frames says no
NO_PINNED = "cuMemHostAlloc:2:2:1000000000"   # and after the first few bytes none can be pinned
ERRORS = [2, 999]      # out of memory, unknown
STAYS = [9, 50]        # times in a row: more often than the library asks again, also where it has to know
HANGS = 20             # seconds; a run takes a fraction of one
SAMPLE = 20            # of each build, in make test
EVENTS = range(100, 600, 73)   # questions about events that are answered with an error while what they ask about goes on
SHARES = [2000, 400, 100, 30]
COUNTED = re.compile(r"^own call (\w+) (\d+)$", re.M)
HELD = re.compile(r"holds (\d+) frames in (\d+) mappings")
SAID = re.compile(r"^(digits: |  what\(\):  ).*(CUDA_ERROR_|cudaError|out of device memory)", re.M)
# What the driver does not take back, however often it is asked, stays there; nothing else may.
STUCK = re.compile(r"injected: (cuMemUnmap|cuMemAddressFree|cuMemRelease|cuMemFreeHost) |could not be mapped again|no memory moves any more")


def run(build, arguments, folder, **options):
    env = environment(preload=True, LD_PRELOAD=LIBRARY, SOFTGPU_MEMORY=MEMORY[NO_LANDING in options["UDNNMEM_FAIL"]], UDNNMEM_TRACE=f"{folder}/%p.jsonl", UDNNMEM_TEST_DEADLINE_MS=50, **options)
    return Run([WORKLOADS / f"digits-{build}"] + arguments, env, limit=HANGS)


def wrong_with(done, expected, once=True):
    """What is wrong with a run in which calls failed; empty if nothing is."""
    lines, right = done.output.splitlines(), expected.splitlines()
    if lines != right[:len(lines)]:
        return "    wrong output: " + next(a for a, b in zip(lines, right + [""] * len(lines)) if a != b)
    if done.status == 0 and lines != right:
        return "    ends well before its end"
    ended = isinstance(done.status, int) and (0 < done.status < 10 or (done.status == -6 and "what():  cuda" in done.error))
    if done.status != 0 and not (ended and SAID.search(done.error)):
        return f"    status {done.status} without an error that the program was given"
    if done.report and done.report["faults"]:
        return f"    {done.report['faults']} faults"
    held = None if not done.report or (STUCK.search(done.error) and not once) else HELD.search(done.error)
    if held and (done.report["frames"], done.report["mappings"]) != (int(held[1]), int(held[2])):
        return f"    the driver holds {done.report['frames']} frames in {done.report['mappings']} mappings, the library knows of {held[1]} in {held[2]}"
    return ""


def single_faults(counts):
    once = [f"{name}:{n}:{ERRORS[n % 2]}" for name, most in counts.items() for n in range(1, most + 1)]
    stays = [f"{name}:{n}:{ERRORS[n // 7 % 2]}:{STAYS[n % 2]}" for name, most in counts.items() for n in [*range(1, min(most, 7)), *range(7, most + 1, 7)]]
    if FULL:
        return once + stays
    events = [f"cuEventQuery:{n}:999:{STAYS[0]}" for n in EVENTS if n <= counts.get("cuEventQuery", 0)]
    first = [fault for fault in once + stays if fault.split(":")[1] == "1"]
    return random.Random(7).sample(first, min(len(first), SAMPLE // 2)) + random.Random(8).sample(once + stays, SAMPLE // 2) + events


def cases_of(suite, build, folder):
    """(build, arguments, expected, options) of every run with faults of a build."""
    without = {name: Run([WORKLOADS / f"digits-{build}"] + arguments, environment(SOFTGPU_MEMORY="4GiB"), limit=HANGS).output
               for name, arguments in (("short", SHORT), ("longer", LONGER))}
    if sys.argv[1:]:
        return [(build, SHORT, without["short"], {"UDNNMEM_FAIL": sys.argv[1]})]
    cases = []
    for landing in (True, False):
        before = [] if landing else [NO_LANDING]
        counted = run(build, SHORT, folder, UDNNMEM_FAIL_COUNT=1, UDNNMEM_FAIL=",".join(before) or "none:1")
        suite.check(counted.status == 0 and counted.output == without["short"] and not wrong_with(counted, without["short"]),
                    f"{build}, {'with' if landing else 'without'} landing: trains without faults", f"    status {counted.status}\n" + counted.tail())
        counts = {name: int(n) for name, n in COUNTED.findall(counted.error)}
        print(f"{build}, {'with' if landing else 'without'} landing: {sum(counts.values())} calls of {len(counts)} names", flush=True)
        cases += [(build, SHORT, without["short"], {"UDNNMEM_FAIL": ",".join(before + [fault])}) for fault in single_faults(counts)]
        cases += [(build, LONGER, without["longer"], {"UDNNMEM_FAIL_SHARE": f"{share}:{seed}:{ERRORS[seed % 2]}", "UDNNMEM_FAIL": ",".join(before) or "none:1"})
                  for seed in range(1, 101 if FULL else 2) for share in SHARES]
    cases.append((build, SHORT, without["short"], {"UDNNMEM_FAIL": f"{NO_LANDING},{NO_PINNED}"}))
    return cases


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        def attempt(case):
            build, arguments, expected, options = case
            done = run(build, arguments, folder, **options)
            once = all(fault.count(":") == 2 or fault == NO_LANDING for fault in options["UDNNMEM_FAIL"].split(","))
            return case, wrong_with(done, expected, once and "UDNNMEM_FAIL_SHARE" not in options), done

        cases = [case for build in (sys.argv[2:] or BUILDS) for case in cases_of(suite, build, folder)]
        ended = 0
        for case, wrong, done in pool.map(attempt, cases):
            ended += done.status != 0
            suite.check(not wrong, f"{case[0]} {case[3]}", f"{wrong}\n{done.tail()}")
        print(f"{len(cases)} runs with faults, {ended} ended with an error")
    suite.finish()


if __name__ == "__main__":
    main()
