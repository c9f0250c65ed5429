#!/usr/bin/env python3
"""The doors as whole processes see them: what the preload exports, what it leaves alone, and programs that look up
the driver in ways of their own. Runs under the probe preload with the driver that only notes calls."""
import os, platform, re, subprocess, sys

build = os.environ["UDNNMEM_BUILD"]
here = f"{build}/tests/interpose"
source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
probe = f"{here}/libprobe.so"
passed = failed = skipped = 0


def run(*command, preload=True, driver=True, **env):
    full = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PROBE")}
    full["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0"
    if preload:
        full["LD_PRELOAD"] = probe
    if driver:
        full["LD_LIBRARY_PATH"] = here
    full.update({k: str(v) for k, v in env.items()})
    return subprocess.run(command, env=full, capture_output=True, text=True, timeout=60)


def check(name, good, detail=""):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {name} {detail}")


def skip(name, why):
    global skipped
    skipped += 1
    print(f"skipped: {name}: {why}")


def table():
    rows = re.findall(r"^ENTRY\((\w+), (\w+), (\d+), (\w+), (\w+), (\w+)\)$", open(f"{source}/interpose/entry_points.def").read(), re.M)
    return [(s, b, int(v), f, k) for s, b, v, f, k, _ in rows]


LOADERS = {f"{name}@{version}" for name in ("dlsym", "dlopen")
           for version in ("@GLIBC_2.34", "GLIBC_2.17" if platform.machine() == "aarch64" else "GLIBC_2.2.5")}


# NCCL's public calls that are hooked.
NCCL = set(re.findall(r"^(?:COLLECTIVE|REGISTER)\((\w+),", open(f"{source}/interpose/nccl.def").read(), re.M)) | {"ncclGroupStart", "ncclGroupEnd", "ncclGroupSimulateEnd"}


def exported(library):
    """Names with their versions; those of versions themselves (class A) are none."""
    lines = run("nm", "-D", "--defined-only", library, preload=False).stdout.splitlines()
    return {name for _, kind, name in map(str.split, lines) if kind != "A" and not name.startswith("probe_")}


def mathematics():
    """Each name for references without a version, and in the version of each release."""
    text = open(f"{source}/profiler/math/calls.def").read()
    names = re.findall(r"^CALL\(\w+, (\w+),", text, re.M) + [name + suffix for name in re.findall(r"^BOTH\((\w+),", text, re.M) for suffix in ("", "_64")]
    releases = {"cublasLt": (11, 12, 13), "cublas": (11, 12, 13), "cudnn": (8, 9)}
    library = {name: next(l for l in releases if name.startswith(l)) for name in names}
    return {f"{name}@@UDNNMEM" for name in names} | {f"{name}@lib{library[name]}.so.{release}" for name in names for release in releases[library[name]]}


def exports():
    expected = {s for s, _, _, _, k in table() if k != "pass"} | LOADERS | NCCL
    found = exported(probe)
    check("exports are the hooked names and the loader's in each of their versions", found == expected,
          f"strangers {sorted(found - expected)[:5]}, missing {sorted(expected - found)[:5]}")
    product = f"{build}/libudnnmem.so"
    expected |= {"InitializeInjectionNvtx2@@GLIBC_2.34"} | mathematics()  # how NVTX calls a tool; calls whose FLOPs are counted
    if os.path.exists(product):
        check("the library exports the same", exported(product) == expected, sorted(exported(product) ^ expected)[:9])
    dynamic = run("readelf", "-dW", probe, preload=False).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    check("nothing is needed but the C library", needed <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
          "libm.so.6"} or "asan" in build or "tsan" in build, needed)


def coverage(cuda):
    """Every symbol of the toolkit's stub, and every version of its typedefs, is in the table."""
    symbols = {s for s, *_ in table()}
    stub = f"{cuda}/lib64/stubs/libcuda.so"
    if os.path.exists(stub):
        listing = run("nm", "-D", "--defined-only", stub, preload=False).stdout
        theirs = set(re.findall(r" T (cu[A-Z]\w*)$", listing, re.M))
        check("every export of the toolkit's stub has a class", len(theirs) > 500 and theirs <= symbols, sorted(theirs - symbols)[:9])
    else:
        skip("the toolkit's stub", f"no {stub}")
    text = open(f"{cuda}/include/cudaTypedefs.h").read()
    theirs = {(b, int(v), "per_thread" if s else "legacy") for b, v, s in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text)}
    ours = {(b, v, f) for _, b, v, f, _ in table()}
    check("every typedef of the toolkit is in the table", len(theirs) > 500 and theirs <= ours, sorted(theirs - ours)[:9])


def quiet_programs():
    for command in (["/bin/true"], ["/bin/false"], [sys.executable, "-c", "print(sum(range(9)))"], ["ls", "/"], ["sh", "-c", "echo $0; exit 7"]):
        with_us, without = run(*command), run(*command, preload=False)
        check(f"{command[0]} is left alone", (with_us.returncode, with_us.stdout, with_us.stderr) ==
              (without.returncode, without.stdout, without.stderr), with_us)


def loader():
    program = f"{here}/door_program"
    for preload in (True, False):
        check("RTLD_NEXT means the caller", run(program, "next", preload=preload).stdout == "2\n", preload)
        check("dlopen searches the caller's path", run(program, "inner", preload=preload).stdout == "3\n", preload)
        for library, function in (("libdata_names.so", "data_is_mine"), ("libneeds_data_names.so", "data_beside_is_mine")):
            check(f"{library} keeps its data", run(program, "call", f"{here}/{library}", function, preload=preload).stdout == "1\n", preload)
    # The test would see a library that binds to us: without the door, this one crashes.
    crashed = run(f"{here}/door_program", "call", "libdata_names.so", "data_is_mine")
    check("a bare name is out of sight (else the checks above prove nothing)", crashed.returncode != 0, crashed)
    hidden = run(f"{here}/door_program", "call", "libdata_names.so", "data_is_mine", PROBE="hidden")
    check("hidden exports bring it into reach", hidden.stdout == "1\n", hidden)


def linked():
    """A library with such data that the program starts with: bound before the constructor of a preload has run."""
    hidden = f"{build}/libudnnmem-hidden.so"
    if not os.path.exists(hidden):
        return  # a build of the doors alone
    check("the library with hidden exports has none of the driver's names", exported(hidden) - {"InitializeInjectionNvtx2@@GLIBC_2.34"} == LOADERS | NCCL, exported(hidden) ^ (LOADERS | NCCL))
    theirs = f"{here}/libdata_names.so"
    call = (f"{here}/door_program", "call", theirs, "data_is_mine")
    crashed = run(*call, LD_PRELOAD=f"{build}/libudnnmem.so:{theirs}", UDNNMEM_HIDE_EXPORTS=1)
    check("a library bound at the start is out of the exports' reach (else the next proves nothing)", crashed.returncode != 0, crashed)
    check("hidden from the start, they are no harm", run(*call, LD_PRELOAD=f"{hidden}:{theirs}").stdout == "1\n")
    check("`run --hide-exports` takes that library",
          run(f"{build}/udnnmem", "run", "--hide-exports", "--", *call, LD_PRELOAD=theirs).stdout == "1\n")


def look_ups():
    program = f"{here}/door_program"
    for path in ("libcuda.so.1", "libcuda.so", f"{here}/libcuda.so.1"):
        check(f"dlsym on {path}", run(program, "symbol", path, "cuMemAlloc_v2").stdout == "libprobe.so\n")
        check(f"hidden exports leave dlsym on {path}", run(program, "symbol", path, "cuMemAlloc_v2", PROBE="hidden").stdout == "libprobe.so\n")
        check(f"closed doors leave {path} alone", run(program, "symbol", path, "cuMemAlloc_v2", PROBE="closed off").stdout in ("libcuda.so.1\n", "libcuda.so\n"))
        check(f"names that pass on {path}", run(program, "symbol", path, "cuDeviceGet").stdout in ("libcuda.so.1\n", "libcuda.so\n"))
    for library in ("libdeep.so", "libdeep_sealed.so"):
        for bound in ("now", "lazy"):
            deep = ("deep", f"{here}/{library}", bound)
            found = run(program, *deep, "cuMemAlloc_v2")
            check(f"{library}, bound deep and {bound}, finds the hooks", found.stdout == "libprobe.so\n" * 2, found)
            check(f"{library}, bound deep and {bound}: names that pass", run(program, *deep, "cuDeviceGet").stdout == "libcuda.so.1\n" * 2)
            check(f"{library}, bound deep and {bound}: closed doors leave it alone", run(program, *deep, "cuMemAlloc_v2", PROBE="closed off").stdout == "libcuda.so.1\n" * 2)
    own = run(program, "deep", f"{here}/libdeep_own.so", "now", "cuMemAlloc_v2")
    check("a library that is bound deep keeps a dlsym of its own", own.stdout == "its own\n" * 2, own)
    data = run(program, "symbol", f"{here}/libdata_names.so", "cuMemAlloc_v2")
    check("a library's data of that name is its own", data.stdout == "libdata_names.so\n", data)
    check("no driver: nothing is found by RTLD_DEFAULT", run(program, "default", driver=False).stdout == "nowhere\n")
    none = run(program, "weak", driver=False)
    check("no driver: linked calls say so", none.stdout == "100 3\n" or driver_installed(), none)
    lines = run(program, "symbol", "libcuda.so.1", "cuMemAlloc_v2", PROBE="trace").stderr
    check("a look-up is traced", "door: dlsym cuMemAlloc_v2 -> hook\n" in lines, lines)


def driver_installed():
    return "libcuda.so.1" in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout


def real_runtime():
    """The toolkit's own runtime, in both link modes: each of its look-ups that should be hooked comes back hooked."""
    entries = table()

    def hooked(name, version, flags):
        forms = [(v + (10**6 if f == "per_thread" else 0), k) for s, b, v, f, k in entries
                 if b == name and v <= version and (f == "legacy" or flags & 2)]
        return bool(forms) and max(forms)[1] != "pass"

    for mode in ("shared", "static"):
        program = f"{here}/runtime_{mode}"
        if not os.path.exists(program):
            skip(f"the real runtime, {mode}", "the toolkit has none")
            continue
        result = run(program, PROBE="trace")
        asked = re.findall(r"^door: cuGetProcAddress (\S*) (\d+) (\d+) -> (hook|pass)$", result.stderr, re.M)
        by_name = re.findall(r"^door: dlsym (\S+) -> (hook|pass)$", result.stderr, re.M)
        check(f"{mode}: one dlsym, hooked", by_name == [("cuGetProcAddress_v2", "hook")], by_name)
        check(f"{mode}: the whole driver is looked up", len(asked) >= 430, f"{len(asked)} look-ups; exit {result.returncode}")
        wrong = [a for a in asked if hooked(a[0], int(a[1]), int(a[2])) != (a[3] == "hook")]
        check(f"{mode}: all that should be hooked are", not wrong, wrong[:5])
        check(f"{mode}: per-thread forms are among them", sum(a[3] == "hook" and int(a[2]) & 2 > 0 for a in asked) > 30)


exports()
coverage(os.environ.get("CUDA_HOME") or re.search(r"^CUDA_HOME := (.*)$", open(f"{source}/build/config.mk").read(), re.M)[1])
quiet_programs()
loader()
linked()
look_ups()
real_runtime()
print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(1 if failed else 0)
