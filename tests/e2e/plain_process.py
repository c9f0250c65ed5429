#!/usr/bin/env python3
"""A process that never uses CUDA is left alone: same exit code and output, no file written, less than 1 ms more (2 ms in `make test`, on machines that others crowd).

The time is that of the quicker runs with and without the library (the first decile), taken in turns, so that the machine's other
load meets both alike.
"""
import os, pathlib, shutil, statistics, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, PRELOAD, Suite, environment, settled

COMMANDS = [["/bin/true"], ["/bin/false"], ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"], [sys.executable, "-c", "pass"],
            [sys.executable, "-c", "import sys; print('x'); sys.exit(5)"]] + ([["git", "--version"]] if shutil.which("git") else [])
TIMED = [["/bin/true"], [sys.executable, "-S", "-c", "pass"]]
ROUNDS = 400 if FULL else 120
MOST = 1 if FULL else 2   # ms


def seconds(command, env):
    """Of processor time: what else the machine does is not the library's."""
    pid = os.posix_spawn(command[0], command, env)
    used = os.wait4(pid, 0)[2]
    return used.ru_utime + used.ru_stime


def added(command, plain, loaded):
    """ms of processor time without the library, and how many more with it."""
    times = ([], [])
    for _ in range(ROUNDS):
        for which, env in enumerate((plain, loaded)):
            times[which].append(seconds(command, env))
    without, with_library = (statistics.quantiles(t, n=10)[0] * 1000 for t in times)
    return without, with_library - without


def main():
    suite = Suite()
    plain = environment()
    del plain["LD_LIBRARY_PATH"], plain["UDNNMEM_TRACE"]
    loaded = dict(plain, LD_PRELOAD=str(PRELOAD))
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            results = []
            for env in (plain, loaded):
                done = subprocess.run(command, env=dict(env, HOME=folder, XDG_CACHE_HOME=folder), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
                results.append((done.returncode, done.stdout, done.stderr))
            suite.check(results[0] == results[1], f"{' '.join(command)}: the same with and without the library", f"    {results[0]}\n    {results[1]}")
            left = os.listdir(folder)
            suite.check(not left, f"{' '.join(command)}: no file written", f"    {left}")
    for command in TIMED:
        without, more = settled(lambda t: t[1] < MOST, lambda: added(command, plain, loaded))
        print(f"{' '.join(command)}: {without:.2f} ms, {more:.2f} ms more with the library")
        suite.check(more < MOST, f"{' '.join(command)}: less than {MOST} ms of processor time added", f"    {more:.2f} ms added")
    suite.finish()


if __name__ == "__main__":
    main()
