#!/usr/bin/env python3
"""Each rule of the pager is taken out once, and a trap must notice: else the trap tests nothing.

The library under test is the one that `make VARIANT=breakable build/breakable/libudnnmem.so` builds; UDNNMEM_BREAK names the
rule that does not hold. With every rule in force its traps pass; with the rule out at least one of a few seeds fails,
by wrong output, a fault, an error or a hang. `rules.py [RULE]...` tries some of them.
"""
import concurrent.futures, pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))
from tests.e2e.harness import BUILD, Suite
from tests.e2e.traps.traps import one

LIBRARY = BUILD / "breakable" / "libudnnmem.so"
SEEDS = 16
HANGS = 10  # seconds after which a trap hangs
RULES = {  # what does not hold: the trap that notices
    "lease": "launch-storm",                 # nothing moves under a launch on its way to the driver
    "completion": "late-start",              # ... nor under one that runs
    "deadline": "gate-opened-later",         # a held-back launch goes ahead in the end
    "everything": "gate-opened-by-kernel",   # ... also one that may touch anything
    "failure": "overwrite-fails",            # what was to be overwritten is given up only when it was
    "partial": "overwrite",                  # a part written does not overwrite the whole
    "host-tables": "table-host-untouched",   # addresses that the host writes are followed
    "search": "table-kernel",                # ... and those that kernels write
    "search-large": "table-kernel-huge",     # ... also to large buffers
    "learn": "table-kernel-moved",           # ... and those in tables that were out
    "unmanaged": "table-in-pinned",          # memory that is not ours may hold any address
    "follows-variables": "table-in-global-by-kernel",   # ... as may variables that kernels write
    "variable-written": "table-in-global-by-address",   # ... once a kernel was given one that it may write to
    "carried": "table-from-mapped-by-hand",  # ... and a copy may bring it from there
    "variables": "table-in-constant",        # what a module's variable points to stays
    "shared": "ipc-to-with",                 # what another process has opened stays
    "between-devices": "two-devices",        # mapped memory is copied between devices by calls for peers
    "peers": "two-devices",                  # peers reach what moves
    "graph-node": "graph-by-hand",           # a node's memory is mapped when the driver looks
    "graph": "graph-frozen",                 # a graph's buffers are there when it is launched
    "graph-order": "graph-pieces-in-order",  # two launches of one graph are ordered
    "capture": "capture-holds-nothing",      # a captured op does not run
    "stray": "stray-counts",                 # ... and what a word leads to that may be no address
    "free": "free-behind",                   # memory is used again only after what used it
    "free-small": "free-behind-small",
    "legacy-free": "free-on-legacy",         # ... also where only a free on the legacy stream came after it
    "free-waits": "free-waits",              # cuMemFree waits for the device
    "legacy-mark": "legacy-no-barrier",      # nothing of ours orders the program's streams
    "last-mark": "stream-destroyed",         # work of a destroyed stream is waited for
    "context": "two-contexts",               # memory ends with its context
    "context-end": "other-context-ends",     # what a context has is named no more once its end has begun
    "questions": "questions",
    "memops": "questions",                   # what drivers refuse of mapped memory the context does
    "pools": "pool-figures",
}
# Where the device reaches host frames, a launch in the hole of a remap, on what nobody knows that it uses, or for which no room is
# made, runs from there, and what was written is found by its hash: it takes both away to see that the rule itself is missed.
WITHOUT_LANDING = {"UDNNMEM_FAIL": "cuMemCreate:2:999:2"}
NO_LANDING = {"lease": WITHOUT_LANDING, "stray": WITHOUT_LANDING, "capture": WITHOUT_LANDING, "learn": WITHOUT_LANDING, "last-mark": WITHOUT_LANDING}
MAY_EXCEED = {"learn", "last-mark"}   # then their traps have no other way


def noticed(rule, trap):
    """'' if the trap passes in the intact library and fails without the rule; else what happened."""
    options = NO_LANDING.get(rule, {})
    exceeds = rule in MAY_EXCEED
    intact = one(trap, [], 1, exceeds=exceeds, LD_PRELOAD=LIBRARY, **options)
    if intact:
        return f"    with every rule in force {trap} fails:\n{intact}"
    for seed in range(1, SEEDS + 1):
        if one(trap, [], seed, limit=HANGS, exceeds=exceeds, LD_PRELOAD=LIBRARY, UDNNMEM_BREAK=rule, **options):
            return ""
    return f"    {trap} passes on {SEEDS} seeds"


def main():
    suite = Suite()
    rules = {r: t for r, t in RULES.items() if r in sys.argv[1:] or not sys.argv[1:]}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (rule, trap), wrong in zip(rules.items(), pool.map(noticed, rules, rules.values())):
            suite.check(not wrong, f"without the rule '{rule}'", wrong)
    suite.finish()


if __name__ == "__main__":
    main()
