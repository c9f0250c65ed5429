#!/usr/bin/env python3
"""The iteration that a trace holds is what tinygrad itself says that it allocated and launched (tinygrad_said.py), for the networks of
networks/. One run gives both, with room to spare and in 60 % of the memory. One network eager and by TinyJit; with UDNNMEM_TEST_FULL=1 all,
with tinygrad's caches and without. `tinygrad_recorded.py NETWORK...` takes those.
"""
import pathlib, sys, tempfile
from paged import FULL, HERE, LOWERED, MODES, NETWORKS, every_network, tinygrad_environment
from tests.e2e import listed
from tests.e2e.harness import Run, Suite

SAMPLE = [("mlp", "eager plain"), ("mlp", "jit cached")]
STEPS = 16
SHOWN = 6


def train(folder, network, mode, memory):
    listing, trace = folder / "list", folder / "t.jsonl"
    for path in (listing, trace):
        path.unlink(missing_ok=True)
    env = tinygrad_environment(True, PARALLEL=0, STEPS=STEPS, SOFTGPU_MEMORY=memory, UDNNMEM_TRACE=trace, **MODES[mode])
    return Run(LOWERED + [HERE / "tinygrad_said.py", listing, NETWORKS / f"{network}.py"], env, limit=1800), listing, trace


def check(suite, folder, network, mode):
    expected, peak = None, 0
    for what in ("with room to spare", "in 60 %"):
        name = f"{network}, {mode}, {what}"
        done, listing, trace = train(folder, network, mode, "1GiB" if not peak else peak * 6 // 10)
        if not suite.check(done.status == 0 and done.output.count("loss") == STEPS and done.output == (expected or done.output), f"{name}: trains, the same bits", done.tail()):
            return
        expected, peak = done.output, listed.Program(listing).peak
        learned, buffers, ops, _ = listed.read_trace(trace)
        if not suite.check(learned and ops, f"{name}: an iteration is found", f"    {learned}\n{done.tail()}"):
            continue
        _, wrong = listed.closest(listing, learned, buffers, ops)
        suite.check(not wrong, f"{name}: what tinygrad says that it did", "\n".join("    " + w for w in [str(learned), *wrong[:SHOWN]]))
        print(f"{name}: {len(ops)} ops, {len(buffers)} buffers", flush=True)


def main():
    suite = Suite()
    every = [(n, m) for n in every_network() for m in MODES]
    with tempfile.TemporaryDirectory() as place:
        for network, mode in [(n, m) for n, m in every if n in sys.argv[1:]] or (every if FULL else SAMPLE):
            check(suite, pathlib.Path(place), network, mode)
    suite.finish()


if __name__ == "__main__":
    main()
