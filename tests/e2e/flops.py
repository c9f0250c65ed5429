#!/usr/bin/env python3
"""FLOPs of matrix products and convolutions, by the calls that ask for them: those that the sizes say, whoever loads the
libraries, and finds their functions, also by look-ups; a graph that was captured of such calls has theirs, as one op and node
by node; a program without the libraries has none; and what the rates make of them.
"""
import json, pathlib, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, PRELOAD, SOFTGPU, WORKLOADS, Run, Suite, environment
from tests.e2e.iterations import traced

MATH = WORKLOADS / "math"
TOOL = BUILD / "udnnmem"


def run(batch, preload=True, how=(), **options):
    return Run([WORKLOADS / "products", MATH / "libproducts.so", batch, 10, *how], environment(preload=preload, libraries=f"{MATH}:{SOFTGPU}", SOFTGPU_TIME="model", **options))


def by_call(ops):
    sums = {}
    for op in ops:
        if "call" in op:
            sums[op["call"]] = sums.get(op["call"], 0) + op.get("flops", 0)
    return sums


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plain = run(64, preload=False)
        suite.check(plain.status == 0, "the program runs", plain.tail())
        analytic = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in plain.output.splitlines() if line.startswith(("cublas", "cudnn"))}
        for what, how, extra in (("loaded for one alone", (), {}), ("loaded for all", (), {"LD_PRELOAD": f"{PRELOAD}:{MATH}/libcublas.so.13:{MATH}/libcudnn.so.9"}), ("looked up", ("looked-up",), {}),
                                 ("a graph node by node", ("captured",), {"UDNNMEM_BUDGET": "3300KiB"}), ("hidden exports", (), {"UDNNMEM_HIDE_EXPORTS": "1"})):
            trace = folder / f"{what.replace(' ', '-')}.jsonl"
            done = run(64, how=how, UDNNMEM_TRACE=trace, **extra)
            suite.check(done.status == 0 and done.output == plain.output, f"{what}: the same output", done.tail())
            if what == "hidden exports":  # nothing is seen of who is linked with the driver
                continue
            _, _, ops = traced(trace)
            got = by_call(ops)
            suite.check(set(got) == set(analytic), f"{what}: every call is seen", f"    {sorted(set(got) ^ set(analytic))}")
            off = {call: got.get(call, 0) / flops - 1 for call, flops in analytic.items()}
            suite.check(all(abs(o) < 1e-6 for o in off.values()), f"{what}: the FLOPs are those that the sizes say", f"    {off}")
            suite.check(all(op.get("flops", 0) == 0 for op in ops if "call" not in op), f"{what}: nothing else has any")
            clear = sum(op.get("flops", 0) for op in ops if op["name"] == "clear")
            suite.check(0 < clear < 0.2 * sum(got.values()), f"{what}: they go to who works", f"    {clear} of {sum(got.values())}")
        trace = folder / "graph.jsonl"
        done = run(64, how=("captured",), UDNNMEM_TRACE=trace)
        _, _, ops = traced(trace)
        suite.check(done.status == 0 and done.output == plain.output, "a graph: the same output", done.tail())
        suite.check([(op["name"], op.get("call")) for op in ops if "flops" in op] == [("cuGraphLaunch", "calls in a graph")], "a graph: one op, of several calls", f"    {ops[:3]}")
        suite.check(abs(sum(op.get("flops", 0) for op in ops) / sum(analytic.values()) - 1) < 1e-6, "a graph: the FLOPs of all its calls")
        out = subprocess.run([TOOL, "report", "--model", "--format", "json", folder / "loaded-for-all.jsonl"], capture_output=True, text=True, check=True).stdout
        model = json.loads(out)["models"]
        kinds = {k["kind"]: k["flops"] for k in model["kinds"]}
        products = sum(f for c, f in analytic.items() if "onvolution" not in c)
        suite.check(abs(model["compute"]["flops"] / sum(analytic.values()) - 1) < 0.01 and abs(kinds["matrix product"] / products - 1) < 0.01 and abs(kinds["convolution"] / (sum(analytic.values()) - products) - 1) < 0.01,
                    "report --model: within 1 %, by kind", f"    {kinds} {products}")
        suite.check(model["compute"]["rates"] and model["compute"]["mean_error"] < 0.5, "report --model: the rates that they reach", f"    {model['compute']}")

        # Two batch sizes predict a third.
        traces = []
        for batch in (32, 128, 64):
            traces.append(folder / f"batch-{batch}.jsonl")
            run(batch, UDNNMEM_TRACE=traces[-1])
        out = subprocess.run([TOOL, "report", "--model", "--batch", "32,128,64", "--format", "json", *traces], capture_output=True, text=True, check=True).stdout
        point = json.loads(out.splitlines()[0])["models"]["batch"]["points"][2]
        suite.check(abs(point["predicted_ns"] / point["time_ns"] - 1) < 0.05, "t_iter of two batch sizes predicts a third", f"    {point}")

        for preload in (False, True):
            done = Run([WORKLOADS / "products", "absent"], environment(preload=preload))
            suite.check(done.output.split()[1::2] == ["absent"] * 3, f"absent stays absent, preload {preload}", done.output)
    suite.finish()


if __name__ == "__main__":
    main()
