#!/usr/bin/env python3
"""Graphs on the software GPU: launched as they are, under the doors, and issued node by node from what the doors read.
All three print the same."""
import os, re, subprocess, sys

build = os.environ["UDNNMEM_BUILD"]
passed = failed = 0


def check(name, good, detail=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAILED: {name}\n{detail}")


def run(**env):
    full = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PROBE")}
    full.update(LD_LIBRARY_PATH=f"{build}/softgpu", SOFTGPU_CACHE=f"{build}/softgpu-cache", ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0", **env)
    return subprocess.run([f"{build}/tests/interpose/graph_program"], env=full, capture_output=True, text=True, timeout=300)


probe = f"{build}/tests/interpose/libprobe.so"
alone = run()
check("the program runs", alone.returncode == 0 and alone.stdout.count("\n") == 8, alone)
through = run(LD_PRELOAD=probe)
check("under the doors it prints the same", (through.returncode, through.stdout) == (0, alone.stdout), through)
for seed in range(3):
    apart = run(LD_PRELOAD=probe, PROBE="issue", SOFTGPU_SEED=str(seed))
    check(f"issued node by node it prints the same, seed {seed}", (apart.returncode, apart.stdout) == (0, alone.stdout), f"{apart}\n{alone.stdout}")
    found = re.search(r"(\d+) graphs issued", apart.stderr)
    check(f"all launches were issued, seed {seed}", found and int(found[1]) == 10, apart.stderr)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
