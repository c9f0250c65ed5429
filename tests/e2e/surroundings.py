#!/usr/bin/env python3
"""What a process may be started in: without stdin, stdout or stderr; with a stderr that nobody reads; with no room in files; by
exec of one that ran under the library; beside one of the same number.

Each time the program does what it does without us, and its own files hold what it wrote, no more.
"""
import os, pathlib, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import PATIENCE, Suite, environment

# A program that has 1 MiB of the device and launches a kernel on it, with which a trace begins; it goes on by what is added.
DRIVER = """
import ctypes, os, resource, signal, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry nothing(.param .u64 at) { ret; }\\n"
def use():
    context, at, module, kernel = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
    assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
    assert not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20)) and not cuda.cuModuleLoadData(ctypes.byref(module), PTX)
    assert not cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"nothing") and not cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, (ctypes.c_void_p * 1)(ctypes.addressof(at)), None)
    assert not cuda.cuCtxSynchronize()
    return at
"""


def python(then, **how):
    """Runs it under the library, with its end awaited."""
    options = how.pop("options", {})
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.run([sys.executable, "-S", "-c", DRIVER + then], env=environment(preload=True, SOFTGPU_MEMORY="64MiB", **options), text=True, timeout=15 * PATIENCE, **how)


def closed(suite, folder):
    then = f"""
use()
for _ in range(1000): time.sleep(0.01) if not os.path.exists("{folder}/trace.jsonl") else None
for _ in range(100):   # while a file of ours is being opened it has such a number
    taken = [os.readlink(f"/proc/self/fd/{{n}}") for n in range(3) if os.path.islink(f"/proc/self/fd/{{n}}")]
    if not any("trace" in name or "udnnmem" in name for name in taken): break
    time.sleep(0.01)
files = [os.open("{folder}/" + name, os.O_WRONLY | os.O_CREAT, 0o600) for name in "abc"]
for file in files: os.write(file, b"mine")
with open("{folder}/taken", "w") as out: out.write(" ".join(taken))
"""
    done = python(then, options={"UDNNMEM_TRACE": f"{folder}/trace.jsonl", "UDNNMEM_DEBUG": "info"}, stdin=None, stdout=None, stderr=None, preexec_fn=lambda: os.closerange(0, 3))
    suite.check(done.returncode == 0, "0 to 2 closed: the program runs", f"    {done.returncode}")
    held = [(folder / name).read_text() for name in "abc"]
    suite.check(held == ["mine"] * 3, "0 to 2 closed: the program's files hold what it wrote", f"    {held}")
    taken = (folder / "taken").read_text()
    suite.check("udnnmem" not in taken and "trace" not in taken, "0 to 2 closed: no file of ours has such a number", f"    {taken}")
    suite.check('"last":true' in (folder / "trace.jsonl").read_text(), "0 to 2 closed: the trace is whole")

    done = python(f'sys.exit(use() and 0 if os.open("{folder}/d", os.O_WRONLY | os.O_CREAT, 0o600) == 2 else 1)', options={"UDNNMEM_DEBUG": "info"}, stderr=None, preexec_fn=lambda: os.close(2))
    suite.check(done.returncode == 0 and not (folder / "d").read_text(), "stderr closed: no line of ours goes into the program's file", (folder / "d").read_text())


def unwritable(suite, folder):
    ours, theirs = os.pipe()
    os.close(ours)
    done = python("signal.signal(signal.SIGPIPE, signal.SIG_DFL); use()", options={"UDNNMEM_DEBUG": "info"}, stderr=theirs)
    os.close(theirs)
    suite.check(done.returncode == 0, "nobody reads stderr: the program runs", f"    {done.returncode}")
    with open(folder / "stderr", "w") as file:   # the software GPU's memory is a file, too: it has what it needs by then
        done = python("use(); signal.signal(signal.SIGXFSZ, signal.SIG_DFL); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))", options={"UDNNMEM_TRACE": f"{folder}/full.jsonl"}, stderr=file)
    suite.check(done.returncode == 0, "no file may grow: the program ends as it does", f"    {done.returncode}")


def executed(suite, folder):
    done = python("use(); time.sleep(1); os.execv(sys.executable, [sys.executable, '-S', '-c', os.environ['PROGRAM']])",
                  options={"UDNNMEM_TRACE": f"{folder}/exec.%p.jsonl.zst", "PROGRAM": DRIVER + "use()"})
    traces = sorted(folder.glob("exec.*"), key=lambda path: len(path.name))
    suite.check(done.returncode == 0 and len(traces) == 2 and traces[1].name == traces[0].name.replace(".jsonl", ".2.jsonl"), "exec: a trace for each program", f"    {[t.name for t in traces]}\n{done.stderr}")
    suite.check(f"trace {traces[-1]}" in done.stderr and f"udnnmem report {traces[-1]}" in done.stderr, "exec: the second one's is named", done.stderr)


def same_number(suite):
    """An IPC handle of a process of this one's number, in another pid namespace: told from our own by its key."""
    done = python("""
at, own = use(), (ctypes.c_char * 64)()
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 64)]
cuda.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
assert not cuda.cuIpcGetMemHandle(ctypes.byref(own), at)
other = bytearray(own.raw)
other[16] ^= 1
for handle in own.raw, bytes(other): print(cuda.cuIpcOpenMemHandle_v2(ctypes.byref(ctypes.c_uint64()), Handle.from_buffer_copy(handle), 1))
""")
    # CUDA_ERROR_INVALID_CONTEXT of one's own, CUDA_ERROR_MAP_FAILED of one that nobody answers for.
    suite.check(done.stdout.split() == ["201", "205"], "a handle of a process of the same number is another's", f"    {done.stdout}{done.stderr}")


def main():
    suite = Suite()
    with tempfile.TemporaryDirectory() as name:
        closed(suite, pathlib.Path(name))
        unwritable(suite, pathlib.Path(name))
        executed(suite, pathlib.Path(name))
    same_number(suite)
    suite.finish()


if __name__ == "__main__":
    main()
