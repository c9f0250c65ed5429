#!/usr/bin/env python3
"""Plans that outlive the run (UDNNMEM_PLAN): digits in half of its memory, started again and again with the same file.

The second start runs by plan from its first iteration. A plan for another budget is made anew, one for another program is
discarded, a damaged file is refused, each with one line; every run computes the bits of the run without the library.
"""
import pathlib, re, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import FULL, WORKLOADS, Run, Suite, environment

STEPS = 14
FOLLOWED = re.compile(r"(\d+) iterations followed, (\d+) by plan")
NOTE = re.compile(r"^udnnmem: warning: (the (?:stored )?plan .*)$", re.M)


def digits(depth=12, steps=STEPS, batch=128, *more):
    return [WORKLOADS / "digits-driver", "--depth", depth, "--width", "32", "--batch", batch, "--iterations", steps, "--report-peak", *more]


PLAIN = environment(SOFTGPU_MEMORY="1GiB", SOFTGPU_GRANULARITY=4096)


def peak_of(command):
    return int(Run(command, PLAIN).output.split("peak live bytes ")[1])


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan"

        def start(what, command, share=0.5, notes=0, **options):
            plain = Run(command, PLAIN)
            peak = peak_of(command)
            done = Run(command, environment(preload=True, SOFTGPU_MEMORY=int(peak * share), SOFTGPU_GRANULARITY=4096, UDNNMEM_PLAN=file, UDNNMEM_DEBUG="info", **options))
            said = NOTE.findall(done.error)
            suite.check(done.status == 0 and done.output == plain.output and done.report["faults"] == 0, f"{what}: the same bits", f"    {done.status}\n{done.tail(20)}")
            suite.check(len(said) == notes, f"{what}: {notes} lines about the plan", f"    {said}")
            found = FOLLOWED.search(done.error)
            return done, (int(found[1]), int(found[2])) if found else (0, 0), said

        first_peak = peak_of(digits())
        done, (_, first), _ = start("first start", digits())
        suite.check(file.exists() and 0 < first < STEPS - 1, "first start: by plan after some iterations, and stored", f"    {first}\n{done.tail(20)}")
        suite.check(subprocess.run(["zstd", "-dcq", file], capture_output=True).stdout.startswith(b'{"kind":"plans"'), "the file is JSON Lines, as zstd unpacks it")
        good = file.read_bytes()
        done, followed, _ = start("second start", digits(steps=6))
        # The last one's end is not seen.
        suite.check(followed[0] == followed[1] >= 5, "second start: by plan from the first iteration", f"    {followed}\n{done.tail(20)}")
        suite.check(file.read_bytes() == good or followed[1], "second start: the file is kept")
        file.write_bytes(good)
        done, followed, said = start("another budget", digits(), share=0.75, notes=1)
        suite.check("another budget" in "".join(said) and followed[1] >= STEPS - 4, "another budget: planned for it at once", f"    {followed}\n{done.tail(20)}")
        file.write_bytes(good)
        same = first_peak * 0.5 / peak_of(digits(depth=20))   # of its memory, as much as the other one had
        done, followed, said = start("another program", digits(depth=20), share=same, notes=1)
        suite.check("another program" in "".join(said) and followed[1] >= 1, "another program: learned anew", f"    {said} {followed}\n{done.tail(20)}")
        done, followed, _ = start("another program again", digits(depth=20, steps=6), share=same)
        suite.check(followed[0] == followed[1] >= 5, "another program again: by its own plan", f"    {followed}\n{done.tail(20)}")
        for at in range(0, len(good), 1 if FULL else len(good) // 6):
            for what, bytes_ in (("changed", good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1:]), ("cut", good[:at])):
                file.write_bytes(bytes_)
                done, _, said = start(f"{what} at byte {at}", digits(depth=4, steps=2, batch=32), notes=1)
                suite.check("not used" in "".join(said), f"{what} at byte {at}: refused", f"    {said}")
                suite.check(file.read_bytes() == bytes_, f"{what} at byte {at}: left alone")
        file.write_bytes(good)
        file.chmod(0o444)
        pathlib.Path(folder).chmod(0o555)
        broken = pathlib.Path(folder) / "missing" / "plan"
        done = Run(digits(), environment(preload=True, SOFTGPU_MEMORY=int(1e6), SOFTGPU_GRANULARITY=4096, UDNNMEM_PLAN=broken))
        suite.check(done.status == 0 and len(NOTE.findall(done.error)) <= 1 and "cannot be stored" in done.error, "a file that cannot be written: one line", done.tail())
        pathlib.Path(folder).chmod(0o755)
    suite.finish()


if __name__ == "__main__":
    main()
