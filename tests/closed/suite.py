#!/usr/bin/env python3
"""Programs that give their buffers to closed libraries, in a quarter or half of their memory: the same words as without the library, no
fault, buffers moved; and no op that had to be taken for one that uses everything, save where a kernel's parameters are not known."""
import json, pathlib, re, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, FULL, Run, Suite, environment, settled

PROGRAMS = BUILD / "tests/closed/programs"
UNKNOWN = {"SOFTGPU_FAIL": "cuKernelGetParamInfo:1:801"}  # nobody tells what the first kernel of cuDNN is given
UNMAPPED = {"SOFTGPU_HOST_FRAMES": 0}  # what is not on the device cannot be reached: who is not waited for, or not named, meets nothing
LAZY = {"FAKE_NCCL_LAZY": 1, **UNMAPPED}
CASES = [(["collectives", "linked"], {}), (["collectives", "opened"], UNMAPPED), (["collectives", "linked"], LAZY), (["groups"], {}), (["groups"], LAZY),
         (["devices"], {"SOFTGPU_DEVICES": 2, **UNMAPPED}), (["devices"], {"SOFTGPU_DEVICES": 2, **LAZY}), (["captured"], {}), (["products"], {"UDNNMEM_BUDGET": "3MiB"}),  # a batch is nine matrices of 256 KiB
         (["convolutions"], {}), (["convolutions"], UNKNOWN), (["transforms"], UNMAPPED)]


def main():
    suite = Suite()
    for words, options in CASES:
        what = " ".join(map(str, words)) + "".join(f" {k}={v}" for k, v in options.items())
        plain = Run([PROGRAMS, *words], environment(**{k: v for k, v in options.items() if not k.startswith("UDNNMEM")}))
        if not suite.check(plain.status == 0 and plain.output.count("sum") == 24 and plain.report["faults"] == 0, f"{what}: runs without the library", plain.output + plain.tail()):
            continue
        for seed in range(1, 21 if FULL else 2):
            budget = (1536 << 10) * options.get("SOFTGPU_DEVICES", 1)
            within = lambda run: options.get("SOFTGPU_HOST_FRAMES") != 0 or run.get("peak_resident_bytes", 1 << 40) <= budget

            def paged():
                with tempfile.TemporaryDirectory() as folder:
                    trace = f"{folder}/t.jsonl.zst"
                    done = Run([PROGRAMS, *words], environment(preload=True, **{"SOFTGPU_SEED": seed, "UDNNMEM_BUDGET": "1536KiB", "UDNNMEM_VERIFY": 1, "UDNNMEM_TRACE": trace, "UDNNMEM_DEBUG": "info", **options}), limit=60)
                    suite.check(done.status == 0 and done.output == plain.output, f"{what}, seed {seed}: the same words in little memory", f"    status {done.status}\n{done.tail()}")
                    suite.check(done.report and done.report["faults"] == 0, f"{what}, seed {seed}: no fault", f"    {done.report}")
                    told = subprocess.run([BUILD / "udnnmem", "report", "--format", "json", trace], capture_output=True, text=True)
                return done, json.loads(told.stdout.splitlines()[0]) if told.returncode == 0 and told.stdout else {}

            # A launch that is held back too long on a crowded machine is let go, beyond the budget.
            done, run = settled(lambda d: within(d[1]), paged)
            suite.check(run.get("bytes_in", 0) > 4 << 20 and run.get("bytes_out", 0) > 4 << 20, f"{what}, seed {seed}: buffers moved", f"    {run.get('bytes_in')} in, {run.get('bytes_out')} out")
            if words == ["captured"]:  # they went out before they were registered or captured, and never again
                for buffer, why in zip(sorted(run["buffers"], key=lambda b: b["id"]), ("registered", "captured", "captured")):
                    suite.check(buffer["events"]["evict"] + buffer["events"]["evict_clean"] <= 1, f"{what}, seed {seed}: what is {why} stays", f"    {buffer}")
            if options.get("SOFTGPU_HOST_FRAMES") == 0:  # where it cannot be mapped, what uses everything makes everything resident
                suite.check(within(run), f"{what}, seed {seed}: no op had to be taken for one that uses everything", f"    {run.get('peak_resident_bytes')} bytes")
            named = re.findall(r"parameters of kernel (\S+) are not known", done.error)
            suite.check(named == (["convolve_gather"] if options is UNKNOWN else []), f"{what}, seed {seed}: a kernel counts as using everything, and is named, where its parameters are not known, and only there", f"    {named}")
    suite.finish()


if __name__ == "__main__":
    main()
