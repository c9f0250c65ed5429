#!/usr/bin/env python3
"""Our own runtime, and the small driver-API programs, on the software GPU: without the library, and under it."""
import pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import PRELOAD, WORKLOADS, Run, Suite, environment

CLOSING = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)


def main():
    suite = Suite()
    for preload in (False, True):
        under = "under the library" if preload else "alone"
        for build in ("shared", "static", "ptds"):
            run = Run([WORKLOADS / f"runtime-calls-{build}"], environment(preload=preload), limit=120)
            found = CLOSING.search(run.output)
            suite.check(run.status == 0 and found and found.group(2) == "0" and run.report and run.report["faults"] == 0,
                        f"runtime-calls-{build} {under}", "\n".join("    " + l for l in run.output.splitlines()[-12:]) + "\n" + run.tail())
        for name, arguments in (("vadd", []), ("vadd", ["262144", "24"]), ("bigop", ["1048576"])):
            run = Run([WORKLOADS / name] + arguments, environment(preload=preload), limit=120)
            suite.check(run.status == 0 and run.output.endswith("right\n") and run.report["faults"] == 0, f"{name} {arguments} {under}", run.tail())
    # 24 buffers of 1 MiB on a device of 10 MiB, and an op of three times 4 MiB on a device of 8 MiB.
    for name, arguments, memory in (("vadd", ["262144", "24"], "10MiB"), ("bigop", ["4194304"], "8MiB")):
        short = Run([WORKLOADS / name] + arguments, environment(SOFTGPU_MEMORY=memory), limit=120)
        suite.check(short.status == 3, f"{name} in {memory} alone: out of memory", f"    status {short.status}\n" + short.tail())
        run = Run([WORKLOADS / name] + arguments, environment(preload=True, SOFTGPU_MEMORY=memory), limit=120)
        suite.check(run.status == 0 and run.output.endswith("right\n") and run.report["faults"] == 0,
                    f"{name} in {memory} under the library", f"    status {run.status}\n" + run.tail())
    suite.finish()


if __name__ == "__main__":
    main()
