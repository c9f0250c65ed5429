"""What the runners of this folder share: the environments of setup.sh, tinygrad's settings, and what must hold of a run in little memory."""
import json, pathlib, re, subprocess, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, ROOT, SOFTGPU, environment  # noqa: F401  (the runners take them from here)

REAL = ROOT / "build" / "real"
HERE = ROOT / "tests" / "real"
NETWORKS = HERE / "networks"
TINYGRAD = REAL / "venv" / "bin" / "python"
LOWERED = [TINYGRAD, HERE / "lowered.py"]    # in front of a script: what tinygrad lowered before is kept beside its compiled kernels
PLAIN = {"LRU": 0, "NO_MEMORY_PLANNER": 1}   # without tinygrad's caches: a tensor is a buffer
MODES = {"eager cached": {}, "eager plain": PLAIN, "jit cached": {"JIT": 1}, "jit plain": {"JIT": 1, **PLAIN}}
GRANULE = 64 << 10  # of the software GPU, as it comes
SUMMARY = re.compile(r"^udnnmem: device 0: budget .*, peak \S+ MiB for (\S+) MiB live; moved (\S+) MiB in, (\S+) MiB out.* (\d+) verified moves", re.M)


def tinygrad_environment(preload, **options):
    """For a Python program on the software GPU; tinygrad's own cache of compiled kernels stays in the build folder."""
    return environment(preload=preload, libraries=f"{SOFTGPU}:{(REAL / 'nvrtc').read_text().strip()}", UDNNMEM_FRAMEWORKS="off", DEV="CUDA", TC=0,
                       CACHEDB=BUILD / "real-tinygrad.db", PYTHONHASHSEED=0, PYTHONDONTWRITEBYTECODE=1, **options)


def training(network):
    """The command that trains it: the script as it is."""
    return LOWERED + [NETWORKS / f"{network}.py"]


def every_network():
    return [n.stem for n in sorted(NETWORKS.glob("*.py")) if n.stem != "training"]


def live_bytes(done):
    """The peak of live bytes that the library's summary tells; None without one."""
    found = SUMMARY.search(done.error)
    return float(found.group(1)) * 2**20 if found else None


def largest_op(path):
    """Of the iteration that a run's trace holds: bytes of the buffers that one op names at most, in whole granules, and
    of all that are small enough for slabs, which stay. None where no iteration was found."""
    text = subprocess.run(["zstd", "-dcf", path], capture_output=True).stdout.decode()
    records = [json.loads(line) for line in text.splitlines()]
    starts = [i for i, r in enumerate(records) if r["kind"] == "learned" and r["ops"]]
    if not starts:
        return None, None
    kept = records[starts[-1]:]
    size = {r["id"]: r["bytes"] for r in kept if r["kind"] == "buffer"}
    ops = [set(r.get("reads", [])) | set(r.get("writes", [])) for r in kept if r["kind"] == "op"]
    return (max(sum(-(-size[b] // GRANULE) * GRANULE for b in op if size[b] >= GRANULE // 2) for op in ops),
            sum(n for n in size.values() if n < GRANULE // 2))


def evicted(done):
    """Whether the library moved anything: small moves show as 0.0 MiB, so with UDNNMEM_VERIFY=1 the verified ones count."""
    found = SUMMARY.search(done.error)
    return bool(found) and (float(found.group(3)) > 0 or int(found.group(4)) > 0)


def verdict(done, expected, memory):
    """What is wrong with a run that must print `expected` within `memory` bytes; empty where nothing is."""
    report = done.report or {"faults": 0, "device_bytes_peak": 0}
    wrong = [] if done.report else ["no report of the device"]
    if done.status != 0:
        wrong.append(f"status {done.status}")
    elif done.output != expected:
        wrong.append("other bits")
    if report["faults"] != 0:
        wrong.append(f"{report['faults']} faults")
    if report["device_bytes_peak"] > memory:
        wrong.append(f"the device held {report['device_bytes_peak']} bytes of {memory}")
    if not evicted(done):
        wrong.append("nothing was evicted")
    return ", ".join(wrong)
