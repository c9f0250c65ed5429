#!/usr/bin/env python3
"""`udnnmem plan` and `udnnmem advise` from outside: fields, files, the second simulator's word on what they
say, and one line with exit code 2 for whatever is wrong."""
import html.parser, json, os, pathlib, pty, re, shutil, subprocess, sys, tempfile, zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build")).resolve()
FULL = bool(os.environ.get("UDNNMEM_TEST_FULL"))
sys.path.insert(0, str(HERE))
import recompute_bound
import simulator

FIELDS = ("policy feasible time_ns ideal_ns lower_bound_ns eta_ideal eta_bound peak_bytes bytes_in bytes_out recompute_ns stall_ns plan_ms").split()
POLICIES = "demand belady vdnn capuchin g10 delta chen checkpoint-n3 checkpoint-n2 pofo udnn".split()


def run(*arguments):
    return subprocess.run([str(BUILD / "udnnmem"), *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=500)


def pixels(png):
    """The rows of a screenshot (8 bits, no interlace), each a list of (red, green, blue)."""
    data, at, width, channels, packed = png.read_bytes(), 8, 0, 0, b""
    while at < len(data):
        size, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        if kind == b"IHDR":
            width, channels = int.from_bytes(data[at + 8:at + 12], "big"), {2: 3, 6: 4}[data[at + 17]]
        packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    raw, line, before, rows = zlib.decompress(packed), width * channels + 1, bytes(width * channels), []
    for start in range(0, len(raw), line):
        how, row = raw[start], bytearray(raw[start + 1:start + line])
        for i in range(len(row)):
            a, b, c = row[i - channels] if i >= channels else 0, before[i], before[i - channels] if i >= channels else 0
            nearest = min((a, b, c), key=lambda v: abs(a + b - c - v))  # the first of equals, as the format wants
            row[i] = row[i] + (0, a, b, (a + b) // 2, nearest)[how] & 255
        rows.append([tuple(row[i:i + 3]) for i in range(0, len(row), channels)])
        before = row
    return rows


def chain(layers, batch):
    """A chain with weights, its backward pass and updates; activations of a MiB a sample."""
    lines, ops = [{"kind": "header", "schema": 1, "name": f"chain-{layers}", "batch": batch}], []
    buffers = [(8 << 20, True)] * layers + [(batch << 20, False)] * layers + [(batch << 20, False)] * layers + [(8 << 20, False)] * layers
    for l in range(layers):
        ops.append(("forward", 150000, [l] + ([layers + l - 1] if l else []), [layers + l]))
    for l in reversed(range(layers)):
        above = [2 * layers + l + 1] if l + 1 < layers else []
        ops.append(("backward", 300000, [l, layers + l] + above, [2 * layers + l, 3 * layers + l]))
        ops.append(("update", 10000, [l, 3 * layers + l], [l]))
    for i, (size, persistent) in enumerate(buffers):
        lines.append({"kind": "buffer", "id": i, "bytes": size, "persistent": persistent})
    for k, (phase, ns, reads, writes) in enumerate(ops):
        lines.append({"kind": "op", "index": k, "phase": phase, "duration_ns": ns, "reads": reads, "writes": writes, "replayable": phase == "forward"})
    return "".join(json.dumps(line) + "\n" for line in lines)


class Tests:
    def __init__(self, folder):
        self.folder, self.trace = folder, str(folder / "chain.jsonl")
        (folder / "chain.jsonl").write_text(chain(16, 32))

    def complains(self, words, *arguments):
        done = run(*arguments)
        assert done.returncode == 2, (arguments, done)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("udnnmem: ") and words in lines[0], (arguments, done.stderr)
        assert done.stdout == "", done.stdout

    def test_json_fields(self):
        done = run("plan", self.trace, "--memory", "60%", "--link", "25", "--policy", "all", "--time", "0.2", "--json")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["policy"] for row in rows] == POLICIES, rows
        for row in rows:
            assert list(row)[:len(FIELDS)] == FIELDS, row
            assert row["feasible"] and row["ideal_ns"] == 16 * 460000, row
            assert abs(row["eta_ideal"] - row["ideal_ns"] / row["time_ns"]) < 1e-9
            if row["recompute_ns"]:  # the bound is none for it
                assert row["eta_bound"] is None, row
            else:
                assert abs(row["eta_bound"] - row["lower_bound_ns"] / row["time_ns"]) < 1e-9 and row["eta_bound"] <= 1.0001, row
            assert row["peak_bytes"] <= row["memory_bytes"]
        assert any(row["recompute_ns"] for row in rows) and not all(row["recompute_ns"] for row in rows), rows
        text = run("plan", self.trace, "--memory", "60%", "--link", "25", "--policy", "delta").stdout
        assert re.search(r"^delta +[\d.]+ ms +[\d.]+ % +- ", text, re.M), text
        usage = run("plan", "--help").stdout
        assert all(name in usage for name in ("LB0,", "LB1,", "LB2,", "LB3,")), usage
        assert min(rows, key=lambda row: row["time_ns"])["time_ns"] >= 0.999 * rows[-1]["time_ns"], "udnn is beaten"

    def test_no_time_at_all(self):
        trace = self.folder / "zero.jsonl"
        records = [json.loads(line) for line in chain(4, 4).splitlines()]
        trace.write_text("".join(json.dumps({**record, "duration_ns": 0} if record["kind"] == "op" else record) + "\n" for record in records))
        done = run("plan", trace, "--memory", "100%", "--link", "1")
        assert done.returncode == 0 and "nan" not in done.stdout and re.search(r"udnn +0 ns +- +- ", done.stdout), done
        for form in ("text", "html", "json"):
            done = run("advise", trace, "--link", "1", "--time", "0.01", "--format", form)
            assert done.returncode == 0 and not re.search(r"\b(nan|inf)\b", done.stdout, re.I), (form, done)

    def test_infeasible_is_said(self):
        done = run("plan", self.trace, "--memory", "1MiB", "--link", "25", "--policy", "belady", "--json")
        row = json.loads(done.stdout)
        assert done.returncode == 2 and row["feasible"] is False and row["time_ns"] is None and row["error"], row
        assert done.stderr.startswith("udnnmem: no plan in 1.0 MiB: "), done
        self.complains("no plan in 1.0 MiB: the largest op alone needs ", "plan", self.trace, "--memory", "1MiB", "--link", "25", "--policy", "belady", "--emit", self.folder / "none")
        assert not (self.folder / "none").exists()
        least = re.search(r"give at least --memory (\d+)$", run("plan", self.trace, "--memory", "0", "--link", "25", "--policy", "belady").stderr.strip())
        assert run("plan", self.trace, "--memory", least[1], "--link", "25", "--policy", "belady").returncode == 0
        self.complains(f"give at least --memory {least[1]}", "plan", self.trace, "--memory", int(least[1]) - 1, "--link", "25", "--policy", "belady")
        missing = ("plan", self.trace, "--memory", "50%", "--link", "25", "--policy", "belady", "--recompute", "off", "--host")
        self.complains("more memory, or --recompute auto", *missing, "0")
        least = re.search(r"give at least --host (\d+)", run(*missing, "0").stderr)
        self.complains(f"give at least --host {least[1]}", *missing, int(least[1]) - 1)
        assert run(*missing, "100%").returncode == 0
        # Whole buffers may need more than peak live lacks: what is said to be enough is.
        halves = self.folder / "halves.jsonl"   # one of the two buffers must go, whose half would do
        halves.write_text("".join(json.dumps(r) + "\n" for r in [{"kind": "header", "schema": 1, "name": "halves"}, *({"kind": "buffer", "id": i, "bytes": 100 << 10, "persistent": True} for i in range(2)),
                                                                {"kind": "op", "index": 0, "duration_ns": 1000, "reads": [0]}, {"kind": "op", "index": 1, "duration_ns": 1000, "reads": [1]}]))
        for policy in ("udnn", "belady"):
            missing = ("plan", halves, "--memory", "150KiB", "--link", "25", "--time", "0.1", "--policy", policy, "--host")
            self.complains("give at least --host 51200B, or more memory: --host 204800B is enough", *missing, "0")
            self.complains(": --host 204800B is enough", *missing, "51200B")
            assert run(*missing, "204800B").returncode == 0
        # advise and the models say it in the same words.
        text = run("advise", self.trace, "--link", "25", "--host", "0", "--recompute", "off", "--time", "0.01").stdout
        assert re.search(r"no plan: .*: peak live is [\d.]+ MiB, memory and host hold [\d.]+ MiB less: give at least --host \d+, more memory, or --recompute auto$", text, re.M), text
        text = run("report", "--model", self.trace, "--memory", "1MiB", "--link", "25").stdout
        assert re.search(r"no plan in 1\.0 MiB: the largest op alone needs [\d.]+ MiB: give at least --memory \d+$", text, re.M), text
        everything = self.folder / "weights.jsonl"
        everything.write_text('{"kind":"plan","trace":"chain-16","memory_bytes":125829120,"link_in":1e10,"link_out":1e10}\n')
        self.complains("the weights and optimiser state that start the iteration on the device exceed its memory", "plan", self.trace, "--check", everything)
        done = run("plan", self.trace, "--memory", "1MiB", "--link", "25", "--policy", "all", "--time", "0.01")
        assert done.returncode == 2 and done.stdout.count("no plan: ") == len(POLICIES), done

    def test_emit_to_standard_output(self):
        plan = self.folder / "piped-plan.jsonl"
        done = run("plan", self.trace, "--memory", "50%", "--link", "20", "--policy", "g10", "--emit", "-")
        assert done.returncode == 0 and not done.stderr and all(json.loads(line)["kind"] in ("plan", "start_evicted", "action") for line in done.stdout.splitlines()), done
        plan.write_text(done.stdout)
        assert run("plan", self.trace, "--check", plan).returncode == 0
        assert run("plan", self.trace, "--memory", "50%", "--link", "20", "--policy", "g10", "--emit", "/dev/null").returncode == 0
        full = run("plan", self.trace, "--memory", "50%", "--link", "20", "--policy", "g10", "--emit", "/dev/full")
        assert full.returncode == 1 and full.stderr == "udnnmem: /dev/full: No space left on device\n", full
        with open("/dev/full", "w") as file:
            for command in (("plan", self.trace, "--memory", "50%", "--link", "20", "--policy", "g10"), ("advise", self.trace, "--time", "0.001", "--link", "25")):
                done = subprocess.run([BUILD / "udnnmem", *command], stdout=file, stderr=subprocess.PIPE, text=True)
                assert done.returncode == 1 and "No space left on device" in done.stderr, done
        self.complains("--emit: is empty", "plan", self.trace, "--memory", "50%", "--link", "20", "--emit", "")
        self.complains("is what is read", "plan", self.trace, "--memory", "50%", "--link", "20", "--emit", self.trace, "-f")

    def test_emit_check_and_the_second_simulator(self):
        trace = simulator.Trace(simulator.read_lines(self.trace))
        for i, (policy, recompute) in enumerate([("g10", "off"), ("delta", "auto"), ("checkpoint-n2", "auto"), ("udnn", "auto")]):
            path = self.folder / f"plan{i}.jsonl"
            done = run("plan", self.trace, "--memory", "50%", "--link", "20,15", "--policy", policy, "--recompute", recompute, "--time", "0.2", "--json", "--emit", path)
            assert done.returncode == 0, done.stderr
            row = json.loads(done.stdout)
            other = simulator.simulate(trace, simulator.read_lines(str(path)), row["memory_bytes"], 20e9, 15e9)
            assert other["valid"] and abs(other["time_ns"] - row["time_ns"]) <= 1e-3 * row["time_ns"], (row, other)
            checked = json.loads(run("plan", self.trace, "--check", path, "--json").stdout)
            assert checked["time_ns"] == row["time_ns"] and checked["policy"] == policy, checked
            self.complains("exists already", "plan", "/nonexistent", "--memory", "50%", "--link", "20", "--policy", policy, "--emit", path)  # before any work
            assert run("plan", self.trace, "--memory", "50%", "--link", "20", "--policy", "belady", "--emit", path, "-f").returncode == 0

    def test_complaints(self):
        self.complains("No such file", "plan", "/nonexistent", "--memory", "1", "--link", "1")
        self.complains("needs --memory", "plan", self.trace, "--link", "1")
        self.complains("needs --link", "plan", self.trace, "--memory", "1GiB")
        self.complains("--memory lots: expected a size", "plan", self.trace, "--memory", "lots", "--link", "1")
        self.complains("--memory auto: expected a size", "plan", self.trace, "--memory", "auto", "--link", "1")
        self.complains("--memory 150%: expected a share of at most 100%", "plan", self.trace, "--memory", "150%", "--link", "1")
        self.complains("--host 1e9GiB: expected a size", "plan", self.trace, "--memory", "1GiB", "--link", "1", "--host", "1e9GiB")
        self.complains("--link fast: expected GB/s", "plan", self.trace, "--memory", "1GiB", "--link", "fast")
        for wrong in ("0", "1e9", "15GB", "15GB/s,", "2000000"):
            self.complains(f"--link {wrong}: expected GB/s from 0.001 to 1000000, such as 55", "plan", self.trace, "--memory", "1GiB", "--link", wrong)
        links = [json.loads(run("plan", self.trace, "--memory", "1GiB", "--policy", "demand", "--link", text, "--json").stdout) for text in ("15GB/s", "15 GB/s,12GB/s")]
        assert [(row["link_in"], row["link_out"]) for row in links] == [(15e9, 15e9), (15e9, 12e9)], links
        self.complains("--memory 50: are bytes, which hold no tensor: did you mean 50%, or 50GiB?", "report", "--model", self.trace, "--memory", "50")
        self.complains("--memory 8000: are bytes, which hold no tensor: name the unit, as in 8000MiB", "plan", self.trace, "--memory", "8000", "--link", "1")
        self.complains("--host 64: are bytes", "plan", self.trace, "--memory", "50%", "--link", "1", "--host", "64")
        self.complains("--host 64: are bytes", "advise", self.trace, "--host", "64")
        self.complains("no plan in 50 B", "plan", self.trace, "--memory", "50B", "--link", "1", "--policy", "demand")
        self.complains("expected all or one of", "plan", self.trace, "--memory", "1GiB", "--link", "1", "--policy", "magic")
        self.complains("is all recompute", "plan", self.trace, "--memory", "1GiB", "--link", "1", "--policy", "chen", "--recompute", "off")
        for option, wrong in (("--time", "nan"), ("--turnaround", "-1"), ("--hash", "inf"), ("--time", "soon")):
            self.complains(f"{option}: expected a number from 0 to ", "plan", self.trace, "--memory", "1GiB", "--link", "1", option, wrong)
        for wrong in ("17", "1.5", "two"):
            self.complains(f"--lookahead: expected a whole number from 0 to 16, is {wrong}", "plan", self.trace, "--memory", "1GiB", "--link", "1", "--lookahead", wrong)
        self.complains("--hash: expected 0 or at least 0.001 GB/s", "plan", self.trace, "--memory", "1GiB", "--link", "1", "--hash", "1e-300")
        self.complains("--time: expected a number from 0 to 3600, is nan", "advise", self.trace, "--time", "nan")
        self.complains("--interval: expected a number from 0.05 to 3600, is nan", "top", "--interval", "nan")
        bad = self.folder / "bad.jsonl"
        bad.write_text(pathlib.Path(self.trace).read_text().replace('"index": 3', '"index": 4', 1))
        self.complains("op.index: ops come in ascending order from 0: must be 3, is 4", "plan", bad, "--memory", "1GiB", "--link", "1")
        bad.write_text("")
        self.complains("line 1: header: is missing", "plan", bad, "--memory", "1GiB", "--link", "1")
        plan = self.folder / "bad-plan.jsonl"
        plan.write_text('{"kind":"plan"}\n{"kind":"action","after_op":1,"do":"evict","buffer":99999}\n')
        self.complains("line 2: action.buffer: the trace has no buffer 99999", "plan", self.trace, "--check", plan)
        plan.write_text('{"kind":"plan"}\n')
        self.complains("plan.memory_bytes: is missing", "plan", self.trace, "--check", plan)
        self.complains("give at least --memory", "plan", self.trace, "--check", plan, "--memory", "0", "--link", "1")
        plan.write_text('{"kind":"plan"}\n{"kind":"action","after_op":1,"do":"drop","buffer":16}\n')
        self.complains("op ", "plan", self.trace, "--check", plan, "--memory", "10GiB", "--link", "10")
        self.complains("No such file", "advise", "/nonexistent")
        self.complains("expected GB/s", "advise", self.trace, "--link", "x")

    def test_advice_on_a_trace_without_buffers(self):
        path = self.folder / "bare.jsonl"
        path.write_text('{"kind":"header","schema":1,"name":"bare"}\n{"kind":"op","index":0,"name":"k","duration_ns":1000,"reads":[],"writes":[]}\n')
        done = run("advise", path, "--link", "20", "--host", "0", "--time", "0.01")
        assert done.returncode == 0 and "smallest memory for 95 % speed: " in done.stdout and "nan" not in done.stdout, done

    def advised(self, path, seconds, every):
        """What advise says of one trace is what plans do, by the simulator in Python: at each, or every n-th, of its points."""
        done = run("advise", path, "--time", seconds, "--link", "20", "--format", "json")
        assert done.returncode == 0, done.stderr
        advice = json.loads(done.stdout)["traces"][0]
        link = advice["links"][0]
        points = [p for p in link["points"] if p["feasible"]]
        assert len(link["points"]) == 12 and len(points) >= 6, link
        speeds = [p["eta_ideal"] for p in points]
        assert speeds == sorted(speeds) and speeds[-1] == 1 and points[-1]["binds"] == "compute", speeds
        smallest = [link["smallest_memory"][s] for s in ("95", "90", "80")]
        assert smallest == sorted(smallest, reverse=True) and smallest[0] <= advice["peak_live_bytes"], smallest
        for card in advice["cards"]:
            if card["largest_batch_pays"]:
                assert card["largest_batch_pays"] <= card["largest_batch_fits"], card
        trace = simulator.Trace(simulator.read_lines(path))
        worst = 0
        for point in points[::every]:
            plan = self.folder / "advised.jsonl"
            made = run("plan", path, "--memory", point["memory_bytes"], "--link", "20", "--time", 2 if FULL else seconds, "--emit", plan, "-f")
            assert made.returncode == 0, made.stderr
            other = simulator.simulate(trace, simulator.read_lines(str(plan)), point["memory_bytes"], 20e9, 20e9)
            assert other["valid"], (path, point, other)
            worst = max(worst, abs(other["time_ns"] / point["time_ns"] - 1))
            assert worst < 0.05, (path, point, other)
        if FULL:
            print(f"{pathlib.Path(path).name}: advise and the Python simulator differ by {100 * worst:.2f} % at most, of {len(points)} points", flush=True)

    def test_recorded_run_says_its_machine(self):
        header, *lines = pathlib.Path(self.trace).read_text().splitlines()
        ran = self.folder / "ran.jsonl"
        own = [{"kind": "config", "device": 0, "budget_bytes": 700 << 20, "host_budget_bytes": 2 << 30}, {"kind": "link", "device": 0, "in_bytes_per_second": 20e9, "out_bytes_per_second": 15e9}]
        ran.write_text("\n".join([header, *map(json.dumps, own), *lines]) + "\n")
        row = json.loads(run("plan", ran, "--policy", "g10", "--json").stdout)
        assert (row["memory_bytes"], row["link_in"], row["link_out"]) == (700 << 20, 20e9, 15e9), row
        assert ", host 2.0 GiB, " in run("plan", ran, "--policy", "g10").stdout
        row = json.loads(run("plan", ran, "--policy", "g10", "--memory", "800MiB", "--json").stdout)
        assert (row["memory_bytes"], row["link_in"]) == (800 << 20, 20e9), row
        text = run("plan", ran, "--policy", "g10", "--memory", "800MiB", "--link", "5").stdout
        assert ", links 5.00 GB/s in, 5.00 GB/s out, host unlimited, " in text, text
        ran.write_text("\n".join([header, json.dumps(own[0]), *lines]) + "\n")
        self.complains("plan needs --link: only a recorded run", "plan", ran)

    def test_traces_of_other_networks(self):
        """They make no model of the batch size together, and it is said."""
        other, faster, larger = (self.folder / f"{name}.jsonl" for name in ("other", "faster", "larger"))
        other.write_text(chain(12, 64))
        larger.write_text(chain(16, 64).replace("150000", "310000").replace("300000", "620000"))
        faster.write_text(chain(16, 64).replace("150000", "15000").replace("300000", "30000"))
        unlike = "chain-16 and chain-12 are not of one network: 48 and 36 ops"
        done = run("advise", self.trace, other, "--time", "0.01", "--link", "10")
        assert done.returncode == 0 and done.stderr == f"udnnmem: warning: no model of the batch size from all traces together, each has its own: {unlike}, 64 and 48 buffers\n", done.stderr
        assert run("advise", self.trace, larger, "--time", "0.01", "--link", "10").stderr == ""
        model = lambda *traces: json.loads(run("report", "--model", *traces, "--format", "json").stdout.splitlines()[0])["models"]
        good, bad = model(self.trace, larger), model(self.trace, faster)
        assert good["batch"]["doubt"] is None and good["batch"]["each_ns"] > 0, good["batch"]
        assert bad["batch"] is None and any("t_iter(k): none: a larger batch takes no longer here" in line for line in bad["summary"]), bad["summary"]
        other.write_text(chain(12, 64).replace("150000", "999000"))
        odd = model(self.trace, other)
        assert odd["batch"]["doubt"].startswith(unlike) and any(f"t_iter(k) is in doubt: {unlike}" in line for line in odd["summary"]), odd["summary"]

    def test_largest_batch_and_host(self):
        """Where nothing grows with the batch the search has an end, which is no answer."""
        fixed = self.folder / "fixed.jsonl"
        records = [{"kind": "header", "schema": 1, "name": "fixed", "batch": 8}, {"kind": "buffer", "id": 0, "bytes": 1 << 20, "persistent": True}]
        fixed.write_text("".join(json.dumps(r) + "\n" for r in records + [{"kind": "op", "index": 0, "phase": "update", "duration_ns": 1000, "reads": [0], "writes": [0]}]))
        common = ("advise", fixed, "--time", "0.01", "--link", "10")
        text = run(*common).stdout
        assert re.search(r"^H100 80GB.* >= 16M +>= 16M$", text, re.M) and "16,252,928" not in text, text
        assert "&gt;= 16M" in run(*common, "--format", "html").stdout
        card = json.loads(run(*common, "--format", "json").stdout)["traces"][0]["cards"][0]
        assert card["largest_batch_fits"] == 1 << 24 and card["largest_batch_fits_at_least"] and card["largest_batch_pays_at_least"], card
        card = json.loads(run("advise", self.trace, *common[2:], "--json").stdout)["traces"][0]["cards"][0]
        assert 0 < card["largest_batch_fits"] < 1 << 24 and not card["largest_batch_fits_at_least"], card
        self.complains("expected batch sizes", *common, "--batch", "4611686018427387904")
        endless = "host memory is not bounded here: --host SIZE bounds it"
        for form in ("text", "html"):
            assert endless in run(*common, "--format", form).stdout and endless not in run(*common, "--format", form, "--host", "64GiB").stdout, form
        # A share is of each trace's own peak live: the second needs more than half of the first one's.
        small, large = self.folder / "share-small.jsonl", self.folder / "share-large.jsonl"
        small.write_text(chain(4, 4))
        large.write_text(chain(16, 64))
        points = lambda *traces: [p["feasible"] for p in json.loads(run("advise", *traces, *common[2:], "--recompute", "off", "--host", "100%", "--format", "json").stdout)["traces"][-1]["links"][0]["points"]]
        assert points(small, large) == points(large) and any(points(large)[:-1]), points(small, large)

    def test_whose_plan(self):
        plan = self.folder / "of-16.jsonl"
        common = ("--memory", "50%", "--link", "25", "--policy", "g10")
        assert run("plan", self.trace, *common, "--emit", plan).returncode == 0
        assert run("plan", self.trace, "--check", plan).stderr == ""
        named, shorter = self.folder / "named.jsonl", self.folder / "shorter.jsonl"
        named.write_text(chain(16, 32).replace("chain-16", "another"))
        done = run("plan", named, "--check", plan)
        whose = f'{plan}: the plan is of trace "chain-16", {named} is "another"'
        assert done.returncode == 0 and done.stderr == f"udnnmem: warning: {whose}\n", done
        shorter.write_text(chain(4, 32))
        self.complains(f': the plan is of trace "chain-16", {shorter} is "chain-4"', "plan", shorter, "--check", plan)
        self.complains('the plan is of trace "chain-16"', "plan", named, "--check", plan, "--memory", "1MiB")
        self.complains("--policy excludes --check", "plan", self.trace, "--check", plan, "--policy", "g10")
        done = run("plan", self.trace, "--check", plan, "--memory", "1MiB", "--json")
        row = json.loads(done.stdout)
        assert done.returncode == 2 and row["feasible"] is False and row["policy"] == "g10" and row["error"], done
        assert done.stderr.startswith(f"udnnmem: {plan}: no plan in 1.0 MiB: the largest op alone needs "), done

    def test_files_cut_short(self):
        """Half a trace is planned, and everybody is told; half a plan is none."""
        whole = pathlib.Path(self.trace).read_text()
        cut = self.folder / "cut.jsonl"
        cut.write_text(whole[:len(whole) * 3 // 4])
        line = whole[:len(whole) * 3 // 4].count("\n") + 1
        words = f"damaged or cut short from line {line} on: "
        common = ("--link", "25", "--time", "0.01")
        done = run("plan", cut, "--memory", "60%", *common, "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["damaged_from_line"] == line, done
        assert done.stderr.startswith(f"udnnmem: warning: {cut}: {words}") and done.stderr.count("\n") == 1, done
        assert json.loads(run("plan", self.trace, "--memory", "60%", *common, "--json").stdout)["damaged_from_line"] is None
        done = run("advise", cut, self.trace, *common, "--format", "json")
        assert words in done.stderr and [t["damaged_from_line"] for t in json.loads(done.stdout)["traces"]] == [line, None], done
        done = run("advise", cut, *common, "--format", "html")
        assert f'<p class="warning">{cut}: {words}' in done.stdout, done.stderr
        assert '<p class="warning">' not in run("advise", self.trace, *common, "--format", "html").stdout
        # At a line's end only the header's time tells.
        header, *lines = whole.splitlines()
        cut.write_text("".join(json.dumps(r) + "\n" if isinstance(r, dict) else r + "\n" for r in [{**json.loads(header), "ideal_ns": 16 * 460000}, *lines[:-20]]))
        done = run("report", "--model", cut)
        assert done.returncode == 0 and f"{cut}: damaged from line {len(lines) - 18} on" in done.stderr, done.stderr
        done = run("plan", cut, "--memory", "60%", *common)
        assert done.returncode == 0 and f"cut short from line {len(lines) - 18} on: what follows is left out, its ops take " in done.stderr, done.stderr
        # Before its first op the reason is said as well.
        cut.write_text(whole[:whole.index('"op"') - 5])
        for command in (("plan", cut, "--memory", "60%", *common), ("advise", cut, *common)):
            done = run(*command)
            assert done.returncode == 2 and "warning: " in done.stderr and "cut short from line" in done.stderr and done.stderr.endswith(": holds no op\n"), done
        plan = self.folder / "cut-plan.jsonl"
        assert run("plan", self.trace, "--memory", "50%", *common, "--emit", plan).returncode == 0
        text = plan.read_text()
        plan.write_text(text[:-9])
        self.complains(f"{plan}: cut short at line {text.count(chr(10))}: half of a plan is none", "plan", self.trace, "--check", plan)

    def test_advise(self):
        def advised(path, seconds, every):
            for longer in (1, 5, 25):
                try:
                    return self.advised(path, longer * seconds, every)
                except AssertionError:  # a machine busy with others gives a search less than it was promised
                    if longer == 25:
                        raise
        advised(self.trace, 0.02, 1)
        traces = sorted((ROOT / "tests/traces").glob("*.jsonl.zst"))
        assert len(traces) == 19, traces
        for path in traces if FULL else [ROOT / "tests/traces/moe8-b24-roofline.jsonl.zst"]:
            advised(str(path), 0.5 if FULL else 0.1, 1 if FULL else 4)

    def test_recorded_iterations(self):
        """What our own recorder wrote is planned by every policy, and the second simulator agrees; the link is so slow that
        it matters: a quarter of an iteration for the peak of live bytes."""
        traces = sorted((ROOT / "tests/traces").glob("tinygrad-*.jsonl.zst"))
        assert len(traces) == 5, traces
        for path in traces if FULL else traces[::2]:
            trace = simulator.Trace(simulator.read_lines(str(path)))
            live = json.loads(run("plan", path, "--memory", "100%", "--link", "1", "--policy", "belady", "--json").stdout)["memory_bytes"]
            link = 4 * live / sum(trace.duration)
            common = ("plan", path, "--memory", "30%", "--link", link, "--recompute", "off", "--time", "0.2", "--json")
            policies = ["all"]
            for policy in policies:
                file = self.folder / f"{path.stem}-{policy}.plan"
                done = run(*common, "--policy", policy, "--emit", file)
                assert done.returncode == 0, (path, policy, done.stderr)
                rows = [json.loads(line) for line in done.stdout.splitlines()]
                assert all(row["feasible"] and row["bytes_out"] > 0 for row in rows), (path, [(row["policy"], row["feasible"], row["bytes_out"]) for row in rows])
                best = min(rows, key=lambda row: row["time_ns"])
                if policy == "all":
                    assert len(rows) == 8 and rows[-1]["time_ns"] <= 1.001 * best["time_ns"], (path, "udnn is beaten", rows)
                    policies += [row["policy"] for row in rows] if FULL else []
                other = simulator.simulate(trace, simulator.read_lines(str(file)), best["memory_bytes"], link * 1e9, link * 1e9)
                assert other["valid"] and abs(other["time_ns"] - best["time_ns"]) <= 1e-3 * best["time_ns"], (path, policy, best, other)

    def test_lower_bound_says_which(self):
        def bound(trace):
            row = json.loads(run("plan", trace, "--memory", "60%", "--link", "8", "--recompute", "off", "--time", "0.2", "--json").stdout)
            assert row["lower_bound_ns"] <= row["time_ns"], row
            return row
        small = self.folder / "small.jsonl"
        small.write_text(chain(6, 24))
        row = bound(small)
        assert row["lower_bound"] == ("LB3" if shutil.which("cbc") else "LB2"), row
        assert f"; {row['lower_bound']})" in run("plan", small, "--memory", "60%", "--link", "8", "--recompute", "off", "--time", "0.1").stdout
        row = bound(ROOT / "tests/traces/moe8-b24-roofline.jsonl.zst")  # too large for the programme
        assert row["lower_bound"] in ("LB1", "LB2"), row

    def test_bound_with_replays(self):
        """tests/policy/recompute_bound.py: below every plan; and it counts both links."""
        def bound(records, share, speed, segments=8):
            trace = recompute_bound.merged(records)
            return recompute_bound.bound_ms(trace, int(share * recompute_bound.peak_live(trace)), speed, segments)
        if not shutil.which("cbc"):
            return
        for memory, link in ((0.7, 8), (0.5, 8), (0.4, 25)):
            row = json.loads(run("plan", self.trace, "--memory", f"{100 * memory:.0f}%", "--link", link, "--time", "0.2", "--json").stdout)
            least = bound(simulator.read_lines(self.trace), memory, link * 1e9)
            assert 16 * 0.46 <= least * 1.0001 and 0.6 * row["time_ns"] <= least * 1e6 <= row["time_ns"], (least, row)
        # Eight activations of 100 MB, made in 8 ms, of which 600 MB leave at 10 GB/s before the long way back.
        buffers = [{"kind": "buffer", "id": i, "bytes": 10**8} for i in range(8)]
        ops = [{"kind": "op", "index": i, "duration_ns": 10**6, "reads": [], "writes": [i]} for i in range(8)]
        ops += [{"kind": "op", "index": 8 + i, "duration_ns": 10**8, "reads": [7 - i], "writes": []} for i in range(8)]
        least = bound(buffers + ops, 0.25, 10e9, 800)
        assert 850 <= least <= 870, least

    def test_progress(self):
        def on_terminal(*arguments):
            master, slave = pty.openpty()
            process = subprocess.Popen([str(BUILD / "udnnmem"), *arguments], stdout=subprocess.DEVNULL, stderr=slave, stdin=subprocess.DEVNULL)
            os.close(slave)
            text = b""
            try:
                while part := os.read(master, 4096):
                    text += part
            except OSError:  # the other end is closed
                pass
            os.close(master)
            assert process.wait() == 0
            return text.decode()
        trace = str(ROOT / "tests/traces/moe8-b24-roofline.jsonl.zst")
        common = ("--link", "20", "--time")
        text = on_terminal("plan", trace, "--memory", "40%", *common, "3")
        parts = [int(part) for part in re.findall(r"udnn \(1 of 1\) \[#+ *\] +(\d+) %", text)]
        assert len(parts) > 5 and parts == sorted(parts) and parts[-1] > 80 and text.endswith("\r\x1b[K"), text
        text = on_terminal("advise", trace, *common, "0.05")
        assert "planning [" in text and text.endswith("\r\x1b[K"), text
        assert on_terminal("plan", self.trace, "--memory", "60%", *common, "0.1") == ""  # soon done: no bar
        assert run("plan", trace, "--memory", "40%", *common, "2").stderr == ""  # no terminal: none either

    def test_advise_shapes(self):
        page = self.folder / "advice.html"
        done = run("advise", self.trace, "--time", "0.01", "--link", "10", "--link", "50,40", "--format", "html", "-o", page)
        assert done.returncode == 0 and done.stdout == "", done
        text = page.read_text()

        class Page(html.parser.HTMLParser):
            tags, links = [], []

            def handle_starttag(self, tag, attributes):
                self.tags.append(tag)
                self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]

        parsed = Page()
        parsed.feed(text)
        assert parsed.tags.count("svg") == 1 and parsed.tags.count("polyline") == 2 and not parsed.links and "script" not in parsed.tags, parsed.tags
        assert "://" not in text and "@import" not in text and "url(" not in text, "the page asks for something"
        self.complains("exists already", "advise", self.trace, "--time", "0.01", "--link", "10", "--format", "html", "-o", page)
        other = self.folder / "chain64.jsonl"
        other.write_text(chain(16, 64))
        nameless = self.folder / "nameless.jsonl"
        nameless.write_text(chain(16, 32).replace('"batch": 32', '"batch": 0', 1))
        text = run("advise", nameless, "--time", "0.01", "--link", "10").stdout
        assert "batch size unknown: give --batch 512" in text, text
        told = run("advise", nameless, "--time", "0.01", "--link", "10", "--batch", "32").stdout
        assert "unknown" not in told and ", batch 32, " in told and re.search(r"^H100 80GB.* \d[\d,]*$", told, re.M), told
        self.complains("--batch names 2 batch sizes for 1 traces", "advise", nameless, "--batch", "1,2")
        text = run("advise", self.trace, other, "--time", "0.01", "--link", "10").stdout
        assert text.count("smallest memory for 95 % speed") == 2 and "H100 80GB" in text, text

    def test_advise_page_in_a_browser(self):
        browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if not browser:
            return print("advise's page in a browser: skipped, there is none (chromium)")
        page, picture = self.folder / "drawn.html", self.folder / "drawn.png"
        assert run("advise", self.trace, "--time", "0.01", "--link", "10", "--link", "40", "--format", "html", "-o", page).returncode == 0
        subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/profile", "--window-size=900,700", f"--screenshot={picture}", page.as_uri()],
                       check=True, capture_output=True, timeout=120)
        rows = pixels(picture)
        # Both lines are there; below their right ends, where the speed is near its best, are their names in the same colours.
        for colour in ((0x1f, 0x6f, 0xeb), (0xd1, 0x58, 0x0b)):
            seen = [(x, y) for y, row in enumerate(rows) for x, pixel in enumerate(row) if pixel == colour]
            assert len(seen) > 200 and any(x > 700 and y > 420 for x, y in seen), (colour, len(seen))


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(pathlib.Path(folder))
        for name in [name for name in dir(Tests) if name.startswith("test_")]:
            try:
                getattr(tests, name)()
                passed += 1
            except Exception as error:  # noqa: BLE001: a suite reports and goes on
                failed += 1
                print(f"{name}: {type(error).__name__}: {str(error)[:2000]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
