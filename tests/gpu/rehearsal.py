#!/usr/bin/env python3
"""The bundle for a card, rehearsed: unpacked into an empty root (jail.sh; where mounting is not allowed, an empty folder), with a
bare environment and the software GPU for a driver.

Every item starts, and ends with an answer or with one line that says what is missing (a card's framework). The answers of a software
device are thrown away. Without any driver every item, and every script by itself, says in one line that there is no card. On a machine
with a card this suite still uses the software GPU. `make test` leaves out the items that take seconds; all with UDNNMEM_TEST_FULL=1.
"""
import json, os, pathlib, re, shutil, struct, subprocess, sys, tarfile, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, PATIENCE, ROOT, SOFTGPU, Suite

# Short lengths, for what a CPU can do in seconds; the probes' own options.
QUICK = {"vmm-cost": ["vmm_cost", "--reps", "3", "--max-gib", "0.1"], "vmm-while-running": ["vmm_while_running", "--spin-ms", "20", "--mib", "4"], "vmm-stress": ["vmm_stress", "--seconds", "2", "--mib", "1"], "host-numa": ["host_numa", "--mib", "8"],
         "zero-copy-ops": ["zero_copy_ops", "--mib", "4"], "managed": ["managed", "--gib", "0.02"], "link": ["link"], "tma": ["tma"], "graph-addresses": ["graph_addresses"], "hash": ["hash", "--gib", "0.03", "--check-mib", "2", "--positions", "10"]}
SCRIPTS = ["doors", "pager", "replay", "real", "overhead", "torch-exact", "torch-speed", "torch-batch", "traces", "deep", "jax", "triton", "cupy"]
LACKING = r"(PyTorch|torchvision|JAX|Triton|CuPy|tinygrad) is not here\b.*"
# The scripts behind the items, and those behind them.
ALONE = [["programs.py", "pager"], ["programs.py", "real"], ["frameworks/doors.py"], *(["frameworks/training.py", f, "exact"] for f in ("torch", "jax", "triton", "cupy")), *([f"frameworks/{f}_train.py", "tiny"] for f in ("torch", "jax", "triton", "cupy"))]
SLOW = {"hash", "link", "zero-copy-ops", "vmm-stress", "doors", "replay"}
ANSWERED_HERE = {"vmm-cost", "hash", "pager", "replay", "link"}  # what a software device can answer

# In place of a framework's training script: a program on the card that answers in its terms, so that what training.py makes of it is rehearsed.
STAND_IN = """
import json, os, subprocess, sys
batch = int(sys.argv[sys.argv.index("--batch") + 1]) if "--batch" in sys.argv else 64
if batch > 100: sys.exit(3)
run = subprocess.run([os.environ["STAND_IN"], "65536", "24"], stdout=subprocess.DEVNULL, stderr=sys.stderr)
print(json.dumps({"network": sys.argv[1], "batch": batch, "losses": ["0000803f"] * 4, "seconds_per_step": 0.01, "peak_allocated": batch << 20}))
sys.exit(run.returncode)
"""
NUMPY_AS_CUPY = """
from numpy import *
import numpy
def get_default_memory_pool():
    class pool: total_bytes = staticmethod(lambda: 0)
    return pool
class cuda:
    class runtime:
        getDeviceCount = staticmethod(lambda: 1)
        class CUDARuntimeError(Exception): pass
    class memory:
        class OutOfMemoryError(Exception): pass
    class get_current_stream:
        def synchronize(self): pass
"""


def stand_in(suite, top, root, check):
    """What is asked of frameworks with a stand-in for each: every run is made, and what they gave is put together."""
    (root / "fake").mkdir()
    for package in ("torch", "torchvision", "jax", "triton", "cupy"):
        (root / f"fake/{package}.py").write_text("")
    for script in (top / "tests/gpu/frameworks").glob("*_train.py"):
        script.write_text(STAND_IN)
    results = root / "stand-in"
    more = {"PYTHONPATH": str(root / "fake"), "STAND_IN": str(top / "build/workloads/vadd"), "SOFTGPU_MEMORY": "512MiB"}
    for item in ("torch-exact", "torch-speed", "torch-batch", "overhead", "deep", "traces", "jax", "triton", "cupy") if FULL else ("torch-exact", "traces"):
        done = check(item, "--results", str(results), more=more)
        path = next(results.glob(f"*/{item}.json"), None)
        if not suite.check(done.returncode == 0 and path, f"{item}, with a stand-in: is answered", f"    {done.stdout} {path and path.read_text()[-600:]}"):
            continue
        answer = json.loads(path.read_text())["answer"]
        suite.check(answer["left_out"] == [] and answer["wrong"] == [] and answer["ended"], f"{item}, with a stand-in: nothing was left out", f"    {answer['left_out']} {answer['wrong']}")
        moved = [part["run"]["bytes_in"] for name, part in answer["parts"].items() if "BUDGET" in name and part["status"] == 0 and "--batch" not in name]
        if "exact" in answer:
            tiny = answer["exact"]["tiny"]
            suite.check(tiny["native_repeats"] and tiny["peak_live_bytes"] > 6_000_000 and tiny["same"] == {s: True for s in ("75", "50", "35", "20")}, f"{item}: every budget was tried", f"    {tiny}")
            suite.check(len(moved) >= 4 and sum(b > 0 for b in moved) >= 4, f"{item}: memory was moved", f"    {moved}")
        if "batch" in answer:
            suite.check(90 <= answer["batch"]["tiny"]["ours"] <= 100, f"{item}: finds the largest batch", f"    {answer['batch']}")
        if "traces" in answer:
            suite.check(len(answer["traces"]) == 2 and all(answer["traces"].values()), f"{item}: traces are kept", f"    {answer['traces']}")
        if item == "traces":
            goes_on(suite, item, path, lambda *words: check(item, "--results", str(results), *words, more=more))


def goes_on(suite, item, path, check):
    """An item that ran out of time goes on where it was; one of another build begins anew; what did not fit is left for another time."""
    whole = json.loads(path.read_text())
    first, *rest = whole["answer"]["parts"]

    def cut(**more):
        answer = {**whole["answer"], "parts": {first: {**whole["answer"]["parts"][first], "kept": True}}, "ended": False}
        path.write_text(json.dumps({**whole, "status": None, "answer": answer, **more}))

    cut()
    done = check("--seconds", "3")
    suite.check(done.returncode == 1 and "left for another time" in done.stdout and "kept" in path.read_text(), f"{item}: is not begun in 3 s", done.stdout)
    done = check()
    again = json.loads(path.read_text())
    suite.check(done.returncode == 0 and list(again["answer"]["parts"]) == [first, *rest] and "kept" in again["answer"]["parts"][first] and again["answer"]["ended"], f"{item}: goes on with what is left", f"    {done.stdout}")
    cut(library="another")
    done = check()
    suite.check(done.returncode == 0 and "kept" not in path.read_text(), f"{item}: an answer of another build is not gone on with", f"    {done.stdout}")


def cupy_script(suite, top):
    """CuPy's training script on NumPy, where tests/real has put that."""
    python = BUILD / "real/venv/bin/python3"
    if not python.exists():
        return print("skipped: CuPy's script on NumPy: tests/real is not set up")
    (top / "numpy_as_cupy").mkdir()
    (top / "numpy_as_cupy/cupy.py").write_text(NUMPY_AS_CUPY)
    done = subprocess.run([python, top / "tests/gpu/frameworks/cupy_train.py", "tiny"], env={**os.environ, "PYTHONPATH": str(top / "numpy_as_cupy")}, capture_output=True, text=True)
    losses = [struct.unpack("<f", bytes.fromhex(l))[0] for l in json.loads(done.stdout)["losses"]] if done.returncode == 0 else []
    suite.check(len(losses) == 20 and all(b < a for a, b in zip(losses, losses[1:])), "CuPy's script learns, on NumPy", f"    {losses} {done.stderr[-300:]}")


def jailed(root):
    """What to put in front of a command so that it finds the system, Python and `root`, and nothing else; empty where that cannot be."""
    place = root.parent / "jail"
    place.mkdir()
    words = ["unshare", "--mount", "--map-root-user", str(ROOT / "tests/gpu/jail.sh"), str(place), str(root), sys.base_prefix]
    tried = subprocess.run([*words, sys.executable, "-c", "import os; assert not os.path.exists(os.environ['HIDDEN'])"], env={**os.environ, "HIDDEN": str(ROOT)}, capture_output=True, text=True)
    if tried.returncode == 0:
        return words
    print(f"skipped: an empty root: {(tried.stderr.strip().splitlines() or ['cannot be mounted here'])[-1]}")
    return []


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made = subprocess.run(["make", "-s", "-o", "all", "-C", str(ROOT), "gpu-bundle", f"B={BUILD}", f"GPU_BUNDLE={folder}/bundle.tar.gz", "BUNDLE_OPTIONS=--no-wheels"], capture_output=True, text=True)
        if not suite.check(made.returncode == 0, "make gpu-bundle", made.stdout + made.stderr):
            suite.finish()
        print(made.stdout.strip().splitlines()[-1])
        root = folder / "root"
        root.mkdir()
        subprocess.run(["tar", "xzf", folder / "bundle.tar.gz", "-C", root], check=True)
        top = root / "udnnmem-gpu"
        # The driver, and our own runtime for the programs that want one: nothing else of this repository.
        drivers = root / "driver"
        drivers.mkdir()
        for name in ("libcuda.so.1", "libcudart.so.13"):
            shutil.copy(SOFTGPU / name, drivers / name)
        bare = {"PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(root), "TMPDIR": str(root), "LANG": "C.UTF-8"}
        jail = jailed(root)
        device = {**bare, "LD_LIBRARY_PATH": str(drivers), "SOFTGPU_MEMORY": "512MiB", "SOFTGPU_CACHE": str(root / "softgpu-cache"), "GPU_CHECK_SMALL": "1"}
        check = lambda *words, env=device, more={}: subprocess.run([*jail, str(top / "scripts/gpu_check.sh"), *words], env={**env, **more}, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=580)

        listed = [line.split()[0] for line in check("--list").stdout.splitlines()]
        suite.check(set(QUICK) | set(SCRIPTS) | {"vmm-stress-long"} == set(listed), "every item is rehearsed", f"    {set(listed) ^ (set(QUICK) | set(SCRIPTS))}")
        for item in listed if FULL else listed[:1] + SCRIPTS[:2]:
            done = check(item, env=bare)
            lines = (done.stdout + done.stderr).splitlines()
            suite.check(done.returncode == 77 and len(lines) == 1 and lines[0].startswith(f"{item}: no card: "), f"{item}: one line where there is no card", f"    {done.returncode} {lines}")
        for words in ALONE:
            done = subprocess.run([*jail, sys.executable, "-B", str(top / "tests/gpu" / words[0]), *words[1:]], env=bare, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
            lines = (done.stdout + done.stderr).splitlines()
            suite.check(done.returncode == 77 and len(lines) == 1 and re.match(f"no card: |{LACKING}", lines[0]), f"{' '.join(words)}: one line where there is no card", f"    {done.returncode} {lines}")
        suite.check(check("nonsense").returncode == 2 and check().returncode == 2, "an unknown item is refused")

        # The probes by themselves, with short lengths; gpu_check.sh gives them their full ones.
        asked = [item for item in listed if FULL or item not in SLOW]
        for item in (i for i in asked if i in QUICK):
            program, *words = QUICK[item]
            done = subprocess.run([*jail, top / "build/gpu" / program, *words, "--limit-s", str(int(25 * PATIENCE))], env=device, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * PATIENCE)
            try:
                answer = json.loads(done.stdout)
            except ValueError:
                answer = None
            started = answer is not None and answer.get("device") is not None
            suite.check(started and (item not in ANSWERED_HERE or done.returncode == 0), f"{item}: starts, and says what it found", f"    status {done.returncode}\n{done.stdout[-300:]}\n{done.stderr[-300:]}")
        # The others as a user calls them.
        results, packed = root / "results", root / "answers.tar.gz"
        for item in (i for i in asked if i in SCRIPTS):
            done = check(item, "--results", str(results), "--pack", str(packed))
            lines = done.stdout.splitlines()
            answered = done.returncode == 0 and len(lines) == 1 and f"{item}: answered" in lines[0]
            lacking = done.returncode == 77 and len(lines) == 1 and re.match(f"{item}: {LACKING}", lines[0])
            suite.check(answered or lacking, f"{item}: is answered, or says what is missing", f"    {done.returncode} {lines} {done.stderr[-300:]}")
            suite.check(answered or item not in ANSWERED_HERE, f"{item}: is answered here", f"    {lines}")
        for path in results.glob("*/*.json"):
            record = json.loads(path.read_text())
            suite.check({"item", "device", "driver", "cuda", "commit", "command", "when", "seconds", "status", "answer"} <= set(record) and record["answer"] and str(root) not in record["command"], f"{path.name}: says what it takes to ask again", f"    {record}")
        with tarfile.open(packed) as archive:
            kept = {member.name for member in archive if member.isfile()}
        suite.check(kept == {str(path.relative_to(results.parent)) for path in results.rglob("*") if path.is_file()}, "--pack: all answers are in one file", f"    {kept}")
        told = check("--summary", "--results", str(results)).stdout
        suite.check("pager              answered" in told and "open: vmm-cost" in told, "--summary: what is answered and what is open", told)
        cupy_script(suite, top)
        stand_in(suite, top, root, check)
    print("skipped: the items themselves: they want a card, and make test-gpu")
    committed = list((ROOT / "tests/gpu/results").glob("*/*.json"))
    for path in committed:
        record = json.loads(path.read_text())
        suite.check("software" not in record["device"].lower() and record["item"] == path.stem and path.stat().st_size < 1 << 20, f"{path}: is of a card", record["device"])
    suite.finish()


if __name__ == "__main__":
    main()
