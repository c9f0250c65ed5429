#!/usr/bin/env python3
"""digits under the library in less memory than it needs: the same bits, no fault, within the budget.

Seven builds (every road into the driver) x 75, 50 and 35 % of the program's peak live bytes x seeds of the software
GPU's schedule. Each run gets a device of that size and nothing else; what it prints must equal what the runtime build
prints on a device with room to spare, without the library. The software GPU counts the bytes held and the faults.
One seed and 40 layers in `make test`, and once each the other optimisers and 1,000 layers; 200 seeds, and 200 layers
once for each build and share, with UDNNMEM_TEST_FULL=1.
"""
import concurrent.futures, pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, environment

BUILDS = ["runtime", "static", "driver", "streams", "ptds", "async", "graph"]
SHARES = [75, 50, 35]
SAMPLE = ["--depth", "40", "--width", "32", "--batch", "512", "--iterations", "5", "--report-peak"]
WHOLE = ["--depth", "200", "--width", "32", "--batch", "1024", "--iterations", "40", "--report-peak"]
OTHERS = {"sgd": ["--optimiser", "sgd"] + SAMPLE, "momentum": ["--optimiser", "momentum"] + SAMPLE,
          "1000 layers": ["--depth", "1000", "--width", "32", "--batch", "512", "--iterations", "2", "--report-peak"]}
PEAK = re.compile(r"^peak live bytes (\d+)\n", re.M)


def run(build, arguments, preload, **options):
    return Run([WORKLOADS / f"digits-{build}"] + arguments, environment(preload=preload, **options), limit=1800 if FULL else 120)


def compare(suite, arguments, seeds, label, expected, builds=BUILDS, shares=SHARES):
    """Every build, share and seed against the text `expected`."""
    peaks = {}
    for build in builds:
        plain = run(build, arguments, False, SOFTGPU_MEMORY="4GiB")
        found = PEAK.search(plain.output)
        ok = suite.check(plain.status == 0 and PEAK.sub("", plain.output) == expected and plain.report and plain.report["faults"] == 0,
                         f"{label} {build}: without the library, the same bits as every build", plain.tail())
        if ok:
            peaks[build] = int(found.group(1))

    def one(job):
        build, share, seed = job
        budget = peaks[build] * share // 100
        return job, budget, run(build, arguments, True, SOFTGPU_MEMORY=budget, SOFTGPU_SEED=seed)

    jobs = [(b, share, seed) for seed in seeds for share in shares for b in builds if b in peaks]
    times = {share: [] for share in shares}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (build, share, seed), budget, done in pool.map(one, jobs):
            what = f"{label} {build} in {share} %, seed {seed}"
            if not suite.check(done.status == 0, f"{what}: ends well", f"    status {done.status}\n" + done.tail()):
                continue
            suite.check(PEAK.sub("", done.output) == expected, f"{what}: the same bits", done.tail())
            report = done.report or {"faults": -1, "device_bytes_peak": 1 << 62}
            suite.check(report["faults"] == 0, f"{what}: no fault", f"    {report['faults']}\n" + done.tail())
            suite.check(report["device_bytes_peak"] <= budget, f"{what}: within the budget", f"    {report['device_bytes_peak']} of {budget}")
            times[share].append(done.seconds)
    for share in shares:
        if times[share]:
            print(f"{label} in {share} %: {len(times[share])} runs, {sum(times[share]) / len(times[share]):.2f} s each", flush=True)


def reference(suite, arguments, label):
    plain = run("runtime", arguments, False, SOFTGPU_MEMORY="4GiB")
    suite.check(plain.status == 0 and PEAK.search(plain.output), f"{label}: trains with enough memory", plain.tail())
    print(f"{label} with enough memory: {plain.seconds:.2f} s", flush=True)
    return PEAK.sub("", plain.output), int(PEAK.search(plain.output).group(1)) if PEAK.search(plain.output) else 0


def main():
    suite = Suite()
    expected, peak = reference(suite, SAMPLE, "40 layers")
    if peak:
        # What is small enough for the library is too small without it, and that is said, not crashed on.
        for build in BUILDS:
            short = run(build, SAMPLE, False, SOFTGPU_MEMORY=peak * 35 // 100)
            suite.check(short.status == 3 and "out of device memory" in short.error, f"{build} in 35 % without the library: exit code 3 and a message",
                        f"    status {short.status}\n" + short.tail())
        compare(suite, SAMPLE, range(1, 201 if FULL else 2), "40 layers", expected)
    counted = run("driver", SAMPLE, False, SOFTGPU_MEMORY="4GiB", SOFTGPU_COUNT=1)
    suite.check(counted.report and counted.report["bytes_read"] > 0 and counted.report["unwritten_reads"] == 0,
                "digits reads no memory that nobody wrote", f"    {counted.report}\n" + counted.tail())
    for label, arguments in OTHERS.items():
        expected, peak = reference(suite, arguments, label)
        if peak:
            compare(suite, arguments, [1], label, expected, ["driver", "async"] if FULL or label != "1000 layers" else ["driver"], [35])
    if FULL:
        expected, peak = reference(suite, WHOLE, "200 layers")
        if peak:
            compare(suite, WHOLE, [1], "200 layers", expected)
    suite.finish()


if __name__ == "__main__":
    main()
