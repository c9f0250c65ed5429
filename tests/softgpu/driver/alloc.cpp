// Memory that is allocated in one call: device, pitched, managed, pinned; registered host memory; and
// what may be asked about addresses. cuMemFree waits for the device first, except for pool memory.
#include <algorithm>
#include <cstring>

#include "tests/softgpu/driver/context.hpp"
#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/listing.hpp"
#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/pool.hpp"
#include "tests/softgpu/driver/streams.hpp"

using namespace softgpu;

namespace softgpu {
CUresult synchronise_device(int device);

namespace {
CUresult take(std::uint64_t bytes, Kind kind, CUcontext c, unsigned flags, Address* out) {
    CUresult r = allocate(bytes, kind, c, c->device, flags, out);
    if (r == CUDA_ERROR_OUT_OF_MEMORY && release_unused_pool_memory(c->device)) r = allocate(bytes, kind, c, c->device, flags, out);
    return r;
}
}  // namespace
}  // namespace softgpu

SOFTGPU_API cuMemGetInfo_v2(size_t* free, size_t* total) {
    ENTER(cuMemGetInfo_v2);
    CUcontext c;
    TRY(usable_context(&c));
    const auto used = device_used(c->device);
    if (free) *free = options().memory - std::min(used, options().memory);
    if (total) *total = options().memory;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
    ENTER(cuMemAlloc_v2);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(out && bytes);
    TRY(refuse_under_capture());
    Address a;
    TRY(take(bytes, Kind::linear, c, 0, &a));
    list_made(a, bytes);
    *out = a;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned element) {
    ENTER(cuMemAllocPitch_v2);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(out && pitch && width && height && (element == 4 || element == 8 || element == 16));
    TRY(refuse_under_capture());
    Address a;
    *pitch = round_up(width, 512);
    TRY(take(*pitch * height, Kind::linear, c, 0, &a));
    list_made(a, *pitch * height);
    *out = a;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
    ENTER(cuMemAllocManaged);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(out && bytes && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
    TRY(refuse_under_capture());
    Address a;
    TRY(take(bytes, Kind::managed, c, flags, &a));
    *out = a;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemFree_v2(CUdeviceptr a) {
    ENTER(cuMemFree_v2);
    CUcontext c;
    TRY(usable_context(&c));
    if (!a) return CUDA_SUCCESS;
    TRY(refuse_under_capture());
    auto r = find_range(a);
    REQUIRE(r && r->address == a);
    list_freed(a);
    if (r->kind == Kind::pool) return pool_free_now(a);
    TRY(synchronise_device(r->device));
    return release(a, [](const Range& range) { return range.kind == Kind::linear || range.kind == Kind::managed; });
}
SOFTGPU_API cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
    ENTER(cuMemHostAlloc);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(out && bytes && flags <= 7);
    TRY(refuse_under_capture());
    Address a;
    TRY(take(bytes, Kind::pinned, c, flags, &a));
    *out = reinterpret_cast<void*>(a);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemAllocHost_v2(void** out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }
SOFTGPU_API cuMemFreeHost(void* p) {
    ENTER(cuMemFreeHost);
    CUcontext c;
    TRY(usable_context(&c));
    if (!p) return CUDA_SUCCESS;
    TRY(refuse_under_capture());
    auto r = find_range(reinterpret_cast<Address>(p));
    REQUIRE(r && r->kind == Kind::pinned && r->address == reinterpret_cast<Address>(p));
    for (int d = 0; d < options().devices; ++d) synchronise_device(d);
    return release(r->address, [](const Range& range) { return range.kind == Kind::pinned; });
}
SOFTGPU_API cuMemHostRegister_v2(void* p, size_t bytes, unsigned flags) {
    ENTER(cuMemHostRegister_v2);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(flags <= 15);
    if (flags & CU_MEMHOSTREGISTER_IOMEMORY) return CUDA_ERROR_NOT_SUPPORTED;
    return register_host(p, bytes, flags, c);
}
SOFTGPU_API cuMemHostRegister(void* p, size_t bytes, unsigned flags) { return cuMemHostRegister_v2(p, bytes, flags); }
SOFTGPU_API cuMemHostUnregister(void* p) {
    ENTER(cuMemHostUnregister);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(p);
    for (int d = 0; d < options().devices; ++d) synchronise_device(d);
    return unregister_host(p);
}
SOFTGPU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned flags) {
    ENTER(cuMemHostGetDevicePointer_v2);
    REQUIRE(out && p && flags == 0);
    auto a = reinterpret_cast<Address>(p);
    if (auto r = find_range(a); r && (r->kind == Kind::pinned || r->kind == Kind::managed)) {
        *out = a;
        return CUDA_SUCCESS;
    }
    auto r = find_registered(p, 1);
    REQUIRE(r);
    *out = r->address + (a - reinterpret_cast<Address>(r->host));
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemHostGetFlags(unsigned* flags, void* p) {
    ENTER(cuMemHostGetFlags);
    REQUIRE(flags);
    auto r = find_range(reinterpret_cast<Address>(p));
    if (!r || r->kind != Kind::pinned) r = find_registered(p, 1);
    REQUIRE(r);
    *flags = r->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr a) {
    ENTER(cuMemGetAddressRange_v2);
    auto r = find_range(a);
    if (!r) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = r->address;
    if (size) *size = r->bytes;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemGetHandleForAddressRange(void*, CUdeviceptr a, size_t, CUmemRangeHandleType, unsigned long long) {
    ENTER(cuMemGetHandleForAddressRange);
    return find_range(a) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

namespace {
// Everything about one address; NOT an error for the plural form where the address is not known.
CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr a) {
    auto r = find_range(a);
    bool by_host = false;
    if (!r && !in_window(a)) {
        r = find_registered(reinterpret_cast<void*>(a), 1);
        by_host = r.has_value();
    }
    auto set = [&](auto value) {
        std::memcpy(data, &value, sizeof value);
        return CUDA_SUCCESS;
    };
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) return set(static_cast<int>(r.has_value()));
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && !r) {
        std::lock_guard lock(memory_mutex());
        auto& all = reservations_locked();
        auto it = all.upper_bound(a);
        if (it != all.begin() && (--it, a - it->first < it->second)) return set(it->first);
    }
    if (!r || awaits_launch(r->id)) return CUDA_ERROR_INVALID_VALUE;   // a card knows nothing of a graph's memory before its launch
    const bool host_kind = r->kind == Kind::pinned || r->kind == Kind::registered;
    const Address offset = a - (by_host ? reinterpret_cast<Address>(r->host) : r->address);
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: return r->kind == Kind::mapping || r->kind == Kind::pool ? CUDA_ERROR_INVALID_VALUE : set(r->context);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return set(static_cast<unsigned>(host_kind || (r->kind == Kind::mapping && r->frame->host) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return set(static_cast<CUdeviceptr>(r->address + offset));
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (r->kind == Kind::registered) return set(reinterpret_cast<void*>(reinterpret_cast<Address>(r->host) + offset));
            if (r->kind == Kind::pinned || r->kind == Kind::managed || (r->kind == Kind::mapping && r->access[cpu_view])) return set(reinterpret_cast<void*>(a));
            return CUDA_ERROR_INVALID_VALUE;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return CUDA_ERROR_NOT_SUPPORTED;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return set(static_cast<int>(r->sync_memops));
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: return set(static_cast<unsigned long long>(r->id));
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: return set(static_cast<int>(r->kind == Kind::managed));
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return set(r->device);
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return set(static_cast<int>(r->kind == Kind::linear));
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return set(static_cast<CUdeviceptr>(r->address));
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return set(static_cast<std::size_t>(r->bytes));
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return set(static_cast<int>(r->frame->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0));
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:  // no pool's memory is; what cuMemCreate makes is if it was told to be
            return set(static_cast<int>(r->kind == Kind::linear || (r->kind == Kind::mapping && !r->frame->host && r->frame->properties.allocFlags.gpuDirectRDMACapable)));
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return set(static_cast<int>(r->kind == Kind::mapping && r->access[r->device] == CU_MEM_ACCESS_FLAGS_PROT_READ ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                                                                                                    : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return set(r->pool);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return set(static_cast<std::size_t>(r->bytes));
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return set(reinterpret_cast<void*>(r->address));
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return set(static_cast<unsigned long long>(r->id));
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return set(0);
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}
}  // namespace

SOFTGPU_API cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr a) {
    ENTER(cuPointerGetAttribute);
    REQUIRE(data);
    return pointer_attribute(data, attribute, a);
}
SOFTGPU_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr a) {
    ENTER(cuPointerGetAttributes);
    REQUIRE(count && attributes && data);
    for (unsigned i = 0; i < count; ++i) {
        if (pointer_attribute(data[i], attributes[i], a) == CUDA_SUCCESS) continue;
        switch (attributes[i]) {  // what does not apply is answered with nothing
            case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: std::memset(data[i], 0, sizeof(int)); break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
                int none = -2;
                std::memcpy(data[i], &none, sizeof none);
                break;
            }
            default: std::memset(data[i], 0, sizeof(void*));
        }
    }
    return CUDA_SUCCESS;
}
SOFTGPU_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr a) {
    ENTER(cuPointerSetAttribute);
    REQUIRE(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && find_range(a));
    std::lock_guard lock(memory_mutex());
    auto it = std::prev(ranges_locked().upper_bound(a));
    if (it->second.kind == Kind::mapping) return CUDA_ERROR_NOT_SUPPORTED;   // as on a card
    it->second.sync_memops = *static_cast<const int*>(value) != 0;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemAdvise(CUdeviceptr a, size_t n, CUmem_advise, CUdevice) {
    ENTER(cuMemAdvise);
    auto r = find_range(a);
    REQUIRE(n && r && r->kind == Kind::managed);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemAdvise_v2(CUdeviceptr a, size_t n, CUmem_advise advice, CUmemLocation) { return cuMemAdvise(a, n, advice, 0); }


CUresult impl_cuMemPrefetchAsync(Default d, CUdeviceptr a, size_t n, CUdevice, CUstream handle) {
    ENTER(cuMemPrefetchAsync);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    auto r = find_range(a);
    REQUIRE(n && r && r->kind == Kind::managed);
    return CUDA_SUCCESS;
}
CUresult impl_cuMemPrefetchAsync_v2(Default d, CUdeviceptr a, size_t n, CUmemLocation, unsigned flags, CUstream handle) {
    REQUIRE(flags == 0);
    return impl_cuMemPrefetchAsync(d, a, n, 0, handle);
}
CUresult impl_cuMemPrefetchBatchAsync(Default d, CUdeviceptr* a, size_t* sizes, size_t count, CUmemLocation*, size_t*, size_t, unsigned long long, CUstream s) {
    REQUIRE(a && sizes && count);
    for (size_t i = 0; i < count; ++i) TRY(impl_cuMemPrefetchAsync(d, a[i], sizes[i], 0, s));
    return CUDA_SUCCESS;
}
