#!/usr/bin/env python3
"""Runs items on the card of this machine and keeps what they answer. Behind scripts/gpu_check.sh.

An item is a command that prints one JSON object, or one after every part that it has done (item.py). It gets a deadline, a session
of its own (so that whatever it starts ends with it) and a clean environment. Its answer goes to RESULTS/DEVICE/ITEM.json with what
it takes to ask again, as soon as there is one: an item that is stopped, or killed with this program, goes on where it was when it is
asked again with the same library. `all` asks what is open in order of worth, each for its seconds, then those that were not finished
again. An item that cannot be asked here (no card, no PyTorch) says so in one line; the exit code is 0 if every item was answered,
1 if one failed or was not finished, 77 if the only reason is something that is missing here.
"""
import argparse, ctypes, datetime, hashlib, json, os, pathlib, platform, re, signal, subprocess, sys, tarfile, tempfile, threading, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build")).resolve()
MISSING = 77
PYTHON = sys.executable


def probe(name, *options):
    return [str(BUILD / "gpu" / name), *options, "--limit-s", "{limit}"]


def script(name, *words):
    return [PYTHON, str(HERE / name), *words]


def training(*words):
    return script("frameworks/training.py", *words)


# item: (question, command, seconds at most), in order of worth, what may end in a broken card behind what tells most. What has parts is
# given enough for the first of them: it goes on later.
ITEMS = {
    "vmm-cost": ("us for create, map, setAccess, unmap, release by frame size", probe("vmm_cost"), 60),
    "vmm-while-running": ("do mapping calls wait for running kernels; may a parked stream see the new memory", probe("vmm_while_running"), 60),
    "host-numa": ("do host frames map at device addresses, how fast are they", probe("host_numa"), 60),
    "doors": ("is every allocation and launch of the frameworks seen", script("frameworks/doors.py"), 240),
    "pager": ("the workloads of this repository in little memory: the same bits", script("programs.py", "pager"), 120),
    "link": ("bandwidth in, out, both at once, by size", probe("link"), 60),
    "hash": ("does hashing run at memory speed and see every flipped bit", probe("hash"), 60),
    "zero-copy-ops": ("atomics, asynchronous and bulk copies on host frames: right, how fast", probe("zero_copy_ops"), 60),
    "tma": ("do TMA descriptors carry plain addresses", probe("tma"), 30),
    "graph-addresses": ("which calls look at the addresses of a graph's copies and fills", probe("graph_addresses"), 30),
    "vmm-stress": ("is remapping idle ranges beside kernels safe (1 minute)", probe("vmm_stress", "--seconds", "60"), 95),
    "replay": ("kernels run again: what may be and what must not", script("programs.py", "replay"), 120),
    "torch-exact": ("PyTorch: losses bit for bit at 75, 50, 35, 20 % of peak live", training("torch", "exact"), 240),
    "overhead": ("ns a launch, and steps/s of two networks, with everything resident", training("torch", "overhead"), 150),
    "torch-speed": ("PyTorch: steps/s at those budgets, against native, checkpointing, offloading, both", training("torch", "speed"), 240),
    "torch-batch": ("PyTorch: largest batch in 10 GiB, native against ours", training("torch", "batch"), 180),
    "real": ("the programs of tests/real: tinygrad, numba's own tests, Dr.Jit, unchanged, in little memory", script("programs.py", "real"), 150),
    "traces": ("PyTorch: one recorded iteration of each network at two batch sizes", training("torch", "traces"), 150),
    "deep": ("PyTorch: a 2,000-layer residual network in 4 GiB", training("torch", "deep"), 120),
    "jax": ("JAX: the same questions, exact, speed, deep, batch, traces", training("jax", "exact", "speed", "deep", "batch", "traces"), 150),
    "triton": ("a network of Triton's kernels: exact, speed, deep, batch, traces", training("triton", "exact", "speed", "deep", "batch", "traces"), 120),
    "cupy": ("a network in CuPy: exact, speed, deep, batch, traces", training("cupy", "exact", "speed", "deep", "batch", "traces"), 100),
    "managed": ("managed memory as the other way to move: speed, blocking, faults, discard", probe("managed"), 60),
    "vmm-stress-long": ("vmm-stress for 8 minutes", probe("vmm_stress", "--seconds", "480"), 520),
}
LEAST = 45  # seconds that are worth beginning an item with parts


class Card:
    """The driver's own answers, asked in a child so that this process never holds the card."""

    @staticmethod
    def ask():
        try:
            done = subprocess.run([PYTHON, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r}); import check; check.print_card()"], capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            return {"missing": "no card: the driver does not answer within 60 s"}
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


def library():
    """Which build is asked: an unfinished answer of another one is begun anew."""
    path = BUILD / "libudnnmem.so"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def answer_of(text):
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read(path):
    """A record; None where there is none, or a torn one."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def state(record):
    """`answered`; `unfinished` where parts are left for another time; `FAILED`; `open` without an answer."""
    if not record or record["answer"] is None and record["status"] is None:
        return "open"
    answer = record["answer"] or {}
    if not answer.get("ended", True) or answer.get("left_out"):
        return "unfinished"
    return "answered" if record["status"] == 0 and record["answer"] is not None else "FAILED"


def parts(record):
    return len((record or {}).get("answer", {}).get("parts", ())) if (record or {}).get("answer") else 0


def pack(results, archive):
    """All answers as one file, whole at any time: whoever ends this program has what was found until then."""
    fresh = archive.with_name(archive.name + ".new")
    with tarfile.open(fresh, "w:gz") as packed:
        packed.add(results, results.name)
    fresh.replace(archive)


def folder_of(card, results):
    return results / re.sub(r"[^a-z0-9]+", "-", card["name"].lower()).strip("-")


def run(item, card, results, seconds, again=False):
    """Asks one item for `seconds` at most; what it answers is kept at once. Its state, or None: something is missing here."""
    question, command, _ = ITEMS[item]
    path = folder_of(card, results) / f"{item}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = read(path)
    goes_on = before and not again and state(before) == "unfinished" and before.get("library") == library()
    command = [word.replace("{limit}", str(int(seconds) - 5)) for word in command]
    env = {k: v for k, v in os.environ.items() if not k.startswith("UDNNMEM_") and k != "LD_PRELOAD"}
    env.update(UDNNMEM_BUILD=str(BUILD), PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1", GPU_CHECK_SECONDS=str(max(seconds - 10, 1)), GPU_CHECK_RESULTS=str(results), GPU_CHECK_PREVIOUS=str(path) if goes_on else "")
    start = time.monotonic()
    record = {"item": item, "question": question, "device": card["name"], "driver": card["driver"], "cuda": card["cuda"], "commit": commit(), "library": library(),
              "command": " ".join("python3" if c == PYTHON else c.replace(f"{BUILD}/", "build/").replace(f"{ROOT}/", "") for c in command),
              "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "seconds": 0, "status": None, "machine": platform.machine(), "answer": None}
    spent = before["seconds"] if goes_on else 0

    def keep(answer, status=None):
        record.update(answer=answer, status=status, seconds=round(spent + time.monotonic() - start, 1))
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(record, indent=1) + "\n")
        fresh.replace(path)

    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            process = subprocess.Popen(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        except OSError as error:
            print(f"{item}: cannot start {command[0]}: {error.strerror}: run make first")
            return "FAILED"

        def stop():
            print(f"stopped after {seconds:.0f} s", file=errors, flush=True)
            os.killpg(process.pid, signal.SIGKILL)

        deadline = threading.Timer(seconds, stop)
        deadline.start()
        output, answer = [], None
        try:
            for line in process.stdout:
                output.append(line)
                if (value := answer_of(line)) is not None:
                    keep(answer := value)
            process.wait()
        finally:
            deadline.cancel()
            if process.poll() is None:  # this program is being ended
                os.killpg(process.pid, signal.SIGKILL)
        errors.seek(0)
        error = errors.read()
    answer = answer_of("".join(output)) or answer
    last = (error.strip().splitlines() or [""])[-1]
    if process.returncode == MISSING:
        print(f"{item}: {last}", flush=True)
        return None
    if process.returncode != 0 or answer is None:
        record["error"] = error[-4000:]
    keep(answer, process.returncode)
    found = state(record)
    print(f"{item}: {found}{': ' + (last or f'status {process.returncode}') if found == 'FAILED' else f', {parts(record)} parts' if found == 'unfinished' else ''} [{time.monotonic() - start:.0f} s] {path}", flush=True)
    return found


def ask(items, card, options):
    """Each item once; with `all` those that were not finished again, as long as that gets on and time is left."""
    until = time.monotonic() + options.seconds
    states, whole = {}, "all" in options.items
    while items:
        unfinished = []
        for item in items:
            limit, left = ITEMS[item][2], until - time.monotonic()
            has_parts = ITEMS[item][1][0] == PYTHON
            if left < (min(LEAST, limit) if has_parts else limit):
                print(f"{item}: left for another time: {left:.0f} s are too short", flush=True)
                states.setdefault(item, "unfinished")
                continue
            path = folder_of(card, options.results) / f"{item}.json"
            begun = parts(read(path)) if item in states else -1
            states[item] = run(item, card, options.results, min(limit, left), options.again and item not in states)
            if options.pack:
                pack(options.results, options.pack)
            if states[item] == "unfinished" and parts(read(path)) > begun:
                unfinished.append(item)
        items = unfinished if whole else []
    return states


def summary(results):
    by_device = {}
    for path in sorted(results.glob("*/*.json")):
        if (record := read(path)) and record.get("item") in ITEMS:
            by_device.setdefault(f"{record['device']}, driver {record['driver'] or '?'}", {})[record["item"]] = record
    for device, records in by_device.items():
        print(device)
        for item in ITEMS:
            if r := records.get(item):
                print(f"  {item:<18} {state(r):<10} {r['when'][:10]} {r['commit']} in {r['seconds']:g} s: {r['question']}")
    open_items = [item for item in ITEMS if not any(state(records.get(item)) == "answered" for records in by_device.values())]
    print(f"open: {', '.join(open_items) or 'nothing'}")


def positive(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds above 0")
    return value


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; --help says what there is\n")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = Parser(prog="gpu_check.sh", description="Asks the card of this machine; --list says what.")
    parser.add_argument("items", nargs="*", metavar="ITEM", help="'all' for every item that is open")
    parser.add_argument("--list", action="store_true", help="the items, in order of worth")
    parser.add_argument("--summary", action="store_true", help="what is answered, on which card")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="folder of the answers")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE", help="after every item, that folder as one archive (.tar.gz)")
    parser.add_argument("--again", action="store_true", help="anew, and with 'all' also what is answered on this card")
    parser.add_argument("--seconds", type=positive, default=float("inf"), help="for all items together: what does not fit is left for another time")
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
    if "all" in options.items and not options.again:
        items = [i for i in items if state(read(folder_of(card, options.results) / f"{i}.json")) != "answered"]
    states = ask(items, card, options).values()
    return 1 if "FAILED" in states or "unfinished" in states else MISSING if states and set(states) == {None} else 0


if __name__ == "__main__":
    sys.exit(main())
