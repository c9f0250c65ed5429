#!/usr/bin/env python3
"""A wheel of what `make install` installs, so that `pip install` brings the library and the command `udnnmem`.

    make_wheel.py --version 0.1.0 --platform manylinux_2_34_x86_64 --stage build/dist/stage/udnnmem-0.1.0 --output build/dist

The stage's bin/ and lib/ become udnnmem/bin and udnnmem/lib, where the tool finds the library as everywhere; the command
is a Python of a few lines that becomes the tool. Written with the standard library alone: the format is PEP 427, RECORD
holds the hash of every file, and the times are fixed, so that the same files make the same wheel.
"""
import argparse, base64, hashlib, pathlib, zipfile

PACKAGE = '''"""udnnmem: trains networks that do not fit in GPU memory. The command `udnnmem` and the library are in this folder."""
import os, pathlib, sys

__version__ = "{version}"


def library():
    """The path of libudnnmem.so, for LD_PRELOAD."""
    return str(pathlib.Path(__file__).resolve().parent / "lib" / "libudnnmem.so")


def main():
    """Becomes the tool, so that exit code, signals and process id are its own."""
    tool = str(pathlib.Path(__file__).resolve().parent / "bin" / "udnnmem")
    os.execv(tool, [tool] + sys.argv[1:])
'''
METADATA = """Metadata-Version: 2.1
Name: udnnmem
Version: {version}
Summary: Trains networks that do not fit in GPU memory: pages device buffers to host memory, below the program
License: Apache-2.0
Requires-Python: >=3.7
Description-Content-Type: text/markdown

"""
WHEEL = """Wheel-Version: 1.0
Generator: udnnmem make_wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("version", "platform", "stage", "output"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    stage, info = pathlib.Path(options.stage), f"udnnmem-{options.version}.dist-info"
    files = {"udnnmem/__init__.py": PACKAGE.format(version=options.version).encode(),
             "udnnmem/__main__.py": b"from udnnmem import main\n\nmain()\n"}
    for folder in ("bin", "lib"):
        for path in sorted((stage / folder).rglob("*")):
            if path.is_file():
                files[f"udnnmem/{path.relative_to(stage)}"] = path.read_bytes()
    files[f"{info}/METADATA"] = METADATA.format(version=options.version).encode() + (stage / "README.md").read_bytes()
    files[f"{info}/WHEEL"] = WHEEL.format(platform=options.platform).encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nudnnmem = udnnmem:main\n"
    files[f"{info}/licenses/LICENSE"] = (stage / "LICENSE").read_bytes()
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = pathlib.Path(options.output) / f"udnnmem-{options.version}-py3-none-{options.platform}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if "/bin/" in name or name.endswith(".so") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(f"{wheel}: {wheel.stat().st_size} bytes")


if __name__ == "__main__":
    main()
