#!/usr/bin/env python3
"""torch_items.py exact | speed | batch | overhead | deep | traces: PyTorch's part of the questions to a card.

Each runs torch_train.py, which knows nothing of the library, natively and under it, in turn, until its time is up
(GPU_CHECK_SECONDS); what was asked in that time is in the answer, and what was not is listed as left out: asked again, it goes on with
those networks (GPU_CHECK_PREVIOUS is the answer so far). Prints one JSON object.
"""
import json, os, pathlib, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build"))
UNTIL = time.monotonic() + float(os.environ.get("GPU_CHECK_SECONDS", 500))
SMALL = os.environ.get("GPU_CHECK_SMALL") == "1"
NETWORKS = ["tiny"] if SMALL else ["resnet50", "small-transformer", "bert-large", "gpt2-medium", "vit-b", "unet"]
SHARES = (75, 50, 35, 20)
left_out = []


def answered_before():
    """The networks of the last answer that were complete."""
    try:
        answer = json.loads(pathlib.Path(os.environ.get("GPU_CHECK_PREVIOUS") or "/nonexistent").read_text())["answer"]
    except (OSError, ValueError, KeyError):
        return {}
    if not answer or not answer.get("left_out"):
        return {}
    return {name: record for name, record in answer.get("networks", {}).items() if not any(line.startswith(name + " ") for line in answer["left_out"])}


BEFORE = answered_before()


def missing(why):
    print(why, file=sys.stderr)
    sys.exit(77)


def time_left():
    return UNTIL - time.monotonic()


def train(network, preload=False, trace=None, **options):
    """torch_train.py; None if there is no time left. What it prints, with `status`, and `run` of the trace under the library."""
    words, env = [], {k: v for k, v in os.environ.items() if not k.startswith("UDNNMEM_") and k != "LD_PRELOAD"}
    for name, value in options.items():
        if name.isupper():
            env[name] = str(value)
        elif value is True:
            words.append(f"--{name}")
        elif value is not None:
            words += [f"--{name}", str(value)]
    if time_left() < 20:
        left_out.append(f"{network} {' '.join(words)}{' under the library' if preload else ''}")
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = trace or f"{folder}/t.jsonl.zst"
        if preload:
            env.update(LD_PRELOAD=str(BUILD / "libudnnmem.so"), UDNNMEM_TRACE=str(path))
        try:
            done = subprocess.run([sys.executable, str(HERE / "torch_train.py"), network, *words], env=env, capture_output=True, text=True, errors="replace", timeout=max(10, time_left()))
        except subprocess.TimeoutExpired:
            return {"status": "timeout"}
        if done.returncode == 77:
            missing(done.stderr.strip().splitlines()[-1])
        answer = {"status": done.returncode}
        try:
            answer.update(json.loads(done.stdout.splitlines()[-1]))
        except (IndexError, ValueError):
            answer["error"] = done.stderr[-600:]
        if preload:
            told = subprocess.run([str(BUILD / "udnnmem"), "report", "--format", "json", str(path)], capture_output=True, text=True)
            if told.returncode == 0 and told.stdout:
                run = json.loads(told.stdout.splitlines()[0])
                keep = ("peak_live_bytes", "peak_resident_bytes", "bytes_in", "bytes_out", "stalls", "stall_ns", "served_from_host", "drops", "replays", "ops", "allocations", "iterations", "over_budget")
                answer["run"] = {k: run.get(k) for k in keep}
            answer["said"] = [line for line in done.stderr.splitlines() if line.startswith("udnnmem:")][-4:]
        return answer


def peak_of(network, **options):
    """What the network holds at most, as the library sees it with room to spare; and that run."""
    roomy = train(network, True, steps=4, **options)
    live = (roomy or {}).get("run", {}).get("peak_live_bytes")
    return live, roomy


def exact():
    answer = dict(BEFORE)
    for network in (n for n in NETWORKS if n not in BEFORE):
        native, again = train(network, exact=True), train(network, exact=True)
        if not native or native["status"] != 0:
            answer[network] = native
            continue
        live, roomy = peak_of(network, exact=True)
        record = answer[network] = {"native_repeats": bool(again) and again.get("losses") == native["losses"], "peak_live_bytes": live, "budgets": {}, "roomy": roomy and {k: roomy.get(k) for k in ("status", "error", "said", "run")}}
        for share in SHARES if live else ():
            done = train(network, True, exact=True, UDNNMEM_BUDGET=live * share // 100)
            if done:
                record["budgets"][share] = {"same": done.get("losses") == native["losses"], **{k: done.get(k) for k in ("status", "error", "seconds_per_step", "run", "said")}}
    wrong = [f"{n} in {s} %" for n, r in answer.items() if r and "budgets" in r for s, d in r["budgets"].items() if d["status"] == 0 and not d["same"]]
    return {"networks": answer, "wrong": wrong}, not wrong


def speed():
    answer = dict(BEFORE)
    for network in (n for n in NETWORKS if n not in BEFORE):
        native = train(network)
        if not native or native["status"] != 0:
            answer[network] = native
            continue
        live, _ = peak_of(network)
        record = answer[network] = {"native": native["seconds_per_step"], "peak_live_bytes": live, "by_torch": {}, "ours": {}}
        for mode in ("checkpoint", "offload", "both"):
            done = train(network, mode=mode)
            if done:
                record["by_torch"][mode] = {k: done.get(k) for k in ("status", "seconds_per_step", "peak_allocated", "error")}
        for share in (100, *SHARES) if live else ():
            done = train(network, True, steps=40, UDNNMEM_BUDGET=live * share // 100 + (1 << 30 if share == 100 else 0))
            if done:
                record["ours"][share] = {k: done.get(k) for k in ("status", "seconds_per_step", "run", "error", "said")}
    return {"networks": answer}, True


def batch():
    """The largest batch that trains with 10 GiB, in steps of a tenth; natively under a cap of PyTorch's own."""
    budget = 256 << 20 if SMALL else 10 << 30
    answer = dict(BEFORE)

    def largest(fits):
        low, high = 0, 32
        while time_left() > 30 and fits(high):
            low, high = high, high * 2
        while time_left() > 30 and high - low > max(4, low // 10):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        if time_left() <= 30:
            left_out.append(f"{network} largest batch between {low} and {high}")
        return low

    for network in (n for n in (["tiny"] if SMALL else ["resnet50", "resnet101"]) if n not in BEFORE):
        runs = {"native": {}, "ours": {}}

        def native(size):
            done = train(network, batch=size, steps=4)
            runs["native"][size] = done and {k: done.get(k) for k in ("status", "seconds_per_step", "peak_allocated")}
            return bool(done) and done["status"] == 0 and (done.get("peak_allocated") or 0) <= budget

        def ours(size):
            done = train(network, True, batch=size, steps=10, UDNNMEM_BUDGET=budget)
            runs["ours"][size] = done and {k: done.get(k) for k in ("status", "seconds_per_step", "run")}
            return bool(done) and done["status"] == 0
        answer[network] = {"native": largest(native), "ours": largest(ours), "runs": runs}
    return {"budget": budget, "networks": answer}, True


def overhead():
    """Everything resident: ns a launch (8 pointers), and steps/s in pairs, in turn."""
    def launch(preload):
        env = {k: v for k, v in os.environ.items() if not k.startswith("UDNNMEM_") and k != "LD_PRELOAD"}
        env.update({"LD_PRELOAD": str(BUILD / "libudnnmem.so"), "UDNNMEM_TRACE": "off", "UDNNMEM_QUIET": "1"} if preload else {})
        done = subprocess.run([str(BUILD / "tests/launch_path"), "200"], env=env, capture_output=True, text=True, timeout=60)
        return float(done.stdout.split()[0]) if done.returncode == 0 else None

    pairs = [(launch(False), launch(True)) for _ in range(3 if SMALL else 11)]
    answer = {"launch_native_ns": pairs and pairs[0][0] and statistics.median(a for a, _ in pairs), "launch_added_ns": statistics.median(b - a for a, b in pairs) if all(a and b for a, b in pairs) else None, "networks": {}}
    for network in ["tiny"] if SMALL else ["resnet50", "small-transformer"]:
        times = []
        for _ in range(1 if SMALL else 20):
            a, b = train(network, steps=20), train(network, True, steps=20)
            if not a or not b or a["status"] or b["status"]:
                answer["networks"].setdefault(network, {})["failed"] = [a, b]
                break
            times.append((a["seconds_per_step"], b["seconds_per_step"]))
        if times:
            answer["networks"][network] = {"pairs": len(times), "native": statistics.median(a for a, _ in times), "ratio": statistics.median(b / a for a, b in times)}
    return answer, True


def deep():
    network, budget = ("tiny", 64 << 20) if SMALL else ("deep-2000", 4 << 30)
    native, ours = train(network, steps=6), train(network, True, steps=12, UDNNMEM_BUDGET=budget)
    keep = ("status", "seconds_per_step", "peak_allocated", "run", "error", "said")
    same = bool(native and ours) and native.get("losses") == ours.get("losses", [])[: len(native.get("losses", [1]))]
    return {"budget": budget, "native": native and {k: native.get(k) for k in keep}, "ours": ours and {k: ours.get(k) for k in keep}, "same_losses": same}, True


def traces():
    """One recorded iteration of each network at two batch sizes, beside the answers (all of them together under 20 MB)."""
    folder = pathlib.Path(os.environ.get("GPU_CHECK_RESULTS", tempfile.mkdtemp())) / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    answer = {}
    for network, batches in {"tiny": (32, 64)}.items() if SMALL else {"resnet50": (64, 128), "bert-large": (8, 16), "gpt2-medium": (4, 8), "vit-b": (32, 64), "unet": (16, 32)}.items():
        for size in batches:
            path = folder / f"{network}-b{size}.jsonl.zst"
            done = train(network, True, trace=path, batch=size, steps=24)
            if done:
                answer[path.name] = {"status": done["status"], "bytes": path.stat().st_size if path.exists() else 0, "run": done.get("run"), "error": done.get("error")}
    total = sum(a["bytes"] for a in answer.values())
    return {"folder": str(folder), "bytes": total, "traces": answer}, total < 20_000_000


def main():
    items = {"exact": exact, "speed": speed, "batch": batch, "overhead": overhead, "deep": deep, "traces": traces}
    if len(sys.argv) != 2 or sys.argv[1] not in items:
        sys.exit(__doc__)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        missing(f"PyTorch is not here: {error}")
    if not (BUILD / "libudnnmem.so").exists():
        missing(f"{BUILD}/libudnnmem.so is not there: run make first")
    answer, good = items[sys.argv[1]]()
    answer["left_out"] = left_out
    print(json.dumps(answer))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
