// Allocation, free, questions about memory, pools, and the calls by which an address escapes to where its accesses
// cannot be followed.
//
// Allocations from pools that are shared with other processes, imported, or not device memory stay the driver's own:
// the program may hand such a pool on, and what lies in it must be what the driver put there. So do those from a pool with a
// largest size, which the driver keeps.
#include "interpose/internal.hpp"

#include <cstring>

#include "interpose/foreign_pools.hpp"
#include "interpose/nccl.hpp"

namespace udnnmem::interpose {
namespace {

// Memory of the program's that nobody manages is there from now on, or (bytes 0) no more.
void unmanaged(Guard& up, CUdeviceptr at, std::size_t bytes, Outside kind = Outside::device) noexcept {
    if (up->unmanaged_memory) up->unmanaged_memory(at, bytes, kind);
}

CUresult allocate_ordered(Guard& up, const char* entry_point, CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                          CUstream stream, Submit real) noexcept {
    if (pool != nullptr ? foreign_pools->contains(pool) : foreign_pools->current_is_foreign(stream)) {
        const CUresult result = up->take_unmanaged(-1, bytes, real);
        if (result == CUDA_SUCCESS) unmanaged(up, *address, bytes);
        return result;
    }
    Allocation a;
    a.kind = AllocationKind::stream_ordered;
    a.entry_point = entry_point;
    a.bytes = bytes;
    a.stream = stream;
    a.pool = pool;
    if (pool != nullptr) a.pool_device = pool_devices->of(pool);
    a.address = address;
    return up->allocate(a, real);
}

// The real call is made only if nobody objects.
CUresult escape(Guard& up, CUdeviceptr address, Escape kind, const char* entry_point, Submit real) noexcept {
    const CUresult result = up->escaping(address, kind, entry_point);
    return result == CUDA_SUCCESS ? real() : result;
}

}  // namespace

#define ENTER(symbol, ARGS)                            \
    auto real = [&] { return REAL(symbol) ARGS; };     \
    Guard up;                                          \
    if (!up) return real()

// ---- allocation and free ----
HOOK(cuMemAlloc_v2, (CUdeviceptr* address, size_t bytes)) {
    ENTER(cuMemAlloc_v2, (address, bytes));
    if (is_nccl(__builtin_return_address(0))) return up->take_unmanaged(-1, bytes, real);
    Allocation a;
    a.entry_point = "cuMemAlloc_v2";
    a.bytes = bytes;
    a.address = address;
    return up->allocate(a, real);
}

HOOK(cuMemAllocPitch_v2, (CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element)) {
    ENTER(cuMemAllocPitch_v2, (address, pitch, width, height, element));
    Allocation a;
    a.kind = AllocationKind::pitched;
    a.entry_point = "cuMemAllocPitch_v2";
    a.width = width;
    a.height = height;
    a.element = element;
    a.address = address;
    a.pitch = pitch;
    return up->allocate(a, real);
}

#define ALLOCATE_ORDERED(symbol, POOL, NAMED, STREAM, PARAMS, ARGS)                                \
    HOOK(symbol, PARAMS) {                                                                         \
        ENTER(symbol, ARGS);                                                                       \
        if (NAMED && POOL == nullptr) return real();   /* the driver refuses it */                 \
        return allocate_ordered(up, #symbol, address, bytes, POOL, STREAM, real);                  \
    }
ALLOCATE_ORDERED(cuMemAllocAsync, nullptr, false, legacy(stream), (CUdeviceptr* address, size_t bytes, CUstream stream),
                 (address, bytes, stream))
ALLOCATE_ORDERED(cuMemAllocAsync_ptsz, nullptr, false, per_thread(stream), (CUdeviceptr* address, size_t bytes, CUstream stream),
                 (address, bytes, stream))
ALLOCATE_ORDERED(cuMemAllocFromPoolAsync, pool, true, legacy(stream),
                 (CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream), (address, bytes, pool, stream))
ALLOCATE_ORDERED(cuMemAllocFromPoolAsync_ptsz, pool, true, per_thread(stream),
                 (CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream), (address, bytes, pool, stream))

HOOK(cuMemFree_v2, (CUdeviceptr address)) {
    ENTER(cuMemFree_v2, (address));
    return up->free(address, "cuMemFree_v2", real);
}
HOOK(cuMemFreeAsync, (CUdeviceptr address, CUstream stream)) {
    ENTER(cuMemFreeAsync, (address, stream));
    return up->free_async(address, legacy(stream), "cuMemFreeAsync", real);
}
HOOK(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream)) {
    ENTER(cuMemFreeAsync_ptsz, (address, stream));
    return up->free_async(address, per_thread(stream), "cuMemFreeAsync_ptsz", real);
}

// ---- device memory that is not managed ----
HOOK(cuMemCreate, (CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop, unsigned long long flags)) {
    ENTER(cuMemCreate, (handle, bytes, prop, flags));
    if (prop == nullptr || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return real();
    return up->take_unmanaged(prop->location.id, bytes, real);
}
OBSERVE(cuMemMap, (CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
        (at, bytes, offset, handle, flags), unmanaged(up, at, bytes))
// To the program a buffer is no mapping: it has no handle, and nothing to change.
HOOK(cuMemUnmap, (CUdeviceptr at, size_t bytes)) {
    ENTER(cuMemUnmap, (at, bytes));
    if (const CUresult refused = up->escaping(at, Escape::allocation_handle, "cuMemUnmap"); refused != CUDA_SUCCESS) return refused;
    unmanaged(up, at, 0);
    return real();
}
HOOK(cuMemSetAccess, (CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t count)) {
    ENTER(cuMemSetAccess, (at, bytes, access, count));
    const CUresult refused = up->escaping(at, Escape::allocation_handle, "cuMemSetAccess");
    return refused == CUDA_SUCCESS ? real() : refused;
}

// No element has more bytes than 4 a channel; what may be more than that is not asked for.
static std::size_t bytes_of(std::size_t width, std::size_t height, std::size_t depth, unsigned channels) noexcept {
    std::size_t bytes = 4 * channels;
    for (std::size_t n : {width, std::max<std::size_t>(height, 1), std::max<std::size_t>(depth, 1)})
        if (__builtin_mul_overflow(bytes, n, &bytes)) return SIZE_MAX;
    return bytes;
}
HOOK(cuArrayCreate_v2, (CUarray* array, const CUDA_ARRAY_DESCRIPTOR* is)) {
    ENTER(cuArrayCreate_v2, (array, is));
    if (is == nullptr) return real();
    return up->take_unmanaged(-1, bytes_of(is->Width, is->Height, 1, is->NumChannels), real);
}
HOOK(cuArray3DCreate_v2, (CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* is)) {
    ENTER(cuArray3DCreate_v2, (array, is));
    if (is == nullptr) return real();
    return up->take_unmanaged(-1, bytes_of(is->Width, is->Height, is->Depth, is->NumChannels), real);
}
HOOK(cuMipmappedArrayCreate, (CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* is, unsigned levels)) {
    ENTER(cuMipmappedArrayCreate, (array, is, levels));
    if (is == nullptr) return real();
    return up->take_unmanaged(-1, bytes_of(is->Width, is->Height, is->Depth, 2 * is->NumChannels), real);   // all levels: less than twice the first
}

// ---- memory of the host that the device reaches ----
static void host_memory(Guard& up, const void* host, std::size_t bytes) noexcept {
    CUdeviceptr at = address_of(host);
    if (host == nullptr) return;
    if (OWN(cuMemHostGetDevicePointer_v2)(&at, const_cast<void*>(host), 0) != CUDA_SUCCESS) at = address_of(host);
    unmanaged(up, at, bytes, Outside::host);
}
OBSERVE(cuMemHostAlloc, (void** host, size_t bytes, unsigned flags), (host, bytes, flags), host_memory(up, *host, bytes))
OBSERVE(cuMemAllocHost, (void** host, unsigned bytes), (host, bytes), host_memory(up, *host, bytes))
OBSERVE(cuMemAllocHost_v2, (void** host, size_t bytes), (host, bytes), host_memory(up, *host, bytes))
OBSERVE(cuMemHostRegister, (void* host, size_t bytes, unsigned flags), (host, bytes, flags), host_memory(up, host, bytes))
OBSERVE(cuMemHostRegister_v2, (void* host, size_t bytes, unsigned flags), (host, bytes, flags), host_memory(up, host, bytes))
OBSERVE(cuMemAllocManaged, (CUdeviceptr* address, size_t bytes, unsigned flags), (address, bytes, flags),
        unmanaged(up, *address, bytes))
HOOK(cuMemFreeHost, (void* host)) {
    ENTER(cuMemFreeHost, (host));
    host_memory(up, host, 0);
    return real();
}
HOOK(cuMemHostUnregister, (void* host)) {
    ENTER(cuMemHostUnregister, (host));
    host_memory(up, host, 0);
    return real();
}

// ---- peers ----
OBSERVE(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags),
        if (up->peer_access) return up->peer_access(peer, true))
OBSERVE(cuCtxDisablePeerAccess, (CUcontext peer), (peer), if (up->peer_access) return up->peer_access(peer, false))

OBSERVE(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc* access, size_t count), (pool, access, count),
        if (up->pool_access && !foreign_pools->contains(pool)) return up->pool_access(pool_devices->of(pool), access, count))

// ---- questions ----
HOOK(cuMemGetInfo_v2, (size_t* free, size_t* total)) {
    ENTER(cuMemGetInfo_v2, (free, total));
    return up->memory_info(free, total, real);
}
HOOK(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device)) {
    ENTER(cuDeviceTotalMem_v2, (bytes, device));
    return up->total_memory(bytes, device, real);
}
HOOK(cuMemGetAddressRange_v2, (CUdeviceptr* base, size_t* bytes, CUdeviceptr address)) {
    ENTER(cuMemGetAddressRange_v2, (base, bytes, address));
    return up->address_range(base, bytes, address, real);
}
HOOK(cuPointerGetAttribute, (void* data, CUpointer_attribute attribute, CUdeviceptr address)) {
    ENTER(cuPointerGetAttribute, (data, attribute, address));
    return up->pointer_attribute(data, attribute, address, real);
}
HOOK(cuPointerGetAttributes, (unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address)) {
    ENTER(cuPointerGetAttributes, (count, attributes, data, address));
    return up->pointer_attributes(count, attributes, data, address, real);
}

// ---- pools ----
HOOK(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value)) {
    ENTER(cuMemPoolGetAttribute, (pool, attribute, value));
    return up->pool_attribute(pool, attribute, value, false, real);
}
HOOK(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value)) {
    ENTER(cuMemPoolSetAttribute, (pool, attribute, value));
    return up->pool_attribute(pool, attribute, value, true, real);
}
HOOK(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep)) {
    ENTER(cuMemPoolTrimTo, (pool, keep));
    return up->pool_trim(pool, keep, real);
}
ALWAYS_OBSERVE(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps* props), (pool, props),
        if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->maxSize) foreign_pools->add(*pool);
        else pool_devices->made(*pool, props->location.id))
ALWAYS_OBSERVE(cuMemPoolImportFromShareableHandle,
        (CUmemoryPool * pool, void* handle, CUmemAllocationHandleType type, unsigned long long flags),
        (pool, handle, type, flags), foreign_pools->add(*pool))
ALWAYS_OBSERVE(cuMemPoolDestroy, (CUmemoryPool pool), (pool), foreign_pools->remove(pool); pool_devices->destroyed(pool))
ALWAYS_OBSERVE(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), (device, pool), foreign_pools->made_current(pool))
ALWAYS_OBSERVE(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool), (location, type, pool),
        foreign_pools->made_current(pool))

// ---- escapes ----
#define ESCAPES(symbol, PARAMS, ARGS, ADDRESS, KIND)                                               \
    HOOK(symbol, PARAMS) {                                                                         \
        ENTER(symbol, ARGS);                                                                       \
        return escape(up, ADDRESS, Escape::KIND, #symbol, real);                                   \
    }
ESCAPES(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void* address), (handle, address),
        address_of(address), allocation_handle)
ESCAPES(cuMemGetHandleForAddressRange,
        (void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags),
        (handle, address, bytes, type, flags), address, shareable_handle)
ESCAPES(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address), (data, address), address,
        shareable_handle)
ESCAPES(cuMulticastBindAddr,
        (CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address, size_t bytes, unsigned long long flags),
        (multicast, offset, address, bytes, flags), address, multicast)
ESCAPES(cuMulticastBindAddr_v2,
        (CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, CUdeviceptr address, size_t bytes,
         unsigned long long flags),
        (multicast, device, offset, address, bytes, flags), address, multicast)
ESCAPES(cuLogicalEndpointBindAddr,
        (CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset, void* address, cuuint64_t bytes,
         unsigned long long flags),
        (endpoint, device, offset, address, bytes, flags), address_of(address), external)
// What registers memory with a network card or another driver asks for this attribute first. Of mapped memory drivers refuse it.
HOOK(cuPointerSetAttribute, (const void* value, CUpointer_attribute attribute, CUdeviceptr address)) {
    ENTER(cuPointerSetAttribute, (value, attribute, address));
    const CUresult result = escape(up, address, Escape::external, "cuPointerSetAttribute", real);
    const bool refused = result != CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && value != nullptr;
    return refused && up->memops_refused ? up->memops_refused(address, *static_cast<const unsigned*>(value) != 0, result) : result;
}
ESCAPES(cuTexRefSetAddress_v2, (size_t * offset, CUtexref texture, CUdeviceptr address, size_t bytes),
        (offset, texture, address, bytes), address, texture)
ESCAPES(cuTexRefSetAddress2D_v2,
        (CUtexref texture, const CUDA_ARRAY_DESCRIPTOR* description, CUdeviceptr address, size_t pitch),
        (texture, description, address, pitch), address, texture)
ESCAPES(cuTexRefSetAddress2D_v3,
        (CUtexref texture, const CUDA_ARRAY_DESCRIPTOR* description, CUdeviceptr address, size_t pitch),
        (texture, description, address, pitch), address, texture)

HOOK(cuTexObjectCreate, (CUtexObject * texture, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* description,
                         const CUDA_RESOURCE_VIEW_DESC* view)) {
    ENTER(cuTexObjectCreate, (texture, resource, description, view));
    if (resource == nullptr) return real();
    if (resource->resType == CU_RESOURCE_TYPE_LINEAR)
        return escape(up, resource->res.linear.devPtr, Escape::texture, "cuTexObjectCreate", real);
    if (resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        return escape(up, resource->res.pitch2D.devPtr, Escape::texture, "cuTexObjectCreate", real);
    return real();
}

HOOK(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address)) {
    ENTER(cuIpcGetMemHandle, (handle, address));
    return up->ipc_get(handle, address, real);
}

// Memory that was made elsewhere: kernels may find any address in it. How much there is only the driver knows.
static void made_elsewhere(Guard& up, CUdeviceptr at) noexcept {
    CUdeviceptr base = at;
    size_t bytes = 0;
    if (OWN(cuMemGetAddressRange_v2)(&base, &bytes, at) == CUDA_SUCCESS) unmanaged(up, base, bytes);
    else unmanaged(up, at, 1);
}
static CUresult ipc_open(Guard& up, CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags, Submit real) noexcept {
    const CUresult result = up->ipc_open(address, handle, flags, real);
    if (result == CUDA_SUCCESS && address) made_elsewhere(up, *address);
    return result;
}
HOOK(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags)) {
    ENTER(cuIpcOpenMemHandle, (address, handle, flags));
    return ipc_open(up, address, handle, flags, real);
}
HOOK(cuIpcOpenMemHandle_v2, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags)) {
    ENTER(cuIpcOpenMemHandle_v2, (address, handle, flags));
    return ipc_open(up, address, handle, flags, real);
}
HOOK(cuIpcCloseMemHandle, (CUdeviceptr address)) {
    ENTER(cuIpcCloseMemHandle, (address));
    const CUresult result = up->ipc_close(address, real);
    if (result == CUDA_SUCCESS) unmanaged(up, address, 0);
    return result;
}
OBSERVE(cuMemPoolImportPointer, (CUdeviceptr * address, CUmemoryPool pool, CUmemPoolPtrExportData* data), (address, pool, data),
        made_elsewhere(up, *address))
OBSERVE(cuExternalMemoryGetMappedBuffer, (CUdeviceptr * address, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer),
        (address, memory, buffer), unmanaged(up, *address, static_cast<std::size_t>(buffer->size)))
OBSERVE(cuGraphicsResourceGetMappedPointer_v2, (CUdeviceptr * address, size_t* bytes, CUgraphicsResource resource),
        (address, bytes, resource), made_elsewhere(up, *address))

OBSERVE(cuTensorMapEncodeTiled,
        (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
         const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
        (map, type, rank, address, dims, strides, box, element_strides, interleave, swizzle, promotion, fill),
        up->tensor_map(map, address_of(address)))
OBSERVE(cuTensorMapEncodeIm2col,
        (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
         const cuuint64_t* strides, const int* lower, const int* upper, cuuint32_t channels, cuuint32_t pixels,
         const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
         CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
        (map, type, rank, address, dims, strides, lower, upper, channels, pixels, element_strides, interleave, swizzle,
         promotion, fill),
        up->tensor_map(map, address_of(address)))
OBSERVE(cuTensorMapEncodeIm2colWide,
        (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
         const cuuint64_t* strides, int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
         const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
        (map, type, rank, address, dims, strides, lower, upper, channels, pixels, element_strides, interleave, mode, swizzle,
         promotion, fill),
        up->tensor_map(map, address_of(address)))
OBSERVE(cuTensorMapReplaceAddress, (CUtensorMap * map, void* address), (map, address),
        up->tensor_map(map, address_of(address)))
// Changes bytes of a descriptor by which its address is known, and not the address.
HOOK(cuTensorMapSetAllocationClass, (CUtensorMap * map, CUtensorMapAllocClass wanted, CUtensorMapAllocClass* in_force)) {
    Guard up;
    CUtensorMap before;
    const bool told = up && map != nullptr && up->tensor_map_changed;
    if (told) std::memcpy(static_cast<void*>(&before), static_cast<const void*>(map), sizeof before);   // one that is not aligned is the driver's to refuse
    const CUresult result = REAL(cuTensorMapSetAllocationClass)(map, wanted, in_force);
    if (told && result == CUDA_SUCCESS) up->tensor_map_changed(&before, map);
    return result;
}

}  // namespace udnnmem::interpose
