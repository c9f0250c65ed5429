#!/usr/bin/env python3
"""The lease and mover protocol under every schedule, and under schedules drawn at random; then with a rule taken out.

For each scenario of tests/model/check.cpp: all schedules without preemption (a thread gives way only where it waits; the
device steps at any time), random ones with many preemptions, and with UDNNMEM_TEST_FULL=1 all with one preemption, as far
as PATIENCE executions go, and of WHOLE all there are. Then each rule of the pager that the protocol rests on is taken out, and a scenario must notice.
"""
import concurrent.futures, os, pathlib, re, subprocess, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, Suite

CHECK = BUILD / "tests" / "model-check"
DRAWN = 20000 if FULL else 600
PATIENCE = 600_000
WHOLE = ["both"]       # small enough for any number of preemptions
LIMIT = 7000 if FULL else 300
BROKEN = {  # rule: scenario that notices
    "lease": "overwrite-fails", "completion": "each", "failure": "overwrite-fails", "deadline": "gate", "free": "free-other", "submission": "pinned-host",
}
COUNTS = re.compile(r"(\d+) states, (\d+) executions, (\d+) points, (.*)")


def run(scenario, *options, rule=""):
    env = dict(os.environ, UDNNMEM_BREAK=rule)
    done = subprocess.run(["timeout", str(LIMIT), str(CHECK), scenario, *map(str, options)], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def noticed(rule):
    for options in (("--seed", 3, "--executions", 20 * DRAWN), ("--preemptions", 0)):
        status, text = run(BROKEN[rule], *options, rule=rule)
        if status == 1 and "WRONG" in text:
            return "", text.split("WRONG: ")[1].split("\n")[0]
    return f"    {BROKEN[rule]} finds nothing wrong: {text}", ""


def main():
    suite = Suite()
    scenarios = [line.split("\t")[0] for line in subprocess.run([CHECK, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()]
    jobs = [(s, ("--seed", 1, "--executions", DRAWN)) for s in scenarios]
    jobs += [(s, ("--preemptions", 0, "--executions", PATIENCE)) for s in scenarios if FULL or s in ("each", "same", "both", "everything", "gate")]
    jobs += [(s, ("--preemptions", 1, "--executions", PATIENCE)) for s in scenarios if FULL]
    jobs += [(s, ("--preemptions", -1)) for s in WHOLE if FULL]
    states = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (scenario, options), (status, text) in zip(jobs, pool.map(lambda j: run(j[0], *j[1]), jobs)):
            suite.check(status == 0, f"{scenario} {' '.join(map(str, options))}", f"    status {status}\n{text}")
            found = COUNTS.search(text)
            if found and options[0] == "--preemptions":
                states += int(found[1])
                print(f"{scenario}, preemptions {options[1]}: {found[1]} states in {found[2]} executions, {found[4]}", flush=True)
                suite.check(found[4] == "complete" or options[1] == 1, f"{scenario} {options[1]}: every schedule was seen", text)
        for rule, (wrong, what) in zip(BROKEN, pool.map(noticed, BROKEN)):
            suite.check(not wrong, f"without the rule '{rule}'", wrong)
            print(f"without '{rule}': {what}", flush=True)
    suite.finish()


if __name__ == "__main__":
    main()
