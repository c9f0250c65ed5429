#!/usr/bin/env python3
"""The report's formats say the same: the page that a browser draws, Chrome's trace, PyTorch's snapshot, and the JSON report.

Made-up iterations of 10, 2,000 and 20,000 ops, and a real run in half of its memory. The page is opened in headless
Chromium where there is one (scripts/setup.sh --browser installs it).
"""
import collections, html, io, json, pathlib, pickle, re, shutil, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, WORKLOADS, Run, Suite, environment

TOOL = BUILD / "udnnmem"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
OPS = {10: (2, 0), 2000: (285, 1), 20000: (2857, 1)}


def made_up(path, layers, extra):
    """A network of `layers`, forward, backward and update; `extra` more ops a layer and direction."""
    ops, buffers = [], []

    def buffer(size, persistent, label):
        buffers.append({"kind": "buffer", "id": len(buffers), "bytes": size, "persistent": persistent, "label": label})
        return len(buffers) - 1

    def op(name, duration, reads, writes, phase, where):
        ops.append({"kind": "op", "index": len(ops), "name": name, "phase": phase, "duration_ns": duration, "reads": reads, "writes": writes,
                    "flops": 1e5 * duration if "conv" in name else 0, "range": where})

    size = (256 << 20) // (layers + 2)
    weights = [buffer(size // 8 + i % 7 * 512, True, f"layer{i}.weight</script><!--") for i in range(layers)]
    last, kept = buffer(size // 2, True, "input"), []
    for i in range(layers):
        a, b = buffer(size + i % 5 * 4096, False, f"layer{i}.conv"), buffer(size, False, f"layer{i}.relu")
        op(f"conv_{i}", 90000 + i % 9 * 9000, [last, weights[i]], [a], "forward", f"step/forward/layer{i}")
        op("relu", 12000, [a], [b], "forward", f"step/forward/layer{i}")
        for _ in range(extra):
            op("bias", 5000, [b], [b], "forward", f"step/forward/layer{i}")
        kept.append((last, a, b))
        last = b
    gradient = buffer(size, False, "loss")
    op("loss", 20000, [last], [gradient], "forward", "step")
    for i in reversed(range(layers)):
        before, a, b = kept[i]
        inner, outer, dw = buffer(size, False, ""), buffer(size, False, f"layer{i}.dx"), buffer(size // 8, False, f"layer{i}.dw")
        op("relu_backward", 13000, [b, gradient], [inner], "backward", "")
        op("conv_backward", 200000 + i, [before, weights[i], inner], [outer, dw], "backward", "")
        for _ in range(extra):
            op("bias_backward", 5000, [outer], [outer], "backward", "")
        op("adam", 8000, [dw, weights[i]], [weights[i]], "update", "step/update")
        gradient = outer
    path.write_text("\n".join(json.dumps(r) for r in [{"kind": "header", "schema": 1, "name": "made up"}] + buffers + ops) + "\n")


def report(form, *traces):
    done = subprocess.run([TOOL, "report", "--format", form, *traces], capture_output=True, check=True)
    return done.stdout


def open_page(folder, page):
    """What the browser made of the page: its figures, and how many ms it took, the best of three."""
    best, figures = None, {}
    for _ in range(3):
        done = subprocess.run(["timeout", "100", BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser", "--dump-dom", page.as_uri()],
                              capture_output=True, text=True)
        ready = re.search(r'data-ready="(\d+)"', done.stdout)
        if not ready:
            return None, {}
        figures = {name: json.loads(html.unescape(value)) for name, value in re.findall(r'data-figure="(\w+)" data-value="([^"]*)"', done.stdout)}
        best = min(best or 1 << 30, int(ready[1]))
        if best < 2000:
            break
    return best, figures


def check_page(suite, folder, what, traces):
    page = folder / "page.html"
    text = report("html", *traces)
    page.write_bytes(text)
    suite.check(len(text) < 5 << 20, f"{what}: the page is below 5 MB", f"    {len(text)}")
    suite.check(not re.search(rb'(?:src|href)=|https?://(?!www\.w3\.org)|@import|url\(', text), f"{what}: the page needs nothing from elsewhere")
    if not BROWSER:
        return
    wanted = json.loads(report("json", traces[0]).splitlines()[0])
    took, figures = open_page(folder, page)
    if not suite.check(took is not None, f"{what}: the browser draws the page"):
        return
    suite.check(took < 2000, f"{what}: in less than 2 s", f"    {took} ms")
    drawn = figures.pop("drawn", {})
    wrong = {f: (v, wanted[f]) for f, v in figures.items() if v != wanted[f]}
    suite.check(figures and not wrong, f"{what}: the page's figures are the JSON report's", f"    {wrong}")
    iteration = wanted["iteration"]
    expected = {"ops": iteration["ops"], "buffers": len(iteration["buffers"]), "ideal_ns": iteration["ideal_ns"], "peak_live_bytes": iteration["peak_live_bytes"], "peak_op": iteration["peak_op"],
                "idle_byte_ns": sum(b["bytes"] * b["idle_ns"] for b in iteration["buffers"])}
    suite.check(all(abs(drawn.get(f, -1) - v) <= 1e-12 * v for f, v in expected.items()), f"{what}: what it draws is the iteration of the JSON report", f"    {drawn}\n    {expected}")


# The Trace Event Format's phases that we write: the fields of each and their types (all are needed but args where they say nothing).
NUMBER = (int, float)
EVENT = {
    "M": {"ph": str, "name": str, "pid": int, "tid": int, "args": dict},
    "X": {"ph": str, "name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER, "args": dict},
    "C": {"ph": str, "name": str, "pid": int, "ts": NUMBER, "args": dict},
    "i": {"ph": str, "s": str, "name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "args": dict},
    "b": {"ph": str, "name": str, "cat": str, "id": str, "pid": int, "tid": int, "ts": NUMBER, "args": dict},
    "e": {"ph": str, "name": str, "cat": str, "id": str, "pid": int, "tid": int, "ts": NUMBER},
    "s": {"ph": str, "name": str, "cat": str, "id": str, "pid": int, "tid": int, "ts": NUMBER},
    "f": {"ph": str, "bp": str, "name": str, "cat": str, "id": str, "pid": int, "tid": int, "ts": NUMBER},
}
METADATA = {"process_name": ("name", str), "process_labels": ("labels", str), "process_sort_index": ("sort_index", int), "thread_name": ("name", str), "thread_sort_index": ("sort_index", int)}


def check_chrome(suite, what, trace):
    wanted = json.loads(report("json", trace).splitlines()[0])["iteration"]
    whole = json.loads(report("chrome", trace))
    events = whole["traceEvents"]
    suite.check({*whole} == {"traceEvents", "displayTimeUnit"} and whole["displayTimeUnit"] in ("ms", "ns"), f"{what}: Chrome's trace is an object of its format", f"    {[*whole]}")
    wrong, open_ids = [], {}
    for e in events:
        fields = EVENT.get(e["ph"], {})
        ok = all(name in fields and isinstance(value, fields[name]) and not isinstance(value, bool) for name, value in e.items())
        ok = ok and all(name in e for name in fields if (name != "args" or e["ph"] in "MCb") and (name != "tid" or e["ph"] != "M"))
        ok = ok and e.get("ts", 0) >= 0 and e.get("dur", 0) >= 0
        if e["ph"] == "M":
            ok = ok and e["name"] in METADATA and [*e["args"]] == [METADATA[e["name"]][0]] and isinstance(*e["args"].values(), METADATA[e["name"]][1]) and ("tid" in e) == e["name"].startswith("thread")
        if e["ph"] == "C":
            ok = ok and e["args"] and all(isinstance(v, (int, float)) for v in e["args"].values())
        if e["ph"] in "bs":
            ok = ok and (e["cat"], e["id"]) not in open_ids
            open_ids[e["cat"], e["id"]] = e
        if e["ph"] in "ef":
            begin = open_ids.pop((e["cat"], e["id"]), None)
            ok = ok and begin and begin["name"] == e["name"] and begin["pid"] == e["pid"] and begin["ts"] <= e["ts"]
        if not ok:
            wrong.append(e)
    suite.check(not wrong and not open_ids, f"{what}: Chrome's trace keeps its format", f"    {wrong[:2]} {list(open_ids)[:2]}")
    ops = [e for e in events if e["ph"] == "X" and e["cat"] == "op"]
    suite.check(len(ops) == wanted["ops"] and round(sum(e["dur"] for e in ops) * 1000) == wanted["ideal_ns"], f"{what}: Chrome's trace has every op and its time", f"    {len(ops)}")
    live = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "live"]
    suite.check(max(live) == wanted["peak_live_bytes"] == live[wanted["peak_op"]], f"{what}: and the peak of memory")
    by_track = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X" and e["cat"] == "range":
            by_track[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    crossing = [1 for spans in by_track.values() for i, (a, b) in enumerate(sorted(spans)) for c, d in sorted(spans)[i + 1:i + 40] if a < c < b - 1e-6 and d > b + 1e-6]
    suite.check(not crossing, f"{what}: ranges nest")
    return events


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def check_snapshot(suite, what, trace):
    wanted = json.loads(report("json", trace).splitlines()[0])["iteration"]
    data = report("pytorch", trace)
    suite.check(data == report("torch-snapshot", trace), f"{what}: the snapshot has two names")
    snapshot = Plain(io.BytesIO(data)).load()
    segment, live, peak, wrong = snapshot["segments"][0], {}, 0, 0
    last = 0
    for e in snapshot["device_traces"][0]:
        wrong += e["time_us"] < 0 or not isinstance(e["frames"], list) or e["stream"] != 0
        if e["action"] == "alloc":
            wrong += any(e["addr"] < a + n and a < e["addr"] + e["size"] for a, n in live.items()) if len(live) < 60 else e["addr"] in live
            live[e["addr"]] = e["size"]
            peak = max(peak, sum(live.values())) if len(live) < 60 or e["time_us"] - last > 2000 else peak
        elif e["action"] == "free_completed":
            wrong += live.pop(e["addr"], None) != e["size"]
        else:
            wrong += e["action"] not in ("free_requested", "segment_alloc")
    suite.check(not wrong, f"{what}: the snapshot's memory does not overlap", f"    {wrong}")
    blocks = segment["blocks"]
    ends = [b["address"] + b["size"] for b in blocks]
    suite.check(segment["address"] == blocks[0]["address"] and ends[:-1] == [b["address"] for b in blocks[1:]] and ends[-1] == segment["address"] + segment["total_size"], f"{what}: its blocks fill the segment")
    suite.check({b["address"]: b["size"] for b in blocks if b["state"] == "active_allocated"} == live, f"{what}: what is left is what its segment holds")
    suite.check(len(live) == sum(b["persistent"] and b["bytes"] > 0 for b in wanted["buffers"]), f"{what}: which is what outlives the iteration")
    if wanted["ops"] < 20:
        suite.check(peak == wanted["peak_live_bytes"], f"{what}: its peak is the report's", f"    {peak} {wanted['peak_live_bytes']}")


def check_run(suite, folder):
    """A run in half of its memory: its own times, and its moves beside its ops."""
    program = [WORKLOADS / "digits-runtime", "--depth", "24", "--width", "32", "--batch", "512", "--iterations", "8"]
    plain = Run(program + ["--report-peak"], environment(SOFTGPU_MEMORY="4GiB"))
    trace = folder / "run.jsonl"
    done = Run(program, environment(preload=True, SOFTGPU_MEMORY=int(plain.output.split("peak live bytes ")[1]) // 2, UDNNMEM_TRACE=trace))
    if not suite.check(done.status == 0, "a run in half of its memory", done.tail()):
        return
    records = [json.loads(line) for line in trace.read_text().splitlines()]
    ops = [r for r in records if r["kind"] == "op"]
    starts = [op.get("start_ns", -1) for op in ops]
    suite.check(min(starts) > 0 and starts == sorted(starts), "a run: every op says when it began, in order", f"    {starts[:5]}")
    begin, end = starts[0], max(s + op["duration_ns"] for s, op in zip(starts, ops))
    moves = [r for r in records if r["kind"] == "event" and r["end_ns"] >= begin and r["start_ns"] <= end]
    known = {r["run_id"] for r in records if r["kind"] == "buffer" and "run_id" in r}
    suite.check(any(r["event"] == "evict" for r in moves) and sum(r["buffer"] in known for r in moves) > len(moves) / 2, "a run: the moves of the iteration are known by its buffers", f"    {len(moves)} moves")
    events = check_chrome(suite, "a run", trace)
    moved = collections.Counter(e["name"] for e in events if e["ph"] == "b")
    suite.check(moved == collections.Counter(r["event"] for r in records if r["kind"] == "event"), "a run: Chrome's trace has every move", f"    {moved}")
    copied, told = json.loads(report("json", trace).splitlines()[0])["bytes_out"], sum(r["bytes"] for r in records if r["kind"] == "event" and r["event"] in ("evict", "clean"))
    # Moves that were cancelled on their way, a few in a hundred, are no events.
    suite.check(0.85 * copied < told <= copied, "a run: its events tell of what it copied out", f"    {told} of {copied}")
    buffers = json.loads(report("json", trace).splitlines()[0])["iteration"]["buffers"]
    evicted = collections.Counter(r["buffer"] for r in moves if r["event"].startswith("evict"))
    ids = {r["id"]: r.get("run_id", -1) for r in records if r["kind"] == "buffer"}
    suite.check(all(b["evictions"] == evicted[ids[b["id"]]] for b in buffers if ids[b["id"]] >= 0), "a run: the report counts the evictions of each buffer in its iteration")
    check_speed(suite, trace)
    check_snapshot(suite, "a run", trace)
    check_page(suite, folder, "a run", [trace])


def check_speed(suite, trace):
    """How long an iteration took, and how good that is: by the run's own figures, and by the planner's bound for its memory and link."""
    whole = json.loads(report("json", trace).splitlines()[0])
    by = whole["iteration_by"]
    most = max(whole["sequences"], key=lambda s: s["iterations"] * s["ops"], default=None)
    measured = {"plan": lambda: most["planned_ns"], "demand": lambda: most["demand_ns"], "learning": lambda: whole["iteration"]["observed_ns"]}
    if not suite.check(by in measured and whole["iteration_ns"] == measured[by]() > 0, "a run: how long an iteration took", f"    {by} {whole['iteration_ns']} {most}"):
        return
    if by == "learning":  # with what a program does only once
        suite.check(whole["eta_ideal"] is None and "of the speed" not in report("text", trace).decode(), "a run: the iteration that was learned is no measure of speed", f"    {whole['eta_ideal']}")
        return
    ideal = most["ideal_ns"]
    suite.check(abs(whole["eta_ideal"] * whole["iteration_ns"] / ideal - 1) < 1e-9, "a run: against everything resident", f"    {whole['eta_ideal']}")
    link = whole["link"][0]
    planned = subprocess.run([TOOL, "plan", trace, "--memory", str(whole["budget_bytes"]), "--link", f"{link['in_bytes_per_second'] / 1e9:.12g},{link['out_bytes_per_second'] / 1e9:.12g}", "--policy", "demand", "--json"], capture_output=True, text=True, check=True)
    plan = json.loads(planned.stdout.splitlines()[0])
    suite.check(abs(whole["eta_bound"] * whole["iteration_ns"] / plan["lower_bound_ns"] - 1) < 1e-6, "a run: against the bound that `plan` names", f"    {whole['eta_bound'] * whole['iteration_ns']} {plan}")
    suite.check(f"{100 * whole['eta_ideal']:.1f} % of the speed with everything resident, {100 * whole['eta_bound']:.1f} % of" in report("text", trace).decode(), "a run: in words", report("text", trace).decode())


def check_order(suite, folder):
    """Two streams that wait for each other, and a host that waits for them."""
    trace = folder / "order.jsonl"
    done = Run([WORKLOADS / "digits-streams", "--depth", "24", "--width", "16", "--batch", "64", "--iterations", "8"], environment(preload=True, SOFTGPU_MEMORY="64MiB", UDNNMEM_TRACE=trace))
    ops = [r for r in map(json.loads, trace.read_text().splitlines()) if r["kind"] == "op"]
    told = json.loads(report("json", trace).splitlines()[0])["iteration"]
    waits = sum(len(op.get("waits", [])) for op in ops), sum("host_waited" in op for op in ops)
    suite.check((told["stream_waits"], told["host_waits"]) == waits and done.status == 0 and waits[0] > 24 and waits[1] > 0 and told["streams"] == 2, "two streams: their order", f"    {told['streams']} {waits}")
    said = f"2 streams, of which one waits for another {waits[0]} times; the host waits for the device {waits[1]} times"
    suite.check(said in report("text", trace).decode() and f"  its times        by {told['timed_by']}" in report("text", trace).decode() and told["timed_by"].startswith("event pairs ("), "two streams: in words, and what timed it", report("text", trace).decode())
    flows = collections.Counter(e["ph"] for e in json.loads(report("chrome", trace))["traceEvents"] if e["ph"] in "sf")
    suite.check(flows["s"] == flows["f"] == sum(k < op["index"] for op in ops for k in op.get("waits", [])), "two streams: arrows from what is waited for", f"    {flows}")
    check_chrome(suite, "two streams", trace)
    check_page(suite, folder, "two streams", [trace])


def check_ranks(suite, folder):
    """Two processes as torchrun would start them: one report, a column a rank."""
    traces = []
    for rank in (1, 0):
        traces.append(folder / f"rank{rank}.jsonl")
        done = Run([WORKLOADS / "digits-runtime", "--depth", str(8 + 4 * rank), "--width", "32", "--batch", "128", "--iterations", "4"],
                   environment(preload=True, SOFTGPU_MEMORY="256MiB", UDNNMEM_TRACE=str(folder / "rank%q{RANK}.jsonl"), RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2))
        if not suite.check(done.status == 0, f"rank {rank}", done.tail()):
            return
    alone = [json.loads(report("json", t)) for t in reversed(traces)]
    together = [json.loads(line) for line in report("json", *traces).splitlines()]
    suite.check(together == alone and [r["rank"] for r in together] == [0, 1] and all(r["world_size"] == 2 and r["local_rank"] == r["rank"] for r in together), "ranks: one report, in order of rank")
    table = report("text", *traces).decode().split("\n\n")[0].splitlines()
    heading = table[0].split("rank")
    suite.check([h.strip() for h in heading] == ["", "0", "1"], "ranks: a column each", table[0])
    ops = next(line for line in table if line.startswith("ops"))
    suite.check(ops.split()[1:] == [f"{r['ops']:,}" for r in together], "ranks: with each one's figures", ops)
    suite.check([e["args"]["name"] for e in json.loads(report("chrome", *traces))["traceEvents"] if e["name"] == "process_name"] == ["digits-runtime rank 0", "digits-runtime rank 1"], "ranks: a process each in Chrome's trace")
    check_page(suite, folder, "ranks", sorted(traces))


def main():
    suite = Suite()
    if not BROWSER:
        print("no browser here: pages are not opened (scripts/setup.sh --browser)")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ops, shape in OPS.items():
            trace = folder / f"{ops}.jsonl"
            made_up(trace, *shape)
            check_page(suite, folder, f"{ops} ops", [trace])
            check_chrome(suite, f"{ops} ops", trace)
            check_snapshot(suite, f"{ops} ops", trace)
        check_run(suite, folder)
        check_order(suite, folder)
        check_ranks(suite, folder)
    suite.finish()


if __name__ == "__main__":
    main()
