#!/usr/bin/env python3
"""tinygrad under the library: training scripts that do not know it, and tinygrad's own test_tiny.py.

Each network of networks/ runs in modes: eager or TinyJit, with tinygrad's caches as they come ("cached") or off
(LRU=0 NO_MEMORY_PLANNER=1: a tensor is a buffer, "plain"). First without the library on a device with room to spare:
what must come out, and the peak of live bytes. Then with the library, with room to spare and on a device of a share of that: the same text bit for bit, no fault, the device's own count within its size, and
evictions, or nothing was tested. `make test` takes some networks in one mode each, 50 % and 3 steps, without room to spare; with UDNNMEM_TEST_FULL=1 4 modes, 30 steps, 75 and 50 %, the smallest share that works (the table of README.md, which --table [NETWORK...]
makes alone), and 20 seeds of the software GPU's schedule at 50 %. Compiled kernels are kept in the build folder: the first run pays for them.
"""
import concurrent.futures, re, sys, tempfile
from paged import FULL, MODES, REAL, SUMMARY, TINYGRAD, evicted, every_network, largest_op, tinygrad_environment, training, verdict
from tests.e2e.harness import Run, Suite

TINY = REAL / "tinygrad" / "test_tiny.py"
# What `make test` runs, but for the first with kernels as they are before tinygrad's optimiser, which is most of what a short run takes.
SAMPLE = [("mlp", "eager plain"), ("residual", "jit cached")]
QUICK = {} if FULL or "--table" in sys.argv else {"NOOPT": 1}
STEPS = 30 if FULL else 6 if "--table" in sys.argv else 3
LIMIT = 1800 if FULL or "--table" in sys.argv else 300
HOST_SERVED = re.compile(r"(\d+) launches served from host frames")
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.M)


def run(command, preload, **options):
    return Run(command, tinygrad_environment(preload, **options), limit=LIMIT)


def train(network, mode, preload, memory, **options):
    # Without tinygrad's compile workers, which would each take seconds to start; test_tiny.py has them.
    return run(training(network), preload, STEPS=STEPS, PARALLEL=0, UDNNMEM_VERIFY=1, SOFTGPU_MEMORY=memory, **MODES[mode], **({} if network == "mlp" else QUICK), **options)


class Case:
    """One network in one mode: what it prints without the library, its peak of live bytes then, and runs in a share of that."""

    def __init__(self, suite, network, mode):
        self.suite, self.network, self.mode, self.label = suite, network, mode, f"{network}, {mode}"
        self.plain = train(network, mode, False, "1GiB")
        self.peak = None
        good = self.plain.status == 0 and self.plain.output.count("loss") == STEPS and "weights" in self.plain.output and self.plain.report["faults"] == 0
        if not suite.check(good, f"{self.label}: trains without the library", self.plain.tail()):
            return
        self.peak = self.plain.report["device_bytes_peak"]

    def with_room(self):
        with tempfile.TemporaryDirectory() as folder:
            done = train(self.network, self.mode, True, "1GiB", UDNNMEM_TRACE=f"{folder}/run.jsonl.zst")
            self.largest, self.small = largest_op(f"{folder}/run.jsonl.zst")
        self.suite.check(done.status == 0 and done.output == self.plain.output, f"{self.label}: the same bits with the library and room to spare", done.tail())
        return done

    def at(self, share, **options):
        memory = int(self.peak * share / 100)
        done = train(self.network, self.mode, True, memory, **options)
        return done, verdict(done, self.plain.output, memory)

    def expect(self, share, **options):
        done, wrong = self.at(share, **options)
        self.suite.check(not wrong, f"{self.label} in {share} % {options or ''}: the same bits within the memory, paged", f"    {wrong}\n" + done.tail())
        return done

    def table_row(self):
        """How far down it goes, by 5 %, and what is wrong below, after with_room(). Too little may end in out of memory, never in other bits."""
        below = ""
        for share in range(5, 105, 5):
            done, wrong = self.at(share)
            if not wrong:
                break
            below = wrong
            good = not any(words in wrong for words in ("other bits", "faults", "timeout"))
            self.suite.check(good, f"{self.label} in {share} %: an error at most, no other bits, no hang", f"    {wrong}\n" + done.tail())
        mib = lambda n: "" if n is None else f"{n / 2**20:.1f}"
        return (f"| {self.network} | {self.mode} | {mib(self.peak)} | {mib(self.largest)} | {mib(self.small)} | {share} % | "
                f"{HOST_SERVED.search(done.error).group(1)} of {done.report['ops']} | {below} |")


def train_case(suite, network, mode):
    """One network in one mode, without the library and in less and less memory; returns lines for the reader."""
    case = Case(suite, network, mode)
    if not case.peak:
        return []
    lines = [f"{case.label}: {case.peak / 2**20:.1f} MiB live; {case.plain.seconds:.1f} s without the library" + (f", {case.with_room().seconds:.1f} s with it and room to spare" if FULL else "")]
    for share in [75, 50] if FULL else [50]:
        done = case.expect(share)
        moved = SUMMARY.search(done.error)
        lines.append(f"{case.label} in {share} %: {done.seconds:.1f} s" + (f", {moved.group(2)} MiB in, {moved.group(3)} MiB out" if moved else ""))
    if FULL:
        lines.append(case.table_row())
        for seed in range(2, 22):
            case.expect(50, SOFTGPU_SEED=seed)
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
    command = [TINYGRAD, TINY]
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


def table(suite, network, mode):
    case = Case(suite, network, mode)
    return [case.with_room() and case.table_row()] if case.peak else []


def main():
    suite = Suite()
    every = [(n, m) for n in every_network() for m in MODES]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        if sys.argv[1:2] == ["--table"]:  # the table of README.md alone, of all networks or of those named
            jobs = [pool.submit(table, suite, n, m) for n, m in every if n in sys.argv[2:] or not sys.argv[2:]]
        else:
            jobs = [pool.submit(train_case, suite, n, m) for n, m in (every if FULL else SAMPLE)] + [pool.submit(test_tiny, suite)]
        for job in jobs:
            print("\n".join(job.result()), flush=True)
    suite.finish()


if __name__ == "__main__":
    main()
