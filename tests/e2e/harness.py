"""What the end-to-end suites share: where things are, environments, counting, the closing line.

A suite makes one Suite, calls check() for each statement that must hold, and ends with finish(). Programs are put on
the software GPU by LD_LIBRARY_PATH alone, and under the library by LD_PRELOAD alone.
"""
import json, os, pathlib, re, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build")).resolve()
SOFTGPU = BUILD / "softgpu"
PRELOAD = BUILD / "libudnnmem.so"
WORKLOADS = BUILD / "workloads"
FULL = os.environ.get("UDNNMEM_TEST_FULL") == "1"
# What a planned run says at its end, with UDNNMEM_DEBUG=info.
FOLLOWED = re.compile(r"(\d+) iterations followed, (\d+) by plan; on the device (\d+) us by plan \((\d+) promised\), (\d+) us on demand")
PATIENCE = float(os.environ.get("UDNNMEM_TEST_PATIENCE", 4))  # times the limits: what seems to hang on a crowded machine may only wait for its turn


def sanitiser():
    """What a program of the ASan build needs: its runtime in front of the preload. What the software GPU keeps for each thread is no leak of ours.
    With the thread-local memory of libraries that come later watched, the leak check takes a block of it that lies 16 bytes into a page
    for one with a header before it, and crashes over what it reads there.
    """
    needed = subprocess.run(["ldd", PRELOAD], capture_output=True, text=True).stdout.split()
    return {"LD_PRELOAD": next(n for n in needed if n.startswith("/") and "libasan" in n),
            "ASAN_OPTIONS": "intercept_tls_get_addr=0", "LSAN_OPTIONS": f"suppressions={ROOT}/tests/e2e/leaks.txt:print_suppressions=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


ASAN = sanitiser() if BUILD.name == "asan" else {}
# TSan has a place of its own for each kind of memory; where the kernel draws addresses at random, an arena may fall into another's.
ORDERLY = ["setarch", "-R"] if BUILD.name == "tsan" else []


def environment(preload=False, libraries=SOFTGPU, **options):
    """The caller's environment without anything of ours, on the software GPU, with `options` set."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("UDNNMEM_", "SOFTGPU_")) and k != "LD_PRELOAD"}
    env["LD_LIBRARY_PATH"] = str(libraries)
    env["SOFTGPU_CACHE"] = str(BUILD / "softgpu-cache")
    env["XDG_CACHE_HOME"] = "/proc/none"  # nothing is kept of one test for another
    env["UDNNMEM_TRACE"] = "off"
    env.update(ASAN)
    if preload:
        env["LD_PRELOAD"] = f"{ASAN['LD_PRELOAD']}:{PRELOAD}" if ASAN else str(PRELOAD)
    env.update({k: str(v) for k, v in options.items()})
    return env


class Run:
    """A finished program: status, output, error, seconds, and the software GPU's report (None without one)."""

    def __init__(self, command, env, limit=600, cwd=None):
        with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
            env = dict(env, SOFTGPU_REPORT=report.name)
            start = time.monotonic()
            # coreutils' timeout ends the whole group, forked children too, and does so even when the suite itself was killed.
            done = subprocess.run(["timeout", "--kill-after=1", str(limit * PATIENCE), *ORDERLY] + [str(c) for c in command], env=env, cwd=cwd,
                                  stdin=subprocess.DEVNULL, capture_output=True)
            self.status, self.output, self.error = done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
            if self.status in (124, 137):
                self.status = "timeout"
                self.error += f"\nstopped after {limit * PATIENCE:g} s"
            self.seconds = time.monotonic() - start
            lines = report.read().splitlines()
        self.report = json.loads(lines[-1]) if lines else None

    def tail(self, lines=6):
        return "\n".join("    " + l for l in (self.error.splitlines()[-lines:] or self.output.splitlines()[-lines:]))


def settled(holds, measure, tries=3):
    """The first of `tries` measurements that `holds` says yes to, else the last. For figures that depend on how soon this machine
    lets a thread run: a defect is there each time, a crowded machine is not."""
    for _ in range(tries):
        figure = measure()
        if holds(figure):
            break
    return figure


def refuse(why):
    """One line for who called this suite by hand; exit code 2."""
    sys.exit(print(f"{pathlib.Path(sys.argv[0]).name}: {why}", file=sys.stderr) or 2)


def asked_for_help(text):
    """Prints a suite's own words, its module's `text`, if --help is among the arguments, and ends."""
    if {"--help", "-h"} & set(sys.argv[1:]):
        sys.exit(print(text.strip()))


class Suite:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, holds, what, detail=""):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}" + (f"\n{detail}" if detail else ""), flush=True)
        return holds

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed or not self.passed else 0)
