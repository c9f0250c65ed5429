#!/usr/bin/env python3
"""Writes interpose/entry_points.def, the table of the driver's entry points, from a CUDA toolkit.

    scripts/make_entry_points.py CUDA_HOME > interpose/entry_points.def

Input: the symbols that the toolkit's stub of libcuda exports (where it has none, as the unpacked wheel
nvidia-cuda-runtime, folder nvidia/cu13, has not: what its cuda.h declares), and the PFN_ typedefs of
cudaTypedefs.h, which say from which version on cuGetProcAddress answers each. Both are sorted by
version within a base name and stream flavour, and match one to one: a mismatch is an error. The
class of each symbol is decided here, by name; what is not named is passed through. The table is
committed: this script runs once for each new toolkit, and its output is read before it is used. What
has a hook and is later than the oldest toolkit that builds us is declared in interpose/newer_symbols.hpp.
"""
import collections, os, re, subprocess, sys

# Calls whose effect may change: what the pager manages, answers or refuses.
MANAGE = """
cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFree_v2 cuMemFreeAsync
cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice
cuLaunch cuLaunchGrid cuLaunchGridAsync cuLaunchHostFunc cuLaunchHostFunc_v2 cuStreamAddCallback cuGraphLaunch
cuStreamBeginCaptureToCig
cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync
cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2
cuMemcpyDtoA_v2 cuMemcpyAtoD_v2 cuMemcpyHtoA_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoH_v2 cuMemcpyAtoHAsync_v2
cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuMemcpy3D_v2 cuMemcpy3DAsync_v2
cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_v2
cuMemcpyWithAttributesAsync cuMemcpy3DWithAttributesAsync cuFabricCpyBatchAsync
cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 cuMemsetD2D16_v2 cuMemsetD2D32_v2
cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async
cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32 cuStreamWriteValue64 cuStreamBatchMemOp
cuStreamWaitValue32_v2 cuStreamWaitValue64_v2 cuStreamWriteValue32_v2 cuStreamWriteValue64_v2 cuStreamBatchMemOp_v2
cuMemBatchDecompressAsync cuMemPrefetchAsync cuMemPrefetchAsync_v2 cuMemPrefetchBatchAsync
cuMemDiscardBatchAsync cuMemDiscardAndPrefetchBatchAsync cuMemAdvise cuMemAdvise_v2 cuStreamAttachMemAsync
cuMemGetInfo_v2 cuDeviceTotalMem_v2 cuMemGetAddressRange_v2 cuPointerGetAttribute cuPointerGetAttributes
cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo
cuMemCreate cuArrayCreate_v2 cuArray3DCreate_v2 cuMipmappedArrayCreate
cuMemUnmap cuMemSetAccess cuMemRetainAllocationHandle cuMemGetHandleForAddressRange cuMemPoolExportPointer
cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle
cuMulticastBindAddr cuMulticastBindAddr_v2 cuLogicalEndpointBindAddr cuTexObjectCreate cuTexRefSetAddress_v2 cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3
cuPointerSetAttribute cuGetProcAddress cuGetProcAddress_v2
cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphAddBatchMemOpNode cuGraphAddNode cuGraphAddNode_v2 cuGraphAddNode_v3
cuGraphMemcpyNodeSetParams cuGraphMemsetNodeSetParams cuGraphBatchMemOpNodeSetParams cuGraphNodeSetParams cuGraphNodeSetParams_v2
cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams cuGraphExecBatchMemOpNodeSetParams cuGraphExecNodeSetParams
""".split()

# Calls that are made as they are, and of which the layer above (or interpose itself) is told.
OBSERVE = """
cuInit cuStreamSynchronize cuStreamQuery cuEventSynchronize cuEventQuery cuCtxSynchronize cuCtxSynchronize_v2
cuEventRecord cuEventRecordWithFlags cuCtxRecordEvent cuGreenCtxRecordEvent cuEventDestroy cuEventDestroy_v2
cuStreamWaitEvent cuCtxWaitEvent cuGreenCtxWaitEvent
cuStreamCreate cuStreamCreateWithPriority cuGreenCtxStreamCreate cuStreamDestroy cuStreamDestroy_v2
cuStreamBeginCapture cuStreamBeginCapture_v2 cuStreamBeginCaptureToGraph cuStreamEndCapture
cuStreamBeginRecaptureToGraph cuStreamEndCaptureToCig
cuCtxAttach cuCtxDestroy cuCtxDestroy_v2 cuCtxDetach cuGreenCtxDestroy cuCtxSetLimit cuDevicePrimaryCtxRetain
cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2
cuMemPoolCreate cuMemPoolDestroy cuMemPoolSetAccess cuMemPoolImportFromShareableHandle cuDeviceSetMemPool cuMemSetMemPool
cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction
cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel cuLibraryEnumerateKernels
cuKernelGetFunction cuFuncLoad
cuMemPoolImportPointer cuExternalMemoryGetMappedBuffer cuGraphicsResourceGetMappedPointer_v2
cuModuleGetGlobal_v2 cuLibraryGetGlobal cuLibraryGetManaged cuLinkAddData_v2 cuLinkAddFile_v2
cuGraphInstantiate cuGraphInstantiate_v2 cuGraphInstantiateWithFlags cuGraphInstantiateWithParams
cuGraphUpload cuGraphExecUpdate cuGraphExecUpdate_v2 cuGraphExecDestroy cuGraphNodeSetEnabled
cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2 cuGraphExecHostNodeSetParams
cuGraphExecChildGraphNodeSetParams
cuMemHostAlloc cuMemAllocHost cuMemAllocHost_v2 cuMemFreeHost cuMemHostRegister cuMemHostRegister_v2 cuMemHostUnregister
cuMemAllocManaged cuMemMap cuCtxEnablePeerAccess cuCtxDisablePeerAccess
cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide cuTensorMapReplaceAddress
cuTensorMapSetAllocationClass
""".split()

# Calls that are answered with CUDA_ERROR_NOT_SUPPORTED.
REFUSE = []

# Without these there is no paging: a driver that lacks one is passed through.
REQUIRED = """
cuInit cuDriverGetVersion cuDeviceGetAttribute cuCtxGetCurrent cuCtxSetCurrent cuCtxGetDevice
cuMemAlloc_v2 cuMemFree_v2 cuMemGetInfo_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuLaunchKernel
cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess
cuMemGetAllocationGranularity cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize
cuEventCreate cuEventRecord cuEventQuery cuEventSynchronize cuEventDestroy_v2 cuGetProcAddress_v2
""".split()

# Declared in cudaProfiler.h.
ELSEWHERE = {"cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"}


def flavour(name):
    found = re.search(r"_(ptsz|ptds)$", name)
    return ("per_thread", name[: found.start()]) if found else ("legacy", name)


def exported(home):
    stub = f"{home}/lib64/stubs/libcuda.so"
    if os.path.exists(stub):
        listing = subprocess.run(["nm", "-D", "--defined-only", stub], check=True, capture_output=True, text=True).stdout
        return sorted(set(re.findall(r" T (cu[A-Z]\w*)$", listing, re.M)))
    declared = subprocess.run(["cc", "-E", "-P", f"-I{home}/include", "-D__CUDA_API_VERSION_INTERNAL", "-xc", "-"], check=True,
                              input="#include <cuda.h>", capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", declared)) | ELSEWHERE)


def main():
    home = sys.argv[1]
    text = open(f"{home}/include/cudaTypedefs.h").read()
    typedefs = collections.defaultdict(set)
    for base, version, suffix in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
        typedefs[base, "per_thread" if suffix else "legacy"].add(int(version))
    symbols = exported(home)
    groups = collections.defaultdict(list)
    for symbol in symbols:
        stream, plain = flavour(symbol)
        found = re.search(r"_v(\d+)$", plain)
        groups[plain[: found.start()] if found else plain, stream].append((int(found[1]) if found else 1, symbol))
    rows = []
    for (base, stream), members in sorted(groups.items()):
        versions = sorted(typedefs.get((base, stream), ()))
        if base in ELSEWHERE:
            versions = [4000]
        if len(versions) != len(members):
            sys.exit(f"{base} ({stream}): {len(members)} symbols, {len(versions)} typedefs")
        for (_, symbol), version in zip(sorted(members), versions):
            plain = flavour(symbol)[1]
            kind = ("manage" if plain in MANAGE else "observe" if plain in OBSERVE else
                    "refuse" if plain in REFUSE else "pass")
            need = "required" if symbol in REQUIRED else "optional"
            rows.append((symbol, base, version, stream, kind, need))
    unknown = set(MANAGE + OBSERVE + REFUSE) - {flavour(r[0])[1] for r in rows}
    if unknown:
        sys.exit(f"no such symbols: {sorted(unknown)}")
    version = int(re.search(r"^#define CUDA_VERSION (\d+)", open(f"{home}/include/cuda.h").read(), re.M)[1])
    print(f"""// The CUDA driver's entry points, one line for each symbol that libcuda exports (toolkit {version // 1000}.{version % 1000 // 10}): hooks, exports,
// the resolver and the coverage tests expand from this table. Made by scripts/make_entry_points.py.
//
//   ENTRY(symbol, base name, version, stream flavour, class, need)
//     version   what cuGetProcAddress(base name) must be asked for at least to be answered with this symbol
//     flavour   legacy, or per_thread (_ptsz, _ptds): which stream NULL means
//     class     manage: its effect may change; observe: made as it is, then told of; pass: none of our business;
//               refuse: answered with CUDA_ERROR_NOT_SUPPORTED. `manage`, `observe` and `refuse` have a hook.
//     need      required: no paging with a driver that lacks it
//
// The forms of version 2000 that take 32-bit addresses pass: they cannot name memory that we place.
""")
    for row in sorted(rows):
        print("ENTRY(" + ", ".join(map(str, row)) + ")")


main()
