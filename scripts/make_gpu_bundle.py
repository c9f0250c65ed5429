#!/usr/bin/env python3
"""Packs what scripts/gpu_check.sh needs: its scripts, the library, the tool, probes and workloads, stripped; and what a machine with a
card is likely to lack, tinygrad's wheel and Dr.Jit's, if pip can fetch them. The archive unpacks into one folder that looks like a
clone after `make`, with the commit in a file.

    make_gpu_bundle.py --build build --output build/dist/udnnmem-gpu-x86_64.tar.gz PROGRAM...
"""
import argparse, pathlib, platform, shutil, subprocess, sys, tarfile, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST = 60 << 20
SCRIPTS = ["scripts/gpu_check.sh", "tests/gpu", "tests/real/networks", "tests/real/numba_scripts", "tests/real/drjit_scripts", "LICENSE"]


def fetch(wheels, pythons):
    """The wheels of tests/real that travel. PyTorch, JAX, CuPy, Triton, numba, NumPy are too large: they are there or not."""
    machine = platform.machine()
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "-d", str(wheels)]
    wanted = {"tinygrad": ["tinygrad==0.14.0"]}
    for version in pythons:
        wanted[f"Dr.Jit for Python {version}"] = ["drjit==1.5.0", "--python-version", version, "--implementation", "cp", *(w for tag in ("manylinux_2_28", "manylinux_2_27", "manylinux2014") for w in ("--platform", f"{tag}_{machine}"))]
    for what, words in wanted.items():
        fetched = subprocess.run([*pip, *words], capture_output=True, text=True)
        if fetched.returncode != 0:
            print(f"make_gpu_bundle: {what} cannot be had, `real` needs it there: {(fetched.stderr.strip().splitlines() or ['pip failed'])[-1]}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--no-wheels", action="store_true", help="without tinygrad and Dr.Jit (and so without a network)")
    parser.add_argument("--python", default="3.11,3.12,3.13", metavar="VERSIONS", help="which Python may be there, for Dr.Jit's wheel (%(default)s)")
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", help="programs under the build folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        top = pathlib.Path(folder) / "udnnmem-gpu"
        for name in SCRIPTS:
            to = top / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__", "*.cpp", "*.hpp", "*.cu", "*.mk"))
            else:
                shutil.copy2(ROOT / name, to)
        for name in ["libudnnmem.so", "libudnnmem-hidden.so", "udnnmem", *options.programs]:
            to = top / "build" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["strip", "--strip-unneeded", "-o", to, options.build / name], check=True)
            to.chmod(0o755)
        shutil.copytree(options.build / "udnnmem-site", top / "build/udnnmem-site", ignore=shutil.ignore_patterns("__pycache__"))
        commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True).stdout.strip()
        (top / "COMMIT").write_text((commit or "unknown") + "\n")
        if not options.no_wheels:
            fetch(top / "wheels", options.python.split(","))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(options.output, "w:gz") as archive:
            archive.add(top, top.name)
    size = options.output.stat().st_size
    print(f"{options.output}: {size} bytes of {MOST} allowed")
    sys.exit(0 if size <= MOST else f"make_gpu_bundle: {options.output} is larger than {MOST} bytes: what travels to a card must be smaller")


if __name__ == "__main__":
    main()
