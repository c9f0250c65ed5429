#!/usr/bin/env python3
"""numba-cuda's own tests under the library: its modules for memory, streams and kernels, each in a process of its own.

First without the library: at least 90 % must pass, and those that fail must be exactly the ones that the table in
README.md gives a reason for. Then with it, in a budget of three granules of 4 KiB: not one of those that passed may
fail; and of the modules with more than that live, most must have met evictions or launches from host frames.
numba links machine code by nvJitLink; setup.sh leaves that library empty, so that it falls back on the driver's linker
and hands PTX over. Arguments name modules to run alone, with all their failures.
"""
import concurrent.futures, json, pathlib, re, subprocess, sys, tempfile
from paged import HERE, REAL
from tests.e2e.harness import Run, Suite, environment

PYTHON = REAL / "numba" / "venv" / "bin" / "python"
BUDGET, GRANULE, MEMORY = 12 << 10, 4 << 10, 1 << 30   # the budget as a share: as bytes so few are taken for a slip
MODULES = [f"{folder}.test_{name}" for folder, names in {
    "cudadrv": "array_attr context_stack cuda_array_slicing cuda_auto_context cuda_devicerecord cuda_driver cuda_memory cuda_ndarray deallocations "
               "detect emm_plugins events host_alloc inline_ptx linker managed_alloc module_callbacks pinned profiler reset_device select_device",
    "cudapy": "array array_args array_methods atomics blackscholes boolean complex_kernel constmem cooperative_groups cuda_array_interface "
               "device_func forall gufunc idiv intrinsics ipc laplace localmem mandel montecarlo multithreads nondet print random "
               "record_dtype reduction sm sm_creation stream_api sync transpose userexc vectorize warp_ops",
}.items() for name in names.split()]


def expected_failures():
    """The table of README.md: test -> reason."""
    rows = re.findall(r"^\| `([\w. `,]+)` \| (.*) \|$", (HERE / "README.md").read_text(), re.M)
    return {f"numba.cuda.tests.{t.strip(' `')}": reason for tests, reason in rows for t in tests.split(",")}


def run(module, preload, home):
    results = pathlib.Path(home) / f"{module}.{preload}.json"
    env = environment(preload=preload, HOME=home, TMPDIR=home, PYTHONDONTWRITEBYTECODE=1, PYTHONHASHSEED=0, SOFTGPU_MEMORY=MEMORY, SOFTGPU_GRANULARITY=GRANULE,
                      UDNNMEM_BUDGET=f"{100 * BUDGET / MEMORY:.6f}%", UDNNMEM_VERIFY=1, UDNNMEM_TRACE=f"{home}/{module}.%p.jsonl.zst")
    done = Run([PYTHON, HERE / "numba_scripts" / "run_module.py", module, results], env, limit=3600, cwd=home)
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    ended = any(outcome == "end" for _, outcome, _ in lines)
    return done, {test: (outcome, reason) for test, outcome, reason in lines if test}, ended


def paging(module, home):
    """Peak of live bytes, evictions and launches served from host frames, of the module's process and of those that it started, by the library's own traces."""
    live = evictions = from_host = 0
    for path in pathlib.Path(home).glob(f"{module}.*.jsonl.zst"):
        text = subprocess.run(["zstd", "-dc", path], capture_output=True).stdout.decode()
        last = [r for r in map(json.loads, text.splitlines()) if r["kind"] == "summary"][-1:]
        live = max([live] + [r["peak_live_bytes"] for r in last])
        evictions += sum(r["evictions"] + r["clean_evictions"] for r in last)
        from_host += sum(r["served_from_host"] for r in last)
    return live, evictions, from_host


def module_case(module, home):
    return module, run(module, False, home), run(module, True, home), paging(module, home)


def main():
    suite = Suite()
    chosen = sys.argv[1:]
    expected = expected_failures()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    pages = paged = total = 0
    with tempfile.TemporaryDirectory() as home, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(module_case, m, home) for m in chosen or MODULES]
        for job in jobs:
            module, (plain, before, ended), (done, after, ended_with), (live, evictions, from_host) = job.result()
            suite.check(ended and before, f"{module}: comes to its end without the library", plain.tail())
            suite.check(ended_with, f"{module}: comes to its end with the library", done.tail())
            for test, (outcome, reason) in before.items():
                counts[outcome] += 1
                if outcome == "failed":
                    suite.check(test in expected, f"{test}: a failure that has no reason in README.md", f"    {reason}")
                elif outcome == "passed":
                    suite.check(test not in expected, f"{test}: passes, and README.md says why it would not")
                    suite.check(after.get(test, ("missing", ""))[0] == "passed", f"{test}: passes without the library, not with it", f"    {after.get(test)}")
            pages += live > BUDGET
            paged += live > BUDGET and evictions + from_host > 0
            total += evictions
            print(f"{module}: {sum(o == 'passed' for o, _ in before.values())} of {len(before)}, {live / 1024:.0f} KiB live, "
                  f"{evictions} evictions, {from_host} launches from host frames, {plain.seconds:.0f} and {done.seconds:.0f} s", flush=True)
    ran = counts["passed"] + counts["failed"]
    print(f"numba-cuda: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped by themselves; "
          f"of {pages} modules with more than the budget live {paged} were paged; {total} evictions")
    suite.check(counts["passed"] >= 0.9 * ran, f"90 % of numba's tests pass without the library: {counts['passed']} of {ran}")
    if not chosen:
        suite.check(paged > pages // 2 and total > 0, f"{paged} of {pages} modules with more than the budget live were paged, {total} evictions")
    suite.finish()


if __name__ == "__main__":
    main()
