#!/usr/bin/env python3
"""A Python under the library has the variables of the frameworks that are installed for it, before it reads its environment;
doctor shows them; CuPy's allocator is set when it is imported. The frameworks are small packages of that name, save for the
tinygrad of tests/real where that has been set up.
"""
import os, pathlib, subprocess, sys, tempfile, venv
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, PRELOAD, Suite, environment

PRINT = "import os; print(*(n + '=' + os.environ[n] for n in sorted(os.environ) if n.startswith(('PYTORCH', 'XLA', 'TF_', 'LRU'))))"
TORCH = "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"
JAX = "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async XLA_PYTHON_CLIENT_PREALLOCATE=false"
CUPY = """
class cuda:
    class MemoryAsyncPool:
        def malloc(self, size): return 'ours'
    allocator = 'its own pool'
    @classmethod
    def set_allocator(cls, allocator): cls.allocator = allocator(1) if allocator else None
"""


def main():
    suite = Suite()
    tool = BUILD / "udnnmem"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        venv.create(folder / "venv", symlinks=True)
        python = folder / "venv/bin/python3"
        packages = next((folder / "venv/lib").glob("python3*")) / "site-packages"
        plain = {k: v for k, v in environment(HOME=folder).items() if not k.startswith(("PYTORCH", "XLA", "TF_", "LRU", "PYTHON"))}

        def install(name, version, body=None):
            (packages / f"{name}-{version}.dist-info").mkdir()
            if body is not None:
                (packages / name.split("_cuda")[0]).mkdir()
                (packages / name.split("_cuda")[0] / "__init__.py").write_text(body)

        def seen(command=(python, "-c", PRINT), **more):
            done = subprocess.run([str(c) for c in command], env={**plain, "LD_PRELOAD": str(PRELOAD), **more}, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder)
            return (done.stdout + done.stderr).strip()

        def shows(expected, what, **kw):
            found = seen(**kw)
            suite.check(found == expected, what, f"    {found!r}\n    {expected!r}")

        shows("", "nothing is set for a Python without frameworks")
        install("torch", "2.11.0+cu130")
        install("jaxlib", "0.11.2")
        shows(f"{TORCH} {JAX}", "PyTorch and JAX have their variables")
        script = folder / "train.py"
        script.write_text(f"#!{python}\n{PRINT}\n")
        script.chmod(0o755)
        shows(f"{TORCH} {JAX}", "also a script that is executed itself", command=[script])
        shows(f"{TORCH} {JAX}", "also found by PATH", command=["env", "python3", "-c", PRINT], PATH=f"{python.parent}:{os.environ['PATH']}")
        shows(f"{TORCH} {JAX}", "and in what a shell starts", command=["sh", "-c", f"{python} -c \"{PRINT}\""])
        shows("", "the base Python has none of it", command=[os.path.realpath(python), "-S", "-c", PRINT])
        shows(f"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64 {JAX}", "what the user has set stands", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
        for more in ({"UDNNMEM_FRAMEWORKS": "off"}, {"UDNNMEM_DISABLE": "1"}, {"UDNNMEM_ONLY": "other*"}):
            shows("", f"nothing is set with {more}", **more)
        shows("", "nor by the tool's flag", command=[tool, "run", "--frameworks", "off", "--", python, "-c", PRINT], LD_PRELOAD="")
        shows(f"{TORCH} {JAX}", "the tool's run sets them", command=[tool, "run", "--", python, "-c", PRINT])

        install("cupy_cuda13x", "14.2.0", CUPY)
        allocator = "import cupy; print(cupy.cuda.allocator)"
        shows("ours", "CuPy takes the stream-ordered allocator", command=[python, "-c", allocator])
        shows("ours", "also after a look whether it is there", command=[python, "-c", f"import importlib.util; assert importlib.util.find_spec('cupy'); {allocator}"])
        shows("ours False", "once: then the finder is gone", command=[python, "-c", "import sys, cupy; print(cupy.cuda.allocator, any('CuPy' in repr(f) for f in sys.meta_path))"])
        shows("its own pool", "CuPy is left alone when that is switched off", command=[python, "-c", allocator], UDNNMEM_FRAMEWORKS="off")
        shows("None", "what the program sets itself stands", command=[python, "-c", "import cupy; cupy.cuda.set_allocator(None); print(cupy.cuda.allocator)"])
        (folder / "mine").mkdir()
        (folder / "mine/sitecustomize.py").write_text("print('mine')")
        shows("mine\nours", "another sitecustomize runs too", command=[python, "-c", allocator], PYTHONPATH=str(folder / "mine"))
        (packages / "cupy/__init__.py").write_text("class cuda: pass")
        shows("<class 'cupy.cuda'>\nudnnmem: CuPy keeps its own pool: type object 'cuda' has no attribute 'set_allocator'", "a CuPy that is not as expected goes on", command=[python, "-c", "import cupy; print(cupy.cuda)"])
        shows("<class 'cupy.cuda'>", "and nothing of that goes into stdout where stderr is closed", command=["sh", "-c", f"{python} -c 'import cupy; print(cupy.cuda)' 2>&-"])

        def doctor(**more):
            done = subprocess.run([tool, "doctor"], env={**plain, "PATH": f"{python.parent}:{os.environ['PATH']}", **more}, capture_output=True, text=True, cwd=folder)
            return [line for line in done.stdout.splitlines() if "frameworks: " in line]

        lines = doctor()
        for line in ("ok    frameworks: PyTorch 2.11.0+cu130: PYTORCH_ALLOC_CONF=backend:cudaMallocAsync will be set", "ok    frameworks: JAX 0.11.2: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async will be set",
                     f"ok    frameworks: CuPy 14.2.0: PYTHONPATH={BUILD}/udnnmem-site will be set"):
            suite.check(line in lines, f"doctor says: {line}", "\n".join(lines))
        lines = doctor(UDNNMEM_FRAMEWORKS="off")
        suite.check(sum("will not be set (UDNNMEM_FRAMEWORKS=off)" in line for line in lines) == 5, "doctor says what is switched off", "\n".join(lines))
        lines = doctor(PYTORCH_ALLOC_CONF="expandable_segments:True")
        suite.check(any(line.startswith("warn") and "PYTORCH_ALLOC_CONF=expandable_segments:True" in line for line in lines), "doctor warns of expandable segments", "\n".join(lines))

    real = BUILD / "real/venv/bin/python3"
    if real.exists():  # what tinygrad makes of it
        done = subprocess.run([real, "-c", "from tinygrad.helpers import getenv; print(getenv('LRU', 1))"], env=dict(plain, LD_PRELOAD=str(PRELOAD)), capture_output=True, text=True)
        suite.check(done.stdout.strip() == "0", "tinygrad passes allocations through", done.stdout + done.stderr)
    suite.finish()


if __name__ == "__main__":
    main()
