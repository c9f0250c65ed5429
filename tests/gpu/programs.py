#!/usr/bin/env python3
"""programs.py pager | replay | real: the workloads of this repository on the card, with and without the library.

pager: programs of every road into the driver, in shares of what they hold at most: the same text, and what was moved.
replay: a chain of activations by kernels that may be run again and by such that must not be, in 60 % of its memory.
real: the programs of tests/real, unchanged: tinygrad's networks and Dr.Jit's in half of their memory, numba's own tests in next to none.
Each program is a part of the answer (item.py); ends with 1 if any output differs, with 77 if something is missing here.
"""
import glob, json, os, pathlib, re, site, subprocess, sys, sysconfig, tempfile, time

from item import BUILD, LIBRARY, ROOT, SMALL, Answer, OutOfTime, missing, need, time_left

WORKLOADS = BUILD / "workloads"
SUMMARY = re.compile(r"device \d+: budget .*?, peak (\S+) MiB for (\S+) MiB live; moved (\S+) MiB in, (\S+) MiB out")
DROPS = re.compile(r"(\d+) buffers dropped and computed again")


def nvidia_folders():
    """Where the CUDA runtime and NVRTC may lie: the toolkit, and the wheels that frameworks bring."""
    places = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_paths()["purelib"]]
    return [f for p in ("/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", *(f"{place}/nvidia/*/lib" for place in places)) for f in sorted(glob.glob(p), reverse=True)]


def run(command, preload=False, **options):
    env = {k: v for k, v in os.environ.items() if not k.startswith("UDNNMEM_") and k != "LD_PRELOAD"}
    env["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH", ""), *nvidia_folders()]))
    env["UDNNMEM_TRACE"] = "off"
    if preload:
        env["LD_PRELOAD"] = str(LIBRARY)
    env.update({k: str(v) for k, v in options.items()})
    start = time.monotonic()
    try:
        done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, errors="replace", timeout=max(1, min(120, time_left())))
        status, output, error = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        if time_left() < 1:
            raise OutOfTime from None
        status, output, error = "timeout", "", ""
    return {"status": status, "output": output, "error": error, "seconds": round(time.monotonic() - start, 2)}


def compare(name, command, shares, repeats=True, **options):
    """One program natively, with room, and in shares of its peak; a record for each share. Without `repeats` nobody promises that it
    prints the same each time: where it does not natively, its bits say nothing."""
    plain = run(command)
    if plain["status"] != 0:
        return [{"name": name, "share": 0, "same": False, "why": f"fails without the library: {plain['status']} {plain['error'][-300:]}"}]
    if not repeats and run(command)["output"] != plain["output"]:
        return [{"name": name, "share": share, "same": (done := run(command, True, UDNNMEM_BUDGET=budget, UDNNMEM_VERIFY=1))["status"] == 0, "managed": "manages device" in done["error"], "seconds": done["seconds"],
                 "why": "other bits each time natively too" if done["status"] == 0 else f"status {done['status']}: {done['error'][-300:]}"} for share, budget in ((100, "60%"), (0, "8MiB"))]
    roomy = run(command, True, UDNNMEM_BUDGET="60%", UDNNMEM_VERIFY=1)
    found = SUMMARY.search(roomy["error"])
    records = [{"name": name, "share": 100, "same": roomy["status"] == 0 and roomy["output"] == plain["output"], "managed": bool(found), "native_s": plain["seconds"], "seconds": roomy["seconds"], "why": "" if found else roomy["error"][-300:]}]
    live = float(found.group(2)) if found else 0
    for share in shares if found else []:
        done = run(command, True, UDNNMEM_BUDGET=f"{max(int(live * share / 100 * 1024), 1)}KiB", UDNNMEM_VERIFY=1, **options)
        moved = SUMMARY.search(done["error"])
        drops = DROPS.search(done["error"])
        same = done["status"] == 0 and done["output"] == plain["output"]
        records.append({"name": name, "share": share, "same": same, "live_mib": live, "seconds": done["seconds"], "in_mib": float(moved.group(3)) if moved else None, "out_mib": float(moved.group(4)) if moved else None,
                        "dropped": int(drops.group(1)) if drops else 0, "why": "" if same else f"status {done['status']}: {done['error'][-300:]}"})
    return records


def pager():
    words, buffers = (65536, 24) if SMALL else (4 << 20, 48)
    shape = ["--depth", 12, "--width", 32, "--batch", 256, "--iterations", 4] if SMALL else ["--depth", 60, "--width", 256, "--batch", 8192, "--iterations", 12]
    programs = {"vadd": [WORKLOADS / "vadd", words, buffers], "bigop": [WORKLOADS / "bigop", 1 << 20 if SMALL else 256 << 20]}
    programs |= {f"random {seed}": [WORKLOADS / "random", seed, 100 if SMALL else 400, 6 << 20 if SMALL else 600 << 20] for seed in range(1, 2 if SMALL else 6)}
    programs |= {f"digits {build}": [WORKLOADS / f"digits-{build}", *shape] for build in (("driver",) if SMALL else ("driver", "runtime", "static", "streams", "ptds", "async", "graph"))}
    return {name: lambda name=name, command=command: compare(name, command, (50,) if SMALL else (75, 50, 35)) for name, command in programs.items()}


def replay():
    kinds = ("in_place",) if SMALL else ("pure", "in_place", "update", "integer_atomics", "statistics", "mask", "varying", "struct", "copied", "filled", "self_modifying", "partial", "rare_write", "address",
                                         "float_atomics", "clock_reader", "module_variable", "pointer_table", "table_writer", "cooperative")
    command = lambda kind: [WORKLOADS / "replays", kind, 20 if SMALL else 60, *([] if SMALL else [4 << 20])]
    return {kind: lambda kind=kind: compare(kind, command(kind), (60,)) for kind in kinds}


# numba-cuda's own test modules: those that hold memory and launch, and take seconds.
NUMBA = ("cudadrv.test_cuda_memory", "cudadrv.test_cuda_array_slicing", "cudadrv.test_deallocations", "cudapy.test_array", "cudapy.test_montecarlo", "cudapy.test_laplace", "cudapy.test_reduction", "cudapy.test_multithreads", "cudapy.test_atomics")


def outcomes(module, folder, preload, **options):
    """Test -> how it ended, of one of numba's modules."""
    path = pathlib.Path(folder) / f"{module}.{preload}"
    done = run([sys.executable, ROOT / "tests/real/numba_scripts/run_module.py", module, path], preload, **options)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return done, {test: outcome for test, outcome, _ in lines if test}


def numba_module(module):
    with tempfile.TemporaryDirectory() as folder:
        plain, before = outcomes(module, folder, False)
        done, after = outcomes(module, folder, True, UDNNMEM_BUDGET="8MiB", UDNNMEM_VERIFY=1)
        lost = [test for test, outcome in before.items() if outcome == "passed" and after.get(test) != "passed"]
        return [{"name": f"numba {module}", "share": 0, "same": bool(before) and not lost, "managed": "manages device" in done["error"], "native_s": plain["seconds"], "seconds": done["seconds"],
                 "passed": [sum(o == "passed" for o in each.values()) for each in (before, after)], "why": "" if before and not lost else f"{lost[:3]} {(done if before else plain)['error'][-300:]}"}]


def real():
    """What can be imported here is run, the rest is said."""
    tags = ("none-any", f"cp{sys.version_info.major}{sys.version_info.minor}")
    wheels = [str(w) for w in sorted((ROOT / "wheels").glob("*.whl")) if any(tag in w.name for tag in tags)]
    unpacked = tempfile.mkdtemp()  # kept for the whole item
    for wheel in wheels:
        subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, unpacked], check=True)
    made_here = [str(p) for venv in ("real/venv", "real/numba/venv") for p in (BUILD / venv / "lib").glob(f"python{sys.version_info.major}.{sys.version_info.minor}/site-packages")]
    # What this Python has comes first: a wheel of the bundle is for what it lacks.
    os.environ.update(DEV="CUDA", PARALLEL="0", CACHEDB=f"{unpacked}/cache.db", LRU="0", NO_MEMORY_PLANNER="1", PYTHONHASHSEED="0", STEPS="2" if SMALL else "20", NUMBA_CACHE_DIR=f"{unpacked}/numba")
    parts, absent = {}, []

    def add(what, packages, programs):
        for path in ("", unpacked, ":".join(made_here)):
            tried = run([sys.executable, "-c", f"import {packages}"], PYTHONPATH=path)
            if tried["status"] == 0:
                parts.update({f"{what} {name}": lambda make=make, path=path: within(path, make) for name, make in programs.items()})
                return
        absent.append(f"{what} is not here: {(tried['error'].strip().splitlines() or [tried['status']])[-1]}")

    def within(path, make):
        os.environ["PYTHONPATH"] = path
        return make()

    script = lambda folder, name: lambda: compare(name, [sys.executable, ROOT / "tests/real" / folder / f"{name}.py"], (50,), repeats=False)
    add("tinygrad", "numpy, tinygrad", {name: script("networks", name) for name in (("mlp",) if SMALL else ("mlp", "conv", "residual", "transformer", "unet"))})
    add("numba-cuda", "numba.cuda.tests, numba_cuda", {module: lambda module=module: numba_module(module) for module in (NUMBA[:1] if SMALL else NUMBA)})
    add("Dr.Jit", "numpy, drjit", {name: script("drjit_scripts", name) for name in (("particles",) if SMALL else ("perceptron", "texture", "particles"))})
    if not parts:
        missing("; ".join(absent))
    return parts, absent


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("pager", "replay", "real"):
        sys.exit(__doc__)
    need()
    answer = Answer()
    parts = {"pager": pager, "replay": replay, "real": real}[sys.argv[1]]()
    if sys.argv[1] == "real":
        parts, answer["not here"] = parts
    for name, make in parts.items():
        answer.part(name, 20, make)
    records = [r for name in parts for r in answer["parts"].get(name, ())]
    wrong = [r for r in records if not r["same"]]
    for r in wrong:
        print(f"{r['name']} in {r['share']} %: {r['why']}", file=sys.stderr)
    answer.update(runs=len(records), wrong=[r["name"] for r in wrong], unmanaged=sum(r.get("managed") is False for r in records))
    answer.end(not wrong)


if __name__ == "__main__":
    main()
