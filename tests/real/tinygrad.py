#!/usr/bin/env python3
"""tinygrad under the library: training scripts that do not know it, and tinygrad's own test_tiny.py.

Each network of networks/ runs in modes: eager or TinyJit, with tinygrad's caches as they come ("cached") or off
(LRU=0 NO_MEMORY_PLANNER=1: a tensor is a buffer, "plain"). First without the library on a device with room to spare:
what must come out. Then with the library and room to spare, which tells the peak of live bytes. Then with the library
on a device of a share of that: the same text bit for bit, no fault, the device's own count within its size, and
evictions, or nothing was tested. `make test` takes 2 networks in 3 modes, 50 % and 6 steps; with UDNNMEM_TEST_FULL=1 all
networks, 4 modes, 75 and 50 %, then down by 5 % to the smallest share that works, 30 steps, and 20 seeds of the
software GPU's schedule at 50 %. Compiled kernels are kept in the build folder: the first run pays for them.
"""
import concurrent.futures, pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, ROOT, SOFTGPU, Run, Suite, environment

REAL = ROOT / "build" / "real"
PYTHON = REAL / "venv" / "bin" / "python"
NETWORKS = ROOT / "tests" / "real" / "networks"
TINY = REAL / "tinygrad" / "test_tiny.py"
PLAIN = {"LRU": 0, "NO_MEMORY_PLANNER": 1}
MODES = {"eager cached": {}, "eager plain": PLAIN, "jit cached": {"JIT": 1}, "jit plain": {"JIT": 1, **PLAIN}}
# What `make test` runs: networks that compile quickly.
SAMPLE = [("mlp", "eager plain"), ("mlp", "jit cached"), ("conv", "jit plain")]
STEPS = 30 if FULL else 6
LIMIT = 1800 if FULL else 300
SUMMARY = re.compile(r"^udnnmem: device 0: budget .*, peak \S+ MiB for (\S+) MiB live; moved (\S+) MiB in, (\S+) MiB out.* (\d+) verified moves", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.M)


def run(command, preload, **options):
    """A Python program on the software GPU; tinygrad's own cache of compiled kernels stays in the build folder."""
    nvrtc = (REAL / "nvrtc").read_text().strip()
    env = environment(preload=preload, libraries=f"{SOFTGPU}:{nvrtc}", DEV="CUDA", TC=0, CACHEDB=BUILD / "real-tinygrad.db", PYTHONHASHSEED=0,
                      PYTHONDONTWRITEBYTECODE=1, **options)
    return Run([PYTHON] + command, env, limit=LIMIT)


def train(network, mode, preload, memory, **options):
    # Without tinygrad's compile workers, which would each take seconds to start; test_tiny.py has them.
    return run([NETWORKS / f"{network}.py"], preload, STEPS=STEPS, PARALLEL=0, UDNNMEM_VERIFY=1, SOFTGPU_MEMORY=memory, **MODES[mode], **options)


def evicted(done):
    """Whether the library moved anything: small moves show as 0.0 MiB, so with UDNNMEM_VERIFY=1 the verified ones count."""
    found = SUMMARY.search(done.error)
    return bool(found) and (float(found.group(3)) > 0 or int(found.group(4)) > 0)


def verdict(done, expected, memory):
    """What is wrong with a run that must print `expected` within `memory` bytes; empty where nothing is."""
    report = done.report or {"faults": -1, "device_bytes_peak": 1 << 62}
    wrong = []
    if done.status != 0:
        wrong.append(f"status {done.status}")
    elif done.output != expected:
        wrong.append("other bits")
    if report["faults"] != 0:
        wrong.append(f"{report['faults']} faults")
    if report["device_bytes_peak"] > memory:
        wrong.append(f"the device held {report['device_bytes_peak']} bytes of {memory}")
    if not evicted(done):
        wrong.append("nothing was evicted")
    return ", ".join(wrong)


def train_case(suite, network, mode):
    """One network in one mode, without the library and in less and less memory; returns lines for the reader."""
    label = f"{network}, {mode}"
    plain = train(network, mode, False, "1GiB")
    expected = plain.output
    if not suite.check(plain.status == 0 and expected.count("loss") == STEPS and "weights" in expected and plain.report["faults"] == 0,
                       f"{label}: trains without the library", plain.tail()):
        return []
    roomy = train(network, mode, True, "1GiB")
    found = SUMMARY.search(roomy.error)
    if not suite.check(roomy.status == 0 and roomy.output == expected and found, f"{label}: the same bits with the library and room to spare", roomy.tail()):
        return []
    peak = float(found.group(1)) * 2**20

    def at(share, **options):
        memory = int(peak * share / 100)
        done = train(network, mode, True, memory, **options)
        return done, verdict(done, expected, memory)

    lines = [f"{label}: {peak / 2**20:.1f} MiB live; {plain.seconds:.1f} s without the library, {roomy.seconds:.1f} s with it and room to spare"]
    for share in [75, 50] if FULL else [50]:
        done, wrong = at(share)
        suite.check(not wrong, f"{label} in {share} %: the same bits within the memory, paged", f"    {wrong}\n" + done.tail())
        moved = SUMMARY.search(done.error)
        lines.append(f"{label} in {share} %: {done.seconds:.1f} s" + (f", {moved.group(2)} MiB in, {moved.group(3)} MiB out" if moved else ""))
    if FULL:
        smallest, reason = 50, ""
        for share in range(45, 0, -5):
            done, reason = at(share)
            if reason:
                # Too little may end in out of memory, never in other bits.
                suite.check("other bits" not in reason and "faults" not in reason, f"{label} in {share} %: an error, not other bits", f"    {reason}\n" + done.tail())
                break
            smallest = share
        lines.append(f"{label}: smallest share {smallest} %" + (f"; {smallest - 5} %: {reason}" if reason else ""))
        for seed in range(2, 22):
            done, wrong = at(50, SOFTGPU_SEED=seed)
            suite.check(not wrong, f"{label} in 50 %, seed {seed}", f"    {wrong}\n" + done.tail())
    return lines


def unittest_counts(done):
    """Passed, skipped, failed of a run of unittest; None where it did not come to its end."""
    found = UNITTEST.search(done.error)
    if not found:
        return None
    bad = dict(re.findall(r"(\w+)=(\d+)", found.group(2) or ""))
    failed, skipped = int(bad.get("failures", 0)) + int(bad.get("errors", 0)), int(bad.get("skipped", 0))
    return int(found.group(1)) - failed - skipped, skipped, failed


def test_tiny(suite):
    """tinygrad's own tests: as many pass in a memory that forces evictions as without the library."""
    command = [TINY]
    plain = run(command, False, SOFTGPU_MEMORY="1GiB")
    before = unittest_counts(plain)
    if not suite.check(before and before[0] > 0 and before[2] == 0, "test_tiny.py passes without the library", plain.tail(12)):
        return []
    small = "384KiB"
    done = run(command, True, SOFTGPU_MEMORY=small, SOFTGPU_GRANULARITY="4KiB", UDNNMEM_VERIFY=1)
    after, moved = unittest_counts(done), SUMMARY.search(done.error)
    suite.check(after == before, f"test_tiny.py in {small}: as without the library, {before}", f"    {after}\n" + done.tail(12))
    suite.check(evicted(done), f"test_tiny.py in {small}: evictions", done.tail(3))
    return [f"test_tiny.py: {before[0]} passed, {before[1]} skipped; in {small}: {after}, {moved.group(4) if moved else '?'} verified moves, {plain.seconds:.1f} and {done.seconds:.1f} s"]


def main():
    suite = Suite()
    cases = [(n.stem, m) for n in sorted(NETWORKS.glob("*.py")) if n.stem != "training" for m in MODES] if FULL else SAMPLE
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(train_case, suite, n, m) for n, m in cases] + [pool.submit(test_tiny, suite)]
        for job in jobs:
            print("\n".join(job.result()), flush=True)
    suite.finish()


if __name__ == "__main__":
    main()
