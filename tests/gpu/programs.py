#!/usr/bin/env python3
"""programs.py pager | replay | real: the workloads of this repository on the card, with and without the library.

pager: programs of every road into the driver, in shares of what they hold at most: the same text, and what was moved.
replay: a chain of activations by kernels that may be run again and by such that must not be, in 60 % of its memory.
real: tinygrad, unchanged, in half of its memory.
Prints one JSON object; ends with 1 if any output differs, with 77 if something is missing here.
"""
import glob, json, os, pathlib, re, site, subprocess, sys, sysconfig, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build"))
LIBRARY = BUILD / "libudnnmem.so"
WORKLOADS = BUILD / "workloads"
SMALL = os.environ.get("GPU_CHECK_SMALL") == "1"  # the rehearsal's device is a CPU
UNTIL = time.monotonic() + float(os.environ.get("GPU_CHECK_SECONDS", 300))
SUMMARY = re.compile(r"device \d+: budget .*?, peak (\S+) MiB for (\S+) MiB live; moved (\S+) MiB in, (\S+) MiB out")
DROPS = re.compile(r"(\d+) buffers dropped and computed again")


def missing(why):
    print(why, file=sys.stderr)
    sys.exit(77)


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
        done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, errors="replace", timeout=max(1, min(120, UNTIL - time.monotonic())))
        status, output, error = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        status, output, error = "timeout", "", ""
    return {"status": status, "output": output, "error": error, "seconds": round(time.monotonic() - start, 2)}


def compare(name, command, shares, **options):
    """One program natively, with room, and in shares of its peak; a record for each share."""
    plain = run(command)
    if plain["status"] != 0:
        return [{"name": name, "share": 0, "same": False, "why": f"fails without the library: {plain['error'][-300:]}"}]
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
    programs = [("vadd", [WORKLOADS / "vadd", words, buffers]), ("bigop", [WORKLOADS / "bigop", 1 << 20 if SMALL else 256 << 20])]
    programs += [(f"random {seed}", [WORKLOADS / "random", seed, 100 if SMALL else 400, 6 << 20 if SMALL else 600 << 20]) for seed in range(1, 2 if SMALL else 6)]
    programs += [(f"digits {build}", [WORKLOADS / f"digits-{build}", *shape]) for build in (("driver",) if SMALL else ("driver", "runtime", "static", "streams", "ptds", "async", "graph"))]
    return [r for name, command in programs if time.monotonic() < UNTIL for r in compare(name, command, (50,) if SMALL else (75, 50, 35))]


def replay():
    kinds = ("in_place",) if SMALL else ("pure", "in_place", "update", "integer_atomics", "statistics", "mask", "varying", "struct", "copied", "filled", "self_modifying", "partial", "rare_write", "address",
                                         "float_atomics", "clock_reader", "module_variable", "pointer_table", "table_writer", "cooperative")
    command = lambda kind: [WORKLOADS / "replays", kind, 20 if SMALL else 60, *([] if SMALL else [4 << 20])]
    return [r for kind in kinds if time.monotonic() < UNTIL for r in compare(kind, command(kind), (60,))]


def real():
    packages = next((p for p in (ROOT / "wheels", BUILD / "wheels") if p.is_dir()), None)
    networks = ROOT / "tests/real/networks"
    with tempfile.TemporaryDirectory() as folder:
        python_path = []
        if packages and list(packages.glob("*.whl")):
            # A wheel without machine code is a package path of its own.
            python_path = [str(w) for w in packages.glob("*-none-any.whl")]
        elif (BUILD / "real/venv").is_dir():
            python_path = [str(p) for p in (BUILD / "real/venv/lib").glob("python3*/site-packages")]
        options = {"PYTHONPATH": ":".join(python_path), "DEV": "CUDA", "PARALLEL": 0, "CACHEDB": f"{folder}/cache.db", "STEPS": 2 if SMALL else 20, "LRU": 0, "NO_MEMORY_PLANNER": 1, "PYTHONHASHSEED": 0}
        os.environ.update({k: str(v) for k, v in options.items()})
        tried = run([sys.executable, "-c", "import numpy, tinygrad"])
        if tried["status"] != 0:
            missing(f"tinygrad or numpy is not here: {tried['error'].strip().splitlines()[-1] if tried['error'].strip() else tried['status']}")
        names = ("mlp",) if SMALL else ("mlp", "conv", "residual", "transformer", "unet")
        return [r for name in names if time.monotonic() < UNTIL for r in compare(f"tinygrad {name}", [sys.executable, networks / f"{name}.py"], (50,))]


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("pager", "replay", "real"):
        sys.exit(__doc__)
    if not LIBRARY.exists():
        missing(f"{LIBRARY} is not there: run make first")
    records = {"pager": pager, "replay": replay, "real": real}[sys.argv[1]]()
    wrong = [r for r in records if not r["same"]]
    for r in wrong:
        print(f"{r['name']} in {r['share']} %: {r['why']}", file=sys.stderr)
    print(json.dumps({"runs": len(records), "wrong": len(wrong), "unmanaged": sum(r.get("managed") is False for r in records), "programs": records}))
    sys.exit(1 if wrong or not records else 0)


if __name__ == "__main__":
    main()
