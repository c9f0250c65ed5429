#!/usr/bin/env python3
"""The toolkit's own libcudart, shared and static, under the library on our software driver.

It gives up there (it wants a driver by NVIDIA), but only after all its look-ups: one dlsym of cuGetProcAddress_v2 and
440 questions to it. The library says what became of each (UDNNMEM_DEBUG=trace: `door: cuGetProcAddress NAME VERSION
FLAGS -> hook|pass`); what should be hooked is read from its own table of entry points, and a list of names that must
be among them is kept here. Our own runtime asks the same questions, and is counted the same way.
"""
import pathlib, re, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, ROOT, SOFTGPU, Run, Suite, environment

PROGRAM = """
#include <cuda_runtime_api.h>
#include <stdio.h>
int main(void) { int n = -1; int e = cudaGetDeviceCount(&n); printf("error %d devices %d\\n", e, n); return 0; }
"""
LINE = re.compile(r"door: (dlsym|cuGetProcAddress) (\S*) ?(\d+)? ?(\d+)? -> (hook|pass)")
REQUEST = re.compile(r'^REQUEST\("(\w*)", (\d+), (\d+)\)', re.M)
ENTRY = re.compile(r"^ENTRY\((\w+), (\w+), (\d+), (\w+), (\w+), \w+\)", re.M)
# What paging cannot do without, whatever the table says: a launch, allocation or copy that is not seen is memory moved
# under a kernel.
MUST_HOOK = set("""
cuMemAlloc cuMemAllocPitch cuMemFree cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync cuMemGetAddressRange
cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel cuGraphLaunch cuMemcpy cuMemcpyAsync cuMemcpyHtoD
cuMemcpyHtoDAsync cuMemcpyDtoH cuMemcpyDtoHAsync cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpy2DUnaligned cuMemcpy2DAsync cuMemcpy3D
cuMemcpy3DAsync cuMemcpyPeer cuMemcpyPeerAsync cuMemcpyBatchAsync cuMemsetD8 cuMemsetD8Async cuMemsetD2D8 cuMemsetD2D8Async
cuStreamBatchMemOp cuStreamWriteValue32 cuStreamWaitValue32 cuStreamBeginCapture cuStreamEndCapture cuIpcGetMemHandle
cuPointerGetAttribute cuPointerGetAttributes cuGetProcAddress
""".split())


def should_hook():
    """(name, version, flags) -> whether the table of entry points has a hook for what the driver answers."""
    entries = {}
    for _, name, version, flavour, kind in ENTRY.findall((ROOT / "interpose/entry_points.def").read_text()):
        entries.setdefault((name, flavour), []).append((int(version), kind))

    def answer(name, version, flags):
        for flavour in (["per_thread"] if flags == 2 else []) + ["legacy"]:
            fitting = [e for e in entries.get((name, flavour), []) if e[0] <= version]
            if fitting:
                return max(fitting)[1] != "pass"
        return False
    return answer


def toolkit():
    config = (ROOT / "build" / "config.mk").read_text()
    home = pathlib.Path(re.search(r"^CUDA_HOME := (.*)$", config, re.M).group(1))
    folders = [f for f in (home / "lib64", home / "lib") if (f / "libcudart.so.13").exists()]
    return re.search(r"^CUDA_INCLUDE := (.*)$", config, re.M).group(1), folders[0] if folders else None


def main():
    suite = Suite()
    expected = sorted((n, int(v), int(f)) for n, v, f in REQUEST.findall((ROOT / "tests/softgpu/cudart/requests.def").read_text()))
    hooked = should_hook()
    include, folder = toolkit()
    if not suite.check(folder is not None, "the toolkit has a libcudart.so.13"):
        suite.finish()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "ask.c").write_text(PROGRAM)
        gone = ["-ldl", "-lpthread", "-lrt"]
        links = {"real-shared": [folder / "libcudart.so.13"], "real-static": [folder / "libcudart_static.a"] + gone,
                 "ours-shared": [SOFTGPU / "libcudart.so.13"], "ours-static": [SOFTGPU / "libcudart_static.a", "-lstdc++"] + gone}
        for name, libraries in links.items():
            subprocess.run(["gcc", "-I", include, "-o", scratch / name, scratch / "ask.c"] + libraries, check=True)
            # The runtime that is tested comes first; only the driver is ours.
            where = f"{folder}:{SOFTGPU}" if name == "real-shared" else str(SOFTGPU)
            run = Run([scratch / name], environment(preload=True, libraries=where, UDNNMEM_DEBUG="trace"), limit=60)
            suite.check(run.status == 0, f"{name}: ends by itself", run.tail())
            doors = LINE.findall(run.error)
            by_name = [d for d in doors if d[0] == "dlsym" and d[1].startswith("cu")]
            suite.check([d[1] for d in by_name] == ["cuGetProcAddress_v2"] and by_name[0][4] == "hook",
                        f"{name}: one dlsym, of cuGetProcAddress_v2, answered with the hook", f"    {by_name}")
            asked = sorted((d[1], int(d[2] or 0), int(d[3] or 0)) for d in doors if d[0] == "cuGetProcAddress")
            suite.check(asked == expected, f"{name}: the {len(expected)} look-ups of libcudart 13.0",
                        f"    {len(asked)} seen; missing {sorted(set(expected) - set(asked))[:5]}, unexpected {sorted(set(asked) - set(expected))[:5]}")
            answers = {(d[1], int(d[2] or 0), int(d[3] or 0)): d[4] == "hook" for d in doors if d[0] == "cuGetProcAddress"}
            wrong = sorted(a for a in answers if answers[a] != hooked(*a))
            suite.check(answers and not wrong, f"{name}: what the table gives a hook comes back as one, and nothing else does", f"    {wrong[:8]}")
            missed = sorted(n for n in MUST_HOOK if not any(h for a, h in answers.items() if a[0] == n))
            suite.check(not missed, f"{name}: everything that moves or launches is hooked", f"    passed through or never asked: {' '.join(missed)}")
            print(f"{name}: {len(by_name)} dlsym, {len(asked)} look-ups, {sum(answers.values())} hooked; {run.output.strip()}")
    suite.finish()


if __name__ == "__main__":
    main()
