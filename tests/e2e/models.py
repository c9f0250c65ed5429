#!/usr/bin/env python3
"""`udnnmem report --model`: the memory model is exact at every op, the time of an iteration over the batch size predicts one
that it has not seen, FLOPs are the trace's, and what binds is what memory and link make of it.
"""
import itertools, json, pathlib, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, ROOT, SOFTGPU, WORKLOADS, Run, Suite, environment

TOOL = BUILD / "udnnmem"


def models(*words):
    done = subprocess.run([TOOL, "report", "--model", "--format", "json", *words], capture_output=True, text=True)
    return [json.loads(line)["models"] for line in done.stdout.splitlines()], done


def live_bytes(path):
    """Persistent, live transient and workspace bytes at each op, worked out from the file anew."""
    done = subprocess.run(["zstd", "-dcf", path], capture_output=True, check=True, text=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    buffers, ops = [r for r in records if r["kind"] == "buffer"], [r for r in records if r["kind"] == "op"]
    named = [set(op["reads"]) | set(op["writes"]) for op in ops]
    first, last = {}, {}
    for k, ids in enumerate(named):
        for i in ids:
            first.setdefault(i, k)
            last[i] = k
    lives = [(0, len(ops) - 1) if b["persistent"] else (b.get("alloc_op", first.get(b["id"], -1)), b.get("free_op", last.get(b["id"], -2))) for b in buffers]
    change = [0] * (len(ops) + 1)
    for b, (a, z) in zip(buffers, lives):
        if a >= 0 and z >= a:
            change[a] += b["bytes"]
            change[z + 1] -= b["bytes"]
    return [s + op.get("workspace_bytes", 0) for s, op in zip(itertools.accumulate(change), ops)], ops


def check_trace(suite, name):
    path = ROOT / "tests/traces" / f"{name}.jsonl.zst"
    expected, ops = live_bytes(path)
    (got,), _ = models(path, "--memory", "100%", "--link", "25")
    suite.check(got["memory"]["live_bytes"] == expected, f"{name}: allocated - released at every op")
    suite.check(got["memory"]["ops_above"] == 0 and set(got["binds"]["ops"]) == {"compute"} and got["binds"]["time_ns"] == sum(op["duration_ns"] for op in ops), f"{name}: with memory for everything compute binds")
    flops = sum(op.get("flops", 0) for op in ops)
    suite.check(abs(got["compute"]["flops"] - flops) <= 1e-9 * flops and abs(sum(k["flops"] for k in got["kinds"]) - flops) <= 1e-9 * flops, f"{name}: FLOPs are the trace's")
    suite.check(sum(k["ops"] for k in got["kinds"]) == len(ops) and sum(k["time_ns"] for k in got["kinds"]) == sum(op["duration_ns"] for op in ops), f"{name}: every op is of one kind")
    (slow,), _ = models(path, "--memory", "50%", "--link", "5")
    binds = slow["binds"]
    suite.check(slow["memory"]["ops_above"] == sum(b > slow["memory"]["memory_bytes"] for b in expected) > 0, f"{name}: in half of it the ops above M are counted")
    suite.check(binds["link"]["ops"] > 0 and binds["compute"]["ops"] + binds["link"]["ops"] + binds["memory"]["ops"] == len(ops) == len(binds["ops"]), f"{name}: over a slow link the link binds somewhere")
    spent = sum(op["duration_ns"] for op in ops) + binds["link"]["ns"] + binds["memory"]["ns"]
    suite.check(abs(spent - binds["time_ns"]) < 0.02 * binds["time_ns"], f"{name}: ops and waits add up to the iteration", f"    {spent} {binds['time_ns']}")


def check_scarce(suite):
    """The same in less memory than any of them needs: by CUPTI, an op's time is its own, whatever moves meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        traces, sizes = [], [128, 512, 256]
        for size in sizes:
            traces.append(pathlib.Path(folder) / f"{size}.jsonl")
            done = Run([WORKLOADS / "digits-driver", "--depth", "12", "--width", "32", "--batch", size, "--iterations", "20"],
                       environment(preload=True, libraries=f"{SOFTGPU}:{BUILD / 'softgpu/cupti'}", SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=5e8, SOFTGPU_D2H=5e8, SOFTGPU_MEMORY=1200000, UDNNMEM_TEST_CUPTI_MS=600000, UDNNMEM_TEST_LOOK_MS=200, UDNNMEM_TRACE=traces[-1]))
            if not suite.check(done.status == 0, f"batch {size} in scarce memory", done.tail()):
                return
        got, done = models("--batch", ",".join(map(str, sizes)), *traces)
        off = [p["predicted_ns"] / p["time_ns"] - 1 for p in got[0]["batch"]["points"]] if len(got) == 3 else [1, 1, 1]
        suite.check(abs(off[2]) < 0.05, "two batch sizes predict the third within 5 %, in scarce memory too", f"    {off}\n{done.stderr}")
        suite.check("in doubt" not in subprocess.run([TOOL, "report", "--model", "--batch", ",".join(map(str, sizes)), *traces], capture_output=True, text=True).stdout, "and nothing is in doubt")


def check_batches(suite):
    """Two batch sizes predict a third, in modelled time."""
    with tempfile.TemporaryDirectory() as folder:
        traces, sizes = [], [256, 1024, 512]
        for size in sizes:
            traces.append(pathlib.Path(folder) / f"{size}.jsonl")
            done = Run([WORKLOADS / "digits-runtime", "--depth", "12", "--width", "32", "--batch", size, "--iterations", "5"], environment(preload=True, SOFTGPU_TIME="model", SOFTGPU_MEMORY="1GiB", UDNNMEM_TRACE=traces[-1]))
            if not suite.check(done.status == 0, f"batch {size} in modelled time", done.tail()):
                return
        got, done = models("--batch", ",".join(map(str, sizes)), *traces)
        if not suite.check(len(got) == 3, "a model of the batch size", done.stderr):
            return
        points = got[0]["batch"]["points"]
        off = [p["predicted_ns"] / p["time_ns"] - 1 for p in points]
        suite.check(abs(off[2]) < 0.05, "two batch sizes predict the third within 5 %", f"    {off}")
        print(f"predicted from the two others: batch {sizes[2]} is off by {100 * off[2]:+.1f} %")
        done = subprocess.run([TOOL, "report", "--model", "--batch", "1,2,3", *traces[:2]], capture_output=True, text=True)
        suite.check(done.returncode == 2 and "3 batch sizes for 2 traces" in done.stderr, "a batch size for each trace", done.stderr)
        for wrong in ("1,", "x", "0", "1;2"):
            done = subprocess.run([TOOL, "report", "--model", "--batch", wrong, traces[0]], capture_output=True, text=True)
            suite.check(done.returncode == 2 and "expected batch sizes" in done.stderr, f"--batch {wrong} is refused", done.stderr)


def check_kinds(suite):
    names = {"softmax_cross_entropy_backward": "reduction", "nll_loss_forward": "reduction", "SoftmaxWithLoss": "reduction", "scaled_softmax": "attention", "r_32_16_4_64": "reduction", "E_8_4": "elementwise", "E": "elementwise", "fused_adam": "update", "Embedding": "gather"}
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in names.items():
            trace = pathlib.Path(folder) / "named.jsonl"
            records = [{"kind": "header", "schema": 1, "name": "n"}, {"kind": "buffer", "id": 0, "bytes": 1 << 20}, {"kind": "op", "index": 0, "name": name, "duration_ns": 1000, "writes": [0]}]
            trace.write_text("".join(json.dumps(record) + "\n" for record in records))
            (got,), _ = models(trace)
            suite.check([k["kind"] for k in got["kinds"]] == [kind], f"{name} is of the kind {kind}", f"    {got['kinds']}")
    (got,), _ = models(ROOT / "tests/traces/tinygrad-conv.jsonl.zst")
    suite.check("other" not in [k["kind"] for k in got["kinds"]], "tinygrad's kernels have kinds", f"    {got['kinds']}")


def main():
    suite = Suite()
    for name in ("gpt2-medium-b16-roofline", "resnet152-b256-modern"):
        check_trace(suite, name)
    check_kinds(suite)
    check_batches(suite)
    if FULL:
        check_scarce(suite)
    suite.finish()


if __name__ == "__main__":
    main()
