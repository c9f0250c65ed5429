#!/usr/bin/env python3
"""slangpy under the library: its loader keeps the driver's functions in variables of their own names, which the names that
a preload exports can catch. Imported as it comes, it must find the device as it does without the library; where its
library is there from the start, out of reach of the exports' protection, the library without exports must do the same.
(More than finding the device is beyond the software GPU: slangpy's first kernel uses surfaces.)
"""
from paged import REAL
from tests.e2e.harness import BUILD, PRELOAD, SOFTGPU, Run, Suite, environment

PYTHON = REAL / "slangpy" / "venv" / "bin" / "python"
SCRIPT = """
import slangpy
print(slangpy.__version__, [a.name for a in slangpy.Device.enumerate_adapters(slangpy.DeviceType.cuda)])
"""


def run(*preloads):
    own = next((REAL / "slangpy" / "venv").glob("lib/python3*/site-packages/slangpy/libsgl.so"))
    env = environment(libraries=f"{SOFTGPU}:{own.parent}", LD_PRELOAD=":".join(str(own if p == "own" else p) for p in preloads))
    return Run([PYTHON, "-c", SCRIPT], env, limit=300)


def main():
    suite = Suite()
    plain = run()
    suite.check(plain.status == 0 and "Software GPU" in plain.output, "finds the device without the library", plain.tail())
    done = run(PRELOAD)
    suite.check(done.status == 0 and done.output == plain.output, "finds it with the library", f"    {done.status} {done.output}\n" + done.tail())
    beside = run(PRELOAD, "own")
    suite.check(beside.status != 0, "crashes where its library is there from the start (else the next proves nothing)", beside.output)
    hidden = run(BUILD / "libudnnmem-hidden.so", "own")
    suite.check(hidden.status == 0 and hidden.output == plain.output, "finds it there with libudnnmem-hidden.so", f"    {hidden.status} {hidden.output}\n" + hidden.tail())
    suite.finish()


if __name__ == "__main__":
    main()
