#!/usr/bin/env python3
"""NVTX, both ways: the program's ranges name the ops of its trace and its iteration, and what the library moves is ranges that
another tool sees, which gets every call of the program's too.
"""
import collections, json, pathlib, re, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, PRELOAD, WORKLOADS, Run, Suite, environment
from tests.e2e import replays
from tests.e2e.iterations import traced

TOOL = WORKLOADS / "nvtx_tool.so"
LAYERS = 4
RANGES = ["step/data:load"] + [f"step/forward/layer {l}" for l in range(LAYERS)] + ["step/backward"] * LAYERS + ["step/optim:update"] * LAYERS


def rotations(ranges):
    return [ranges[k:] + ranges[:k] for k in range(len(ranges))]


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plain = Run([WORKLOADS / "ranges"], environment())
        suite.check(plain.status == 0, "the program runs", plain.tail())

        def run(what, *arguments, expected=plain, **options):
            done = Run([WORKLOADS / "ranges", *arguments], environment(preload=True, UDNNMEM_BUDGET="900KiB", **options))
            suite.check(done.status == 0 and done.output == expected.output, f"{what}: the same output", done.tail())
            return done

        # In the trace, and in every report.
        trace = folder / "t.jsonl"
        run("ranges", UDNNMEM_TRACE=trace)
        learned, _, ops = traced(trace)
        found = [op.get("range", "") for op in ops]
        suite.check(found in rotations(RANGES), "each op has the ranges around it", f"    {found}")
        report = json.loads(subprocess.run([BUILD / "udnnmem", "report", trace, "--format", "json"], capture_output=True, text=True, check=True).stdout)
        totals = {r["range"]: r for r in report["ranges"]}
        suite.check({r: t["ops"] for r, t in totals.items()} == dict(collections.Counter(RANGES)) and all(t["time_ns"] > 0 for t in totals.values()),
                    "the report sums them", f"    {totals}")
        phases = {r["range"]: r["phase"] for r in report["ranges"]}
        suite.check(phases == {r: "forward" if "forward" in r else "backward" if "backward" in r else "update" if "update" in r else "" for r in RANGES},
                    "they name phases", f"    {phases}")
        text = subprocess.run([BUILD / "udnnmem", "report", trace], capture_output=True, text=True, check=True).stdout
        suite.check("step/optim:update" in text, "the text report shows them", text)
        chrome = json.loads(subprocess.run([BUILD / "udnnmem", "report", trace, "--format", "chrome"], capture_output=True, text=True, check=True).stdout)
        shown = {e["name"] for e in chrome["traceEvents"] if e.get("cat") == "range"}
        suite.check({"step", "forward", "layer 3", "backward", "optim:update"} <= shown, "the Chrome trace shows them", f"    {shown}")

        # Where two equal halves make a step, only the program can say so.
        for mark, times in ((None, 1), ("step", 2), ("step done", 2), ("no such range", 1)):
            trace = folder / f"{times}-{mark}.jsonl"
            two = Run([WORKLOADS / "ranges", 12, 2], environment())
            done = run(f"mark {mark}", 12, 2, expected=two, UDNNMEM_TRACE=trace, **({"UDNNMEM_ITERATION_MARK": mark} if mark else {}))
            learned, _, ops = traced(trace)
            suite.check(learned and learned["ops"] == times * len(RANGES), f"mark {mark}: the iteration is {times} times the ops", f"    {learned}")
            if mark == "step":
                suite.check(ops[0]["range"] == "step/data:load", "mark step: it begins there", f"    {ops[0]}")
            suite.check(("no NVTX range of that name" in done.error) == (mark == "no such range"), f"mark {mark}: said if there is none", done.tail())

        # Another tool gets what it would get without us, and our own ranges.
        logs = {}
        for preload in (False, True):
            log = folder / f"log-{preload}"
            done = Run([WORKLOADS / "ranges"], environment(preload=preload, NVTX_INJECTION64_PATH=TOOL, NVTX_TOOL_LOG=log, **({"UDNNMEM_BUDGET": "900KiB"} if preload else {})))
            suite.check(done.status == 0 and done.output == plain.output, f"a tool, preload {preload}: the same output", done.tail())
            logs[preload] = log.read_text().splitlines()
        clean = lambda lines: [re.sub(r"(start default \S+|end default|start optim update|end optim) \d+( \d+)?", r"\1", l) for l in lines]
        suite.check(logs[True].count("client") == logs[False].count("client") + 1, "a tool: the library is one more client")
        theirs = [l for l in logs[True] if " udnnmem" not in l and l != "client"]
        suite.check(clean(theirs) == clean(l for l in logs[False] if l != "client"), "a tool: sees the program as without us", f"    {len(theirs)} lines, {len(logs[False])} without")
        suite.check("domain udnnmem" in logs[True], "a tool: sees the library's domain")
        begun = {m[3]: (m[1], int(m[4])) for l in logs[True] if (m := re.match(r"start udnnmem (\w+) (\d+) (\d+) (\d+)$", l))}
        ended = [m[1] for l in logs[True] if (m := re.match(r"end udnnmem (\d+)$", l))]
        kinds = collections.Counter(kind for kind, _ in begun.values())
        suite.check(kinds["evict"] > 10 and kinds["fetch"] > 10, "a tool: evictions and fetches are ranges", f"    {kinds}")
        suite.check(all(size >= 1 << 18 for _, size in begun.values()), "a tool: with their bytes")
        suite.check(len(set(ended)) == len(ended) and set(ended) <= set(begun) and len(begun) - len(ended) <= 4, "a tool: each ends once", f"    {len(begun)} begun, {len(ended)} ended")

        # A child gets the tool too, through a shell that has an environment of its own.
        log = folder / "child"
        done = Run(["/bin/bash", "-c", f"{WORKLOADS / 'ranges'}; true"], environment(preload=True, NVTX_INJECTION64_PATH=TOOL, NVTX_TOOL_LOG=log))
        suite.check(done.output == plain.output and "push default step" in log.read_text(), "a child of a shell: the tool sees it", done.tail())
        # What is named and cannot be loaded costs nobody anything.
        run("a tool that is missing", NVTX_INJECTION64_PATH=folder / "none.so")
        # Switched off, the library is in nobody's way.
        done = Run(["/usr/bin/env"], environment(preload=True, UDNNMEM_DISABLE="1"))
        suite.check("NVTX_INJECTION" not in done.output, "switched off: the environment is untouched", done.output)

        # Dropped and computed again, for the tool.
        log = folder / "replays"
        done = Run([WORKLOADS / "replays", "pure", 40], environment(preload=True, SOFTGPU_MEMORY=replays.MEMORY, NVTX_INJECTION64_PATH=TOOL, NVTX_TOOL_LOG=log, **replays.MODEL), limit=120)
        kinds = collections.Counter(l.split()[2] for l in log.read_text().splitlines() if l.startswith("start udnnmem"))
        suite.check(kinds["drop"] >= 40 and kinds["replay"] >= 20, "a tool: drops and replays are ranges", f"    {kinds}\n{done.tail()}")
    suite.finish()


if __name__ == "__main__":
    main()
