#!/usr/bin/env python3
"""What goes wrong around the library: wrong options, unwritable traces, drivers that are missing, old or incomplete.

Each time the program must do what it does without us (output, exit status), and stderr holds one line that says what
is needed and how to mend it, or none where nothing is wrong.
"""
import os, pathlib, shutil, subprocess, tempfile
from harness import BUILD, PRELOAD, ROOT, SOFTGPU, WORKLOADS, Run, Suite, environment

suite = Suite()
PROGRAM = [WORKLOADS / "digits-runtime", "--depth", 6, "--iterations", 2, "--batch", 64]
DRIVER_PROGRAM = [WORKLOADS / "digits-driver", *PROGRAM[1:]]
NATIVE = Run(PROGRAM, environment())
suite.check(NATIVE.status == 0, "the program runs without the library", NATIVE.tail())


def ours(run):
    """What it said, but for CUPTI, which knows no software GPU (cupti.py)."""
    return [line for line in run.error.splitlines() if line.startswith("udnnmem: ") and "ops are timed by event pairs" not in line]


def case(what, lines, run, native=NATIVE):
    """The run did what `native` did, and said exactly `lines`: what each of our lines must contain, in any order (threads write them)."""
    said = ours(run)
    suite.check(run.output == native.output and run.status == native.status, f"{what}: the program runs as without the library", run.tail())
    fits = len(said) == len(lines) and all(any(want in line for line in said) for want in lines)
    suite.check(fits, f"{what}: says {lines}", "    " + "\n    ".join(said or ["(nothing)"]))


def preloaded(libraries=SOFTGPU, cwd=None, **options):
    return Run(PROGRAM, environment(preload=True, libraries=libraries, **options), cwd=cwd)


def options():
    for variable, value, wanted in (("UDNNMEM_BUDGET", "12Gig", "expected a size such as 12GiB, 800MiB, 60% or auto; unset it for the default, auto"),
                                    ("UDNNMEM_BUDGET", "12", "expected a unit behind it: did you mean 12GiB?"), ("UDNNMEM_BUDGET", "1KiB", "expected at least 64KiB"),
                                    ("UDNNMEM_HOST_BUDGET", "-1", "expected a size"), ("UDNNMEM_HOST_BUDGET", "64", "expected a unit behind it: did you mean 64GiB?"), ("UDNNMEM_POLICY", "magic", "expected demand, belady"),
                                    ("UDNNMEM_VERIFY", "2", "expected a share from 0 to 1"), ("UDNNMEM_DEBUG", "loud", "expected error, warn, info or trace"),
                                    ("UDNNMEM_TRACE", "%x", "expected %h (host)"), ("UDNNMEM_DISABLE", "perhaps", "expected 1 or 0")):
        case(f"{variable}={value}", [f"{variable}={value}: {wanted}"], preloaded(**{variable: value}))
    case("a misspelt option", ["UDNNMEM_BUGDET is no option of this version and was ignored; did you mean UDNNMEM_BUDGET?"],
         preloaded(UDNNMEM_BUGDET="1GiB", UDNNMEM_QUIET=1))
    case("UDNNMEM_DISABLE=1", [], preloaded(UDNNMEM_DISABLE=1))
    case("UDNNMEM_DISABLE=1 beside a wrong value", [], preloaded(UDNNMEM_DISABLE=1, UDNNMEM_BUDGET="12Gig"))
    case("UDNNMEM_ONLY=other", [], preloaded(UDNNMEM_ONLY="other*"))
    case("UDNNMEM_ONLY=digits*", ["manages device 0", "device 0: budget"], preloaded(UDNNMEM_ONLY="other*,digits-r*"))
    case("UDNNMEM_ONLY, with spaces", ["manages device 0", "device 0: budget"], preloaded(UDNNMEM_ONLY="other*, digits-r*"))
    case("UDNNMEM_ONLY, a broken glob", ["UDNNMEM_ONLY=[a: expected a ] for the [ of [a"], preloaded(UDNNMEM_ONLY="[a"))
    case("UDNNMEM_QUIET=1", [], preloaded(UDNNMEM_QUIET=1))
    case("a file for plans where there are none", ["UDNNMEM_PLAN=x.plan: policy demand makes no plan"], preloaded(UDNNMEM_PLAN="x.plan", UDNNMEM_POLICY="demand", UDNNMEM_QUIET=1))
    case("a budget beyond the device", ["a budget of 10995116277760 bytes is more than it has: 33554432 are used"], preloaded(UDNNMEM_BUDGET="10TiB", SOFTGPU_MEMORY="32MiB", UDNNMEM_QUIET=1))
    case("a budget below a granule", ["a budget of 33554 bytes is less than one granule: 65536 are used", "the budget is exceeded"], preloaded(UDNNMEM_BUDGET="0.1%", SOFTGPU_MEMORY="32MiB", UDNNMEM_QUIET=1))


def traces(folder):
    def one_line(what, path, reason):
        case(what, [f"cannot write the trace {path}: {reason}; the run goes on without it"], preloaded(UDNNMEM_TRACE=path, UDNNMEM_QUIET=1))

    one_line("a trace in a folder that is not there", "/nonexistent/t.zst", "No such file or directory")
    one_line("a trace on a full disk", "/dev/full", "No space left on device")
    taken = folder / "taken.jsonl"
    taken.write_text("mine")
    one_line("a trace that exists", taken, "it exists already")
    suite.check(taken.read_text() == "mine", "a trace that exists stays what it is")
    case("a debug file that cannot be opened", ["cannot open UDNNMEM_DEBUG_FILE /nonexistent/log: No such file or directory; messages go to stderr"],
         preloaded(UDNNMEM_DEBUG_FILE="/nonexistent/log", UDNNMEM_QUIET=1))

    case("a trace named by a variable that is not set", ["%q{NOBODY}.jsonl: NOBODY has no value here, so nothing stands in its place"],
         preloaded(UDNNMEM_TRACE=folder / "of%q{NOBODY}.jsonl", UDNNMEM_QUIET=1))
    (folder / "of.jsonl").unlink()
    case("a trace", [], preloaded(UDNNMEM_TRACE=folder / "t.%p.jsonl.zst", UDNNMEM_QUIET=1))
    made = list(folder.glob("t.*.jsonl.zst"))
    suite.check(len(made) == 1, f"a run writes one trace: {made}")
    report = subprocess.run([BUILD / "udnnmem", "report", *made], capture_output=True, text=True)
    suite.check(report.returncode == 0 and report.stdout.startswith("digits-runtime (pid ") and "killed" not in report.stdout,
                "the report reads it", report.stdout + report.stderr)

    loud = preloaded(UDNNMEM_TRACE=folder / "loud.jsonl")
    case("a trace, and what to type to read it", [f"policy udnn, trace {folder}/loud.jsonl", f"verified moves; udnnmem report {folder}/loud.jsonl"], loud)
    case("a name that a shell would take apart", ["manages device 0", f"verified moves; udnnmem report '{folder}/my run.jsonl'"], preloaded(UDNNMEM_TRACE=folder / "my run.jsonl"))
    for what, path, said in (("that exists", taken, f"{taken}: it exists already"), ("in a folder that is not there", "/nonexistent/t.zst", "/nonexistent/t.zst: No such file"), ("without a name", "%q{NOBODY}", ": its name is empty; the run goes on")):
        lost = preloaded(UDNNMEM_TRACE=path)
        case(f"a trace {what} is not promised", ["manages device 0", f"cannot write the trace{' ' if path != '%q{NOBODY}' else ''}{said}", "device 0: budget"] + ["NOBODY has no value here"] * (path == "%q{NOBODY}"), lost)
        suite.check(", trace " not in lost.error, f"a trace {what}: the first line does not name it", lost.tail())
    case("a trace that was lost is not offered", ["manages device 0", "cannot write the trace /dev/full", "device 0: budget"], preloaded(UDNNMEM_TRACE="/dev/full"))

    where = folder / "default"
    where.mkdir()
    env = environment(preload=True, UDNNMEM_QUIET=1)
    del env["UDNNMEM_TRACE"]
    case("the default trace", [], Run(PROGRAM, env, cwd=where))
    suite.check([p.name for p in where.iterdir()] == [p.name for p in where.glob(f"udnnmem.{os.uname().nodename}.*.jsonl.zst")] and len(list(where.iterdir())) == 1,
                f"the default trace is named by host and pid: {list(where.iterdir())}")
    case("a failing program", [], Run([WORKLOADS / "digits-runtime", "--depth", "x"], env, cwd=where), Run([WORKLOADS / "digits-runtime", "--depth", "x"], environment()))
    suite.check(len(list(where.iterdir())) == 1, "a program that launches nothing leaves no trace")


def old_driver(folder):
    """The software GPU's driver with another number in its cuDriverGetVersion: `movl $13000, (%rdi)`."""
    data = (SOFTGPU / "libcuda.so.1").read_bytes()
    store = b"\xc7\x07" + (13000).to_bytes(4, "little")
    suite.check(data.count(store) == 1, "the driver has one place that stores its version")
    (folder / "libcuda.so.1").write_bytes(data.replace(store, b"\xc7\x07" + (11080).to_bytes(4, "little")))
    libraries = f"{folder}:{SOFTGPU}"
    native = Run(DRIVER_PROGRAM, environment(libraries=libraries))
    suite.check(native.status == 0, "a program on the driver API runs on that driver", native.tail())
    case("an old driver", ["needs a driver of CUDA 12.4 or later, this one is 11.8: update the driver; this run is not managed"],
         Run(DRIVER_PROGRAM, environment(preload=True, libraries=libraries)), native)


def incomplete_driver(folder, symbol):
    """The software GPU's driver with one entry point renamed."""
    data = (SOFTGPU / "libcuda.so.1").read_bytes()
    name = b"\0" + symbol.encode() + b"\0"
    suite.check(name in data, f"the driver has {symbol} to take away")
    (folder / "libcuda.so.1").write_bytes(data.replace(name, name[:-3] + b"__\0"))
    libraries = f"{folder}:{SOFTGPU}"
    case(f"a driver without {symbol}", [symbol], preloaded(libraries), Run(PROGRAM, environment(libraries=libraries)))


def no_driver(folder):
    libraries = folder  # our runtime alone, no driver
    shutil.copy(SOFTGPU / "libcudart.so.13", folder)
    native = Run(PROGRAM, environment(libraries=libraries))
    suite.check(native.status != 0, "the program fails without a driver")
    case("no driver", [], preloaded(libraries), native)


def scripts():
    """What is typed wrong in front of a script: one line that says what was expected, status 2, and nothing is done."""
    suites = lambda name, *words: (["python3", ROOT / "tests/e2e" / name, *words], {})
    for (command, more), wanted in ((([ROOT / "scripts/setup.sh", "--help"], {}), "usage: setup.sh [FRAGMENT"), (([ROOT / "scripts/setup.sh", "--browsr"], {}), "usage: setup.sh [FRAGMENT"),
                                    (([ROOT / "scripts/demo/demo.sh"], {"DEMO_SHARE": "abc"}), "DEMO_SHARE=abc: expected a whole number of percent"),
                                    (([ROOT / "scripts/demo/demo.sh"], {"DEMO_SHARE": "200"}), "from 1 to 100"), (([ROOT / "scripts/demo/demo.sh"], {"DEMO_LAYERS": "x"}), "DEMO_LAYERS=x: expected"),
                                    (([ROOT / "scripts/demo/demo.sh"], {"DEMO_DEVICE": "foo"}), "DEMO_DEVICE=foo: expected software or card"),
                                    (([ROOT / "scripts/gpu_check.sh", "--seconds", "x"], {}), "x: expected a number of seconds above 0"), (([ROOT / "scripts/gpu_check.sh", "--seconds", "-5", "all"], {}), "-5: expected"),
                                    (suites("played.py", "nosuch", "55e9"), "nosuch: no such file"), (suites("played.py", ROOT / "README.md"), "no trace of one iteration"),
                                    (suites("played.py", next(ROOT.glob("tests/traces/moe8*.zst")), "abc"), "abc: expected bytes per second"),
                                    (suites("checkpoints.py", "foo", "20"), "expected POLICY DEPTH"), (suites("replays.py", "nosuch"), "nosuch: expected kinds of kernel: pure,")):
        done = Run(command, environment(**more), limit=30)
        what = " ".join([f"{k}={v}" for k, v in more.items()] + [pathlib.Path(command[0]).name] + [str(c) for c in command[1:]])
        suite.check(done.status == 2 and not done.output and done.error.count("\n") == 1 and wanted in done.error, f"{what}: one line", f"    {done.status}\n{done.tail()}")
    suite.check(Run(["python3", ROOT / "tests/e2e/replays.py", "--help"], environment()).output.startswith("Dropped and computed again"), "replays.py --help")


with tempfile.TemporaryDirectory() as name:
    top = pathlib.Path(name)
    for part in ("traces", "old", "incomplete", "none"):
        (top / part).mkdir()
    options()
    scripts()
    traces(top / "traces")
    old_driver(top / "old")
    incomplete_driver(top / "incomplete", "cuMemMap")
    if not pathlib.Path("/proc/driver/nvidia/version").exists():
        no_driver(top / "none")
suite.finish()
