#!/usr/bin/env python3
"""The traps: programs that do what is hardest on paging, each run alone and under the library in a tight budget.

A trap passes if the program says the same, the software GPU counts the same faults (none, but for one trap), the budget was kept and, where
the trap needs memory pushed out, memory was. Seeds choose sizes, times and the software GPU's schedule: 1 in `make test`, 100 with
UDNNMEM_TEST_FULL=1. `traps.py [NAME]... [--seeds N]` runs some of them.
"""
import argparse, concurrent.futures, pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))
from tests.e2e.harness import BUILD, FULL, WORKLOADS, Run, Suite, environment

PROGRAM = WORKLOADS / "traps"
BUDGET = "1MiB"  # traps.hpp: kBudget
SANITISED = BUILD.name in ("asan", "tsan")
LIMIT = 120 if SANITISED else 30  # seconds; a run takes less than one
OUT = re.compile(r"moved [\d.]+ MiB in, ([\d.]+) MiB out")
EXPLAINED = re.compile(r"udnnmem: error: (out of memory: |  )")  # a trap may ask for more than there is
CLEAN = re.compile(r"\((\d+) clean evictions\)")
HELD = re.compile(r"(\d+) launches served from host frames")


def names():
    listed = Run([PROGRAM, "--list"], environment()).output.split("\n")
    return {line.split()[0]: line.split()[1:] for line in listed if line}


def options(seed):
    return {"SOFTGPU_MEMORY": "64MiB", "SOFTGPU_DEVICES": 2, "SOFTGPU_SEED": seed}


def one(name, needs, seed, limit=LIMIT, exceeds=False, **more):
    """What is wrong with a trap under the library; empty if nothing is."""
    plain = Run([PROGRAM, name, seed], environment(TRAPS_BRIEF=1, **options(seed)), limit=LIMIT)
    if plain.status != 0 or "end" not in plain.output.split("\n"):
        return f"    alone: status {plain.status}\n{plain.output}{plain.tail()}"
    paged = Run([PROGRAM, name, seed], environment(preload=True, **(options(seed) | {
        "UDNNMEM_BUDGET": BUDGET, "UDNNMEM_HOST_BUDGET": "32MiB", "UDNNMEM_VERIFY": 1} | more)), limit=limit)
    wrong = []
    if paged.status != plain.status:
        wrong.append(f"status {paged.status}, alone {plain.status}")
    if paged.output != plain.output:
        pairs = zip(plain.output.split("\n"), paged.output.split("\n") + [""] * 999)
        wrong += [f"alone '{a}', under the library '{b}'" for a, b in pairs if a != b][:4]
    if paged.report and plain.report and paged.report["faults"] != plain.report["faults"]:
        wrong.append(f"{paged.report['faults']} faults, alone {plain.report['faults']}")
    wrong += [line for line in paged.error.split("\n") if (line.startswith("udnnmem: error") and not EXPLAINED.match(line)) or "repaired" in line or
              ("the budget is exceeded" in line and not exceeds)]
    if needs and not wrong:
        pushed = OUT.findall(paged.error) + CLEAN.findall(paged.error) + (HELD.findall(paged.error) if "pressure" in needs else [])
        if not any(map(float, pushed)):
            wrong.append("nothing was pushed out: it tested nothing")
    return "".join(f"    {w}\n" for w in wrong) + (paged.tail() if wrong else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=100 if FULL else 1)
    given = parser.parse_args()
    suite = Suite()
    traps = {n: m for n, m in names().items() if not given.names or n in given.names}
    if SANITISED:
        traps.pop("after-a-fault", None)  # the software GPU's faults and a sanitiser's signal handling do not go together
    if BUILD.name == "asan":
        traps.pop("managed-beside", None)  # the software GPU registers whole pages, what ASan forbids between buffers among them
    cases = [(n, m, s) for s in range(1, given.seeds + 1) for n, m in traps.items()]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (name, _, seed), wrong in zip(cases, pool.map(lambda c: one(*c), cases)):
            suite.check(not wrong, f"{name}, seed {seed}", wrong)
    suite.finish()


if __name__ == "__main__":
    main()
