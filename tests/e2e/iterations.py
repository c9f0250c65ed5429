#!/usr/bin/env python3
"""The iteration that a run's trace holds is the program's own, op for op and byte for byte.

digits writes down what it asks of the device (--list). The trace of the same run must hold the same ops in the same
order, on the same buffers, made and freed at the same ops, so that the live bytes agree at every one: with everything
resident and in half the memory. Kernels count as reading and writing all that they name, until what they write was seen: then
they write what the program's write.
"""
import json, pathlib, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, WORKLOADS, Run, Suite, environment

PROGRAMS = ["runtime", "static", "driver", "streams", "ptds", "async"]
STEPS = 6
SMALL = 32 << 10     # bytes: what lies in slabs is not hashed, and counts as written
# Of the pointers that each kernel of the program is given, those that it writes.
WRITES = {"gather_rows": [2], "gather_labels": [2], "matmul": [2], "matmul_transposed": [2], "layer_gradient": [2], "sum_partials": [1], "bias_add": [2], "bias_relu": [2], "relu_backward": [2],
          "residual_add": [2], "norm_forward": [1, 2], "norm_backward": [-1], "softmax_cross_entropy": [2, 3], "mean_loss": [1], "count_correct": [2], "sgd_update": [0], "momentum_update": [0, 2], "adam_update": [0, 2, 3]}
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
            ops.append((rest[0], [int(b) for b in rest[1:]], None, set(alive)))
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
        if sorted(buffers[b]["bytes"] for b in named) != sorted(sizes[b] for b in set(used)):
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


def check_writes(suite, build, peak, how="", **options):
    """Where an iteration is planned, what its ops write was looked at: the trace says so, and planners and reports read it so."""
    what = f"{build}{how}, writes"
    with tempfile.TemporaryDirectory() as folder:
        trace, listed = pathlib.Path(folder) / "t.jsonl", pathlib.Path(folder) / "list"
        done = Run([WORKLOADS / f"digits-{build}", *ARGUMENTS[:-1], 14, "--list", listed], environment(preload=True, SOFTGPU_MEMORY=peak // 2, UDNNMEM_TRACE=trace, **options), limit=600)
        learned, buffers, ops = traced(trace)
        if not suite.check(done.status == 0 and learned and ops, f"{what}: runs", done.tail()):
            return
        lines = [r for r in map(json.loads, trace.read_text().splitlines()) if r["kind"] == "unchanged" and r["ops"] == len(ops)]
        suite.check(len(lines) > len(ops) / 2, f"{what}: they are in the trace", f"    {len(lines)} of {len(ops)} ops\n{done.tail(12)}")
        for line in lines:
            op = ops[line["op"]]
            op["writes"] = [b for b in op["writes"] if buffers[b].get("run_id", -1) not in line["buffers"]]
        mine, sizes = program_ops(listed)
        wrong = []
        for k, ((name, used, copied, _), op) in enumerate(zip(mine[learned["first_op"]:], ops)):
            if copied is not None:
                continue
            written = sorted(sizes[used[i]] for i in WRITES[name] if sizes[used[i]] >= SMALL)
            seen = sorted(buffers[b]["bytes"] for b in op["writes"] if buffers[b]["bytes"] >= SMALL)
            if seen != written:
                wrong.append(f"op {k} ({name}) writes {written}, seen {seen}")
            if len(op["reads"]) != len(set(used)):
                wrong.append(f"op {k} ({name}): what it names does not all count as read")
        suite.check(not wrong, f"{what}: those of the program", "\n".join("    " + w for w in wrong[:8]))
        read = json.loads(subprocess.run([BUILD / "udnnmem", "report", trace, "--format", "json"], capture_output=True, text=True, check=True).stdout)
        suite.check(read["iteration"]["ops"] == len(ops), f"{what}: the tool reads them")


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
    for build in PROGRAMS:
        plain = Run([WORKLOADS / f"digits-{build}", *ARGUMENTS, "--report-peak"], environment(SOFTGPU_MEMORY="4GiB"))
        peak = int(plain.output.split("peak live bytes ")[1])
        for share in (200, 50):
            check(suite, build, share, peak)
        if build in ("runtime", "async"):
            check_writes(suite, build, peak)
        if build == "async":
            check_writes(suite, build, peak, " by a link that no plan waits for", SOFTGPU_TIME="model:1e8:1e8", SOFTGPU_H2D=1e12, SOFTGPU_D2H=1e12)
    suite.finish()


if __name__ == "__main__":
    main()
