// Stream-ordered allocation. A block is mapped when it is allocated and taken away (its range faults)
// when its free is reached in stream order; its memory then waits in the pool up to the release
// threshold. A block freed on a stream may be given out again on that stream before the free is
// reached: stream order makes that safe, and the memory is poisoned again in stream order.
// Invariant: used = bytes of blocks that are allocated and whose free has not been reached;
// reserved = used + what waits in the pool.
#include "tests/softgpu/driver/pool.hpp"

#include <algorithm>
#include <cstring>

#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/listing.hpp"
#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/streams.hpp"
#include "tests/softgpu/driver/work.hpp"

struct CUmemPoolHandle_st {
    int device = 0;
    bool host = false;
    bool is_default = false;
    std::uint64_t threshold = 0, used = 0, reserved = 0, used_high = 0, reserved_high = 0, limit = 0;
    int reuse[3] = {1, 1, 1};
    CUmemAccess_flags access[8] = {};
    std::multimap<std::uint64_t, std::shared_ptr<softgpu::Frame>> kept;  // frames by size
    struct Freed {
        softgpu::Address address;
        std::uint64_t bytes;
        CUstream stream;
        std::shared_ptr<bool> cancelled;  // true: given out again, the free does nothing
    };
    std::vector<Freed> pending;  // frees enqueued, not reached
};

namespace softgpu {
namespace {

struct Pools {
    std::mutex mutex;
    CUmemoryPool defaults[8] = {}, current[8] = {};
    std::vector<CUmemoryPool> all;
};
Pools& pools() {
    static auto* const p = new Pools;
    return *p;
}

CUmemoryPool new_pool_locked(int device) {
    auto* p = new CUmemPoolHandle_st;
    p->device = device;
    p->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pools().all.push_back(p);
    return p;
}
CUmemoryPool default_pool_locked(int device) {
    auto& p = pools().defaults[device];
    if (!p) {
        p = new_pool_locked(device);
        p->is_default = true;
        if (!pools().current[device]) pools().current[device] = p;
    }
    return p;
}
bool valid_locked(CUmemoryPool p) { return std::find(pools().all.begin(), pools().all.end(), p) != pools().all.end(); }

void raise(CUmemoryPool p) {
    p->used_high = std::max(p->used_high, p->used);
    p->reserved_high = std::max(p->reserved_high, p->reserved);
}

// Down to `keep` bytes waiting.
void trim_locked(CUmemoryPool p, std::uint64_t keep) {
    while (!p->kept.empty() && p->reserved - p->used > keep) {
        auto last = std::prev(p->kept.end());
        p->reserved -= last->first;
        p->kept.erase(last);
    }
}

void keep_locked(CUmemoryPool p, std::shared_ptr<Frame> frame) {
    if (frame->held) p->kept.emplace(frame->counted, std::move(frame));
    else p->reserved -= frame->counted;
}

// The block is unmapped and its frame kept, or given up beyond the threshold.
CUresult retire_locked(CUmemoryPool p, Address a) {
    std::shared_ptr<Frame> frame;
    {
        std::lock_guard lock(memory_mutex());
        auto it = ranges_locked().find(a);
        if (it == ranges_locked().end() || it->second.kind != Kind::pool) return CUDA_ERROR_INVALID_VALUE;
        for (int d = 0; d < options().devices; ++d) unmap_pages(a, it->second.mapped, d);
        frame = it->second.frame;
        give_addresses(a, it->second.mapped);
        ranges_locked().erase(it);
    }
    p->used -= frame->counted;
    keep_locked(p, std::move(frame));
    if (p->reserved > p->threshold) trim_locked(p, p->threshold > p->used ? p->threshold - p->used : 0);
    return CUDA_SUCCESS;
}

CUresult map_block_locked(CUmemoryPool p, CUcontext c, std::uint64_t bytes, std::shared_ptr<Frame> frame, Address* out) {
    Range r;
    r.frame = std::move(frame);
    r.bytes = bytes;
    r.mapped = r.frame->extent.bytes;
    r.kind = Kind::pool;
    r.context = c;
    r.device = p->device;
    r.pool = p;
    static std::uint64_t next_id = 1ull << 50;
    std::lock_guard lock(memory_mutex());
    r.id = next_id++;
    r.address = take_addresses(r.mapped, bytes >= 1 << 20 ? 2 << 20 : page, 0, true);
    if (!r.address) return CUDA_ERROR_OUT_OF_MEMORY;
    for (int d = 0; d < options().devices; ++d)
        if (p->access[d] && !map_pages(r.address, r.mapped, d, r.frame->extent, p->access[d])) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = r.address;
    ranges_locked()[r.address] = std::move(r);
    return CUDA_SUCCESS;
}

CUresult take_locked(CUmemoryPool p, CUcontext c, std::uint64_t bytes, Address* out, bool held = true) {
    const std::uint64_t counted = round_up(bytes, 512);
    if (p->limit && p->used + counted > p->limit) return CUDA_ERROR_OUT_OF_MEMORY;
    std::shared_ptr<Frame> frame;
    if (auto it = p->kept.find(counted); held && it != p->kept.end()) {
        frame = std::move(it->second);
        p->kept.erase(it);
        fill_poison(frame->extent);
    } else {
        CUresult r = make_frame(bytes, counted, p->device, p->host, &frame, held);
        if (r == CUDA_ERROR_OUT_OF_MEMORY && !p->kept.empty()) {
            trim_locked(p, 0);
            r = make_frame(bytes, counted, p->device, p->host, &frame);
        }
        TRY(r);
        p->reserved += counted;
    }
    p->used += counted;
    if (CUresult r = map_block_locked(p, c, bytes, frame, out)) {
        p->used -= counted;
        keep_locked(p, std::move(frame));
        return r;
    }
    raise(p);
    return CUDA_SUCCESS;
}

struct FreeWork final : Work {
    CUmemoryPool pool;
    Address address;
    std::shared_ptr<bool> cancelled = std::make_shared<bool>(false);
    EngineKind engine() const override { return EngineKind::compute; }
    bool always() const override { return true; }
    std::string describe() const override { return "free of pool memory"; }
    std::uint64_t identity() const override { return 20; }
    CUresult run() override {
        std::lock_guard lock(pools().mutex);
        if (*cancelled) return CUDA_SUCCESS;
        std::erase_if(pool->pending, [&](auto& f) { return f.cancelled == cancelled; });
        retire_locked(pool, address);
        return CUDA_SUCCESS;
    }
};

}  // namespace

CUresult pool_free_now(Address a) {
    std::lock_guard lock(pools().mutex);
    auto r = find_range(a);
    if (!r || r->kind != Kind::pool || r->address != a) return CUDA_ERROR_INVALID_VALUE;
    for (auto& f : r->pool->pending)
        if (f.address == a) return CUDA_ERROR_INVALID_VALUE;
    return retire_locked(r->pool, a);
}

CUresult pool_allocate_now(CUcontext c, int device, std::uint64_t bytes, Address* out) {
    std::lock_guard lock(pools().mutex);
    return take_locked(default_pool_locked(device), c, bytes, out, false);
}

bool release_unused_pool_memory(int device) {
    bool pending = false, any = false;
    {
        std::lock_guard lock(pools().mutex);
        for (auto* p : pools().all) pending |= p->device == device && !p->pending.empty();
    }
    if (pending) synchronise_device(device);
    std::lock_guard lock(pools().mutex);
    for (auto* p : pools().all)
        if (p->device == device) {
            any |= pending || !p->kept.empty();
            trim_locked(p, 0);
        }
    return any;
}

namespace {

CUresult allocate_async(CUstream s, CUmemoryPool pool, std::uint64_t bytes, CUdeviceptr* out) {
    if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (is_capturing(s)) return capture_allocation(s, bytes, out);
    for (int attempt = 0;; ++attempt) {
        std::unique_lock lock(pools().mutex);
        if (!pool) {
            default_pool_locked(s->context->device);
            pool = pools().current[s->context->device];
        }
        if (!valid_locked(pool)) return CUDA_ERROR_INVALID_VALUE;
        const std::uint64_t counted = round_up(bytes, 512);
        for (auto& f : pool->pending)
            if (f.stream == s && pool->device == s->context->device && round_up(f.bytes, 512) == counted) {
                *f.cancelled = true;
                Address a = f.address;
                std::erase_if(pool->pending, [&](auto& g) { return g.address == a; });
                {
                    std::lock_guard memory(memory_mutex());
                    ranges_locked()[a].bytes = bytes;
                }
                lock.unlock();
                std::shared_ptr<MemsetWork> w;
                TRY(make_memset(s->context->device, {a, 0, poison, 4, (bytes + 3) / 4, 1}, &w));
                *out = a;
                list_made(a, bytes);
                return submit(s, std::move(w));
            }
        Address a;
        CUresult r = take_locked(pool, s->context, bytes, &a);
        if (r == CUDA_SUCCESS) {
            *out = a;
            list_made(a, bytes);
            return CUDA_SUCCESS;
        }
        if (r != CUDA_ERROR_OUT_OF_MEMORY || attempt) return r;
        lock.unlock();
        if (!release_unused_pool_memory(s->context->device)) return r;
    }
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

CUresult impl_cuMemAllocAsync(Default d, CUdeviceptr* out, size_t bytes, CUstream handle) {
    ENTER(cuMemAllocAsync);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    return allocate_async(s, nullptr, bytes, out);
}
CUresult impl_cuMemAllocFromPoolAsync(Default d, CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream handle) {
    ENTER(cuMemAllocFromPoolAsync);
    REQUIRE(pool);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    return allocate_async(s, pool, bytes, out);
}
CUresult impl_cuMemFreeAsync(Default d, CUdeviceptr a, CUstream handle) {
    ENTER(cuMemFreeAsync);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    if (!a) return CUDA_SUCCESS;
    if (is_capturing(s)) return capture_free(s, a);
    auto r = find_range(a);
    REQUIRE(r && r->address == a);
    if (r->kind != Kind::pool) return CUDA_ERROR_INVALID_VALUE;
    list_freed(a);
    auto w = std::make_shared<FreeWork>();
    w->device = r->device;
    w->pool = r->pool;
    w->address = a;
    {
        std::lock_guard lock(pools().mutex);
        for (auto& f : r->pool->pending)
            if (f.address == a) return CUDA_ERROR_INVALID_VALUE;  // freed twice
        r->pool->pending.push_back({a, r->bytes, s, w->cancelled});
    }
    return submit(s, std::move(w));
}

SOFTGPU_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* p) {
    ENTER(cuMemPoolCreate);
    REQUIRE(out && p && p->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    if (p->handleTypes & ~static_cast<int>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) return CUDA_ERROR_NOT_SUPPORTED;
    if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    REQUIRE(p->location.id >= 0 && p->location.id < options().devices);
    std::lock_guard lock(pools().mutex);
    *out = new_pool_locked(p->location.id);
    (*out)->limit = p->maxSize;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemPoolDestroy(CUmemoryPool p) {
    ENTER(cuMemPoolDestroy);
    {
        std::lock_guard lock(pools().mutex);
        REQUIRE(valid_locked(p) && !p->is_default);
    }
    synchronise_device(p->device);
    std::lock_guard lock(pools().mutex);
    trim_locked(p, 0);
    for (auto& current : pools().current)
        if (current == p) current = default_pool_locked(p->device);
    std::erase(pools().all, p);  // blocks still out refer to it: the shell stays
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemPoolTrimTo(CUmemoryPool p, size_t keep) {
    ENTER(cuMemPoolTrimTo);
    std::lock_guard lock(pools().mutex);
    REQUIRE(valid_locked(p));
    trim_locked(p, keep > p->used ? keep - p->used : 0);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemPoolSetAttribute(CUmemoryPool p, CUmemPool_attribute a, void* value) {
    ENTER(cuMemPoolSetAttribute);
    TRY(refuse_under_capture(nullptr));
    std::lock_guard lock(pools().mutex);
    REQUIRE(valid_locked(p) && value);
    auto wide = [&] { return *static_cast<cuuint64_t*>(value); };
    switch (a) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: p->reuse[0] = *static_cast<int*>(value); break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: p->reuse[1] = *static_cast<int*>(value); break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: p->reuse[2] = *static_cast<int*>(value); break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: p->threshold = wide(); break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: REQUIRE(wide() == 0); p->reserved_high = p->reserved; break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH: REQUIRE(wide() == 0); p->used_high = p->used; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemPoolGetAttribute(CUmemoryPool p, CUmemPool_attribute a, void* value) {
    ENTER(cuMemPoolGetAttribute);
    TRY(refuse_under_capture(nullptr));
    std::lock_guard lock(pools().mutex);
    REQUIRE(valid_locked(p) && value);
    auto number = [&](int n) { *static_cast<int*>(value) = n; };
    auto wide = [&](std::uint64_t n) { *static_cast<cuuint64_t*>(value) = n; };
    switch (a) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: number(p->reuse[0]); break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: number(p->reuse[1]); break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: number(p->reuse[2]); break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: wide(p->threshold); break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: wide(p->reserved); break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: wide(p->reserved_high); break;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: wide(p->used); break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH: wide(p->used_high); break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemPoolSetAccess(CUmemoryPool p, const CUmemAccessDesc* desc, size_t count) {
    ENTER(cuMemPoolSetAccess);
    std::lock_guard lock(pools().mutex);
    REQUIRE(valid_locked(p) && desc && count);
    for (size_t i = 0; i < count; ++i) {
        auto& l = desc[i].location;
        REQUIRE(l.type == CU_MEM_LOCATION_TYPE_DEVICE && l.id >= 0 && l.id < options().devices);
        REQUIRE(l.id != p->device || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        p->access[l.id] = desc[i].flags;
        std::lock_guard memory(memory_mutex());
        for (auto& [a, r] : ranges_locked())
            if (r.pool == p) map_pages(a, r.mapped, l.id, r.frame->extent, desc[i].flags);
    }
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool p, CUmemLocation* l) {
    ENTER(cuMemPoolGetAccess);
    std::lock_guard lock(pools().mutex);
    REQUIRE(flags && l && valid_locked(p) && l->type == CU_MEM_LOCATION_TYPE_DEVICE && l->id >= 0 && l->id < options().devices);
    *flags = p->access[l->id];
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
    ENTER(cuDeviceGetDefaultMemPool);
    REQUIRE(out);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard lock(pools().mutex);
    *out = default_pool_locked(device);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
    ENTER(cuDeviceGetMemPool);
    REQUIRE(out);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard lock(pools().mutex);
    default_pool_locked(device);
    *out = pools().current[device];
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool p) {
    ENTER(cuDeviceSetMemPool);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard lock(pools().mutex);
    REQUIRE(valid_locked(p) && p->device == device);
    default_pool_locked(device);
    pools().current[device] = p;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* l, CUmemAllocationType type) {
    ENTER(cuMemGetDefaultMemPool);
    REQUIRE(out && l);
    if (l->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
    return cuDeviceGetDefaultMemPool(out, l->id);
}
SOFTGPU_API cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* l, CUmemAllocationType type) {
    ENTER(cuMemGetMemPool);
    REQUIRE(out && l);
    if (l->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
    return cuDeviceGetMemPool(out, l->id);
}
SOFTGPU_API cuMemSetMemPool(CUmemLocation* l, CUmemAllocationType type, CUmemoryPool p) {
    ENTER(cuMemSetMemPool);
    REQUIRE(l);
    if (l->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
    return cuDeviceSetMemPool(l->id, p);
}
