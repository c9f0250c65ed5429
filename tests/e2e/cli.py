#!/usr/bin/env python3
"""The command-line tool from outside: runs cli.bats and closes as every suite does."""
import os, pathlib, re, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", HERE.parents[1] / "build")).resolve()


def main():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("UDNNMEM_", "SOFTGPU_")) and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env["UDNNMEM_TEST_BUILD"] = str(BUILD)
    done = subprocess.run(["bats", "--tap", str(HERE / "cli.bats")], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    lines = done.stdout.splitlines()
    planned = next((int(line[3:]) for line in lines if re.fullmatch(r"1\.\.\d+", line)), 0)
    skipped = sum(bool(re.match(r"ok \d+ .*# skip", line)) for line in lines)
    passed = sum(line.startswith("ok ") for line in lines) - skipped
    failed = planned - passed - skipped
    if failed or done.returncode:
        print(done.stdout, done.stderr, sep="")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or done.returncode or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
