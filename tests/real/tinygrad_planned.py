#!/usr/bin/env python3
"""tinygrad's networks by plan, in modelled time: the same bits, and an iteration takes what the simulator promised, to 5 %.

Each network runs eager and by TinyJit, a tensor a buffer, in half of its peak of live bytes, over two links: moving all of its
bytes takes as many times its iteration with all memory as it does, in the middle, for the `modern` traces of tests/traces over
55 and over 15.75 GB/s (LINKS). Moves alone, then with buffers dropped and computed again, that also in 35 and 25 % where the largest
op and what slabs hold fit. `tinygrad_planned.py NETWORK...` takes those (a quarter of an hour a network).
"""
import concurrent.futures, re, sys, tempfile
from paged import GRANULE, MODES, every_network, largest_op, live_bytes, tinygrad_environment, training, verdict
from tests.e2e.harness import FOLLOWED, Run, Suite, settled

WAYS = ("eager plain", "jit plain")
LINKS = {"fast": 1.3, "slow": 4.7}   # the time that all live bytes take one way, over that of an iteration
STEPS = {"off": 40, "auto": 60}      # proofs of what can be computed again take iterations
LEAST, MOST = 0.95, 1.05             # of what was promised: where that is wrong, either way, another plan may be better
GIVEN_UP = re.compile(r"launched whole again: .* node by node by")   # by what a plan promises
MODEL = dict(SOFTGPU_TIME="model:5e10:3e10", PARALLEL=0, UDNNMEM_TEST_DEADLINE_MS=60000)   # the progress rule goes by this machine's clock


def train(network, mode, preload, steps, **options):
    return Run(training(network), tinygrad_environment(preload, STEPS=steps, **MODEL, **MODES[mode], **options), limit=1800)


class Planned:
    """A run by plan; times in ms, 0 where no iteration went by plan."""

    def __init__(self, network, mode, recompute, memory, link):
        self.done = train(network, mode, True, STEPS[recompute], UDNNMEM_RECOMPUTE=recompute, UDNNMEM_DEBUG="info", SOFTGPU_MEMORY=memory,
                          SOFTGPU_H2D=link, SOFTGPU_D2H=link)
        found = FOLLOWED.search(self.done.error)
        self.iterations, self.by_plan, self.promised = (int(found[2]), int(found[3]) / 1e3, int(found[4]) / 1e3) if found else (0, 0, 0)

    def as_promised(self):
        return self.iterations >= 3 and 0 < LEAST * self.promised <= self.by_plan <= MOST * self.promised


def check(suite, network, mode):
    label = f"{network}, {mode}"
    expected = {n: train(network, mode, False, n, SOFTGPU_MEMORY="1GiB") for n in sorted(set(STEPS.values()))}
    few, many = expected.values()
    if not suite.check(all(r.status == 0 and "weights" in r.output for r in expected.values()), f"{label}: trains without the library", many.tail()):
        return
    with tempfile.TemporaryDirectory() as folder:   # by TinyJit an op is a graph, which is launched in pieces
        roomy = {m: train(network, m, True, 16, SOFTGPU_MEMORY="1GiB", UDNNMEM_TRACE=f"{folder}/{m}.jsonl") for m in {mode, WAYS[0]}}
        largest, small = largest_op(f"{folder}/{WAYS[0]}.jsonl")
    peak = live_bytes(roomy[mode])
    if not suite.check(peak and largest, f"{label}: an iteration is learned", roomy[mode].tail()):
        return
    # Beside the largest op: slabs that are not full, a granule for hashes, and what is left to others.
    least = (largest + -(-small // GRANULE) * GRANULE + 2 * GRANULE + 4 * GRANULE) * 1.01
    steps = list(expected)
    ideal = (many.report["virtual_ns"] - few.report["virtual_ns"]) / (steps[1] - steps[0]) / 1e6
    print(f"{label}: {peak / 2**20:.1f} MiB live, {ideal:.2f} ms an iteration with all memory", flush=True)
    for name, ratio in LINKS.items():
        link = peak / (ratio * ideal / 1e3)
        for recompute, share in [("off", 50), ("auto", 50), ("auto", 35), ("auto", 25)]:
            memory, what = int(peak * share / 100), f"{label} in {share} %, {name} link, recompute {recompute}"
            if memory < least:
                print(f"{what}: not tried, its largest op and slabs need {least / 2**20:.1f} MiB", flush=True)
                continue
            run = settled(lambda p: p.as_promised() or p.done.status != 0, lambda: Planned(network, mode, recompute, memory, link))
            wrong = verdict(run.done, expected[STEPS[recompute]].output, memory)
            suite.check(not wrong, f"{what}: the same bits within the memory", f"    {wrong}\n{run.done.tail()}")
            suite.check(recompute == "off" or not GIVEN_UP.search(run.done.error), f"{what}: graphs go node by node until it is known what can be dropped between nodes", run.done.tail(12))
            suite.check(run.as_promised(), f"{what}: as promised", f"    {run.iterations} iterations, {run.by_plan} ms by plan, {run.promised} promised\n{run.done.tail(12)}")
            print(f"{what}: {run.by_plan:.1f} ms by plan, {run.promised:.1f} promised, {run.done.seconds:.0f} s", flush=True)


def main():
    suite = Suite()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(check, suite, n, m) for n in sys.argv[1:] or every_network() for m in WAYS]
        for job in jobs:
            job.result()
    suite.finish()


if __name__ == "__main__":
    main()
