#!/usr/bin/env python3
"""Runs items on the card of this machine and keeps what they answer. Behind scripts/gpu_check.sh.

An item is a command that prints, as its last line or as all of its standard output, one JSON object. It gets a deadline, a session
of its own (so that whatever it starts ends with it) and a clean environment. Its answer goes to RESULTS/DEVICE/ITEM.json with what
it takes to ask again. An item that cannot be asked here (no card, no PyTorch) says so in one line; the exit code is 0 if every item
was answered, 1 if one failed, 77 if the only reason is something that is missing here.
"""
import argparse, ctypes, datetime, json, os, pathlib, platform, re, signal, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build")).resolve()
MISSING = 77
PYTHON = sys.executable


def probe(name, *options):
    return [str(BUILD / "gpu" / name), *options, "--limit-s", "{limit}"]


def script(name, *words):
    return [PYTHON, str(HERE / name), *words]


# item: (question, command, seconds at most), in order of worth.
ITEMS = {
    "vmm-cost": ("us for create, map, setAccess, unmap, release by frame size", probe("vmm_cost"), 60),
    "vmm-while-running": ("do mapping calls wait for running kernels; may a parked stream see the new memory", probe("vmm_while_running"), 60),
    "vmm-stress": ("is remapping idle ranges beside kernels safe (1 minute)", probe("vmm_stress", "--seconds", "60"), 95),
    "host-numa": ("do host frames map at device addresses, how fast are they", probe("host_numa"), 60),
    "zero-copy-ops": ("atomics, asynchronous and bulk copies on host frames: right, how fast", probe("zero_copy_ops"), 60),
    "managed": ("managed memory as the other way to move: speed, blocking, faults, discard", probe("managed"), 60),
    "link": ("bandwidth in, out, both at once, by size", probe("link"), 60),
    "doors": ("is every allocation and launch of the frameworks seen", script("frameworks/doors.py"), 400),
    "tma": ("do TMA descriptors carry plain addresses", probe("tma"), 30),
    "hash": ("does hashing run at memory speed and see every flipped bit", probe("hash"), 60),
    "pager": ("the workloads of this repository in little memory: the same bits", script("programs.py", "pager"), 400),
    "replay": ("kernels run again: what may be and what must not", script("programs.py", "replay"), 400),
    "overhead": ("ns a launch, and steps/s of two networks, with everything resident", script("frameworks/torch_items.py", "overhead"), 560),
    "torch-exact": ("losses bit for bit at 75, 50, 35, 20 % of peak live", script("frameworks/torch_items.py", "exact"), 580),
    "torch-speed": ("steps/s at those budgets, against native, checkpointing, offloading, both", script("frameworks/torch_items.py", "speed"), 580),
    "torch-batch": ("largest batch in 10 GiB, native against ours", script("frameworks/torch_items.py", "batch"), 580),
    "real": ("tinygrad, unchanged, in half of its memory", script("programs.py", "real"), 400),
    "traces": ("one recorded iteration of each network at two batch sizes", script("frameworks/torch_items.py", "traces"), 580),
    "deep": ("a 2,000-layer residual network in 4 GiB", script("frameworks/torch_items.py", "deep"), 580),
    "vmm-stress-long": ("vmm-stress for 8 minutes", probe("vmm_stress", "--seconds", "480"), 520),
}


class Card:
    """The driver's own answers, asked in a child so that this process never holds the card."""

    @staticmethod
    def ask():
        done = subprocess.run([PYTHON, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r}); import check; check.print_card()"], capture_output=True, text=True, timeout=60)
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            return {"missing": f"the driver ends the process that asks it (status {done.returncode})"}


def print_card():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return print(json.dumps({"missing": f"no card: libcuda.so.1 cannot be loaded ({str(error).split(':')[-1].strip()})"}))
    if (result := driver.cuInit(0)) != 0:
        return print(json.dumps({"missing": f"no card: cuInit answers {result}"}))
    name, version, memory = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_size_t()
    driver.cuDeviceGetName(name, 256, 0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), 0)
    kernel = pathlib.Path("/proc/driver/nvidia/version")
    found = re.search(r"(\d+\.\d+(?:\.\d+)?)", kernel.read_text()) if kernel.exists() else None
    print(json.dumps({"name": name.value.decode(), "cuda": version.value, "bytes": memory.value, "driver": found.group(1) if found else nvidia_smi()}))


def nvidia_smi():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else ""
    except OSError:
        return ""


def commit():
    packed = ROOT / "COMMIT"  # in a bundle
    if packed.exists():
        return packed.read_text().strip()
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def answer_of(output):
    """The JSON object that a command printed: all of it, or its last line. None: there is none."""
    for text in (output, *reversed(output.splitlines()[-3:])):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def is_open(path):
    """Whether there is something to ask yet: no answer, a failure, or an answer that ran out of time."""
    if not path.exists():
        return True
    record = json.loads(path.read_text())
    return record["status"] != 0 or record["answer"] is None or bool(record["answer"].get("left_out"))


def run(item, card, results):
    question, command, limit = ITEMS[item]
    folder = results / re.sub(r"[^a-z0-9]+", "-", card["name"].lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{item}.json"
    command = [word.replace("{limit}", str(limit - 5)) for word in command]
    env = {k: v for k, v in os.environ.items() if not k.startswith("UDNNMEM_") and k != "LD_PRELOAD"}
    env.update(UDNNMEM_BUILD=str(BUILD), PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1", GPU_CHECK_SECONDS=str(limit - 10), GPU_CHECK_RESULTS=str(results), GPU_CHECK_PREVIOUS=str(path) if path.exists() else "")
    start = time.monotonic()
    try:
        process = subprocess.Popen(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    except OSError as error:
        print(f"{item}: cannot start {command[0]}: {error.strerror}: run make first")
        return 1
    try:
        output, error = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, error = process.communicate()
        error += f"\nstopped after {limit} s"
    seconds = time.monotonic() - start
    answer = answer_of(output)
    last = (error.strip().splitlines() or [""])[-1]
    if process.returncode == MISSING:
        print(f"{item}: {last}")
        return MISSING
    record = {"item": item, "question": question, "device": card["name"], "driver": card["driver"], "cuda": card["cuda"], "commit": commit(), "command": " ".join("python3" if c == PYTHON else c.replace(f"{BUILD}/", "build/").replace(f"{ROOT}/", "") for c in command),
              "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "seconds": round(seconds, 1), "status": process.returncode, "machine": platform.machine(), "answer": answer}
    if process.returncode != 0 or answer is None:
        record["error"] = error[-4000:]
    path.write_text(json.dumps(record, indent=1) + "\n")
    good = process.returncode == 0 and answer is not None
    print(f"{item}: {'answered' if good else 'failed: ' + (last or f'status {process.returncode}')} [{seconds:.0f} s] {path}", flush=True)
    return 0 if good else 1


def summary(results):
    files = sorted(results.glob("*/*.json"))
    by_device = {}
    for path in files:
        record = json.loads(path.read_text())
        by_device.setdefault(f"{record['device']}, driver {record['driver'] or '?'}", {})[record["item"]] = record
    for device, records in by_device.items():
        print(device)
        for item in ITEMS:
            r = records.get(item)
            if r:
                print(f"  {item:<18} {'answered' if r['status'] == 0 and r['answer'] is not None else 'FAILED  '} {r['when'][:10]} {r['commit']} in {r['seconds']:g} s: {r['question']}")
    open_items = [item for item in ITEMS if all(is_open(path) for path in [*results.glob(f"*/{item}.json"), results / "none"])]
    print(f"open: {', '.join(open_items) or 'nothing'}")


def main():
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description="Asks the card of this machine; --list says what.")
    parser.add_argument("items", nargs="*", metavar="ITEM", help="'all' for every item that is open")
    parser.add_argument("--list", action="store_true", help="the items, in order of worth")
    parser.add_argument("--summary", action="store_true", help="what is answered, on which card")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="folder of the answers")
    parser.add_argument("--again", action="store_true", help="with 'all': also what is answered on this card")
    options = parser.parse_args()
    if options.list:
        for item, (question, _, limit) in ITEMS.items():
            print(f"{item:<18} {limit:>4} s  {question}")
        return 0
    if options.summary:
        summary(options.results)
        return 0
    unknown = [item for item in options.items if item not in ITEMS and item != "all"]
    if unknown or not options.items:
        print(f"gpu_check.sh: {unknown[0] if unknown else 'no item'}: expected items of --list, or all", file=sys.stderr)
        return 2
    card = Card.ask()
    if "missing" in card:
        for item in options.items if "all" not in options.items else ["all"]:
            print(f"{item}: {card['missing']}")
        return MISSING
    items = list(dict.fromkeys(i for given in options.items for i in (ITEMS if given == "all" else [given])))
    folder = options.results / re.sub(r"[^a-z0-9]+", "-", card["name"].lower()).strip("-")
    if "all" in options.items and not options.again:
        items = [i for i in items if is_open(folder / f"{i}.json")]
    codes = [run(item, card, options.results) for item in items]
    return 1 if 1 in codes else MISSING if codes and all(c == MISSING for c in codes) else 0


if __name__ == "__main__":
    sys.exit(main())
