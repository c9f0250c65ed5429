#!/usr/bin/env python3
"""Programs run by plan: digits in half of its memory, in modelled time, by every policy.

Each run must compute the bits of the run with enough memory, without a fault, and have run iterations by plan. Once it was measured
what moves cost, which before that is assumed, an iteration takes what the simulator promises.
"""
import json, pathlib, re, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FOLLOWED, FULL, WORKLOADS, Run, Suite, environment, settled

ITERATIONS = 10
UNTIL_ADAPTED = 26
AS_PROMISED = 1.05   # at most so much more, or less
TOO_LARGE = re.compile(r"needs (\d+) bytes.*, more than the (\d+) that buffers can move in: \d+ of them stay where they are")
LINK = 5e8  # bytes per second, each way
# Moves alone: dropping and computing again, whose proofs take iterations, has its own suite (replays.py). So long a look for a
# better plan than the first: more makes no difference here.
MODEL = dict(UDNNMEM_RECOMPUTE="off", UDNNMEM_TEST_LOOK_MS=200, SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=LINK, SOFTGPU_D2H=LINK)


def digits(program, depth, iterations=ITERATIONS):
    return [WORKLOADS / program, "--depth", depth, "--width", "32", "--batch", "256", "--iterations", iterations, "--report-peak"]


def main():
    suite = Suite()

    def case(what, command, expected, memory, planned=ITERATIONS // 2, **options):
        def by_plan(done):
            found = FOLLOWED.search(done.error)
            return int(found[2]) if found else 0

        # On a crowded machine the plan may come late.
        done = settled(lambda d: by_plan(d) >= planned, lambda: Run(command, environment(preload=True, SOFTGPU_MEMORY=memory, UDNNMEM_DEBUG="info", **options), limit=1800 if FULL else 300))
        suite.check(done.status == 0 and done.output.split("peak live")[0] == expected, f"{what}: the same bits", f"    status {done.status}\n{done.tail()}")
        suite.check(done.report and done.report["faults"] == 0, f"{what}: no fault", f"    {done.report}")
        suite.check(done.report and done.report["device_bytes_peak"] <= memory, f"{what}: within the device", f"    {done.report}")
        found = FOLLOWED.search(done.error)
        suite.check(by_plan(done) >= planned, f"{what}: iterations by plan", done.tail(10))
        return done, found

    def recorded(command, memory):
        """The report of a planned run's trace says what was followed, and how fast the link is."""
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "run.jsonl.zst"
            Run(command, environment(preload=True, SOFTGPU_MEMORY=memory, UDNNMEM_TRACE=trace, **MODEL))
            run = json.loads(subprocess.run([BUILD / "udnnmem", "report", trace, "--format", "json"], capture_output=True, text=True).stdout)
            text = subprocess.run([BUILD / "udnnmem", "report", trace], capture_output=True, text=True).stdout
        figures = {k: run[k] for k in ("iterations", "planned_iterations", "ideal_ns", "promised_ns", "planned_ns", "demand_ns", "strayed")}
        suite.check(run["planned_iterations"] >= 3 and run["planned_ns"] > run["ideal_ns"] > 0 and run["promised_ns"] > run["ideal_ns"],
                    "the report: iterations by plan", f"    {figures}")
        rates = [link["in_bytes_per_second"] for link in run["link"] or []] or [0]
        suite.check(0.6 * LINK < rates[0] < 1.05 * LINK, "the report: the link's rate", f"    {run['link']}")
        steps, sequence = run["steps"], run["sequences"][0]
        timed = [s for s in steps if s["sequence"] == sequence["id"] and s["start_ns"] is not None]
        suite.check(len(timed) > sequence["ops"] // 2 and 0.5 * run["planned_ns"] < max(s["start_ns"] + s["took_ns"] for s in timed) < 2 * run["planned_ns"],
                    "the report: when ops ran", f"    {len(timed)} of {sequence['ops']}, {run['planned_ns']}: {[s['start_ns'] for s in timed[::16]]}")
        suite.check(any(s["held_times"] and s["cause"] for s in steps) and all(s["name"] for s in steps), "the report: why launches were held back", f"    {steps[:3]}")
        suite.check("  later than planned:" in text or not any(s["delay_ns"] for s in steps), "the report in words: what was late", text)
        suite.check("  by plan  " in text and "  link 0  " in text, "the report in words", text)

    def long_ops():
        """What waits for ops of the plan is not late, though the deadline is shorter than they are."""
        command = [WORKLOADS / "digits-driver", "--depth", "16", "--width", "128", "--batch", "1024", "--iterations", "24", "--report-peak"]
        expected, peak, _ = plain(command)
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "run.jsonl"
            case("ops longer than the deadline", command, expected, peak // 2, planned=12, UDNNMEM_RECOMPUTE="off", UDNNMEM_TEST_DEADLINE_MS=1, UDNNMEM_TRACE=trace)
            lines = [json.loads(line) for line in trace.read_text().splitlines() if '"kind":"summary"' in line]
        fired = [line["deadlines"] for line in lines if line["planned_iterations"]]
        suite.check(len(fired) > 1 and fired[-1] - fired[0] <= 3, "ops longer than the deadline: none fires by plan", f"    {fired}")

    def too_large():
        """An op that cannot have all of its buffers on the device runs from host frames; its iteration goes by plan all the same."""
        command = [WORKLOADS / "digits-driver", "--depth", "12", "--width", "32", "--batch", "256", "--iterations", "24", "--report-peak"]
        expected, peak, _ = plain(command, SOFTGPU_GRANULARITY=4096)
        done, found = case("an op that is too large", command, expected, 400 << 10, planned=12, SOFTGPU_GRANULARITY=4096, **MODEL)
        said = TOO_LARGE.search(done.error)
        if not suite.check(said and "gather_rows, needs" in done.error, "an op that is too large: said", done.tail(20)):
            return
        # With room for it and a granule over, until what proofs take is missing.
        lacks = -(-(int(said[1]) - int(said[2])) // 4096) * 4096
        done, found = case("an op that just fits", command, expected, (400 << 10) + int((lacks + 4096) / 0.95), planned=8, SOFTGPU_GRANULARITY=4096, **{**MODEL, "UDNNMEM_RECOMPUTE": "auto"})
        suite.check("may be run again" in done.error and "no plan for" not in done.error, "an op that just fits, until there are proofs: planned for all the same", done.tail(20))

    def plain(command, **options):
        done = Run(command, environment(SOFTGPU_MEMORY="1GiB", **options))
        return done.output.split("peak live")[0], int(done.output.split("peak live bytes ")[1]), done

    for program in ("digits-driver", "digits-runtime")[:2 if FULL else 1]:
        command = digits(program, 24)
        expected, peak, ideal = plain(command, **MODEL)
        for policy in ("udnn", "capuchin", "delta"):
            done, found = case(f"{program} by {policy}", command, expected, peak // 2, planned=3, UDNNMEM_POLICY=policy, **MODEL)
            if found:
                print(f"{program} by {policy}: {int(found[3]) / 1e3:.1f} ms an iteration by plan, {int(found[4]) / 1e3:.1f} promised")
        case(f"{program} on demand", command, expected, peak // 2, planned=0, UDNNMEM_POLICY="demand", **MODEL)

    for link, depth in [(link, depth) for depth in ((24, 200, 1000) if FULL else (24,)) for link in (LINK, 3 * LINK)]:
        model = MODEL | dict(SOFTGPU_H2D=link, SOFTGPU_D2H=link)
        command = digits("digits-driver", depth, UNTIL_ADAPTED)
        expected, peak, _ = plain(command, **model)
        done, found = case(f"digits of {depth} layers at {link / 1e9:g} GB/s", command, expected, peak // 2, planned=UNTIL_ADAPTED // 2, **model)
        if found:
            took, promised = int(found[3]), int(found[4])
            print(f"digits of {depth} layers at {link / 1e9:g} GB/s: {took / 1e3:.1f} ms an iteration by plan, {promised / 1e3:.1f} promised")
            suite.check(promised / AS_PROMISED <= took <= promised * AS_PROMISED, f"digits of {depth} layers at {link / 1e9:g} GB/s: as promised", done.tail(20))
    # As a loop has it: the batch before goes when the next one has come; frees that wait for each other.
    for held in (["--hold", 1], ["--hold", 2], ["--late-frees", 10], ["--hold", 1, "--late-frees", 10])[:4 if FULL else 1]:
        command = digits("digits-driver", 24, 24) + held
        expected, peak, _ = plain(command, **MODEL)
        case(" ".join(map(str, held)), command, expected, peak // 2, planned=16, **MODEL)
    recorded(digits("digits-driver", 24), 1600000)
    long_ops()
    too_large()
    suite.finish()


if __name__ == "__main__":
    main()
