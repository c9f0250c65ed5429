#!/usr/bin/env python3
"""Recorded iterations of real networks, played through the library on a modelled device (workloads/player).

Everything is scaled down by SCALE: bytes, granule, link, the device's memory. Durations stay, so an iteration takes the time
that it took where the trace was recorded, and what the link carries in it is the same share of the buffers. The checksum must be
that of a run with enough memory, no kernel may fault, the device's bytes may not be exceeded, and iterations by plan may take no
more than MOST times what the simulator promised, without a deadline of the progress rule. Two networks in `make test`: one that
holds much for long, and one that makes and frees much while its program runs far ahead of the device; with UDNNMEM_TEST_FULL=1 every
trace at two links, and their times against the lower bounds of tests/traces (reference.tsv, bounds.tsv): the geometric mean is to be at
least ETA_BOUND.
`played.py [--recompute] [--mapping=CREATE:ACCESS:UNMAP] [--host=NS] TRACE LINK...` plays one at the links given, in bytes per second; only
with --recompute, for more iterations, may buffers be dropped and computed again; with --mapping the driver's calls that make memory and map
it take so many ns each (ACCESS and UNMAP for each frame mapped there), and with --host the program itself so many before each op, as on a
card: no promise reckons with either so far.
"""
import csv, json, pathlib, re, statistics, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FOLLOWED, FULL, ROOT, WORKLOADS, Run, Suite, asked_for_help, environment, refuse, settled
from tests.policy.simulator import Trace, read_lines

SCALE = 1024
GRANULE = 4096
MOST = 1.05
ETA_BOUND = 0.9
DEADLINE_MS = 20000   # of the progress rule, which does not go by the modelled clock: the program runs some forty times slower
ITERATIONS = 14
SEEN = re.compile(r"(\d+) of (\d+) uses of buffers were seen to write")
DEVICE = "roofline 1.4e10 3e9"  # of what is not in the trace, an H100's 64-bit arithmetic and memory over SCALE


def lower_bounds():
    """{(network, link in GB/s): ms that no way of moving buffers can go below in half of the memory}."""
    bounds = {}
    for table in ("reference.tsv", "bounds.tsv"):   # the second has better ones for some
        with open(ROOT / "tests/traces" / table) as file:
            for row in csv.DictReader(file, delimiter="\t"):
                if float(row["M_frac"]) == 0.5:
                    key = row["net"], float(row["link_GBps"])
                    bounds[key] = max(bounds.get(key, 0), float(row["bound_ms"]))
    return bounds


class Program:
    """`text` for the player; `peak`: bytes of its buffers at most at once, `ideal_ns` of an iteration."""

    def __init__(self, path):
        trace = Trace(read_lines(str(path)))
        words = [max(1, size // SCALE // 4) for size in trace.size]
        order = sorted(range(len(words)), key=lambda b: not trace.persistent[b])
        number = {b: i for i, b in enumerate(order)}
        lines = [f"persistent {sum(trace.persistent)}"]
        sizes = [words[b] for b in order]
        ops, alive = [], sum(w for w, b in zip(sizes, order) if trace.persistent[b])
        self.peak = 0
        for k, duration in enumerate(trace.duration):
            born, dies = [number[b] for b in trace.born[k]], [number[b] for b in trace.dies[k]]
            reads, writes = [number[b] for b in trace.reads[k]], [number[b] for b in trace.writes[k]]
            if trace.workspace[k]:
                sizes.append(max(1, trace.workspace[k] // SCALE // 4))
                for names in (born, writes, dies):
                    names.append(len(sizes) - 1)
            alive += sum(sizes[b] for b in born)
            self.peak = max(self.peak, 4 * alive)
            alive -= sum(sizes[b] for b in dies)
            ops.append(f"op {duration} " + " ; ".join(" ".join(map(str, names)) for names in (born, reads, writes, dies)))
        self.text = "\n".join(lines + [f"buffer {w}" for w in sizes] + ops) + "\n"
        self.ideal_ns = sum(trace.duration)
        movable = [4 * w >= GRANULE // 2 for w in sizes]
        self.writes = sum(movable[number[b]] for written in trace.writes for b in written) + sum(movable[len(words):])


def device(folder, link):
    """Environment of the modelled device with a link of `link` bytes a second each way, as the trace has it."""
    table = pathlib.Path(folder) / "device.table"
    table.write_text(f"play @0\n{DEVICE}\n")
    rate = link / SCALE
    return dict(UDNNMEM_TEST_DEADLINE_MS=DEADLINE_MS, SOFTGPU_TIME=f"table:{table}", SOFTGPU_H2D=rate, SOFTGPU_D2H=rate, SOFTGPU_GRANULARITY=GRANULE)


def virtual_ms(run):
    return (run.report or {}).get("virtual_ns", 0) / 1e6


class Played:
    """A run under the library in `share` of the memory that the network needs, and the same without it. Times in ms."""

    def __init__(self, path, link, share=0.5, iterations=ITERATIONS, recompute=False, mapping="", host=0, **options):
        program = Program(path)
        self.memory, self.ideal = int(program.peak * share), program.ideal_ns / 1e6
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "program"
            source.write_text(program.text)
            on = dict(device(folder, link), SOFTGPU_MAPPING=mapping)
            run = lambda **more: Run([WORKLOADS / "player", source, iterations, *([host] if host else [])], environment(**on, **more), limit=3600 if FULL else 300)
            trace = pathlib.Path(folder) / "run.jsonl"
            self.done = run(preload=True, UDNNMEM_TRACE=trace, **self._budget(program), UDNNMEM_DEBUG="info", UDNNMEM_RECOMPUTE="auto" if recompute else "off", **options)
            self.plain = run(SOFTGPU_MEMORY=2 * program.peak)
            self.on_demand = self._on_demand(source, dict(on, **self._budget(program))) if FULL else 0
            summaries = [json.loads(line) for line in (trace.read_text().splitlines() if trace.exists() else []) if '"kind":"summary"' in line]
        by_plan = [summary["deadlines"] for summary in summaries if summary["planned_iterations"]]
        self.deadlines = by_plan[-1] - by_plan[0] if by_plan else 0  # of the progress rule, while the plan was followed
        seen = SEEN.search(self.done.error)
        self.writes, self.seen = program.writes, int(seen[1]) if seen else 0
        found = FOLLOWED.search(self.done.error)
        self.followed, self.planned = (int(found[1]), int(found[2])) if found else (0, 0)
        self.by_plan, self.promised = (int(found[3]) / 1e3, int(found[4]) / 1e3) if found else (0, 0)
        self.virtual = virtual_ms(self.done)   # of the whole run

    def _budget(self, program):
        """All that the library may take, for itself too; by itself it would leave a part of the device alone."""
        return dict(SOFTGPU_MEMORY=2 * program.peak, UDNNMEM_BUDGET=self.memory)

    def _on_demand(self, source, on):
        """ms of an iteration that is not planned: what more of them take."""
        runs = [Run([WORKLOADS / "player", source, n], environment(preload=True, UDNNMEM_POLICY="demand", **on), limit=3600) for n in (2, 6)]
        return (virtual_ms(runs[1]) - virtual_ms(runs[0])) / 4


def asked(arguments):
    """[(trace, link)] as named on the command line."""
    path, *links = arguments
    if path.startswith("-"):
        refuse(f"{path}: expected [--recompute] [--mapping=CREATE:ACCESS:UNMAP] [--host=NS] TRACE LINK..., links in bytes per second (55e9); --help says more")
    if not pathlib.Path(path).is_file():
        refuse(f"{path}: no such file: name a trace of one iteration, as under tests/traces")
    try:
        if not Trace(read_lines(path)).ops:
            raise ValueError
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, StopIteration, OSError, subprocess.CalledProcessError):
        refuse(f"{path}: no trace of one iteration: tests/traces has some")
    try:
        rates = [float(link) for link in links or ["55e9"]]
        if not all(1e6 <= rate <= 1e15 for rate in rates):
            raise ValueError
    except ValueError:
        refuse(f"link {' '.join(links)}: expected bytes per second from 1e6 to 1e15, for example 55e9")
    return [(pathlib.Path(path), rate) for rate in rates]


def main():
    asked_for_help(__doc__)
    suite = Suite()
    networks = sorted(path for path in (ROOT / "tests/traces").glob("*.jsonl.zst") if not path.name.startswith("tinygrad-"))
    cases = [(path, link) for path in networks for link in (55e9, 15.75e9)] if FULL else [(ROOT / f"tests/traces/{name}.jsonl.zst", 55e9) for name in ("moe8-b24-roofline", "resnet152-b256-modern")]
    recompute = "--recompute" in sys.argv
    value = lambda flag: next((a.split("=", 1)[1] for a in sys.argv if a.startswith(flag + "=")), "")
    mapping, host = value("--mapping"), int(value("--host") or 0)
    arguments = [a for a in sys.argv[1:] if a != "--recompute" and not a.startswith(("--mapping=", "--host="))]
    if arguments:
        cases = asked(arguments)
    bounds, eta = lower_bounds(), []
    for path, link in cases:
        kept = lambda p: p.planned >= 3 and (mapping or host or p.by_plan <= MOST * p.promised) and p.deadlines == 0
        p = settled(lambda p: kept(p) or p.done.status != 0, lambda: Played(path, link, iterations=5 * ITERATIONS if recompute else ITERATIONS, recompute=recompute, mapping=mapping, host=host))
        network = path.name.split(".jsonl")[0]
        what, report = f"{network} at {link / 1e9:g} GB/s", p.done.report or {}
        bound = None if recompute else bounds.get((network, link / 1e9))   # of moves alone
        print(f"{what}: {p.ideal:.1f} ms with all memory, {p.promised:.1f} promised in half of it, {p.by_plan:.1f} by plan" + (f", {p.on_demand:.1f} on demand" if FULL else "") + (f", bound {bound:.1f}" if bound else ""), flush=True)
        if bound and p.by_plan:
            eta.append(bound / p.by_plan)
        suite.check(p.done.status == 0 and p.done.output == p.plain.output and p.plain.status == 0, f"{what}: the same bits", f"    {p.done.status}\n{p.done.output}{p.done.tail()}")
        suite.check(report.get("faults") == 0 and report["device_bytes_peak"] <= p.memory, f"{what}: no fault, within the device", f"    {report}")
        suite.check(0.95 * p.writes <= p.seen <= p.writes, f"{what}: what ops write is seen", f"    {p.seen} writes seen, {p.writes} made\n{p.done.tail(10)}")
        suite.check(kept(p), f"{what}: as promised", f"    {p.planned} iterations by plan, {p.deadlines} deadlines\n{p.done.tail(10)}")
    if FULL and eta and not arguments:
        mean = statistics.geometric_mean(eta)
        print(f"eta_bound, executed: geometric mean {mean:.3f} of {len(eta)}, least {min(eta):.3f}")
        suite.check(mean >= ETA_BOUND, f"on average {ETA_BOUND} of what moving buffers can reach", f"    {mean}")
    suite.finish()


if __name__ == "__main__":
    main()
