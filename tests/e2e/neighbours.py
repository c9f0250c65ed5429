#!/usr/bin/env python3
"""The library beside what else programs are run with: other preloads (allocators, a tool that takes dlsym), gdb, valgrind,
and everything that inherits LD_PRELOAD: shells, compilers, worker processes of Python.

Each case runs digits in half its memory under the library and that neighbour: the same bits, no fault, evictions. What
is not installed is skipped by name.
"""
import pathlib, re, shutil, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, PRELOAD, WORKLOADS, Run, Suite, environment

PROGRAM = [WORKLOADS / "digits-runtime", "--depth", "24", "--width", "32", "--batch", "256", "--iterations", "3"]
MOVED = re.compile(r"moved (\S+) MiB in, (\S+) MiB out")
OTHER = BUILD / "workloads" / "other_dlsym.so"
ALLOCATORS = ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"]
WORKER = """
import multiprocessing, subprocess, sys
def child(k): return subprocess.run([sys.argv[1], *sys.argv[2:]], capture_output=True, text=True).stdout
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv.pop(1)).Pool(2) as pool:
        print("".join(sorted(set(pool.map(child, range(2))))), end="")
"""


def library(name):
    """Where the loader finds `name`; None if it does not."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    found = re.search(rf"^\s*{re.escape(name)} .*=> (\S+)$", known, re.M)
    return found.group(1) if found else None


def main():
    suite, skipped = Suite(), []
    plain = Run(PROGRAM + ["--report-peak"], environment(SOFTGPU_MEMORY="1GiB"))
    peak = int(plain.output.split("peak live bytes ")[1])
    expected = plain.output.split("peak live bytes")[0]
    memory = peak // 2

    def case(what, command=PROGRAM, preload=(PRELOAD,), moves=True, clean=lambda text: text, **more):
        env = environment(SOFTGPU_MEMORY=memory, LD_PRELOAD=":".join(str(p) for p in preload), **more)
        done = Run(command, env, limit=300)
        suite.check(done.status == 0 and clean(done.output) == expected, f"{what}: the same bits", f"    status {done.status}\n{done.output[-400:]}\n{done.tail()}")
        found = MOVED.search(done.error + done.output)
        suite.check(not moves or (found and float(found.group(2)) > 0), f"{what}: evicted", done.tail())
        suite.check(done.report and done.report["faults"] == 0, f"{what}: no fault", f"    {done.report}")
        return done

    for name in ALLOCATORS:
        path = library(name)
        if not path:
            skipped.append(name)
            continue
        case(f"{name} after us", preload=(PRELOAD, path))
        case(f"{name} before us", preload=(path, PRELOAD))
    for order in ((PRELOAD, OTHER), (OTHER, PRELOAD)):
        names = ", ".join(p.name for p in order)
        done = case(f"another dlsym ({names})", preload=order, OTHER_DLSYM_TELL=1)
        suite.check("other_dlsym: passed look-ups on" in done.error, f"another dlsym ({names}): it is used too", done.tail())
        case(f"another dlsym ({names}), driver API", [WORKLOADS / "digits-driver", *PROGRAM[1:]], preload=order)

    if shutil.which("gdb"):
        # The program gets the library, gdb itself does not. What gdb says of threads goes elsewhere: it writes its lines in
        # pieces, between which the program's may stand.
        quiet = [a for what in ("file /dev/null", "redirect on", "enabled on") for a in ("-ex", f"set logging {what}")]
        gdb = ["gdb", "-q", "-batch", "-nx", *quiet, "-ex", "set startup-with-shell off", "-ex", f"set environment LD_PRELOAD {PRELOAD}",
               "-ex", "handle SIGSEGV nostop noprint pass", "-ex", "run", "--args", *PROGRAM]
        case("gdb", gdb, preload=(), clean=lambda text: "".join(l for l in text.splitlines(True) if re.match(r"step|parameters|accuracy", l)))
    else:
        skipped.append("gdb")
    if shutil.which("valgrind"):  # knows no instruction past AVX2; its own library stands before ours
        case("valgrind", ["valgrind", "--tool=none", "-q", *PROGRAM], SOFTGPU_MARCH="x86-64-v3")
    else:
        skipped.append("valgrind")

    # Inherited: a shell that runs a compiler, then the program.
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "x.c"
        source.write_text("int main(void) { return 0; }\n")
        script = f"cd {folder} && cc x.c -o x && ./x && ls | sort | tr '\\n' ' ' >&2 && exec " + " ".join(str(a) for a in PROGRAM)
        done = case("a shell and a compiler", ["/bin/sh", "-c", script])
        suite.check("x x.c " in done.error, "a shell and a compiler: they do their work and leave nothing", done.tail())
        worker = pathlib.Path(folder) / "worker.py"
        worker.write_text(WORKER)
        for method in ("fork", "spawn", "forkserver"):
            case(f"Python workers ({method})", [sys.executable, worker, method, *PROGRAM], moves=False)
    print("\n".join(f"{name} is not installed: skipped" for name in skipped), end="\n" if skipped else "")
    suite.finish()


if __name__ == "__main__":
    main()
