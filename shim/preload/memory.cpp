// Handlers of memory: allocation and free, pools, peers, and what is not managed.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "interpose/driver.hpp"
#include "shim/log/log.hpp"
#include "shim/pager/rules.hpp"
#include "shim/pager/told_id.hpp"
#include "shim/preload/context_wait.hpp"
#include "shim/preload/handlers.hpp"
#include "shim/preload/session.hpp"
#include "shim/preload/unmanaged_ranges.hpp"

namespace udnnmem::preload::handle {
namespace {

using namespace interpose;
using pager::DevicePager;
using pager::holds;
using pager::Pager;

// What the trace's events call the buffer at `address`; -1: nothing, it never moves.
std::int32_t run_id(Pager& p, CUdeviceptr address) {
    const pager::Buffer* b = p.find(address);
    return b && !b->slab ? pager::told_id(b->id).value : -1;
}

// While a stream captures, the driver may refuse what may synchronise, and ends the capture then: it is asked, by a call that it
// treats like that and that waits for nothing.
CUresult refused_by_capture(Pager& p) {
    if (!p.streams().capturing()) return CUDA_SUCCESS;
    CUevent probe = nullptr;
    if (p.driver().cuEventCreate(&probe, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return CUDA_SUCCESS;
    static const auto query = UDNNMEM_REAL(cuEventQuery);   // not ours, which do not count towards captures
    const CUresult result = query(probe);
    p.driver().cuEventDestroy_v2(probe);
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? result : CUDA_SUCCESS;
}

// A stream that is its context's, or its thread's, and there is none.
bool nowhere(Pager& p, CUstream stream) {
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) return false;
    CUcontext context = nullptr;
    return p.driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context;
}

}  // namespace

CUresult allocate(const Allocation& a, Submit real) noexcept {
    Session* s = Session::get(true);
    if (!s || !s->accepts_new() || !a.address) return real();
    Pager& p = s->pager();
    const bool ordered = a.kind == AllocationKind::stream_ordered;
    if (ordered && nowhere(p, a.stream)) return real();
    if (!ordered)
        if (const CUresult refused = refused_by_capture(p); refused != CUDA_SUCCESS) return refused;
    std::optional<pager::Relaxed> relaxed;   // while another stream captures: a device's first allocation loads code, and more
    const auto unmanaged = [&](Outside kind = Outside::device) {
        relaxed.reset();
        // One that becomes a node takes no memory yet.
        const CUresult result = kind == Outside::graph ? real() : take_unmanaged(a.pool ? a.pool_device : -1, a.pitch ? 0 : a.bytes, real);
        if (result == CUDA_SUCCESS) unmanaged_memory(*a.address, a.pitch ? *a.pitch * a.height : a.bytes, kind);
        return result;
    };
    if (ordered && p.streams().is_capturing(a.stream)) return unmanaged(Outside::graph);  // becomes a node of the graph
    if (p.streams().capturing()) relaxed.emplace(p.driver());
    // A pool's memory is the pool's device's, by default the stream's.
    const pager::Within there(p.driver(), ordered ? p.streams().slot(a.stream).context : nullptr);
    DevicePager* d = there ? p.current_device() : nullptr;
    if (!d || (a.pool && a.pool_device != d->device())) return unmanaged();
    std::size_t bytes = a.bytes, pitch = 0;
    if (a.kind == AllocationKind::pitched) {
        if (!a.pitch || !a.width || !a.height || (a.element != 4 && a.element != 8 && a.element != 16)) return real();
        int align = 0;  // rows start where textures and 2D copies want them
        p.driver().cuDeviceGetAttribute(&align, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, d->device());
        const std::size_t unit = static_cast<std::size_t>(std::max(align, 512));
        pitch = (a.width + unit - 1) / unit * unit;
        if (pitch < a.width || pitch > SIZE_MAX / a.height) return CUDA_ERROR_OUT_OF_MEMORY;
        bytes = pitch * a.height;
    }
    if (!bytes) return real();
    CUmemoryPool pool = a.pool;
    if (ordered && !pool)
        if (static const auto ask = UDNNMEM_REAL(cuDeviceGetMemPool); ask) ask(&pool, d->device());
    CUdeviceptr address = 0;
    try {
        if (const CUresult result = d->start(); result != CUDA_SUCCESS) {
            static log::Once once;
            if (once.first()) log::warn("device {}: what paging needs cannot be had (CUDA error {}): memory is not managed until it can", static_cast<int>(d->device()), static_cast<int>(result));
            return unmanaged();
        }
        const CUresult result = d->allocate(bytes, a.stream, ordered, pool, address);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) s->refused(*d, a.entry_point, bytes, false);
        if (result != CUDA_SUCCESS) return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (Learner* learner = s->learning()) learner->recorder.allocated(address, bytes, run_id(s->pager(), address));
    *a.address = address;
    if (a.pitch) *a.pitch = pitch;
    s->allocated(*d);
    return CUDA_SUCCESS;
}

void give_way(Submit again) noexcept {
    Session* s = Session::get();
    try {
        DevicePager* d = s ? s->pager().current_device() : nullptr;
        std::size_t lowered = 0;
        if (!d || !d->memory().frames || d->yield_some(lowered) != CUDA_SUCCESS) return;
        if (again() != CUDA_SUCCESS) d->reclaim(lowered);
    } catch (...) {
    }
}

CUresult take_unmanaged(CUdevice device, std::size_t bytes, Submit real) noexcept {
    const CUresult refused = real();
    Session* s = refused == CUDA_ERROR_OUT_OF_MEMORY ? Session::get() : nullptr;
    if (!s) return refused;
    try {
        DevicePager* d = device < 0 ? s->pager().current_device() : s->pager().device(device);
        std::size_t lowered = 0;
        if (!d || !d->memory().frames || d->yield(bytes, lowered) != CUDA_SUCCESS) return refused;
        CUresult result = real();
        if (result != CUDA_SUCCESS) d->reclaim(std::exchange(lowered, 0));
        // It did not say how much it needs: what was freed was not enough.
        if (result == CUDA_ERROR_OUT_OF_MEMORY && !bytes && d->yield_some(lowered) == CUDA_SUCCESS) {
            result = real();
            if (result != CUDA_SUCCESS) d->reclaim(lowered);
        }
        return result;
    } catch (...) {
        return refused;
    }
}

// cuMemFree waits for the device, and closed libraries rely on it; but not for memory of a pool. What uses the memory may run in its own
// context while another is current.
CUresult free_now(CUdeviceptr at, const char*, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) {
        unmanaged_ranges.remove(at);
        return real();
    }
    Pager& p = s->pager();
    pager::Buffer* b = p.find(at);
    const auto freed = b ? b->device->allocation_at(at) : std::nullopt;
    if (!freed || freed->base != at) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refused_by_capture(p); refused != CUDA_SUCCESS) return refused;
    CUresult waited = CUDA_SUCCESS;
    const bool waits = !freed->pool && !s->options().lazy_free && holds("free-waits") && !p.streams().capturing();
    if (waits) {
        CUcontext context = nullptr;
        const auto whole = [&p] { return pager::insist([&] { return p.driver().cuCtxSynchronize(); }); };
        pager::insist([&] { return p.driver().cuCtxGetCurrent(&context); });
        waited = wait_for_context(*s, context, whole);
        if (waited == CUDA_ERROR_INVALID_CONTEXT) return waited;   // then nothing is freed
        if (waited == CUDA_SUCCESS && freed->context && freed->context != context) {
            const pager::Within there(p.driver(), freed->context);
            if (there) waited = wait_for_context(*s, freed->context, whole);
        }
    }
    if (Learner* learner = s->learning()) {
        if (waits && learner->recorder.hears_ops()) learner->recorder.host_waited(0, 0);
        learner->recorder.released(at);
    }
    s->sharing().freed(at);
    if (executor::Executor* plan = s->executor()) plan->releasing(at, CU_STREAM_LEGACY, false);
    const CUresult result = b->device->free(at, nullptr, false, waits && waited == CUDA_SUCCESS);
    return result != CUDA_SUCCESS ? result : waited;
}

CUresult free_async(CUdeviceptr at, CUstream stream, const char*, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) {
        unmanaged_ranges.remove(at);
        return real();
    }
    if (nowhere(s->pager(), stream)) return CUDA_ERROR_INVALID_CONTEXT;
    pager::Buffer* b = s->pager().find(at);
    const auto freed = b ? b->device->allocation_at(at) : std::nullopt;
    if (!freed || freed->base != at) return CUDA_ERROR_INVALID_VALUE;
    if (s->pager().streams().is_capturing(stream)) return CUDA_ERROR_INVALID_VALUE;   // a graph frees only what a graph allocates
    if (Learner* learner = s->learning()) learner->recorder.released(at);
    s->sharing().freed(at);
    if (executor::Executor* plan = s->executor()) plan->releasing(at, stream, true);
    return b->device->free(at, stream, true);
}

CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value, bool set, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    if (result != CUDA_SUCCESS || !s || !value || !holds("pools")) return result;
    const bool high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    const bool current = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    if (!high && !current) return result;
    std::size_t now = 0, most = 0;
    for (DevicePager* d : s->pager().devices()) {
        std::size_t current_of = 0, high_of = 0;
        d->pool_usage(pool, current_of, high_of, set && high);
        now += current_of, most += high_of;
    }
    if (!set) {
        cuuint64_t told = 0;
        std::memcpy(&told, value, sizeof told);
        told += high ? most : now;
        std::memcpy(value, &told, sizeof told);
    }
    return result;
}

// The memory of all pools is one; none is kept for a single one of them.
CUresult pool_trim(CUmemoryPool, std::size_t keep, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    DevicePager* d = result == CUDA_SUCCESS && s ? s->pager().current_device() : nullptr;
    std::size_t lowered = 0;
    try {
        if (d && d->memory().frames > keep) d->yield(0, lowered);
    } catch (...) {   // it stays
    }
    return result;
}

void unmanaged_memory(CUdeviceptr at, std::size_t bytes, Outside kind) noexcept {
    if (bytes) unmanaged_ranges.add(at, bytes, kind);
    else unmanaged_ranges.remove(at);
}

CUresult peer_access(CUcontext peer, bool on) noexcept {
    Session* s = Session::get(true);
    if (!s) return CUDA_SUCCESS;
    const pager::Driver& d = s->pager().driver();
    CUdevice reader, owner;
    CUcontext popped;
    if (d.cuCtxGetDevice(&reader) != CUDA_SUCCESS || d.cuCtxPushCurrent_v2(peer) != CUDA_SUCCESS) return CUDA_SUCCESS;
    const CUresult known = d.cuCtxGetDevice(&owner);
    d.cuCtxPopCurrent_v2(&popped);
    return known == CUDA_SUCCESS ? s->pager().peer_access(owner, reader, on) : CUDA_SUCCESS;
}

bool between_devices(CUdeviceptr to, CUdeviceptr from, CUcontext& there, CUcontext& here) noexcept {
    Session* const s = Session::get();
    if (!s || !s->pager().in_arena(to) || !s->pager().in_arena(from) || !holds("between-devices")) return false;
    const pager::Buffer *const a = s->pager().find(to), *const b = s->pager().find(from);
    if (!a || !b || a->device == b->device) return false;
    there = a->device->context(), here = b->device->context();
    return there && here;
}

// Buffers are not mapped by pool: whoever may reach a pool of a device may reach all of ours there. Access that is taken away
// stays (a program that relies on the fault has none without us either way).
CUresult pool_access(CUdevice owner, const CUmemAccessDesc* access, std::size_t count) noexcept {
    Session* s = Session::get(true);
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; s && i < count && result == CUDA_SUCCESS; ++i)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            result = s->pager().peer_access(owner, access[i].location.id, true);
    return result;
}

}  // namespace udnnmem::preload::handle
