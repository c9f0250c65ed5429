#!/usr/bin/env python3
"""Ops are timed by CUPTI until an iteration was told, or for two seconds, and CUPTI is gone for good afterwards.

With the fake of tests/softgpu/cupti, which hands out the software GPU's own times: the trace's times are those, to the
nanosecond; graphs, of which CUPTI has many records, are timed by events. With another subscriber, another version, or no CUPTI: event pairs, said once. With the toolkit's own CUPTI,
which refuses the software GPU: the same. Under nsys, ncu and compute-sanitizer, as far as their environment tells: CUPTI is theirs.
"""
import json, pathlib, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, SOFTGPU, WORKLOADS, Run, Suite, environment, settled

FAKE = f"{SOFTGPU}:{BUILD / 'softgpu/cupti'}"
TOOLKIT = pathlib.Path([l.split(":=")[1].strip() for l in (BUILD / "config.mk").read_text().splitlines() if l.startswith("CUDA_HOME")][0])


def run(folder, build="runtime", memory="4GiB", libraries=FAKE, command=None, **options):
    trace, log = folder / "t.jsonl", folder / "log.json"
    for path in (trace, log):
        path.unlink(missing_ok=True)
    options.setdefault("UDNNMEM_DEBUG", "info")
    options.setdefault("UDNNMEM_CUPTI", 1)
    options.setdefault("UDNNMEM_TEST_CUPTI_MS", 600000)   # a crowded machine may need its time
    # An iteration of the graph build is four ops; an iteration is watched for some 2,000 ops before it is believed.
    done = Run(command or [WORKLOADS / f"digits-{build}", "--depth", "16", "--width", "32", "--batch", "256", "--iterations", "700" if build == "graph" else "24"],
               environment(preload=True, libraries=libraries, SOFTGPU_MEMORY=memory, UDNNMEM_TRACE=trace, FAKE_CUPTI_LOG=log, **options))
    ops, learned = [], None
    for line in trace.read_text().splitlines() if trace.exists() else []:
        record = json.loads(line)
        if record["kind"] == "learned":
            ops, learned = [], record
        elif record["kind"] == "op":
            ops.append(record)
    return done, learned, ops, json.loads(log.read_text()) if log.exists() else None


def check_times(suite, folder, build, memory, expected):
    what = f"{build} in {memory}"
    done, learned, ops, log = run(folder, build, memory)
    if not suite.check(done.status == 0 and log and ops, f"{what}: runs with CUPTI", done.tail()):
        return
    suite.check(done.output == expected, f"{what}: the same bits")
    ops = [op for op in ops if op["name"] != "cuGraphLaunch"]
    suite.check("ops are timed by CUPTI" in done.error and "event pairs" not in done.error, f"{what}: it says that CUPTI times the ops")
    suite.check(learned["timed_by"] == ("CUPTI, graphs by event pairs" if build == "graph" else "CUPTI"), f"{what}: and so does the trace", f"    {learned}")
    suite.check(log["pushes"] == log["pops"] > 2 * len(ops), f"{what}: each op is told once", f"    {log['pushes']} {log['pops']}")
    spans = {}
    for i, _, begin, end in log["ops"]:
        i &= 0xffff   # the rest says which stream
        a, b = spans.get(i, (begin, end))
        spans[i] = min(a, begin), max(b, end)
    # The iteration is a stretch of the ops that were told: it begins where they did, on one clock, and each of its ops takes the
    # shorter of its time and that of a period later.
    count, n = log["pushes"], len(ops)
    starts = [spans[i][0] if i in spans else None for i in range(count)]
    times = [spans[i][1] - spans[i][0] if i in spans else None for i in range(count)]
    at = [p for p in range(count - n + 1) if len({op["start_ns"] - starts[p + k] if starts[p + k] is not None else None for k, op in enumerate(ops)}) == 1]
    if suite.check(len(at) == 1, f"{what}: the ops begin when the software GPU says", f"    {len(at)} {at[:6]} {[op['start_ns'] - ops[0]['start_ns'] for op in ops[:6]]}"):
        wanted = [min(t for t in (times[at[0] + k], times[at[0] + k + n] if at[0] + k + n < count else None) if t is not None) for k in range(n)]
        # Of the last ops the second time may not have been known yet.
        suite.check(all(op["duration_ns"] in (w, times[at[0] + k]) for k, (op, w) in enumerate(zip(ops, wanted))), f"{what}: and last as long, to the nanosecond", f"    {wanted[:6]} {[op['duration_ns'] for op in ops[:6]]}")
    suite.check(log["finalised"] == 1 and log["subscribed"] == 0 and log["enabled"] == 0 and log["late"] == 0, f"{what}: CUPTI is detached, and never called again", f"    { {k: v for k, v in log.items() if k != 'ops'} }")
    suite.check(log["pushes"] < done.report["ops"], f"{what}: before the program ends", f"    {log['pushes']} of {done.report['ops']}")
    suite.check(all(name.startswith(("cuLaunch", "cuMemcpy", "cuMemset")) for name in log["apis"]), f"{what}: only calls that submit work are recorded", f"    {log['apis']}")


def check_bounds(suite, folder, expected):
    pushes = settled(lambda n: n < 8 * 160, lambda: run(folder)[3]["pushes"])
    suite.check(pushes < 8 * 160, "CUPTI is left as soon as the iteration of 160 ops is told", f"    {pushes}")
    # On a crowded machine a kernel may come out with a duration and no start.
    timed = lambda ops: ops and all(op.get("duration_ns", 0) > 0 and op.get("start_ns", 0) > 0 for op in ops if "mem" not in op["name"])
    done, learned, ops, log = settled(lambda r: r[3] and r[3]["pushes"] < 2 * 160 and timed(r[2]), lambda: run(folder, UDNNMEM_TEST_CUPTI_MS=1))
    suite.check(done.status == 0 and done.output == expected and learned and log and log["finalised"] == 1 and log["late"] == 0, "found or not found, CUPTI is left", f"    {log}\n{done.tail()}")
    suite.check(log and log["pushes"] < 2 * len(ops), "found or not found: when its time is up", f"    {log and log['pushes']} {len(ops)}")
    suite.check(timed(ops), "found or not found: every kernel has its time")
    # Found within the program's last moments, or not at all: its statics go before ours end.
    done, learned, ops, log = run(folder, command=[WORKLOADS / "vadd"])
    suite.check(done.status == 0 and log and log["pushes"] > 0 and log["finalised"] == 1 and log["late"] == 0, "at exit CUPTI is left while it is there", f"    {log}\n{done.tail()}")


def check_beside(suite, folder):
    """A graph's time is that of all its nodes, also where ops of another stream end meanwhile."""
    done, learned, ops, log = run(folder, command=[WORKLOADS / "beside", 14])
    times = [op["duration_ns"] for op in ops if op["name"] == "cuGraphLaunch"]
    suite.check(done.status == 0 and len(times) == 1 and times[0] > 0.6 * int(done.output), "a graph beside another stream's ops: all its nodes are timed", f"    {times} {done.output}{done.tail()}")


TOOLS = {"nsys": {"NSYS_PROFILING_SESSION_ID": 7}, "ncu": {"NV_NSIGHT_INJECTION_PORT_BASE": 49152}, "compute-sanitizer": {"NV_SANITIZER_INJECTION_PORT_BASE": 49152}}


def beside_tools(suite, folder, expected):
    """Under one of NVIDIA's tools, as far as its environment tells: CUPTI is left to it, one line says so."""
    for tool, variables in TOOLS.items():
        done, learned, ops, log = run(folder, **variables)
        said = [line for line in done.error.splitlines() if f"{tool} is at work here" in line]
        suite.check(done.status == 0 and done.output == expected and len(said) == 1, f"under {tool}: the same bits, and one line", done.tail())
        suite.check((not log or log["pushes"] == 0) and "ops are timed by CUPTI" not in done.error and learned and ops, f"under {tool}: CUPTI is left alone, and the iteration is learned", f"    {log}\n{done.tail()}")
        suite.check(("nothing is computed again" in said[0]) == (tool != "nsys") if said else False, f"under {tool}: what is computed again", "    " + "\n    ".join(said))


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plain, *_ = run(folder, libraries=SOFTGPU, UDNNMEM_DISABLE=1)
        for build, memory in (("runtime", "4GiB"), ("streams", "4GiB"), ("graph", "4GiB"), ("runtime", "1MiB")):
            check_times(suite, folder, build, memory, run(folder, build, libraries=SOFTGPU, UDNNMEM_DISABLE=1)[0].output)
        for what, reason, libraries, options in (("another subscriber", "another profiler has CUPTI", FAKE, {"FAKE_CUPTI": "busy"}), ("an old CUPTI", "CUPTI's version is 24", FAKE, {"FAKE_CUPTI": "old"}),
                                                 ("event timing asked for", "UDNNMEM_CUPTI is not set", FAKE, {"UDNNMEM_CUPTI": 0}), ("the toolkit's CUPTI", "", f"{SOFTGPU}:{TOOLKIT / 'lib64'}:{TOOLKIT / 'lib'}", {})):
            done, learned, ops, log = run(folder, libraries=libraries, **options)
            said = [line for line in done.error.splitlines() if "event pairs" in line]
            suite.check(done.status == 0 and done.output == plain.output, f"{what}: the same bits", done.tail())
            suite.check(len(said) == 1 and reason in said[0], f"{what}: event pairs, said once", f"    {said}")
            suite.check(learned and learned["timed_by"].startswith("event pairs (") and reason in learned["timed_by"], f"{what}: the trace says so", f"    {learned}")
            suite.check(ops and all(op["duration_ns"] > 0 and op["start_ns"] > 0 for op in ops if "mem" not in op["name"]), f"{what}: every kernel has its time")
            suite.check(not log or (log["pushes"] == 0 and log["late"] == 0), f"{what}: CUPTI is left alone", f"    {log and log['pushes']}")
            print(f"{what}: {said[0].split('learned: ')[-1] if said else '-'}")
        for what, said, options in (("said without being asked", 1, {}), ("not where that was asked for", 0, {"UDNNMEM_CUPTI": 0}), ("nor where it is to be quiet", 0, {"UDNNMEM_QUIET": 1})):
            done, *_ = run(folder, FAKE_CUPTI="busy", UDNNMEM_DEBUG="warn", **options)
            suite.check(done.status == 0 and done.error.count("ops are timed by event pairs, not by CUPTI") == said, f"event pairs: {what}", done.tail())
        check_bounds(suite, folder, plain.output)
        check_beside(suite, folder)
        beside_tools(suite, folder, plain.output)
    suite.finish()


if __name__ == "__main__":
    main()
