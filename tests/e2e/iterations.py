#!/usr/bin/env python3
"""The iteration that a run's trace holds is the program's own, op for op and byte for byte.

digits writes down what it asks of the device (--list). The trace of the same run must hold the same ops in the same
order, on the same buffers, made and freed at the same ops, so that the live bytes agree at every one: with everything
resident and in half the memory. Kernels count as reading and writing all that they name.
"""
import json, pathlib, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, environment

BUILDS = ["runtime", "static", "driver", "streams", "ptds", "async"]
STEPS = 6
ARGUMENTS = ["--depth", "200" if FULL else "24", "--width", "32", "--batch", "512", "--iterations", str(STEPS)]


def program_ops(path):
    """The list: ops as (name, {buffer}, bytes copied or None), with the buffers alive at each, and their sizes."""
    ops, alive, sizes = [], {}, {}
    for line in path.read_text().splitlines():
        what, *rest = line.split()
        if what == "a":
            sizes[int(rest[0])] = alive[int(rest[0])] = int(rest[1])
        elif what == "f":
            del alive[int(rest[0])]
        elif what == "l":
            ops.append((rest[0], {int(b) for b in rest[1:]}, None, set(alive)))
        else:
            ops.append(({"z": "Memset", "u": "HtoD", "d": "DtoH"}[what], {int(rest[0])}, int(rest[1]), set(alive)))
    return ops, sizes


def traced(path):
    """The last iteration of a trace: the `learned` record, its buffers, its ops."""
    learned, buffers, ops = None, [], []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "learned":
            learned, buffers, ops = record, [], []
        elif record["kind"] == "buffer":
            buffers.append(record)
        elif record["kind"] == "op":
            ops.append(record)
    return learned, buffers, ops


def differences(listed, sizes, buffers, ops):
    """What the trace says otherwise than the program, one line each."""
    same = {}  # the program's buffer -> the trace's
    for k, ((name, used, copied, alive), op) in enumerate(zip(listed, ops)):
        if name not in op["name"]:
            yield f"op {k} is {op['name']}, the program's is {name}"
        named = set(op["reads"]) | set(op["writes"])
        if sorted(buffers[b]["bytes"] for b in named) != sorted(sizes[b] for b in used):
            yield f"op {k} ({name}) names {named}, the program's names {used}"
        if name == "DtoH" and op["writes"]:
            yield f"op {k} ({name}) writes"
        whole = copied is not None and name != "DtoH" and copied == sizes[min(used)]
        if whole and op["reads"]:
            yield f"op {k} ({name}) reads what it writes whole"
        if copied is None and set(op["reads"]) != set(op["writes"]):
            yield f"op {k} ({name}) is a kernel that does not count as reading and writing"
        live = {b["id"] for b in buffers if b["persistent"] or b["alloc_op"] <= k <= b["free_op"]}
        if sum(buffers[b]["bytes"] for b in live) != sum(sizes[b] for b in alive):
            yield f"at op {k} ({name}) {sum(buffers[b]['bytes'] for b in live)} bytes are live, the program has {sum(sizes[b] for b in alive)}"
        for mine in used:
            fits = {b for b in named if buffers[b]["bytes"] == sizes[mine]}
            same[mine] = same.get(mine, fits) & fits
    for mine, theirs in same.items():
        if not theirs:
            yield f"the program's buffer {mine} is not one buffer of the trace"


def check(suite, build, share, peak):
    with tempfile.TemporaryDirectory() as folder:
        trace, listed = pathlib.Path(folder) / "t.jsonl", pathlib.Path(folder) / "list"
        what = f"{build} in {share} %"
        done = Run([WORKLOADS / f"digits-{build}", *ARGUMENTS, "--list", listed],
                   environment(preload=True, SOFTGPU_MEMORY=peak * share // 100, UDNNMEM_TRACE=trace), limit=600)
        if not suite.check(done.status == 0, f"{what}: runs", done.tail()):
            return
        learned, buffers, ops = traced(trace)
        if not suite.check(learned and learned["ops"] > 0, f"{what}: an iteration is found", str(learned)):
            return
        mine, sizes = program_ops(listed)
        per_step = [i for i, op in enumerate(mine) if op[0] == "mean_loss"]
        suite.check(learned["ops"] == len(ops) == per_step[1] - per_step[0], f"{what}: of the right length", f"    {learned}")
        suite.check(learned["first_op"] + 2 * learned["ops"] <= per_step[3], f"{what}: from the first three", f"    {learned}")
        wrong = list(differences(mine[learned["first_op"]:learned["first_op"] + len(ops)], sizes, buffers, ops))
        suite.check(not wrong, f"{what}: the program's own ops and buffers", "\n".join("    " + w for w in wrong[:8]))
        suite.check(all(op["duration_ns"] > 0 for op in ops if "mem" not in op["name"].lower()), f"{what}: every kernel has a time")


def main():
    suite = Suite()
    for build in BUILDS:
        plain = Run([WORKLOADS / f"digits-{build}", *ARGUMENTS, "--report-peak"], environment(SOFTGPU_MEMORY="4GiB"))
        peak = int(plain.output.split("peak live bytes ")[1])
        for share in (200, 50):
            check(suite, build, share, peak)
    suite.finish()


if __name__ == "__main__":
    main()
