#!/usr/bin/env python3
"""What is shipped: the tarball works wherever it is unpacked, the wheel where it is installed; both need no glibc newer than
the Makefile's OLDEST_GLIBC says, nothing but libc and libm, and are for one architecture. Stripped, and still all there.
"""
import hashlib, os, pathlib, re, subprocess, sys, tempfile, zipfile, base64
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import BUILD, ROOT, SOFTGPU, WORKLOADS, Run, Suite, environment

OLDEST = tuple(map(int, re.search(r"^OLDEST_GLIBC := ([\d.]+)$", (ROOT / "Makefile").read_text(), re.M).group(1).split(".")))
MACHINE = os.uname().machine
LARGEST = 5 << 20  # bytes of each package


def readelf(*words):
    return subprocess.run(["readelf", "-W", *map(str, words)], capture_output=True, text=True, check=True).stdout


def check_binary(suite, path, exports):
    needs = readelf("-V", path)
    needs = needs[needs.index("Version needs section"):]
    wanted = sorted({tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([\d.]+)", needs)})
    name = path.name
    suite.check(wanted and wanted[-1] <= OLDEST, f"{name} needs no glibc newer than {OLDEST}", f"    {wanted[-3:]}")
    others = re.findall(r"Name: ((?!GLIBC_)\S+)", needs)
    suite.check(not others, f"{name} needs no versions but glibc's", f"    {others}")
    dynamic = readelf("-d", path)
    libraries = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    suite.check(libraries <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, f"{name} needs libc and libm alone", f"    {libraries}")
    suite.check("RPATH" not in dynamic and "RUNPATH" not in dynamic, f"{name} looks in no folder of the machine that built it")
    machine = re.search(r"Machine:\s+(.*)", readelf("-h", path)).group(1)
    suite.check({"x86_64": "X86-64", "aarch64": "AArch64"}.get(MACHINE, "?") in machine, f"{name} is for {MACHINE}", machine)
    suite.check(".debug_info" not in readelf("-S", path), f"{name} is stripped")
    if exports:
        defined = {line.split()[7].split("@")[0] for line in readelf("--dyn-syms", path).splitlines() if re.match(r"\s*\d+:", line) and " UND " not in line and len(line.split()) > 7}
        suite.check(exports <= defined, f"{name} exports what it must", f"    {exports - defined}")
        suite.check(not defined & {"arc4random", "_dl_find_object"}, f"{name} keeps its own arc4random to itself")


def check_works(suite, command, what, library):
    """The tool by `command`: its version, where it finds the library, and a program on the software GPU under it."""
    run = lambda *words: subprocess.run([*map(str, command), *words], env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    suite.check(run("--version").stdout.startswith("udnnmem "), f"{what}: --version")
    preloaded = run("run", "sh", "-c", "echo $LD_PRELOAD").stdout.strip()
    suite.check(preloaded == str(library), f"{what}: finds its library", f"    {preloaded}\n    {library}")
    wrong = run("run", "--budget", "12Gig", "true")  # an exception on the way
    suite.check(wrong.returncode == 2 and "expected a size" in wrong.stderr, f"{what}: refuses a wrong option", wrong.stderr)
    done = Run([*command, "run", "--budget", "1MiB", "--verify", "1", "--", WORKLOADS / "vadd"], environment(UDNNMEM_TRACE="off"))
    suite.check(done.status == 0 and "manages device 0" in done.error and done.report["faults"] == 0, f"{what}: a program runs under it", done.tail())


def check_install(suite, folder):
    """Into a path with a space, and out again with nothing else lost."""
    words = [f"DESTDIR={folder / 'root'}", "PREFIX=/opt/with space", f"B={BUILD}"]
    make = lambda goal: subprocess.run(["make", "-s", "-o", "all", "-C", str(ROOT), goal, *words], capture_output=True, text=True)
    done, place = make("install"), folder / "root/opt/with space"
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    suite.check(done.returncode == 0 and files == {"bin/udnnmem", "lib/libudnnmem.so", "lib/libudnnmem-hidden.so", "lib/udnnmem-site/sitecustomize.py"}, "make install: into a path with a space", f"    {files}\n{done.stderr}")
    (place / "lib/other.so").touch()
    (place / "lib/udnnmem-site/__pycache__").mkdir()
    for time in ("", " again"):
        done = make("uninstall")
        left = {str(path.relative_to(place)) for path in place.rglob("*")}
        suite.check(done.returncode == 0 and left == {"bin", "lib", "lib/other.so"}, f"make uninstall{time}: what install put there and nothing else", f"    {left}\n{done.stderr}")


def check_launch_path(suite):
    """It fetches ahead what the next launches need. GCC takes what only prefetches for work without effect, and leaves calls of it out."""
    library = BUILD / "libudnnmem.so"
    tell = re.search(r"^(\w+) (\w+) . _ZN7udnnmem8executor8Executor4tellE\S*$", subprocess.run(["nm", "-S", library], capture_output=True, text=True, check=True).stdout, re.M)
    if suite.check(tell, "the launch path is found in the library"):
        begin, size = int(tell[1], 16), int(tell[2], 16)
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--start-address={begin}", f"--stop-address={begin + size}", library], capture_output=True, text=True, check=True).stdout
        fetched = re.findall(r"\t(prefetch\w+|prfm)\b", code)
        suite.check(len(fetched) >= 4, "a launch fetches memos, steps, words and buffers ahead", f"    {len(fetched)} places in {size} bytes of code")


def main():
    suite = Suite()
    check_launch_path(suite)
    made = subprocess.run(["make", "-s", "-o", "all", "-C", str(ROOT), "tarball", "wheel", f"B={BUILD}", "DIST=" + str(BUILD / "dist")], capture_output=True, text=True)
    if not suite.check(made.returncode == 0, "make tarball wheel", made.stdout + made.stderr):
        suite.finish()
    tarball = max((BUILD / "dist").glob(f"udnnmem-*-linux-{MACHINE}.tar.gz"), key=lambda p: p.stat().st_mtime)
    wheel = max((BUILD / "dist").glob("*.whl"), key=lambda p: p.stat().st_mtime)
    print(f"{tarball.name}: {tarball.stat().st_size >> 10} KiB, {wheel.name}: {wheel.stat().st_size >> 10} KiB")
    for package in (tarball, wheel):
        suite.check(package.stat().st_size < LARGEST, f"{package.name}: no larger than the README says", f"    {package.stat().st_size} bytes")
    suite.check(f"manylinux_{OLDEST[0]}_{OLDEST[1]}_{MACHINE}" in wheel.name, "the wheel says which glibc and architecture", wheel.name)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run(["tar", "xzf", tarball, "-C", folder], check=True)
        top, = folder.iterdir()
        moved = folder / "elsewhere"
        top.rename(moved)
        check_install(suite, folder)
        exported = {"dlsym", "dlopen", "cuMemAlloc_v2", "cuLaunchKernel", "cuGetProcAddress_v2"}
        check_binary(suite, moved / "lib/libudnnmem.so", exported)
        check_binary(suite, moved / "lib/libudnnmem-hidden.so", {"dlsym", "dlopen"})
        check_binary(suite, moved / "bin/udnnmem", set())
        check_works(suite, [moved / "bin/udnnmem"], "tarball", moved / "lib/libudnnmem.so")
        suite.check((moved / "lib/udnnmem-site/sitecustomize.py").exists() and (moved / "LICENSE").exists(), "tarball: all files are there")

        with zipfile.ZipFile(wheel) as archive:
            listed = {}
            for line in archive.read(next(n for n in archive.namelist() if n.endswith("RECORD"))).decode().splitlines():
                name, digest, size = line.rsplit(",", 2)
                listed[name] = (digest, size)
            suite.check(set(listed) == set(archive.namelist()), "wheel: RECORD lists every file")
            for name in archive.namelist():
                data = archive.read(name)
                right = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                suite.check(name.endswith("RECORD") or listed[name] == (right, str(len(data))), f"wheel: RECORD is right of {name}")
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        installed = subprocess.run([folder / "venv/bin/pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", wheel], capture_output=True, text=True)
        if suite.check(installed.returncode == 0, "wheel: pip installs it", installed.stderr):
            package = next((folder / "venv/lib").glob("python3*")) / "site-packages/udnnmem"
            check_works(suite, [folder / "venv/bin/udnnmem"], "wheel", package / "lib/libudnnmem.so")
            said = subprocess.run([folder / "venv/bin/python", "-c", "import udnnmem; print(udnnmem.library())"], capture_output=True, text=True).stdout.strip()
            suite.check(said == str(package / "lib/libudnnmem.so"), "wheel: says where the library is", said)
            version = subprocess.run([folder / "venv/bin/python", "-m", "udnnmem", "--version"], capture_output=True, text=True).stdout
            suite.check(version.startswith("udnnmem "), "wheel: python -m udnnmem")
    suite.finish()


if __name__ == "__main__":
    main()
