// Memory that is not ordered by a stream: allocation of every kind, pools, queries, IPC handles.
#include "tests/softgpu/cudart/copies.hpp"
#include <cstring>

using namespace cudart;

#define EXPORT extern "C" __attribute__((visibility("default")))

static CUmemoryPool pool(cudaMemPool_t p) { return reinterpret_cast<CUmemoryPool>(p); }

EXPORT cudaError_t cudaMalloc(void** out, size_t bytes) {
  if (!out) return note(cudaErrorInvalidValue);
  return call([&]() -> cudaError_t {
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    CUdeviceptr p = 0;
    if (CUresult r = DRIVER(cuMemAlloc, 3020)(&p, bytes)) return to_runtime(r);
    *out = pointer(p);
    return cudaSuccess;
  });
}
EXPORT cudaError_t cudaFree(void* p) {
  return call([&] { return p ? DRIVER(cuMemFree, 3020)(address(p)) : CUDA_SUCCESS; });
}
EXPORT cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  return call([&] { return DRIVER(cuMemAllocPitch, 3020)(reinterpret_cast<CUdeviceptr*>(out), pitch, width, height, 4); });
}
EXPORT cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  out->xsize = extent.width;
  out->ysize = extent.height;
  return cudaMallocPitch(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
}
EXPORT cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned flags) {
  return call([&] { return DRIVER(cuMemAllocManaged, 6000)(reinterpret_cast<CUdeviceptr*>(out), bytes, flags); });
}
EXPORT cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned flags) {
  if (!out) return note(cudaErrorInvalidValue);
  return call([&] { return DRIVER(cuMemHostAlloc, 2020)(out, bytes, flags); });
}
EXPORT cudaError_t cudaMallocHost(void** out, size_t bytes) { return cudaHostAlloc(out, bytes, cudaHostAllocPortable); }
EXPORT cudaError_t cudaFreeHost(void* p) {
  return call([&] { return p ? DRIVER(cuMemFreeHost, 2000)(p) : CUDA_SUCCESS; });
}
EXPORT cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned flags) {
  return call([&] { return DRIVER(cuMemHostRegister, 6050)(p, bytes, flags); });
}
EXPORT cudaError_t cudaHostUnregister(void* p) {
  return call([&] { return DRIVER(cuMemHostUnregister, 4000)(p); });
}
EXPORT cudaError_t cudaHostGetDevicePointer(void** out, void* host, unsigned flags) {
  return call([&] { return DRIVER(cuMemHostGetDevicePointer, 3020)(reinterpret_cast<CUdeviceptr*>(out), host, flags); });
}
EXPORT cudaError_t cudaHostGetFlags(unsigned* flags, void* p) {
  return call([&] { return DRIVER(cuMemHostGetFlags, 2030)(flags, p); });
}
EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] { return DRIVER(cuMemGetInfo, 3020)(free, total); });
}
EXPORT cudaError_t cudaMemAdvise(const void* p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return call([&] {
    CUmemLocation where{static_cast<CUmemLocationType>(location.type), {location.id}};
    return DRIVER(cuMemAdvise, 12020)(address(p), bytes, static_cast<CUmem_advise>(advice), where);
  });
}

// One question for all attributes; memory that CUDA does not know is `unregistered`, not an error.
EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  if (!out) return note(cudaErrorInvalidValue);
  return call([&]() -> cudaError_t {
    CUmemorytype type{};
    int managed = 0, device = 0;
    CUdeviceptr on_device = 0;
    void* on_host = nullptr;
    CUcontext context = nullptr;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* values[] = {&context, &type, &on_device, &on_host, &managed, &device};
    if (CUresult r = DRIVER(cuPointerGetAttributes, 7000)(6, which, values, address(p))) return to_runtime(r);
    *out = {};
    out->device = device;
    out->devicePointer = pointer(on_device);
    out->hostPointer = on_host;
    if (managed) out->type = cudaMemoryTypeManaged;
    else if (type == CU_MEMORYTYPE_DEVICE) out->type = cudaMemoryTypeDevice;
    else if (type == CU_MEMORYTYPE_HOST) out->type = cudaMemoryTypeHost;
    else {
      out->type = cudaMemoryTypeUnregistered;
      out->device = -2;
      out->hostPointer = const_cast<void*>(p);
    }
    return cudaSuccess;
  });
}

EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* p) {
  return call([&] { return DRIVER(cuIpcGetMemHandle, 4010)(reinterpret_cast<CUipcMemHandle*>(handle), address(p)); });
}
EXPORT cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned flags) {
  return call([&] {
    CUipcMemHandle h;
    memcpy(&h, &handle, sizeof h);
    return DRIVER(cuIpcOpenMemHandle, 11000)(reinterpret_cast<CUdeviceptr*>(out), h, flags);
  });
}
EXPORT cudaError_t cudaIpcCloseMemHandle(void* p) { return call([&] { return DRIVER(cuIpcCloseMemHandle, 4010)(address(p)); }); }

// Pools.
EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* out, int device) {
  return call([&] { return DRIVER(cuDeviceGetDefaultMemPool, 11020)(reinterpret_cast<CUmemoryPool*>(out), device); });
}
EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* out, int device) {
  return call([&] { return DRIVER(cuDeviceGetMemPool, 11020)(reinterpret_cast<CUmemoryPool*>(out), device); });
}
EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t p) {
  return call([&] { return DRIVER(cuDeviceSetMemPool, 11020)(device, pool(p)); });
}
EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, const cudaMemPoolProps* props) {
  static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
  return call([&] { return DRIVER(cuMemPoolCreate, 11020)(reinterpret_cast<CUmemoryPool*>(out), reinterpret_cast<const CUmemPoolProps*>(props)); });
}
EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t p) { return call([&] { return DRIVER(cuMemPoolDestroy, 11020)(pool(p)); }); }
EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t p, size_t keep) { return call([&] { return DRIVER(cuMemPoolTrimTo, 11020)(pool(p), keep); }); }
EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t p, cudaMemPoolAttr attribute, void* value) {
  return call([&] { return DRIVER(cuMemPoolSetAttribute, 11020)(pool(p), static_cast<CUmemPool_attribute>(attribute), value); });
}
EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, cudaMemPoolAttr attribute, void* value) {
  return call([&] { return DRIVER(cuMemPoolGetAttribute, 11020)(pool(p), static_cast<CUmemPool_attribute>(attribute), value); });
}
EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t p, const cudaMemAccessDesc* list, size_t count) {
  static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
  return call([&] { return DRIVER(cuMemPoolSetAccess, 11020)(pool(p), reinterpret_cast<const CUmemAccessDesc*>(list), count); });
}
EXPORT cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t p, cudaMemLocation* location) {
  return call([&] {
    return DRIVER(cuMemPoolGetAccess, 11020)(reinterpret_cast<CUmemAccess_flags*>(flags), pool(p), reinterpret_cast<CUmemLocation*>(location));
  });
}
