#!/usr/bin/env python3
"""Dropped and computed again: a chain of activations by kernels that may be run again, and by such that must not be.

Each run must compute the bits of the run without the library. What may be run again has to be; what must not be is refused
(by its code, or because running it again gave other bits), and the library says why. `make test` takes a few kinds, all with
UDNNMEM_TEST_FULL=1, or those that are named.
"""
import json, pathlib, re, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, WORKLOADS, Run, Suite, asked_for_help, environment, refuse, settled

ITERATIONS = 40
MODEL = dict(SOFTGPU_DEVICES=2, SOFTGPU_TIME="model:5e10:3e10", SOFTGPU_H2D=1e8, SOFTGPU_D2H=1e8, SOFTGPU_GRANULARITY=4096, UDNNMEM_TEST_LOOK_MS=100)
MEMORY = 420_000  # of 720,000 bytes
MAY = ("pure", "in_place", "update", "integer_atomics", "statistics", "mask", "varying", "struct", "aliasing", "cooperative", "much_shared", "buffer", "attributes", "copied", "filled", "with_state", "graphs", "counter", "beside_table", "two_streams", "held", "branch", "helper", "reaper", "garbage", "led")
REFUSED = {
    "self_modifying": None, "partial": None, "rare_write": None, "rare_keep": None, "rare_scalar": None, "rare_sum": "may write what it was not seen to write", "neighbour": None, "unloaded": None, "append": None, "turns": None, "ends": None, "chosen": None,
    "address": "gives other bits", "float_atomics": "adds floating-point numbers", "clock_reader": "reads a clock", "volatile_reader": "others may be writing",
    "global_counter": "variables of its module", "module_variable": "variables of its module", "constant": "variables of its module", "calls": "variables of its module",
    "optional": "is given memory at times that it is not given at others", "lasting_graphs": None, "pointer_table": "holds addresses", "escaped": "that others may write to", "escaped_small": "that others may write to", "exported": "that others may write to", "table_writer": "holds addresses", "pinned": "",
}
# What is neither: programs that do something else at times. What has to be said of them.
OTHERS = dict.fromkeys(("captured", "evaluated", "larger", "second_device", "gated", "gated_wait", "gated_small", "gated_capture", "loader", "exiting", "outlived", "bursts", "escapes", "held_longer"), "sequence 0: 33 of 36 ops may be run again")
OTHERS["streams"] = "50 of 53 ops may be run again"
OTHERS["told_early"] = "kernel pure gave other bits when it was run again later: never again"
OTHERS["exchanged"] = "49 of 52 ops may be run again"
OTHERS["stray"] = "kernel by_struct is too often given what it was not proven with, as are 15 other ops: not run again"
SAMPLE = ("stray", "garbage", "led", "held", "branch", "told_early", "append", "exchanged", "counter", "captured", "evaluated", "second_device", "streams", "gated_small", "gated_capture", "exiting", "outlived", "escaped_small", "escapes", "optional", "graphs", "unloaded", "rare_write", "module_variable", "global_counter", "table_writer")
PROMISED = re.compile(r": (\d+) us promised, .* (\d+) dropped for good")
FOLLOWED = re.compile(r"on the device (\d+) us by plan")
PLANNED = re.compile(r"iterations followed, (\d+) by plan")
DENIED = re.compile(r"kernel \S+ gave other bits when it was run again later: never again")
DROPPED = re.compile(r"(\d+) buffers dropped and computed again")


def main():
    asked_for_help(__doc__)
    if unknown := [kind for kind in sys.argv[1:] if kind not in (*MAY, *REFUSED, *OTHERS)]:
        refuse(f"{unknown[0]}: expected kinds of kernel: {', '.join((*MAY, *REFUSED, *OTHERS))}")
    suite = Suite()
    kinds = sys.argv[1:] or ([*MAY, *REFUSED, *OTHERS] if FULL else SAMPLE)
    for kind in kinds:
        command = [WORKLOADS / "replays", kind, 2 * ITERATIONS if kind in ("evaluated", "stray", "garbage") else ITERATIONS]
        order = dict(SOFTGPU_SEED=1) if kind == "streams" else {}   # what nothing orders comes in any order
        plain = Run(command, environment(SOFTGPU_MEMORY="64MiB", **MODEL))
        suite.check(plain.status == 0, f"{kind}: runs without the library", plain.tail())
        done = Run(command, environment(preload=True, SOFTGPU_MEMORY=MEMORY, UDNNMEM_DEBUG="info", **order, **MODEL), limit=120)
        found = DROPPED.search(done.error)
        drops = int(found[1]) if found else 0
        stopped = "is not what it was" in done.error
        suite.check(plain.output.startswith(done.output) if stopped else done.output == plain.output, f"{kind}: the same bits", f"    status {done.status}\n{done.tail(12)}")
        suite.check(done.report and done.report["device_bytes_peak"] <= MEMORY * (2 if kind == "second_device" else 1), f"{kind}: within the device", f"    {done.report}")
        if kind in MAY:
            suite.check(drops >= ITERATIONS, f"{kind}: dropped and computed again", done.tail(12))
        elif kind in OTHERS:
            suite.check(OTHERS[kind] in done.error and (drops or kind == "told_early"), f"{kind}: dropped and computed again, and what was said", done.tail(12))
        elif REFUSED[kind]:
            suite.check(REFUSED[kind] in done.error, f"{kind}: refused with the reason", done.tail(12))
        suite.check(done.status == 0, f"{kind}: runs to its end", done.tail(12))
        if kind == "garbage":
            suite.check("leads somewhere now and then, each time elsewhere" in done.error, "garbage: what was said", done.tail(12))
            suite.check((by_plan := PLANNED.search(done.error)) and int(by_plan[1]) > ITERATIONS // 2, "garbage: it is no part of what repeats", done.tail(12))
        if kind == "evaluated":
            suite.check("sequence 1: 17 of 36 ops may be run again" in done.error, f"{kind}: the evaluation is proven too, in its turn", done.tail(12))
        if kind == "held":
            plans, took = PROMISED.findall(done.error), FOLLOWED.search(done.error)
            suite.check(took and 0 < int(took[1]) < int(plans[0][0]) / 2 and int(plans[-1][1]) > 4, "held: what is not read again is not copied out", done.tail(16))
        if kind == "module_variable":
            reported(suite, command)
        if kind == "global_counter":
            unread(suite, command)
        if kind == "module_variable":
            machine_code(suite)
            denied(suite)
            beside(suite)
        if kind == "unloaded":
            hungry_driver(suite, command, plain.output)
        if len(sys.argv) > 1:
            print(kind, "drops", drops, "stopped", stopped)
            print(done.error)
    suite.finish()


def hungry_driver(suite, command, right):
    """A launch finds no memory for what the driver needs, once: it gets some, be it the program's or one of a replay."""
    for launch in range(2300, 5000, 27 if FULL else 900):
        done = Run(command, environment(preload=True, SOFTGPU_MEMORY=MEMORY, SOFTGPU_FAIL=f"cuLaunchKernel:{launch}:2:1", **MODEL), limit=120)
        suite.check(done.status == 0 and done.output == right, f"unloaded, launch {launch} refused once for want of memory: it runs", f"    status {done.status}\n{done.tail(12)}")


def reported(suite, command):
    """The report says which kernels may not be run again, and why."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.jsonl"
        Run(command, environment(preload=True, SOFTGPU_MEMORY=MEMORY, UDNNMEM_TRACE=trace, **MODEL), limit=120)
        report = json.loads(Run([BUILD / "udnnmem", "report", trace, "--format", "json"], environment()).output)
        refused = {r["kernel"]: (r["ops"], r["why"]) for r in report["not_replayable"]}
        suite.check(refused.get("module_variable") == (16, "uses variables of its module"), "the report says what may not be run again", f"    {refused}")
        text = Run([BUILD / "udnnmem", "report", trace], environment()).output
        suite.check("not run again    16 ops of module_variable: it uses variables of its module" in text, "the report says so in words", text)


def unread(suite, command):
    """Kernels of an image that is longer than the library reads."""
    plain = Run(command, environment(SOFTGPU_MEMORY="64MiB", REPLAYS_UNREAD=1, **MODEL))
    done = Run(command, environment(preload=True, SOFTGPU_MEMORY=MEMORY, REPLAYS_UNREAD=1, UDNNMEM_DEBUG="info", **MODEL), limit=120)
    suite.check(done.status == 0 and done.output == plain.output, "an image that was not read: the same bits", f"    {done.status}\n{done.tail(12)}")
    suite.check("0 of 37 ops may be run again; 34: comes from an image that was not read" in done.error, "an image that was not read: refused with the reason", done.tail(12))


def with_plan(kind, file, model=MODEL, memory=MEMORY, **options):
    return Run([WORKLOADS / "replays", kind, ITERATIONS], environment(preload=True, SOFTGPU_MEMORY=memory, UDNNMEM_DEBUG="info", UDNNMEM_PLAN=file, **options, **model), limit=120)


def beside(suite):
    """No host memory, and memory that no iteration uses: it stays on the device, and the stored plan, made without it, is made anew at once."""
    memory = 520_000
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan"
        plain = Run([WORKLOADS / "replays", "pure", ITERATIONS], environment(SOFTGPU_MEMORY="64MiB", **MODEL)).output
        with_plan("pure", file, memory=memory)
        stored = file.read_bytes()

        def run():
            file.write_bytes(stored)
            return with_plan("pure", file, memory=memory, UDNNMEM_HOST_BUDGET=0)

        again = settled(lambda done: "the budget is exceeded" not in done.error, run)   # what waits long enough goes ahead
        suite.check(again.status == 0 and again.output == plain and DROPPED.search(again.error), "no host memory, and some memory beside: it runs", again.tail(20))
        suite.check("the budget is exceeded" not in again.error, "no host memory, and some memory beside: within the budget", again.tail(20))


def machine_code(suite):
    """Kernels of an image without PTX. What they keep where no argument leads (here in variables that the image does not tell of) is
    noticed before anything is dropped for it."""
    more = [(kind, 1) for kind in (*OTHERS, "with_state", "constant")] if FULL else []
    for kind, variables in (*more, ("pure", 1), ("held", 1), ("rare_sum", 1), ("module_variable", 1), ("module_variable", 2)):
        what = f"{kind}, machine code" + (" with variables" if variables == 2 else "")
        command = [WORKLOADS / "replays", kind, ITERATIONS]
        plain = Run(command, environment(SOFTGPU_MEMORY="64MiB", REPLAYS_MACHINE_CODE=variables, **MODEL))
        done = Run(command, environment(preload=True, SOFTGPU_MEMORY=MEMORY, REPLAYS_MACHINE_CODE=variables, UDNNMEM_DEBUG="info", **MODEL), limit=120)
        suite.check(done.status == 0 and done.output == plain.output, f"{what}: the same bits", f"    {done.status}\n{done.tail(12)}")
        dropped, followed = DROPPED.search(done.error), FOLLOWED.search(done.error)
        if variables == 2:
            suite.check("uses variables of its module" in done.error and not dropped, f"{what}: refused with the reason", done.tail(12))
        elif kind in (*MAY, "rare_sum"):
            suite.check("whose code was not read gave the same bits" in done.error and dropped and int(dropped[1]) >= ITERATIONS, f"{what}: tried, then dropped and computed again", done.tail(12))
            suite.check(followed and int(followed[1]), f"{what}: measured once it was tried", done.tail(12))
        elif kind in OTHERS:
            suite.check(bool(DENIED.search(done.error)) == (kind == "told_early"), f"{what}: nothing is denied but what is told out of order", done.tail(12))
        else:
            suite.check(f"kernel {kind} gave other bits when it was run again later: never again" in done.error, f"{what}: tried and denied", done.tail(12))


def denied(suite):
    """What once gave other bits is not run again by the next start either, be it noticed by a trial or by the check after a replay."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan"
        with_plan("module_variable", file, REPLAYS_MACHINE_CODE=1)
        again = with_plan("module_variable", file, REPLAYS_MACHINE_CODE=1)
        suite.check(again.status == 0 and "never again" not in again.error and "is not what it was" not in again.error, "denied by a trial: the next start does not try it", again.tail(12))
        file.unlink()
        plain = Run([WORKLOADS / "replays", "pure", ITERATIONS], environment(SOFTGPU_MEMORY="64MiB", **MODEL)).output
        stopped = with_plan("pure", file, UDNNMEM_TEST_FLIP=40)
        suite.check("is not what it was" in stopped.error and file.exists(), "a replay that was wrong: stored", stopped.tail(12))
        again = with_plan("pure", file)
        suite.check(again.status == 0 and again.output == plain and not DROPPED.search(again.error), "a replay that was wrong: the next start does not run it again, and runs to its end", again.tail(20))
        suite.check("1 stored plans" in again.error and "another budget" not in again.error, "a replay that was wrong: what else is known is kept", again.tail(20))
        file.unlink()
        # Many proofs, few of them tried: where only what is dropped makes it run at all, they have to do.
        with_plan("two_streams", file, REPLAYS_MACHINE_CODE=1)
        plain = Run([WORKLOADS / "replays", "two_streams", ITERATIONS], environment(SOFTGPU_MEMORY="64MiB", **MODEL)).output
        again = with_plan("two_streams", file, REPLAYS_MACHINE_CODE=1, UDNNMEM_HOST_BUDGET=0)
        suite.check(again.status == 0 and again.output == plain and DROPPED.search(again.error), "untried proofs and no host memory: it runs", again.tail(20))
        # Ops take longer than they were planned for: other plans are made, that drop what the first one did not. On demand it would end.
        slower = dict(MODEL, SOFTGPU_TIME="model:1e10:1e10")
        for link in (MODEL["SOFTGPU_H2D"], MODEL["SOFTGPU_H2D"] / 10):   # by the slower one nothing is moved, and the stored plan serves
            file.unlink()
            links = dict(SOFTGPU_H2D=link, SOFTGPU_D2H=link)
            with_plan("two_streams", file, REPLAYS_MACHINE_CODE=1, model=dict(MODEL, **links))
            again = with_plan("two_streams", file, REPLAYS_MACHINE_CODE=1, UDNNMEM_HOST_BUDGET=0, model=dict(slower, **links))
            what = f"no host memory, ops that take longer, links of {link / 1e6:.0f} MB/s"
            suite.check("another plan: op times differ" in again.error, f"{what}: they are planned for anew", again.tail(20))
            suite.check(again.status == 0 and again.output == plain and DROPPED.search(again.error), f"{what}: it runs", again.tail(20))


if __name__ == "__main__":
    main()
