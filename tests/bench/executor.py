#!/usr/bin/env python3
"""What following a plan adds to a launch (executor_bench), the median of some runs."""
import json, pathlib, statistics, subprocess, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, environment


def main():
    runs = [[json.loads(line) for line in subprocess.run([BUILD / "tests/executor_bench"], env=environment(SOFTGPU_MEMORY="1GiB"), capture_output=True, text=True, check=True).stdout.splitlines()] for _ in range(5)]
    for same in zip(*runs):
        print(json.dumps(same[0] | {"value": statistics.median(r["value"] for r in same)}))


if __name__ == "__main__":
    main()
