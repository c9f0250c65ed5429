#!/usr/bin/env python3
"""Builds the PTX fuzz target with clang (skipped where there is none) and runs it over
the committed corpus and the kernels of the translator's tests. UDNNMEM_TEST_FULL=1: ten minutes.

Arguments: none. Passes when the fuzzer ends without a finding; a finding's input is kept under
build/fuzz and named in the output."""
import os, shutil, subprocess, sys, tempfile

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
build = os.path.join(os.environ.get("UDNNMEM_BUILD", os.path.join(root, "build")), "fuzz")
sources = ["types", "lexer", "special", "parser", "parser_body", "analysis", "flatten", "coder", "code_arithmetic", "code_float", "code_bits",
           "code_convert", "code_memory", "code_atomic", "code_control", "code_warp", "translate"]


def main():
    clang = shutil.which("clang++") or shutil.which("clang++-14")
    if not clang:
        print("clang++ is not installed: not fuzzed\n0 passed, 0 failed, 1 skipped")
        return 0
    os.makedirs(build, exist_ok=True)
    flags = ["-std=c++20", "-O1", "-g", "-I" + root, "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
    probe = subprocess.run([clang, *flags, "-x", "c++", "-", "-o", os.path.join(build, "probe")], text=True, capture_output=True,
                           input='#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }')
    if probe.returncode:
        print("clang++ has no libFuzzer here: not fuzzed\n0 passed, 0 failed, 1 skipped")
        return 0
    target = os.path.join(build, "ptx_fuzz")
    objects, jobs = [], []
    files = [os.path.join(root, "tests/softgpu/ptx", s + ".cpp") for s in sources] + [os.path.join(root, "tests/fuzz/ptx_fuzz.cpp")]
    newest = max(os.path.getmtime(os.path.join(folder, f)) for folder in (os.path.join(root, "tests/softgpu/ptx"), os.path.join(root, "tests/fuzz"))
                 for f in os.listdir(folder) if f.endswith((".cpp", ".hpp", ".inc")))
    if not os.path.exists(target) or os.path.getmtime(target) < newest:
        for i, f in enumerate(files):
            objects.append(os.path.join(build, os.path.basename(f) + ".o"))
            jobs.append(subprocess.Popen([clang, *flags, "-c", f, "-o", objects[-1]]))
            if i % 2:
                failed = any(j.wait() for j in jobs)
                if failed:
                    print("the fuzz target does not build\n0 passed, 1 failed")
                    return 1
        if any(j.wait() for j in jobs) or subprocess.run([clang, *flags, *objects, "-o", target]).returncode:
            print("the fuzz target does not build\n0 passed, 1 failed")
            return 1
    # In every test run the same inputs, so that a pass means the same everywhere; the search is in `make check`.
    effort = ["-max_total_time=600"] if os.environ.get("UDNNMEM_TEST_FULL") else ["-seed=1", "-runs=10000", "-max_total_time=60"]
    with tempfile.TemporaryDirectory() as work:
        corpus = os.path.join(root, "tests/fuzz/ptx_corpus")
        run = subprocess.run([target, *effort, "-timeout=20", "-rss_limit_mb=3000", "-max_len=8192", "-print_final_stats=1",
                              f"-dict={os.path.join(root, 'tests/fuzz/ptx.dict')}", f"-artifact_prefix={build}/found-", work, corpus],
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
