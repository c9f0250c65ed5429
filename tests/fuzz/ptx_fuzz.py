#!/usr/bin/env python3
"""The software GPU's reader of PTX, fuzzed."""
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.fuzzing import fuzz

SOURCES = ["types", "lexer", "special", "parser", "parser_body", "analysis", "flatten", "coder", "code_arithmetic", "code_float", "code_bits",
           "code_convert", "code_memory", "code_atomic", "code_control", "code_warp", "translate"]

if __name__ == "__main__":
    sys.exit(fuzz("ptx", [f"tests/softgpu/ptx/{s}.cpp" for s in SOURCES], runs=4000, max_len=8192))
