#!/usr/bin/env python3
"""training.py FRAMEWORK QUESTION...: what is asked of a framework's training scripts. torch | jax | triton | cupy; exact | speed | batch |
deep | traces, and for torch overhead.

Each run is FRAMEWORK_train.py, which knows nothing of the library, natively or under it: a part of the answer (tests/gpu/item.py), so
that an item that was stopped goes on with the next run. Ends with 1 if losses differ or a run fails, with 77 if the framework is missing.
"""
import importlib.util, os, pathlib, statistics, subprocess, sys, tempfile, time, json

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from item import BUILD, LIBRARY, SMALL, Answer, OutOfTime, missing, need, time_left

NEEDS = {"torch": ["torch", "torchvision"], "jax": ["jax"], "triton": ["triton", "torch"], "cupy": ["cupy"]}
CALLED = {"torch": "PyTorch", "torchvision": "torchvision", "jax": "JAX", "triton": "Triton", "cupy": "CuPy"}
# What each framework is asked with; a pair of batch sizes for traces.
NETWORKS = {
    "torch": {"exact": ["resnet50", "bert-large", "gpt2-medium", "vit-b", "unet", "small-transformer"], "batch": ["resnet50", "resnet101"], "deep": ["deep-2000"], "overhead": ["resnet50", "small-transformer"],
              "traces": {"resnet50": (64, 128), "bert-large": (8, 16), "gpt2-medium": (4, 8), "vit-b": (32, 64), "unet": (16, 32)}},
    "jax": {"exact": ["transformer", "mlp", "transformer-whole"], "batch": ["transformer"], "deep": ["deep-2000"], "traces": {"transformer": (8, 16), "mlp": (2048, 4096)}},
    "triton": {"exact": ["mlp"], "batch": ["mlp"], "deep": ["deep-2000"], "traces": {"mlp": (2048, 4096)}},
    "cupy": {"exact": ["mlp"], "batch": ["mlp"], "deep": ["deep-2000"], "traces": {"mlp": (2048, 4096)}},
}
MODES = {"torch": ("checkpoint", "offload", "both"), "jax": ("checkpoint",), "triton": (), "cupy": ()}  # the framework's own ways of saving memory
SHARES = (75, 50, 35, 20)
FIGURES = ("peak_live_bytes", "peak_resident_bytes", "bytes_in", "bytes_out", "stalls", "stall_ns", "served_from_host", "drops", "replays", "ops", "allocations", "iterations", "over_budget")
if SMALL:
    NETWORKS = {f: {q: {"tiny": (32, 64)} if q == "traces" else ["tiny"] for q in questions} for f, questions in NETWORKS.items()}

framework = sys.argv[1] if len(sys.argv) > 1 else ""
answer = Answer()
wrong = []
at_start = time_left()
longest = 0.0  # seconds of a run so far
PATIENCE = 120  # seconds of a run, or five times the longest before it: one that hangs leaves time for the others


def train(network, preload=False, trace=None, turn=None, **options):
    """The training script; None if there is no time left. What it prints, with `status`, and `run` of the trace under the library.
    An option in capitals is a variable; the same run is made once for each `turn`."""
    words, env = [], {}
    for name, value in options.items():
        if name.isupper():
            env[name] = str(value)
        elif value is True:
            words.append(f"--{name}")
        elif value is not None:
            words += [f"--{name}", str(value)]
    name = " ".join([network, *words, *(["under the library"] if preload else []), *(["traced"] if trace else []), *([f"turn {turn}"] if turn is not None else []), *(f"{k}={v}" for k, v in env.items())])

    def make():
        global longest
        start, left = time.monotonic(), time_left()
        had = min(left, max(PATIENCE, 5 * longest))
        with tempfile.TemporaryDirectory() as folder:
            path = trace or f"{folder}/t.jsonl.zst"
            pathlib.Path(path).unlink(missing_ok=True)  # of a run that was stopped
            clean = {k: v for k, v in os.environ.items() if not k.startswith("UDNNMEM_") and k != "LD_PRELOAD"}
            if preload:
                env.update(LD_PRELOAD=str(LIBRARY), UDNNMEM_TRACE=str(path))
            try:
                done = subprocess.run([sys.executable, str(HERE / f"{framework}_train.py"), network, *words], env=clean | env, capture_output=True, text=True, errors="replace", timeout=had)
            except subprocess.TimeoutExpired as stopped:
                if had == left and had < 0.8 * at_start:
                    raise OutOfTime from None
                return {"status": f"stopped after {had:.0f} s", "error": (stopped.stderr or b"").decode(errors="replace")[-600:]}
            if done.returncode == 77:
                missing((done.stderr.strip().splitlines() or [f"{CALLED[framework]} cannot be used here"])[-1])
            found = {"status": done.returncode}
            try:
                found.update(json.loads(done.stdout.splitlines()[-1]))
            except (IndexError, ValueError):
                found["error"] = done.stderr[-600:]
            if preload:
                told = subprocess.run([str(BUILD / "udnnmem"), "report", "--format", "json", str(path)], capture_output=True, text=True)
                if told.returncode == 0 and told.stdout:
                    run = json.loads(told.stdout.splitlines()[0])
                    found["run"] = {k: run.get(k) for k in FIGURES}
                found["said"] = [line for line in done.stderr.splitlines() if line.startswith("udnnmem:")][-4:]
            longest = max(longest, time.monotonic() - start)
            return found

    return answer.part(name, max(15, 1.2 * longest), make)


def failed(what, run, allowed=()):
    """Whether `run` did not come to its end; said in the answer."""
    if run is None or run["status"] in (0, *allowed):
        return False
    wrong.append(f"{what}: {'out of memory' if run['status'] == 3 else run['status']}: {(run.get('error') or '').strip()[-200:]}")
    return True


def room(network, **options):
    """The bytes that the network holds at most, as the library sees it with room to spare."""
    roomy = train(network, True, steps=4, **options)
    failed(f"{network} with room", roomy)
    return ((roomy or {}).get("run") or {}).get("peak_live_bytes")


def exact(into):
    for network in NETWORKS[framework]["exact"]:
        native = train(network, exact=True)
        if not native or failed(f"{network} natively", native):
            continue
        again, live = train(network, exact=True, turn=2), room(network, exact=True)
        record = into[network] = {"native_repeats": again and again.get("losses") == native["losses"], "peak_live_bytes": live, "same": {}}
        for share in SHARES if live else ():
            done = train(network, True, exact=True, UDNNMEM_BUDGET=live * share // 100)
            if done and not failed(f"{network} in {share} %", done):
                record["same"][share] = done.get("losses") == native["losses"]
                if not record["same"][share] and record["native_repeats"]:
                    wrong.append(f"{network} in {share} %: other losses")


def speed(into):
    for network in NETWORKS[framework]["exact"]:
        native = train(network)
        if not native or failed(f"{network} natively", native):
            continue
        live = room(network)
        record = into[network] = {"native": native["seconds_per_step"], "peak_live_bytes": live, "own": {}, "ours": {}}
        for share in (50, 100, 75, 35, 20) if live else ():
            done = train(network, True, steps=40, UDNNMEM_BUDGET=live * share // 100 + ((1 << 30) if share == 100 else 0))
            if done and not failed(f"{network} in {share} %", done):
                record["ours"][share] = done["seconds_per_step"]
        for mode in MODES[framework]:
            done = train(network, mode=mode)
            if done:
                record["own"][mode] = {k: done.get(k) for k in ("status", "seconds_per_step", "peak_allocated")}


def batch(into):
    """The largest batch that trains with 10 GiB, to a tenth; natively by what the framework itself says it held."""
    budget = into["budget"] = 256 << 20 if SMALL else 10 << 30

    def largest(fits):
        """None if there was no time to find it."""
        low, high = 0, 32
        while (held := fits(high)) and high < 1 << 20:
            low, high = high, high * 2
        while held is not None and high - low > max(4, low // 10):
            middle = (low + high) // 2
            held = fits(middle)
            low, high = (middle, high) if held else (low, middle)
        return None if held is None else low

    def native(size):
        done = train(network, batch=size, steps=4)
        return done and done["status"] == 0 and (done.get("peak_allocated") or 0) <= budget

    def ours(size):
        done = train(network, True, batch=size, steps=10, UDNNMEM_BUDGET=budget)
        return done and done["status"] == 0

    for network in NETWORKS[framework]["batch"]:
        record = into[network] = {"ours": None, "native": largest(native)}
        record["ours"] = largest(ours)
        if record["ours"]:
            record["seconds_per_step"] = train(network, True, batch=record["ours"], steps=10, UDNNMEM_BUDGET=budget)["seconds_per_step"]


def overhead(into):
    """Everything resident: ns a launch (8 pointers), and steps/s in pairs, in turn."""
    def launch(preload):
        env = {k: v for k, v in os.environ.items() if not k.startswith("UDNNMEM_") and k != "LD_PRELOAD"}
        env.update({"LD_PRELOAD": str(LIBRARY), "UDNNMEM_TRACE": "off", "UDNNMEM_QUIET": "1"} if preload else {})
        done = subprocess.run([str(BUILD / "tests/launch_path"), "200"], env=env, capture_output=True, text=True, timeout=60)
        return float(done.stdout.split()[0]) if done.returncode == 0 else None

    pairs = answer.part("launches", 20, lambda: [[launch(False), launch(True)] for _ in range(3 if SMALL else 11)])
    if pairs and all(a and b for a, b in pairs):
        into.update(launch_native_ns=statistics.median(a for a, _ in pairs), launch_added_ns=statistics.median(b - a for a, b in pairs))
    elif pairs:
        wrong.append("tests/launch_path fails")
    networks = NETWORKS[framework]["overhead"]
    times = {network: [] for network in networks}
    for turn in range(1 if SMALL else 20):
        for network in networks:
            a, b = train(network, steps=20, turn=turn), train(network, True, steps=20, turn=turn)
            if a and b and not failed(f"{network} natively", a) and not failed(f"{network} under the library", b):
                times[network].append((a["seconds_per_step"], b["seconds_per_step"]))
    for network, pairs in times.items():
        if pairs:
            into[network] = {"pairs": len(pairs), "native": statistics.median(a for a, _ in pairs), "ratio": statistics.median(b / a for a, b in pairs)}


def deep(into):
    for network in NETWORKS[framework]["deep"]:
        budget = 64 << 20 if SMALL else 4 << 30
        ours, native = train(network, True, steps=12, UDNNMEM_BUDGET=budget), train(network, steps=6)
        failed(f"{network} in {budget >> 20} MiB", ours)
        failed(f"{network} natively", native, allowed=(3,))
        losses = (native or {}).get("losses")
        into[network] = {"budget": budget, "trains": bool(ours) and ours["status"] == 0, "peak_resident_bytes": ((ours or {}).get("run") or {}).get("peak_resident_bytes"),
                         "same_losses": bool(ours and losses) and ours.get("losses", [])[: len(losses)] == losses, "seconds_per_step": [(r or {}).get("seconds_per_step") for r in (native, ours)]}


def traces(into):
    """One recorded iteration of each network at two batch sizes, beside the answers (all of them together under 20 MB)."""
    folder = pathlib.Path(os.environ.get("GPU_CHECK_RESULTS", tempfile.gettempdir())) / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    for network, batches in NETWORKS[framework]["traces"].items():
        for size in batches:
            path = folder / f"{framework}-{network}-b{size}.jsonl.zst"
            done = train(network, True, trace=path, batch=size, steps=24)
            if done and not failed(f"{network}, batch {size}", done):
                into[path.name] = path.stat().st_size if path.exists() else 0
    total = sum(p.stat().st_size for p in folder.glob("*"))
    if total > 20_000_000:
        wrong.append(f"{folder} holds {total} bytes, 20 MB are wanted")


def main():
    questions = {"exact": exact, "speed": speed, "batch": batch, "overhead": overhead, "deep": deep, "traces": traces}
    asked = sys.argv[2:]
    if framework not in NEEDS or not asked or not set(asked) <= set(questions) or ("overhead" in asked and framework != "torch"):
        sys.exit(__doc__)
    for package in NEEDS[framework]:
        if importlib.util.find_spec(package) is None:
            missing(f"{CALLED[package]} is not here")
    need()
    for question in asked:
        answer["wrong"] = wrong
        questions[question](answer.setdefault(question, {}))
    answer.end(not wrong)


if __name__ == "__main__":
    main()
