#!/usr/bin/env python3
"""The iteration that a trace holds is the program's own, for every workload that repeats, and for random ones.

What a program asks of the device is written down without the library: by the software GPU (SOFTGPU_LIST), by random loops
themselves. The same program runs under the library with room to spare and in two thirds of its memory, and the last iteration of its
trace must have the same ops in the same order on the same buffers (sizes, lives, what is read and written; a kernel counts as
reading and writing what it is given, a copy of a part as reading it). Where the iteration was planned, what its kernels were
seen to write is what they change. A few workloads in `make test`, with 4 random loops; all of them and 50 with
UDNNMEM_TEST_FULL=1. `recorded.py NAME...` takes those.
"""
import pathlib, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e import listed, replays
from tests.e2e.harness import FULL, SOFTGPU, WORKLOADS, Run, Suite, environment

SHOWN = 6
LOOPS = 50 if FULL else 4
DIGITS = ["--depth", 8, "--width", 16, "--batch", 64, "--iterations"]
# A network of a few ops for the player: words of its buffers, the first two persistent; births, reads, writes, deaths of each op.
PLAYED = """persistent 2
buffer 40000
buffer 9000
buffer 30000
buffer 30000
buffer 100
op 1000 2 ; 0 ; 2 ;
op 1000 3 4 ; 2 1 ; 3 4 ;
op 1000 ; 3 2 ; 2 ; 3
op 1000 ; 2 4 1 ; 1 ; 4
op 1000 ; 2 ; 0 ; 2
op 1000 ; 0 1 ; 1 ;
op 1000 ; 1 ; 0 1 ;
op 1000 ; 0 ; 0 ;
"""


class Case:
    """`command`: of the program. `own`: it writes its list itself, to a file named last. `granule`: of the device. `room`: tried
    with room to spare, too. Then nothing is moved, and nobody looks where tables of addresses lead that a kernel has written."""

    def __init__(self, command, own=False, granule=65536, room=True, **options):
        self.command, self.own, self.granule, self.room = command, own, granule, room
        self.options = dict(SOFTGPU_GRANULARITY=granule, **options)


def cases(folder):
    (folder / "played").write_text(PLAYED)
    all_of = {f"digits-{b}": Case([WORKLOADS / f"digits-{b}", *DIGITS, 700 if b == "graph" else 14]) for b in ("runtime", "static", "driver", "streams", "ptds", "async", "graph")}
    all_of["player"] = Case([WORKLOADS / "player", folder / "played", 40])
    all_of["ranges"] = Case([WORKLOADS / "ranges", 12])
    all_of["products"] = Case([WORKLOADS / "products", WORKLOADS / "math/libproducts.so", 64, 10], libraries=f"{WORKLOADS / 'math'}:{SOFTGPU}")
    for kind in sorted({*replays.MAY, *replays.REFUSED, "random"}):
        all_of[f"replays-{kind}"] = Case([WORKLOADS / "replays", kind, 24], granule=4096, room=kind != "table_writer")
    for seed in range(1, 1 + LOOPS):
        all_of[f"loop-{seed}"] = Case([WORKLOADS / "loop", seed, 40], own=True, granule=4096)
    return all_of


SAMPLE = ("player", "replays-graphs", "products", "replays-in_place", "replays-pointer_table")


def check(suite, folder, name, case):
    plan, trace = folder / "list", folder / "t.jsonl"
    command = case.command + ([plan] if case.own else [])
    plain = Run(command, environment(SOFTGPU_MEMORY="1GiB", **case.options, **({} if case.own else {"SOFTGPU_LIST": plan})))
    if not suite.check(plain.status == 0 and plan.exists(), f"{name}: runs and is listed", plain.tail()):
        return
    peak = listed.Program(plan).peak
    for what, memory in (("with room to spare", 4 * peak + (8 << 20)), ("in too little", peak * 2 // 3))[not case.room:]:
        trace.unlink(missing_ok=True)
        done = Run(case.command, environment(preload=True, SOFTGPU_MEMORY=memory, UDNNMEM_TRACE=trace, **case.options), limit=120)
        if not suite.check(done.status == 0 and done.output == plain.output, f"{name} {what}: the same bits", f"    {done.status}\n{done.output}{plain.output}{done.tail()}"):
            continue
        learned, buffers, ops, unchanged = listed.read_trace(trace)
        if not suite.check(learned and ops, f"{name} {what}: an iteration is found", f"    {learned}\n{done.tail()}"):
            continue
        program, wrong = listed.closest(plan, learned, buffers, ops)
        suite.check(not wrong, f"{name} {what}: the program's own ops and buffers", "\n".join("    " + w for w in [str(learned), *wrong[:SHOWN]]))
        if unchanged and not wrong:
            wrong = listed.write_differences(program, learned, buffers, ops, unchanged, case.granule // 2)
            suite.check(not wrong, f"{name} {what}: writes what the program's kernels change", "\n".join("    " + w for w in wrong[:SHOWN]))
        if len(sys.argv) > 1:
            print(f"{name} {what}: {len(ops)} ops, {len(buffers)} buffers, {sum(map(len, unchanged.values()))} uses left unchanged")


def check_order(suite, folder):
    """Weights' gradients are computed in a second stream, which waits for each layer's, as the update does for it; the host waits for
    the loss, and wherever memory is freed."""
    trace = folder / "order.jsonl"
    done = Run([WORKLOADS / "digits-streams", *DIGITS, 14], environment(preload=True, SOFTGPU_MEMORY="64MiB", UDNNMEM_TRACE=trace))
    learned, _, ops, _ = listed.read_trace(trace)
    waits = [(ops[k]["stream"], op["stream"], k < op["index"]) for op in ops for k in op.get("waits", [])]
    depth = int(DIGITS[DIGITS.index("--depth") + 1])
    suite.check(done.status == 0 and waits == [(0, 1, True)] * depth + [(1, 0, True)], "digits-streams: which stream waits for which", f"    {waits}\n{done.tail()}")
    waited = [(op["host_waited"], k) for k, op in enumerate(ops) if "host_waited" in op]
    suite.check(waited[0][0] == len(ops) - 1 and waited[0][1] == 0 and all(of < k for of, k in waited[1:]) and [of for of, _ in waited[1:]] == sorted({of for of, _ in waited[1:]}),
                "digits-streams: what the host waits for", f"    {waited}")


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        if len(sys.argv) == 1:
            check_order(suite, folder)
        for name, case in cases(folder).items():
            if name in sys.argv[1:] or (len(sys.argv) == 1 and (FULL or name in SAMPLE or name.startswith("loop"))):
                check(suite, folder, name, case)
    suite.finish()


if __name__ == "__main__":
    main()
