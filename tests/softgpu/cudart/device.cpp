// Devices, errors, versions, occupancy, entry points: what needs no stream.
#include "tests/softgpu/cudart/images.hpp"
#include <cstring>

using namespace cudart;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

cudaError_t device_handle(int ordinal, CUdevice* out) {
  if (CUresult r = DRIVER(cuDeviceGet, 2000)(out, ordinal)) return to_runtime(r);
  return cudaSuccess;
}

}  // namespace

EXPORT cudaError_t cudaGetLastError() { return last_error(true); }
EXPORT cudaError_t cudaPeekAtLastError() { return last_error(false); }

EXPORT const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
#define NAME(name) case name: return #name;
    NAME(cudaSuccess) NAME(cudaErrorInvalidValue) NAME(cudaErrorMemoryAllocation) NAME(cudaErrorInitializationError)
    NAME(cudaErrorCudartUnloading) NAME(cudaErrorInvalidConfiguration) NAME(cudaErrorInvalidSymbol) NAME(cudaErrorInvalidMemcpyDirection)
    NAME(cudaErrorInsufficientDriver) NAME(cudaErrorInvalidDeviceFunction) NAME(cudaErrorNoDevice) NAME(cudaErrorInvalidDevice)
    NAME(cudaErrorInvalidKernelImage) NAME(cudaErrorDeviceUninitialized) NAME(cudaErrorNoKernelImageForDevice) NAME(cudaErrorInvalidPtx)
    NAME(cudaErrorUnsupportedPtxVersion) NAME(cudaErrorFileNotFound) NAME(cudaErrorOperatingSystem) NAME(cudaErrorInvalidResourceHandle)
    NAME(cudaErrorIllegalState) NAME(cudaErrorSymbolNotFound) NAME(cudaErrorNotReady) NAME(cudaErrorIllegalAddress)
    NAME(cudaErrorLaunchOutOfResources) NAME(cudaErrorLaunchTimeout) NAME(cudaErrorPeerAccessAlreadyEnabled) NAME(cudaErrorPeerAccessNotEnabled)
    NAME(cudaErrorAssert) NAME(cudaErrorHostMemoryAlreadyRegistered) NAME(cudaErrorHostMemoryNotRegistered) NAME(cudaErrorLaunchFailure)
    NAME(cudaErrorNotPermitted) NAME(cudaErrorNotSupported) NAME(cudaErrorStreamCaptureUnsupported) NAME(cudaErrorStreamCaptureInvalidated)
    NAME(cudaErrorStreamCaptureMerge) NAME(cudaErrorStreamCaptureUnmatched) NAME(cudaErrorStreamCaptureUnjoined) NAME(cudaErrorStreamCaptureIsolation)
    NAME(cudaErrorStreamCaptureImplicit) NAME(cudaErrorCapturedEvent) NAME(cudaErrorStreamCaptureWrongThread) NAME(cudaErrorGraphExecUpdateFailure)
#undef NAME
    default: return "cudaErrorUnknown";
  }
}

EXPORT const char* cudaGetErrorString(cudaError_t e) {
  // These have no counterpart among the driver's errors.
  switch (e) {
    case cudaErrorInsufficientDriver: return "no usable CUDA driver (libcuda.so.1)";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    default: break;
  }
  const char* text = nullptr;
  if (load_driver() == cudaSuccess) DRIVER(cuGetErrorString, 6000)(static_cast<CUresult>(e), &text);
  return text ? text : "unrecognised error code";
}

EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return note(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  return call_driver([&] { return DRIVER(cuDriverGetVersion, 2020)(version); });
}

EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return note(cudaErrorInvalidValue);
  *count = 0;
  return call_driver([&] { return DRIVER(cuDeviceGetCount, 2000)(count); });
}
EXPORT cudaError_t cudaSetDevice(int device) { return note(use_device(device)); }
EXPORT cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return call_driver([&] { return primary_context(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}
EXPORT cudaError_t cudaGetDevice(int* device) {
  if (!device) return note(cudaErrorInvalidValue);
  return call_driver([&] { *device = current_device(); return cudaSuccess; });
}
EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return call_driver([&] { return DRIVER(cuDevicePrimaryCtxSetFlags, 11000)(current_device(), flags); });
}
EXPORT cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return call([&] { return DRIVER(cuCtxGetFlags, 7000)(flags); });
}
EXPORT cudaError_t cudaDeviceSynchronize() {
  return call([&] { return DRIVER(cuCtxSynchronize, 13000)(nullptr); });
}
EXPORT cudaError_t cudaDeviceReset() {
  return call_driver([&] {
    const int device = current_device();
    CUresult r = DRIVER_AS(PFN_cuDevicePrimaryCtxReset_v11000, cuDevicePrimaryCtxReset, 7000)(device);
    drop_primary(device);
    return r;
  });
}
EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call_driver([&] { return DRIVER(cuDeviceGetAttribute, 2000)(value, static_cast<CUdevice_attribute>(attribute), device); });
}
EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call_driver([&] { return DRIVER(cuDeviceGetPCIBusId, 4010)(text, length, device); });
}
EXPORT cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return call_driver([&] { return DRIVER(cuDeviceGetByPCIBusId, 4010)(device, text); });
}
EXPORT cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  return call_driver([&] { return DRIVER(cuDeviceGetP2PAttribute, 8000)(value, static_cast<CUdevice_P2PAttribute>(attribute), from, to); });
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call_driver([&] { return DRIVER(cuDeviceCanAccessPeer, 4000)(can, device, peer); });
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call([&] { return DRIVER(cuCtxEnablePeerAccess, 4000)(primary_context(peer), flags); });
}
EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return call([&] { return DRIVER(cuCtxDisablePeerAccess, 4000)(primary_context(peer)); });
}
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&] { return DRIVER(cuCtxGetStreamPriorityRange, 5050)(least, greatest); });
}
EXPORT cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return call([&] { return DRIVER(cuCtxSetLimit, 3010)(static_cast<CUlimit>(limit), value); });
}
EXPORT cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return call([&] { return DRIVER(cuCtxGetLimit, 3010)(value, static_cast<CUlimit>(limit)); });
}
EXPORT cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return call([&] { return DRIVER(cuCtxSetCacheConfig, 3020)(static_cast<CUfunc_cache>(config)); });
}
EXPORT cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return call([&] { return DRIVER(cuCtxGetCacheConfig, 3020)(reinterpret_cast<CUfunc_cache*>(config)); });
}
EXPORT cudaError_t cudaCtxResetPersistingL2Cache() {
  return call([&] { return DRIVER(cuCtxResetPersistingL2Cache, 11000)(); });
}
EXPORT cudaError_t cudaProfilerStart() { return call([&] { return DRIVER_AS(CUresult (*)(), cuProfilerStart, 4000)(); }); }
EXPORT cudaError_t cudaProfilerStop() { return call([&] { return DRIVER_AS(CUresult (*)(), cuProfilerStop, 4000)(); }); }

EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  return call_driver([&]() -> cudaError_t {
    CUdevice d;
    if (cudaError_t e = device_handle(device, &d)) return e;
    memset(p, 0, sizeof *p);
    if (CUresult r = DRIVER(cuDeviceGetName, 2000)(p->name, sizeof p->name, d)) return to_runtime(r);
    if (CUresult r = DRIVER(cuDeviceTotalMem, 3020)(&p->totalGlobalMem, d)) return to_runtime(r);
    DRIVER(cuDeviceGetUuid, 9020)(reinterpret_cast<CUuuid*>(&p->uuid), d);
    auto get = [&](int which) { int v = 0; DRIVER(cuDeviceGetAttribute, 2000)(&v, static_cast<CUdevice_attribute>(which), d); return v; };
    p->major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    p->minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    p->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    p->sharedMemPerBlockOptin = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    p->sharedMemPerMultiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    p->reservedSharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    p->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    p->regsPerMultiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    p->warpSize = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    p->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    p->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int i = 0; i < 3; i++) {
      p->maxThreadsDim[i] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
      p->maxGridSize[i] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
    }
    p->totalConstMem = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    p->textureAlignment = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    p->texturePitchAlignment = get(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
    p->multiProcessorCount = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    p->maxThreadsPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    p->maxBlocksPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    p->integrated = get(CU_DEVICE_ATTRIBUTE_INTEGRATED);
    p->canMapHostMemory = get(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
    p->concurrentKernels = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
    p->ECCEnabled = get(CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
    p->pciBusID = get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    p->pciDeviceID = get(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    p->pciDomainID = get(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    p->asyncEngineCount = get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    p->unifiedAddressing = get(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
    p->memoryBusWidth = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    p->l2CacheSize = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    p->streamPrioritiesSupported = get(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
    p->managedMemory = get(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    p->concurrentManagedAccess = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
    p->pageableMemoryAccess = get(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
    p->canUseHostPointerForRegisteredMem = get(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    p->hostRegisterSupported = get(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
    p->cooperativeLaunch = get(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
    p->clusterLaunch = get(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
    p->memoryPoolsSupported = get(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    p->memoryPoolSupportedHandleTypes = get(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);
    p->hostNumaId = get(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
    return cudaSuccess;
  });
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_size, size_t shared, unsigned flags) {
  return call([&]() -> cudaError_t {
    CUfunction f;
    if (cudaError_t e = find_function(function, &f)) return e;
    return to_runtime(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000)(blocks, f, block_size, shared, flags));
  });
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_size, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared, 0);
}
EXPORT cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks, int block_size) {
  return call([&]() -> cudaError_t {
    CUfunction f;
    if (cudaError_t e = find_function(function, &f)) return e;
    return to_runtime(DRIVER(cuOccupancyAvailableDynamicSMemPerBlock, 10020)(bytes, f, blocks, block_size));
  });
}
