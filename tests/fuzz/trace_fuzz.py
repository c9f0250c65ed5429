#!/usr/bin/env python3
"""The readers of traces, recorded runs and plans, fuzzed."""
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.fuzzing import fuzz

SOURCES = ["profiler/trace/record.cpp", "profiler/trace/trace_io.cpp", "profiler/trace/run_record.cpp", "policy/liveness.cpp", "policy/plan_io.cpp",
           "policy/compiled.cpp", "policy/engine.cpp", "policy/simulator.cpp", "shim/cli/report_view.cpp"]

if __name__ == "__main__":
    sys.exit(fuzz("trace", SOURCES, runs=1500, max_len=4096, libraries=["-lzstd"]))
