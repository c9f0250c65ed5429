#!/usr/bin/env python3
"""Records one iteration of each network of networks/ for the planners' tests: record.py OUT_FOLDER [NETWORK...].

The network runs eagerly, with tinygrad's caches off (a tensor is a buffer), under the library with memory to spare; of
the trace that the library wrote, the last iteration that it learned is kept, its buffers and ops as they are. Left out
are the machine's name and the figures of that run; labels of buffers there are none.
"""
import json, pathlib, subprocess, sys, tempfile
from paged import PLAIN, every_network, tinygrad_environment, training
from tests.e2e.harness import Run

STEPS = 16


def iteration(path):
    """Header, buffers and ops of the last learned iteration of a run's trace."""
    text = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout.decode()
    records = [json.loads(line) for line in text.splitlines()]
    learned = max(i for i, r in enumerate(records) if r["kind"] == "learned" and r["ops"])
    kept = [r for r in records[learned + 1:] if r["kind"] in ("buffer", "op")]
    assert sum(r["kind"] == "op" for r in kept) == records[learned]["ops"], "cut short"
    return records[learned], kept


def main():
    out = pathlib.Path(sys.argv[1])
    for network in sys.argv[2:] or every_network():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.jsonl.zst"
            env = tinygrad_environment(True, PARALLEL=0, STEPS=STEPS, SOFTGPU_MEMORY="4GiB", UDNNMEM_TRACE=path, **PLAIN)
            done = Run(training(network), env, limit=1800)
            assert done.status == 0, done.tail()
            learned, kept = iteration(path)
        header = {"kind": "header", "schema": 1, "name": f"tinygrad-{network}", "origin": "udnnmem 0.1.0, tinygrad 0.14.0 on the software GPU", "ideal_ns": learned["ideal_ns"]}
        text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in [header] + kept)
        target = out / f"tinygrad-{network}.jsonl.zst"
        subprocess.run(["zstd", "-q", "-19", "-f", "-o", target], input=text.encode(), check=True)
        print(f"{target.name}: {learned['ops']} ops, {sum(r['kind'] == 'buffer' for r in kept)} buffers, {target.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
