#!/usr/bin/env python3
"""Several releases of cuBLAS in one process, and one that comes and goes: each call reaches the library that its caller is
linked with or has looked it up in, with the library at work or switched off.
"""
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import PRELOAD, WORKLOADS, Run, Suite, environment

RELEASES = WORKLOADS / "math/releases"
OURS = PRELOAD.name


def main():
    suite = Suite()

    def check(what, expected, how, *files, preload=True, **options):
        done = Run([WORKLOADS / "releases", how, *(RELEASES / f for f in files)], environment(preload=preload, **options))
        lines = done.output.splitlines()
        suite.check(done.status == 0 and lines == expected, f"{what}, {'preload' if preload else 'alone'} {options}", f"    {done.status} {lines} {done.error}")

    plugins = ("libuses12.so", "libuses11.so", "libuses13.so")
    for options in ({"preload": False}, {}, {"UDNNMEM_DISABLE": 1}, {"UDNNMEM_HIDE_EXPORTS": 1}):
        check("three releases, linked", ["0"] * 3, "linked", *plugins, **options)
        check("three releases, linked, the other way round", ["0"] * 3, "linked", *reversed(plugins), **options)
        check("under a soname of its own", ["0", "0"], "linked", "own/libuses12.so", "libuses11.so", **options)
        check("unloaded, and loaded again", ["0"] * 3, "again", "libuses12.so", "libuses12.so", "copy/libuses12.so", **options)
        check("unloaded, without versions", ["0", "0"], "again", "libuses13.so", "libuses13.so", **options)
    shared = {"LD_PRELOAD": f"{PRELOAD}:{RELEASES}/libcublas.so.11"}
    check("one of them for all", ["0"] * 3, "linked", *plugins, **shared)
    libraries = ("libcublas.so.11", "libcublas.so.12", "libcublas.so.13", "copy/libcublas.so.12")
    check("looked up", [f"0 {OURS}"] * 3 + ["0 libcublas.so.12"], "looked-up", *libraries)
    check("looked up, switched off", [f"0 {pathlib.Path(f).name}" for f in libraries], "looked-up", *libraries, UDNNMEM_DISABLE=1)
    suite.finish()


if __name__ == "__main__":
    main()
