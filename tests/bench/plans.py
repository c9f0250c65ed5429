#!/usr/bin/env python3
"""Iterations in half of their memory, by plan, on the software GPU's modelled clock: BERT as recorded, and digits.

A device of 5e10 operations and 3e10 bytes a second, a link of 5e8 bytes a second each way (a sixtieth of the memory, as on an
H100): the link, not compute, sets the pace.
`..._ms` is the median of the iterations that the library followed; the plan's own promise beside it. Modelled time does not depend on the
machine, nor on what else it does.
"""
import json, pathlib, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, ROOT, WORKLOADS, Run, environment
from tests.e2e.played import Played

MODEL = dict(SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D="5e8", SOFTGPU_D2H="5e8")


def command(iterations):
    return [WORKLOADS / "digits-driver", "--depth", "24", "--width", "32", "--batch", "256", "--iterations", iterations, "--report-peak"]


def time_of(memory, **options):
    """Milliseconds of an iteration in the steady state: what six more of them take."""
    runs = [Run(command(n), environment(SOFTGPU_MEMORY=memory, **MODEL, **options)) for n in (8, 14)]
    return (runs[1].report["virtual_ns"] - runs[0].report["virtual_ns"]) / 6e6


def networks():
    """A real network's iteration in half of its memory, at the rates of a PCIe 5 and a PCIe 3 link."""
    for link in (55e9, 15.75e9):
        played = Played(ROOT / "tests/traces/bert-base-b256-modern.jsonl.zst", link, iterations=24)
        name = f"plan_bert_{link / 1e9:g}"
        yield f"{name}_ideal_ms", played.ideal, "ms", None
        yield f"{name}_promised_ms", played.promised, "ms", None
        yield f"{name}_planned_ms", played.by_plan, "ms", None
        yield f"{name}_over_promise", played.by_plan / max(played.promised, 1e-9), "", "<= 1.05"


def main():
    for name, value, unit, goal in networks():
        print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "goal": goal}), flush=True)
    peak = int(Run(command(1), environment(SOFTGPU_MEMORY="1GiB", **MODEL)).output.split("peak live bytes ")[1])
    ideal = time_of("1GiB")
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "run.jsonl"
        Run(command(14), environment(preload=True, SOFTGPU_MEMORY=peak // 2, UDNNMEM_TRACE=trace, **MODEL))
        run = json.loads(subprocess.run([BUILD / "udnnmem", "report", trace, "--format", "json"], capture_output=True, text=True).stdout)
    demand = time_of(peak // 2, LD_PRELOAD=BUILD / "libudnnmem.so", UDNNMEM_POLICY="demand")
    planned = run["planned_ns"] / 1e6
    for name, value, unit, goal in (("plan_ideal_ms", ideal, "ms", None), ("plan_demand_ms", demand, "ms", None), ("plan_planned_ms", planned, "ms", None),
                                    ("plan_promised_ms", run["promised_ns"] / 1e6, "ms", None), ("plan_over_promise", planned * 1e6 / run["promised_ns"], "", "<= 1.05"),
                                    ("plan_over_demand", planned / demand, "", "<= 1")):
        print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "goal": goal}))


if __name__ == "__main__":
    main()
