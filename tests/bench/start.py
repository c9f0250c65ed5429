#!/usr/bin/env python3
"""What the library adds before a program's first ops have run, ms: of a program with one small kernel, and of one whose image holds
KERNELS long ones, each of them launched once, as those of compilers that fuse a whole network are. Measuring the link is part of it,
most of the first figure. Medians of pairs of runs without and with it, in turn.
"""
import ctypes, json, pathlib, statistics, subprocess, sys, time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.e2e.harness import environment

KERNELS, INSTRUCTIONS, PARAMETERS, PAIRS = 8, 4000, 40, 7


def image(kernels, instructions):
    """PTX: each kernel adds up words of its parameters, and stores the sum where a parameter says."""
    body = [f"ld.param.u64 %r{i}, [p{i}];" for i in range(PARAMETERS)]
    body += [f"add.u64 %r{i % PARAMETERS + PARAMETERS}, %r{i * 7 % (2 * PARAMETERS)}, %r{i * 3 % PARAMETERS};" for i in range(instructions)]
    parameters = ", ".join(f".param .u64 p{i}" for i in range(PARAMETERS))
    kernel = f"({parameters}) {{\n.reg .u64 %r<{2 * PARAMETERS}>;\n" + "\n".join(body) + "\nst.global.u64 [%r0], %r40;\nret;\n}\n"
    return ".version 7.0\n.target sm_70\n.address_size 64\n" + "".join(f".visible .entry k{k}{kernel}" for k in range(kernels))


def program(kernels, instructions):
    """Prints the seconds from before the driver is loaded until the kernels have run."""
    ptx = image(kernels, instructions).encode()
    begin = time.perf_counter()
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result:
            sys.exit(f"{name}: {result}")

    context, module, function, memory = (ctypes.c_void_p() for _ in range(4))
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    call("cuModuleLoadData", ctypes.byref(module), ptx)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 21))
    word = ctypes.c_uint64(memory.value)
    arguments = (ctypes.c_void_p * PARAMETERS)(*[ctypes.addressof(word)] * PARAMETERS)
    for k in range(kernels):
        call("cuModuleGetFunction", ctypes.byref(function), module, f"k{k}".encode())
        call("cuLaunchKernel", function, *[1] * 6, 0, None, arguments, None)
    call("cuCtxSynchronize")
    print(time.perf_counter() - begin)


def seconds(preload, *what):
    done = subprocess.run([sys.executable, __file__, *map(str, what)], env=environment(preload=preload, SOFTGPU_MEMORY="1GiB"), capture_output=True, text=True, check=True)
    return float(done.stdout)


def main():
    if sys.argv[1:]:
        return program(*map(int, sys.argv[1:]))
    for name, what in (("start", (1, 10)), ("start_long_kernels", (KERNELS, INSTRUCTIONS))):
        seconds(False, *what)   # the software GPU compiles them, once
        added = [-seconds(False, *what) + seconds(True, *what) for _ in range(PAIRS)]
        print(json.dumps({"name": f"{name}_added_ms", "value": round(1e3 * statistics.median(added), 1), "unit": "ms", "goal": None}))


if __name__ == "__main__":
    main()
