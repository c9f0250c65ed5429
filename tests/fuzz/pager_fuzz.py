#!/usr/bin/env python3
"""The pager under programs that a fuzzer makes of bytes, on the fake GPU of its unit tests: bits, mappings and invariants as the
model has them, where kernels reach host frames and where they do not (tests/pager/programs.hpp)."""
import pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.fuzzing import BUILD, ROOT, fuzz

SOURCES = sorted(str(f.relative_to(ROOT)) for f in (ROOT / "shim" / "pager").glob("*.cpp")) + ["tests/pager/fake_gpu.cpp", "tests/pager/programs.cpp"]

if __name__ == "__main__":
    cuda = re.search(r"^CUDA_INCLUDE := (.*)$", (BUILD / "config.mk").read_text(), re.M)
    sys.exit(fuzz("pager", SOURCES, runs=500, max_len=600, flags=[f"-I{BUILD}/gen", *(["-isystem", cuda[1]] if cuda else []), "-DUDNNMEM_CHECKED", "-fno-sanitize=enum"],
                  options=["-len_control=0", "-detect_leaks=0"]))
