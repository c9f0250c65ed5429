#!/usr/bin/env python3
"""Builds the fuzz target of traces, recorded runs and plans with clang (skipped where there is none) and runs it
over the committed corpus. UDNNMEM_TEST_FULL=1: ten minutes. Passes when the fuzzer ends
without a finding; a finding's input is kept under build/fuzz and named in the output."""
import os, shutil, subprocess, sys, tempfile

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
build = os.path.join(os.environ.get("UDNNMEM_BUILD", os.path.join(root, "build")), "fuzz")
sources = ["profiler/trace/record.cpp", "profiler/trace/trace_io.cpp", "policy/liveness.cpp", "policy/plan_io.cpp", "policy/compiled.cpp", "policy/engine.cpp",
           "policy/simulator.cpp", "profiler/trace/run_record.cpp", "shim/cli/report_view.cpp", "tests/fuzz/trace_fuzz.cpp"]


def main():
    clang = shutil.which("clang++") or shutil.which("clang++-14")
    if not clang:
        print("clang++ is not installed: not fuzzed\n0 passed, 0 failed, 1 skipped")
        return 0
    os.makedirs(build, exist_ok=True)
    flags = ["-std=c++20", "-O1", "-g1", "-I" + root, "-DFMT_HEADER_ONLY", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
    probe = subprocess.run([clang, *flags, "-x", "c++", "-", "-o", os.path.join(build, "probe-trace")], text=True, capture_output=True,
                           input='#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }')
    if probe.returncode:
        print("clang++ has no libFuzzer here: not fuzzed\n0 passed, 0 failed, 1 skipped")
        return 0
    target = os.path.join(build, "trace_fuzz")
    newest = max(os.path.getmtime(os.path.join(root, folder, f)) for folder in ("profiler/trace", "policy", "tests/fuzz", "shim/cli") for f in os.listdir(os.path.join(root, folder))
                 if f.endswith((".cpp", ".hpp")))
    if not os.path.exists(target) or os.path.getmtime(target) < newest:
        objects = []
        for source in sources:
            objects.append(os.path.join(build, "trace-" + os.path.basename(source) + ".o"))
            if subprocess.run([clang, *flags, "-c", os.path.join(root, source), "-o", objects[-1]]).returncode:
                print("the fuzz target does not build\n0 passed, 1 failed")
                return 1
        if subprocess.run([clang, *flags, *objects, "-o", target, "-lzstd"]).returncode:
            print("the fuzz target does not build\n0 passed, 1 failed")
            return 1
    # In every test run the same inputs, so that a pass means the same everywhere; the search is in `make check`.
    effort = ["-max_total_time=600"] if os.environ.get("UDNNMEM_TEST_FULL") else ["-seed=1", "-runs=3000", "-max_total_time=60"]
    with tempfile.TemporaryDirectory() as work:
        run = subprocess.run([target, *effort, "-timeout=20", "-rss_limit_mb=3000", "-max_len=4096", "-print_final_stats=1",
                              f"-dict={os.path.join(root, 'tests/fuzz/trace.dict')}", f"-artifact_prefix={build}/found-trace-", work, os.path.join(root, "tests/fuzz/trace_corpus")],
                             capture_output=True, text=True, errors="replace")
    if run.returncode:
        print(run.stderr[-6000:])
        print("0 passed, 1 failed")
        return 1
    print("\n".join(line for line in run.stderr.splitlines() if line.startswith("stat::number_of")))
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
