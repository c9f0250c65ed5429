#!/usr/bin/env python3
"""Step times of the tinygrad networks (TinyJit) on the software GPU: against tinygrad's own CPU back end, and with the
library and everything resident against without it. The time between two lines of the script is a step; the median of
the steps behind the captured one is taken, and the median of three runs of each kind in turn: a busy machine is busy
for all of them. Needs tinygrad's environment (make test has made it) and clang, the CPU back end's compiler.
"""
import json, pathlib, shutil, statistics, subprocess, sys, time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, ROOT, SOFTGPU, environment

REAL = ROOT / "build" / "real"
NETWORKS = ["mlp", "conv", "residual", "transformer", "unet"]
STEPS, WARM, ROUNDS = 25, 5, 3  # TinyJit captures at the second step
KINDS = {"cpu": dict(DEV="CPU"), "softgpu": dict(DEV="CUDA"), "library": dict(DEV="CUDA", preload=True)}


def step_time(network, preload=False, **options):
    env = environment(preload=preload, libraries=f"{SOFTGPU}:{(REAL / 'nvrtc').read_text().strip()}", TC=0, JIT=1, PARALLEL=0, STEPS=STEPS,
                      CACHEDB=BUILD / "real-tinygrad.db", PYTHONHASHSEED=0, UDNNMEM_QUIET=1, **options)
    tests = ROOT / "tests" / "real"
    process = subprocess.Popen([REAL / "venv" / "bin" / "python", tests / "lowered.py", tests / "networks" / f"{network}.py"], env=env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    ends = [time.perf_counter() for line in process.stdout if line.startswith("step")]
    if process.wait() or len(ends) != STEPS:
        sys.exit(f"{network} did not come to its end")
    return statistics.median(b - a for a, b in zip(ends[WARM:], ends[WARM + 1:]))


def main():
    if not (REAL / "base" / "ready").exists():
        sys.exit("no tinygrad: `make build/real/base/ready`")
    kinds = KINDS if shutil.which("clang") else {k: v for k, v in KINDS.items() if k != "cpu"}
    for network in NETWORKS:
        for kind in kinds.values():
            step_time(network, **kind)  # compiles
        times = [{name: step_time(network, **kind) for name, kind in kinds.items()} for _ in range(ROUNDS)]
        print(network, " ".join(f"{name} {statistics.median(t[name] for t in times) * 1e3:.2f} ms" for name in kinds), flush=True)
        for name, below, goal in (("softgpu", "cpu", 1.3), ("library", "softgpu", 1.05)):
            if below in kinds:
                ratio = statistics.median(t[name] / t[below] for t in times)
                print(json.dumps({"name": f"{network}_step_{name}_over_{below}", "value": round(ratio, 3), "unit": "", "goal": goal}), flush=True)


if __name__ == "__main__":
    main()
