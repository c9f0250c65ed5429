#!/usr/bin/env python3
"""The lease and mover protocol in every reachable state, and along schedules drawn at random; then with a rule taken out.

For each scenario of tests/model/check.cpp: all states, and that the end can be reached from each (else something may wait for
ever). In `make test` the small ones whole and random walks through the others; with UDNNMEM_TEST_FULL=1 all whole, save
those of PART, of which so many states are seen. One in some states that are met again is entered again, to see that what was
left out of the hash does not matter. Then each rule of the pager that the protocol rests on is taken out, and a scenario must notice.
"""
import concurrent.futures, os, pathlib, re, subprocess, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, PATIENCE, Suite

CHECK = BUILD / "tests" / "model-check"
WALKS = 20000 if FULL else 150
SMALL = ["each", "same", "pinned-host", "both", "everything", "capture", "gate", "planned-capture", "planned-everything"]
PART = {"turns": 15_000_000, "orders": 15_000_000}
AUDIT = 16
LIMIT = (3600 if FULL else 300) * PATIENCE
BROKEN = {  # rule: scenario that notices
    "lease": "each", "learned": "table", "completion": "each", "failure": "overwrite-fails", "deadline": "gate", "free": "free-other", "submission": "pinned-host", "number": "late",
}
WALKED = {"number": 3000} | ({} if FULL else {"learned": 3000})  # by so many walks; in the order of states it is found late
COUNTS = re.compile(r"(\d+) states, (\d+) steps, .*, (complete|not complete)$", re.M)


def run(scenario, *options, rule=""):
    env = dict(os.environ, UDNNMEM_BREAK=rule)
    done = subprocess.run(["timeout", str(LIMIT), str(CHECK), scenario, *map(str, options)], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    suite = Suite()
    scenarios = [line.split("\t")[0] for line in subprocess.run([CHECK, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()]
    jobs = [(s, ("--walks", WALKS)) for s in scenarios if FULL or s not in SMALL]
    jobs += [(s, ("--audit", AUDIT, "--states", PART.get(s, 0))) for s in scenarios if FULL or s in SMALL]
    states = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (scenario, options), (status, text) in zip(jobs, pool.map(lambda j: run(j[0], *j[1]), jobs)):
            suite.check(status == 0, f"{scenario} {' '.join(map(str, options))}", f"    status {status}\n{text}")
            if options[0] != "--audit":
                continue
            found = COUNTS.search(text)
            states += int(found[1]) if found else 0
            print(text.strip(), flush=True)
            suite.check(found and (found[3] == "complete" or scenario in PART), f"{scenario}: every state was seen", text)
        for rule, (status, text) in zip(BROKEN, pool.map(lambda r: run(BROKEN[r], *(["--walks", WALKED[r]] if r in WALKED else []), rule=r), BROKEN)):
            suite.check(status == 1 and "WRONG" in text, f"without the rule '{rule}'", f"    {BROKEN[rule]} finds nothing wrong: {text}")
            print(f"without '{rule}': {text.partition('WRONG: ')[2].splitlines()[:1]}", flush=True)
    print(f"{states} states")
    suite.finish()


if __name__ == "__main__":
    main()
