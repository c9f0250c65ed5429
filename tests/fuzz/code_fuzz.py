#!/usr/bin/env python3
"""What the library reads of the images that a program loads, fuzzed: from PTX and from the images of the unit tests."""
import pathlib, re, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.fuzzing import BUILD, ROOT, fuzz

SOURCES = ["elf_file", "image_layouts", "kernel_code", "kernel_flow", "machine_code", "module_variables"]
IMAGES = [*(ROOT / "tests" / "fuzz" / "ptx_corpus").iterdir(), *(BUILD / "tests" / "interpose").glob("images.*")]

if __name__ == "__main__":
    cuda = re.search(r"^CUDA_INCLUDE := (.*)$", (BUILD / "config.mk").read_text(), re.M)
    sys.exit(fuzz("code", [f"interpose/{s}.cpp" for s in SOURCES], runs=2000, max_len=32768, seeds=IMAGES, flags=["-isystem", cuda[1]] if cuda else [], libraries=["-lzstd"]))
