#!/usr/bin/env python3
"""A full disk and a kill -9: the run goes on without the trace; the trace keeps all but the last second.

A trace that fills its disk (a 64 KiB tmpfs, where this user may mount one) costs one line. A program
killed at a random time leaves a trace that the tool reads, whose last figures are at most a second older than its end.
8 kills in `make test`, 200 with UDNNMEM_TEST_FULL=1.
"""
import concurrent.futures, json, pathlib, random, signal, subprocess, sys, tempfile, time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, WORKLOADS, Run, Suite, environment

PROGRAM = [WORKLOADS / "digits-driver", "--depth", "12", "--width", "32", "--batch", "256", "--iterations"]
MEMORY = "900KiB"
LATE = 1.0        # seconds of a killed run that may be missing
BUSY = 0.5        # and what a loaded machine may add: the writer wakes late, the kill comes late


def full_disk(suite, disk):
    plain = Run(PROGRAM + ["25"], environment())
    done = Run(PROGRAM + ["25"], environment(preload=True, SOFTGPU_MEMORY=MEMORY, UDNNMEM_TRACE=disk / "t.jsonl"))
    said = [line for line in done.error.splitlines() if "cannot write the trace" in line]
    suite.check(done.status == 0 and done.output == plain.output, "a full disk: the program runs as without the library", f"    {done.status}\n{done.tail()}")
    suite.check(len(said) == 1 and "No space left on device" in said[0], "a full disk: one line that says so", "    " + "\n    ".join(said))


def killed(folder, seed):
    """What is wrong with the trace of a program that was killed; empty if nothing is."""
    trace = folder / f"killed-{seed}.jsonl{'.zst' if seed % 2 else ''}"
    env = environment(preload=True, SOFTGPU_MEMORY=MEMORY, UDNNMEM_TRACE=trace, UDNNMEM_QUIET=1)
    process = subprocess.Popen([str(c) for c in PROGRAM + ["3000"]], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.readline()  # it trains
    trained = random.Random(seed).uniform(0.0, 2.5)
    time.sleep(trained)
    before = time.time()
    process.kill()
    process.communicate()
    told = subprocess.run([BUILD / "udnnmem", "report", trace, "--format", "json"], capture_output=True, text=True)
    if told.returncode != 0:
        return f"    the tool does not read it: {told.returncode} {told.stderr[:200]}"
    run = json.loads(told.stdout)
    end = (run["started_unix_ns"] + run["wall_ns"]) / 1e9
    if run["ended"] or (trained > LATE and not run["ops"]):
        return f"    the tool takes it for a run that ended: {run['ended']}, {run['ops']} ops"
    return f"    the last figures are {before - end:.2f} s old" if end < before - LATE - BUSY else ""


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        disk = folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode == 0:
            try:
                full_disk(suite, disk)
            finally:
                subprocess.run(["umount", "-l", disk])
        seeds = range(1, 201 if FULL else 9)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for seed, wrong in zip(seeds, pool.map(lambda s: killed(folder, s), seeds)):
                suite.check(not wrong, f"killed, seed {seed}", wrong)
    suite.finish()


if __name__ == "__main__":
    main()
