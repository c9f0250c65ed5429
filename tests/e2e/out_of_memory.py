#!/usr/bin/env python3
"""Out of memory, explained: who held what, and the budget that it takes at least; raised to that each time, the program gets through.

digits in a device and a host budget that are too small together. The program gets CUDA's error as ever; stderr has one
block, the trace a record. With the budget that it names the program gets further, in the end to its end. What the driver lacks
for itself it is given.
"""
import json, pathlib, re, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, WORKLOADS, Run, Suite, environment

PROGRAM = [WORKLOADS / "digits-runtime", "--depth", "16", "--width", "32", "--batch", "256", "--iterations", "3"]

LATE = [WORKLOADS / "digits-driver", "--depth", "12", "--width", "32", "--batch", "256", "--iterations", "4"]


def attempt(folder, budget, host):
    trace = folder / "t.jsonl"
    trace.unlink(missing_ok=True)
    done = Run(PROGRAM, environment(preload=True, SOFTGPU_MEMORY="4GiB", UDNNMEM_TRACE=trace, UDNNMEM_BUDGET=budget, UDNNMEM_HOST_BUDGET=host))
    report = {}
    if trace.exists():
        report = json.loads(subprocess.run([BUILD / "udnnmem", "report", "--format", "json", trace], capture_output=True, check=True).stdout)
    return done, report


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plain = Run(PROGRAM, environment(SOFTGPU_MEMORY="4GiB"))
        host, budget, lives, steps = 256 << 10, 3 << 20, [], 0
        while steps < 60:
            done, report = attempt(folder, budget, host)
            if done.status == 0:
                break
            steps += 1
            said = re.findall(r"out of memory: (\S+) on device 0 asked for", done.error)
            if not suite.check(len(said) == 1 and said[0].startswith("cu"), "the block is there, once", done.tail()):
                break
            named = re.search(r"UDNNMEM_BUDGET=(\d+)", done.error)
            records = report.get("out_of_memory") or [{}]
            lives.append(records[0].get("live_bytes", 0))
            if steps == 1:
                first = records[0]
                holders = first["largest"]
                record = next(r for r in map(json.loads, (folder / "t.jsonl").read_text().splitlines()) if r["kind"] == "out_of_memory")
                suite.check(record["largest_op_bytes"] > 0 and record["largest_op"] and f"the largest op so far: {record['largest_op']}, " in done.error, "the largest op is named, though no iteration was", done.tail(9))
                suite.check(first["what"] == said[0] and first["budget_bytes"] == budget and first["host_budget_bytes"] <= host, "the trace says the same", f"    {first}")
                suite.check([h["bytes"] for h in holders] == sorted((h["bytes"] for h in holders), reverse=True) and 0 < sum(h["bytes"] for h in holders) <= first["live_bytes"] == first["device_bytes"] + first["host_bytes"], "who holds what, the largest first", f"    {first}")
                text = subprocess.run([BUILD / "udnnmem", "report", folder / "t.jsonl"], capture_output=True, text=True).stdout
                suite.check("out of memory: " + said[0] in text, "and so does the report")
            if not suite.check(named and int(named[1]) == records[0].get("enough_bytes") > budget, "a budget that is larger is named", f"    {budget} {done.tail()}"):
                break
            budget = int(named[1])
        suite.check(done.status == 0 and done.output == plain.output, "with the budgets that it names the program gets to its end", done.tail())
        suite.check(steps > 0 and lives == sorted(lives) and lives[0] < lives[-1], "and further each time, or as far but for what it has freed", f"    {lives}")
        for n in (5, 50, 90):   # for code that it loads late, for stacks
            late = Run(LATE, environment(preload=True, SOFTGPU_MEMORY="900KiB", SOFTGPU_FAIL=f"cuLaunchKernel:{n}:2"))
            suite.check("SOFTGPU_FAIL: call" in late.error and late.status == 0 and late.output == Run(LATE, environment(SOFTGPU_MEMORY="4GiB")).output,
                        f"launch {n}, which the driver refuses for want of memory of its own, is made again", late.tail())
        print(f"{steps} times out of memory, then enough with {budget} bytes")
    suite.finish()


if __name__ == "__main__":
    main()
