#!/usr/bin/env python3
"""Is what each framework allocates and launches seen? A small program of each, with and without the library.

The same numbers must come out; under the library allocations and ops must have been seen, with PyTorch as many as its profiler
counts without it; kernels whose parameters are not known are named. Programs on the CUDA runtime of this repository, shared and
static, are here too. Each program is a part of the answer (tests/gpu/item.py).
"""
import json, pathlib, re, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs
from item import BUILD, Answer, need

TORCH = """
import torch, hashlib, sys
torch.manual_seed(1)
m = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 64 * 64, 64)).cuda()
x = torch.randn(64, 3, 64, 64, device="cuda")
o = torch.optim.Adam(m.parameters())
def steps():
    for _ in range(5):
        o.zero_grad(); m(x).square().mean().backward(); o.step()
    torch.cuda.synchronize()
if sys.argv[1:] == ["count"]:
    from torch.profiler import profile, ProfilerActivity
    with profile(activities=[ProfilerActivity.CUDA]) as p: steps()
    print(sum(e.device_type.name == "CUDA" for e in p.events()))
else:
    steps()
    print(float(m(x).double().sum()).hex(), torch.cuda.get_allocator_backend(), file=sys.stdout)
"""
PROGRAMS = {
    "torch": TORCH,
    "torch graph": """
import torch
torch.manual_seed(1)
m = torch.nn.Linear(4096, 4096).cuda(); x = torch.randn(4096, 4096, device="cuda"); y = torch.zeros_like(x)
s = torch.cuda.Stream()
with torch.cuda.stream(s):
    for _ in range(3): y.copy_(m(x))
torch.cuda.current_stream().wait_stream(s)
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g): y.copy_(m(x))
for _ in range(10): g.replay(); x.add_(0.01)
torch.cuda.synchronize(); print(float(y.double().sum()).hex())
""",
    "torch compile": """
import torch
torch.manual_seed(1)
f = torch.compile(lambda a, b: (torch.nn.functional.gelu(a) * b).sum(1))
a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
for _ in range(5): r = f(a, b)
print(float(r.double().sum()).hex())
""",
    "triton": """
import torch, triton, triton.language as tl
@triton.jit
def add(a, b, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(a + i, mask=i < n) + tl.load(b + i, mask=i < n), mask=i < n)
n = 1 << 22
a = torch.arange(n, device="cuda", dtype=torch.float32); b = a * 2; o = torch.empty_like(a)
for _ in range(10): add[(n // 1024,)](a, b, o, n, B=1024)
print(float(o.double().sum()).hex())
""",
    "jax": """
import jax, jax.numpy as jnp
assert jax.devices()[0].platform == "gpu", jax.devices()
f = jax.jit(jax.grad(lambda w, x: jnp.tanh(x @ w).sum()))
w, x = jnp.ones((2048, 2048)) * 0.01, jnp.ones((4096, 2048)) * 0.02
for _ in range(10): w = w - 0.001 * f(w, x)
print(float(w.sum()).hex())
""",
    "cupy": """
import cupy
a = cupy.arange(1 << 22, dtype=cupy.float32)
for _ in range(10): a = cupy.sqrt(a * 1.5 + 2)
m = (a[:1 << 20].reshape(1024, 1024) @ a[:1 << 20].reshape(1024, 1024)).sum()
print(float(m).hex(), float(cupy.fft.rfft(a).real.sum()).hex())
""",
    "numba": """
from numba import cuda
import numpy
@cuda.jit
def f(a):
    i = cuda.grid(1)
    if i < a.size: a[i] = a[i] * 2 + 1
a = cuda.to_device(numpy.arange(1 << 22, dtype=numpy.float32))
for _ in range(10): f[(1 << 22) // 256, 256](a)
print(float(a.copy_to_host().astype(numpy.float64).sum()).hex())
""",
}


UNKNOWN = re.compile(r"parameters of kernel (\S+) are not known")


def seen(trace):
    told = subprocess.run([str(BUILD / "udnnmem"), "report", "--format", "json", trace], capture_output=True, text=True)
    if told.returncode != 0 or not told.stdout:
        return {"ops": 0, "allocations": 0}
    run = json.loads(told.stdout.splitlines()[0])
    return {k: run.get(k) for k in ("ops", "allocations", "peak_live_bytes", "iterations", "served_from_host")}


def ask(name, command, folder):
    """What became of one program without and with the library; `wrong` says in one line what should not have been."""
    plain = programs.run(command)
    if plain["status"] != 0:
        last = (plain["error"].strip().splitlines() or [f"status {plain['status']}"])[-1][:200]
        return {"not here": last, **({"wrong": f"fails without the library: {last}"} if name.startswith("runtime") else {})}
    trace = f"{folder}/t.jsonl"
    done = programs.run(command, True, UDNNMEM_TRACE=trace, UDNNMEM_VERIFY=1, UDNNMEM_DEBUG="info", UDNNMEM_DEBUG_FILE=f"{folder}/log")
    log = pathlib.Path(f"{folder}/log")
    unknown = sorted(set(UNKNOWN.findall(log.read_text(errors="replace")))) if log.exists() else []
    record = {"same": done["status"] == 0 and done["output"].split()[:1] == plain["output"].split()[:1], "native": plain["output"].split()[-1:], "with": done["output"].split()[-1:], **seen(trace),
              "kernels without parameters known": [len(unknown), *unknown[:20]], "seconds": [plain["seconds"], done["seconds"]], "said": [line for line in done["error"].splitlines() if line.startswith("udnnmem:")][:4]}
    if name == "torch":
        counted = programs.run([*command, "count"])
        record["kernels and copies by torch.profiler"] = counted["output"].split()[-1:] if counted["status"] == 0 else counted["error"][-200:]
    if not record["same"] or not record["ops"] or not record["allocations"]:
        record["wrong"] = f"{'other numbers or an error' if not record['same'] else 'nothing was seen'}: {done['error'][-200:]}"
    return record


def main():
    need()
    answer = Answer()
    commands = {f"runtime, {kind}": [programs.WORKLOADS / f"runtime-calls-{kind}"] for kind in ("shared", "static", "ptds")}
    commands |= {name: [sys.executable, "-c", code] for name, code in PROGRAMS.items()}
    for name, command in commands.items():
        with tempfile.TemporaryDirectory() as folder:
            answer.part(name, 20, lambda: ask(name, command, folder))
    answer["wrong"] = [f"{name}: {part['wrong']}" for name, part in answer["parts"].items() if "wrong" in part]
    if all("not here" in answer["parts"].get(name, {"not here": ""}) for name in PROGRAMS):
        answer["note"] = "no framework is here: only the runtime's programs were run"
    for line in answer["wrong"]:
        print(line, file=sys.stderr)
    answer.end(not answer["wrong"])


if __name__ == "__main__":
    main()
