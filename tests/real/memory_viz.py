#!/usr/bin/env python3
"""PyTorch's own reader of memory snapshots, torch/cuda/_memory_viz.py, reads those of `udnnmem report --format pytorch`.

The file is taken out of a pinned wheel (the smallest there is: macOS's) and run by itself; nothing of it is installed.
"""
import importlib.util, pathlib, pickle, subprocess, sys, tempfile, zipfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e import reports
from tests.e2e.harness import BUILD, Suite

WHEEL = ["torch==2.9.0", "--platform", "macosx_11_0_arm64", "--python-version", "3.11", "--only-binary=:all:", "--no-deps"]
MEMBER = "torch/cuda/_memory_viz.py"


def reader():
    """The module, or None where the wheel cannot be had."""
    place = BUILD / "real" / "memory_viz"
    if not (place / MEMBER).exists():
        with tempfile.TemporaryDirectory() as folder:
            got = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "-d", folder, *WHEEL], capture_output=True, text=True)
            if got.returncode:
                print(f"memory_viz: the wheel cannot be had: {got.stderr.strip().splitlines()[-1:]}")
                return None
            zipfile.ZipFile(next(pathlib.Path(folder).iterdir())).extract(MEMBER, place)
    spec = importlib.util.spec_from_file_location("memory_viz", place / MEMBER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    suite, viz = Suite(), reader()
    if not viz:
        print("0 passed, 0 failed, 1 skipped")
        return
    with tempfile.TemporaryDirectory() as folder:
        for ops, shape in reports.OPS.items():
            trace = pathlib.Path(folder) / f"{ops}.jsonl"
            reports.made_up(trace, *shape)
            snapshot = pickle.loads(reports.report("pytorch", trace))
            lines = viz.trace(snapshot).splitlines()
            events = snapshot["device_traces"][0]
            allocs = sum(e["action"] == "alloc" for e in events)
            suite.check(lines[1] == f"{len(events)} entries", f"{ops} ops: it counts the entries", f"    {lines[:2]}")
            suite.check(sum(" = " in l and "cudaMalloc" not in l for l in lines) == allocs, f"{ops} ops: it follows each buffer")
            suite.check(not any("?" in l or "unknown" in l.lower() for l in lines), f"{ops} ops: nothing is unknown to it")
            summary = viz.segsum(snapshot)
            suite.check("segments: 1" in summary, f"{ops} ops: it sums up the segment", summary[:400])
            suite.check(len(viz.trace_plot(snapshot)) > 1000 and len(viz.segment_plot(snapshot)) > 1000, f"{ops} ops: it makes its plots")
    suite.finish()


if __name__ == "__main__":
    main()
