#!/usr/bin/env python3
"""Checkpointing policies on an unmodified program: digits, whose activations are dropped and computed again.

By each of them, at several depths: the bits of the run without the library; a plan that keeps checkpoints and computes the
rest again; and started once more with that plan in the very memory that it promises to need, and no host memory, the program
runs by it from its first iteration, takes that memory to the byte, and moves nothing. Two in `make test`, all with
UDNNMEM_TEST_FULL=1. `checkpoints.py POLICY DEPTH` runs one.
"""
import json, pathlib, re, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, asked_for_help, environment, refuse

GRANULE = 4096
SPARE = 0.99     # of its memory a plan is made for (planning.cpp)
MODEL = dict(SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=3e8, SOFTGPU_D2H=3e8, SOFTGPU_GRANULARITY=GRANULE)
STEPS, FEW = 30, 9   # the latter too few for another plan to be made
POLICIES = ("chen", "checkpoint-n3", "checkpoint-n2")
DEPTHS = (8, 12, 20, 32, 48)
SAMPLE = [("checkpoint-n3", 12), ("checkpoint-n2", 20)]
DONE = re.compile(r"moved ([\d.]+) MiB in, ([\d.]+) MiB out.*?(\d+) buffers dropped")


def sequence_in(trace):
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    return next(line for line in lines if line["kind"] == "sequence" and line["id"] == 0)


def one(suite, policy, depth, folder):
    what = f"{policy}, {depth} layers"
    def digits(steps):
        return [WORKLOADS / "digits-driver", "--depth", depth, "--width", "32", "--batch", "512", "--iterations", steps, "--report-peak"]

    plain = {steps: Run(digits(steps), environment(SOFTGPU_MEMORY="1GiB", **MODEL)) for steps in (STEPS, FEW)}
    memory = int(plain[STEPS].output.split("peak live bytes ")[1]) * (8 if depth < 16 else 6) // 10 // GRANULE * GRANULE   # few layers have few checkpoints
    file = folder / f"{policy}-{depth}"

    def start(name, steps, **options):
        trace = folder / f"{policy}-{depth}-{name}.jsonl"
        done = Run(digits(steps), environment(preload=True, SOFTGPU_MEMORY="1GiB", UDNNMEM_TRACE=trace, UDNNMEM_POLICY=policy, UDNNMEM_PLAN=file, UDNNMEM_DEBUG="info", **MODEL, **options), limit=300)
        moved = DONE.search(done.error)
        suite.check(done.status == 0 and done.output == plain[steps].output and done.report["faults"] == 0, f"{what}, {name}: the same bits", done.tail(12))
        suite.check(moved and int(moved[3]) > depth, f"{what}, {name}: dropped and computed again", done.tail(12))
        return done, moved, sequence_in(trace)

    start("learned", STEPS, UDNNMEM_BUDGET=memory)
    stored = [json.loads(line) for line in subprocess.run(["zstd", "-dcq", file], capture_output=True, check=True).stdout.splitlines()]
    course = next(line for line in stored if line["kind"] == "course")
    suite.check(not any(line.get("do") in ("evict", "fetch") for line in stored), f"{what}: all recompute", "    the plan moves buffers")
    beside = memory - round(course["memory_bytes"] / SPARE / GRANULE) * GRANULE   # what does not move
    done, moved, sequence = start("stored", FEW, UDNNMEM_BUDGET=beside + course["peak_bytes"], UDNNMEM_HOST_BUDGET=0)
    if over := sequence["peak_bytes"] - course["peak_bytes"]:   # without proofs to make, less stays where it is
        beside -= over
        done, moved, sequence = start("tight", FEW, UDNNMEM_BUDGET=beside + course["peak_bytes"], UDNNMEM_HOST_BUDGET=0)
    suite.check(sequence["peak_bytes"] == sequence["peak_promised_bytes"] == course["peak_bytes"], f"{what}: the memory that it promised", f"    {sequence}")
    suite.check(done.report["device_bytes_peak"] <= beside + course["peak_bytes"], f"{what}: within the budget", f"    {done.report}")
    suite.check(moved and moved[1] == moved[2] == "0.0", f"{what}: nothing is moved", done.tail())
    suite.check(sequence["iterations"] == sequence["planned_iterations"] >= FEW - 3, f"{what}: by plan from the first iteration", f"    {sequence}")
    if len(sys.argv) > 1:
        print(f"{what}: promised {course['peak_bytes']} bytes, held {sequence['peak_bytes']}, moved {moved[1] if moved else '?'} MiB in and {moved[2] if moved else '?'} out; {sequence['planned_iterations']} of {sequence['iterations']} iterations by plan")


def main():
    asked_for_help(__doc__)
    if len(sys.argv) > 1 and (len(sys.argv) != 3 or sys.argv[1] not in POLICIES or not re.fullmatch("[0-9]+", sys.argv[2]) or not 4 <= int(sys.argv[2]) <= 1000):
        refuse(f"{' '.join(sys.argv[1:])}: expected POLICY DEPTH: {', '.join(POLICIES[:-1])} or {POLICIES[-1]}, and 4 to 1000 layers")
    suite = Suite()
    cases = [(sys.argv[1], int(sys.argv[2]))] if len(sys.argv) > 2 else [(p, d) for p in POLICIES for d in DEPTHS] if FULL else SAMPLE
    with tempfile.TemporaryDirectory() as folder:
        for policy, depth in cases:
            one(suite, policy, depth, pathlib.Path(folder))
    suite.finish()


if __name__ == "__main__":
    main()
