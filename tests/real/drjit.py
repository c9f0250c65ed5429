#!/usr/bin/env python3
"""Dr.Jit under the library: the training scripts of drjit_scripts/, which do not know it.

Without the library the losses and the parameters must be those of the script's NumPy oracle (in double precision, with
gradients derived by hand); with it, on a device of a share of the peak of live bytes, the same text bit for bit, no
fault, within the memory, and evictions. `make test` takes 5 steps at 50 %; with UDNNMEM_TEST_FULL=1 it is 20 steps,
75, 50 and 45 %, and 10 seeds of the software GPU's schedule.
"""
import tempfile
from paged import FULL, HERE, REAL, live_bytes, verdict
from tests.e2e.harness import Run, Suite, environment

SCRIPTS = HERE / "drjit_scripts"
PYTHON = REAL / "venv" / "bin" / "python"
STEPS = 20 if FULL else 5
# Of the largest value of each line: sums of 65536 terms in single precision, their roundings carried through the steps.
TOLERANCE = 2e-4 if FULL else 5e-5


def run(script, home, *arguments, preload=False, **options):
    # Dr.Jit keeps compiled kernels under HOME.
    env = environment(preload=preload, HOME=home, STEPS=STEPS, PYTHONDONTWRITEBYTECODE=1, UDNNMEM_VERIFY=1, **options)
    return Run([PYTHON, SCRIPTS / f"{script}.py", *arguments], env, limit=300)


def numbers(text):
    return [(line.split()[0], [float.fromhex(x) for x in line.split()[1:]]) for line in text.splitlines()]


def largest_difference(got, oracle):
    """Relative to the largest value of the line; infinity where the lines do not match."""
    got, oracle = numbers(got), numbers(oracle)
    if [(n, len(v)) for n, v in got] != [(n, len(v)) for n, v in oracle]:
        return float("inf")
    return max(max(abs(x - y) for x, y in zip(a, b)) / max(abs(y) for y in b) for (_, a), (_, b) in zip(got, oracle))


def script_case(suite, script, home):
    plain = run(script, home, SOFTGPU_MEMORY="1GiB")
    oracle = run(script, home, "--oracle")
    if not suite.check(plain.status == 0 and oracle.status == 0 and plain.output.count("loss") == STEPS and plain.report["faults"] == 0,
                       f"{script}: trains without the library", plain.tail() + "\n" + oracle.tail()):
        return
    difference = largest_difference(plain.output, oracle.output)
    suite.check(difference < TOLERANCE, f"{script}: as NumPy has it", f"    off by {difference:.2g}")
    roomy = run(script, home, preload=True, SOFTGPU_MEMORY="1GiB")
    if not suite.check(roomy.status == 0 and roomy.output == plain.output and live_bytes(roomy), f"{script}: the same bits with room to spare", roomy.tail()):
        return
    print(f"{script}: off by {difference:.2g} from NumPy, {live_bytes(roomy) / 2**20:.1f} MiB live")
    for share, seed in [(75, 1), (50, 1), (45, 1)] + [(50, s) for s in range(2, 12)] if FULL else [(50, 1)]:
        memory = int(live_bytes(roomy) * share / 100)
        done = run(script, home, preload=True, SOFTGPU_MEMORY=memory, SOFTGPU_SEED=seed)
        wrong = verdict(done, plain.output, memory)
        suite.check(not wrong, f"{script} in {share} %, seed {seed}: the same bits within the memory, paged", f"    {wrong}\n" + done.tail())


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as home:
        for script in ["perceptron", "texture", "particles"]:
            script_case(suite, script, home)
    suite.finish()


if __name__ == "__main__":
    main()
