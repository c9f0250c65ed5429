#!/usr/bin/env python3
"""Programs that are no simple loop, run by plan: digits with an evaluation now and then, with a last batch of another size,
with gradients of several batches, with two networks in turns, with another choice of blocks each step.

Half of the memory, modelled time. Each run must compute the bits of the run with enough memory, without a fault; the report
must show what was matched; and the sequence that the program repeats most must run by plan as fast as in a simple loop
in the same memory (to 10 %). One of the programs in `make test`, all with UDNNMEM_TEST_FULL=1. `sequences.py NAME...` runs those.
"""
import json, pathlib, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, WORKLOADS, Run, Suite, environment, settled

LINK = 5e8  # bytes per second, each way
MODEL = dict(UDNNMEM_RECOMPUTE="off", SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=LINK, SOFTGPU_D2H=LINK, SOFTGPU_GRANULARITY=4096, UDNNMEM_TEST_LOOK_MS=200)
SLOWER = 1.1


class Case:
    """`sequences`: that must have been followed, `planned` of them by plan. `loop`: the simple loop to compare with."""

    def __init__(self, options, steps, sequences, planned, loop=()):
        self.options, self.steps, self.sequences, self.planned, self.loop = options, steps, sequences, planned, loop


CASES = {
    "evaluate": Case(["--evaluate", 50 if FULL else 5], 210 if FULL else 16, 2, 1),
    "last": Case(["--last", "20,64"], 90, 2, 2),
    "accumulate": Case(["--accumulate", 4], 24, 1, 1, None),
    "models": Case(["--models", "2,8"], 64, 2, 2, ["--models", "2,1000"]),
    "depth": Case(["--random-depth", 4], 80, 3, 2, None),
    "depths": Case(["--random-depth", 12], 240, 10, 3, None),   # all of them kept side by side
}


def digits(steps, *options):
    return [WORKLOADS / "digits-driver", "--depth", 12, "--width", 32, "--batch", 128, "--iterations", steps, "--report-peak", *options]


def recorded(command, memory):
    """The run under the library, and its report."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "run.jsonl.zst"
        done = Run(command, environment(preload=True, SOFTGPU_MEMORY=memory, UDNNMEM_TRACE=trace, UDNNMEM_DEBUG="info", **MODEL), limit=900)
        report = lambda form: subprocess.run([BUILD / "udnnmem", "report", trace, "--format", form], capture_output=True, text=True).stdout
        return done, json.loads(report("json") or "{}"), report("text")


def most_repeated(report):
    return max(report.get("sequences") or [{"planned_ns": 0, "iterations": 0, "ops": 0}], key=lambda s: s["iterations"] * s["ops"])


def main():
    suite = Suite()
    for name in sys.argv[1:] or (CASES if FULL else ["evaluate"]):
        case = CASES[name]
        command = digits(case.steps, *case.options)
        plain = Run(command, environment(SOFTGPU_MEMORY="1GiB", **MODEL), limit=600)
        peak = int(plain.output.split("peak live bytes ")[1])
        # How fast the simple loop is by plan, in the same memory; ns.
        loop = most_repeated(recorded(digits(16, *case.loop), peak // 2)[1])["planned_ns"] if case.loop is not None else 0
        kept = lambda ran: not loop or 0 < most_repeated(ran[1])["planned_ns"] <= SLOWER * loop
        done, report, text = settled(lambda ran: kept(ran) or ran[0].status != 0, lambda: recorded(command, peak // 2))
        suite.check(done.status == 0 and done.output == plain.output, f"{name}: the same bits", f"    status {done.status}\n{done.tail()}")
        suite.check(done.report and done.report["faults"] == 0 and done.report["device_bytes_peak"] <= peak // 2, f"{name}: no fault, within the device", f"    {done.report}")
        followed = [s for s in report.get("sequences", []) if s["iterations"] or s["turns"]]
        by_plan = [s for s in followed if s["planned_iterations"]]
        suite.check(len(followed) >= case.sequences and len(by_plan) >= case.planned, f"{name}: what was matched", f"{text}\n{done.tail(20)}")
        suite.check(all(f"  sequence {s['id']}" in text for s in followed), f"{name}: the report in words", text)
        best = most_repeated(report)
        if case.loop is None:
            print(f"{name}: {best['planned_ns'] / 1e6:.2f} ms by plan, {best['promised_ns'] / 1e6:.2f} promised", flush=True)
            continue
        print(f"{name}: {best['planned_ns'] / 1e6:.2f} ms by plan, {loop / 1e6:.2f} in a simple loop; {len(by_plan)} sequences by plan", flush=True)
        suite.check(loop > 0 and kept((done, report, text)), f"{name}: as fast as a simple loop", f"    {best}\n    {loop} ns\n{done.tail(20)}")
    suite.finish()


if __name__ == "__main__":
    main()
