#!/usr/bin/env python3
"""Runs test suites, three at a time (many wait more than they compute), and closes with the line `N passed, N failed`.

A suite is an executable (a Catch2 program, a Python or shell script) whose last line of standard
output is `N passed, N failed` or `N passed, N failed, N skipped`, and whose exit status is 0 when
nothing failed. A suite without that line, or killed by a signal or by its time limit, counts as one
failure. Suites see UDNNMEM_BUILD (the build folder, absolute) and, from `make check`,
UDNNMEM_TEST_FULL=1. What failed is printed whole; what passed is one line, with the time
that it took, and its processor time, which depends less on what else runs.
"""
import argparse, concurrent.futures, os, re, signal, subprocess, sys, threading, time

# A minute or more each: begun last, they would be waited for alone.
LONGEST = [f"tests/{suite}.py" for suite in ("real/tinygrad", "e2e/plans", "e2e/stored_plans", "e2e/replays", "real/drjit", "policy/plan_cli", "e2e/played", "e2e/digits", "e2e/sequences")]
CLOSING = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)


def run(suite, limit, env):
    start = time.monotonic()
    command = [sys.executable, suite] if suite.endswith(".py") else [suite]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=env, start_new_session=True)
    stop = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
    stop.daemon = True
    stop.start()
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    stop.cancel()
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    note = f"stopped after {limit} s" if seconds >= limit else ""
    text = output.decode(errors="replace")
    found = CLOSING.findall(text)
    passed, failed, skipped = (int(x or 0) for x in found[-1]) if found else (0, 0, 0)
    if not found and not note:
        note = f"no closing line, exit status {process.returncode}"
    if process.returncode != 0 and failed == 0:
        failed += 1
        note = note or f"exit status {process.returncode}"
    return suite, passed, failed, skipped, note, text, seconds, used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=0, help="seconds a suite may take (900; 7200 with UDNNMEM_TEST_FULL=1)")
    parser.add_argument("suites", nargs="+")
    options = parser.parse_args()
    limit = options.limit or (7200 if os.environ.get("UDNNMEM_TEST_FULL") else 900)
    env = dict(os.environ, UDNNMEM_BUILD=os.path.abspath(options.build))
    totals = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for job in concurrent.futures.as_completed([pool.submit(run, s, limit, env) for s in sorted(options.suites, key=lambda s: LONGEST.index(s) if s in LONGEST else len(LONGEST))]):
            suite, passed, failed, skipped, note, text, seconds, processor = job.result()
            totals = [totals[0] + passed, totals[1] + failed, totals[2] + skipped]
            if failed:
                sys.stdout.write(text if text.endswith("\n") else text + "\n")
            extra = (f", {skipped} skipped" if skipped else "") + (f" ({note})" if note else "")
            print(f"{'ok  ' if not failed else 'FAIL'} {suite}: {passed} passed, {failed} failed{extra} [{seconds:.1f} s, {processor:.1f} s of processor time]", flush=True)
    print(f"{totals[0]} passed, {totals[1]} failed" + (f", {totals[2]} skipped" if totals[2] else ""))
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
