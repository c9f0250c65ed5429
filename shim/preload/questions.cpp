// Handlers of questions about memory: answered as if the program's buffers were ordinary allocations on the device.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "interpose/driver.hpp"
#include "shim/pager/rules.hpp"
#include "shim/preload/handlers.hpp"
#include "shim/preload/session.hpp"

namespace udnnmem::preload::handle {
namespace {

using namespace interpose;
using pager::DevicePager;
using pager::holds;

constexpr CUdeviceptr kNobodys = 1;
std::atomic<bool> g_memops{false};   // asked for of any buffer

// What the driver would say of the pointer if the buffer were an ordinary allocation. False: it is asked itself.
bool answer(Session& s, void* data, CUpointer_attribute attribute, CUdeviceptr at, CUresult& result) {
    pager::Buffer* b = s.pager().find(at);
    const auto found = b ? b->device->allocation_at(at) : std::nullopt;
    static const auto ask = UDNNMEM_REAL(cuPointerGetAttribute);
    const auto as_of = [&](CUdeviceptr other) {
        result = ask ? ask(data, attribute, other) : CUDA_ERROR_INVALID_VALUE;
        return true;
    };
    if (!found) return as_of(kNobodys);
    result = CUDA_SUCCESS;
    auto put = [&](auto value) { std::memcpy(data, &value, sizeof value); };
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            put(found->context);
            if (!found->context) result = CUDA_ERROR_INVALID_VALUE;
            return true;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: put(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE)); return true;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: put(at); return true;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            put(static_cast<void*>(nullptr));
            result = CUDA_ERROR_INVALID_VALUE;
            return true;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            put(g_memops.load(std::memory_order_relaxed) && b->device->escaped(b, at) ? 1u : 0u);   // to set it is to let it escape
            return true;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: put(static_cast<unsigned long long>(found->id)); return true;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: put(0u); return true;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put(static_cast<int>(b->device->device())); return true;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: put(found->pool ? 0u : 1u); return true;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: put(found->base); return true;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: put(found->bytes); return true;
        case CU_POINTER_ATTRIBUTE_MAPPED: put(1u); return true;
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: put(static_cast<int>(!found->pool && b->device->network_can_reach())); return true;
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: put(static_cast<int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE)); return true;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: put(found->pool); return true;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: {   // ours have handles; it is not said how wide the answer is
            std::uint64_t theirs = UINT64_MAX;
            const bool wide = ask && ask(&theirs, attribute, b->device->always_mapped()) == CUDA_SUCCESS && theirs >> 32 != UINT32_MAX;
            wide ? put(0ull) : put(0u);
            return true;
        }
        default: return as_of(b->device->always_mapped());
    }
}

}  // namespace

CUresult memory_info(std::size_t* free, std::size_t* total, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    if (result != CUDA_SUCCESS || !s) return result;
    DevicePager* d = s->pager().current_device();
    if (!d) return result;
    const auto m = d->memory();
    std::size_t real_free = 0, real_total = 0;
    s->pager().driver().cuMemGetInfo_v2(&real_free, &real_total);
    if (s->options().report_virtual) {
        const std::size_t whole = m.device_budget + m.host_budget;
        if (total) *total = whole;
        if (free) *free = whole > m.live ? whole - m.live : 0;
    } else if (free) {
        // As if the program's buffers, all of them and nothing else, were on the device.
        const std::size_t without_us = real_free + m.frames;
        *free = without_us > m.live ? without_us - m.live : 0;
    }
    return result;
}

CUresult total_memory(std::size_t* bytes, CUdevice device, Submit real) noexcept {
    const CUresult result = real();
    Session* s = Session::get();
    if (result != CUDA_SUCCESS || !s || !s->options().report_virtual || !bytes) return result;
    if (DevicePager* d = s->pager().device(device)) {
        const auto m = d->memory();
        *bytes = m.device_budget + m.host_budget;
    } else if (!s->pager().unmanaged(device)) {   // not in use yet
        const pager::Settings& settings = s->pager().settings();
        const std::size_t budget = std::min(settings.device_budget_of(*bytes), *bytes);
        *bytes = (budget ? budget : *bytes) + settings.host_budget;
    }
    return result;
}

CUresult address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    CUdeviceptr found = 0;
    std::size_t size = 0;
    if (!s || !holds("questions")) return real();
    if (s->pager().in_arena(at)) {
        pager::Buffer* b = s->pager().find(at);
        const auto there = b ? b->device->allocation_at(at) : std::nullopt;
        if (!there) return CUDA_ERROR_NOT_FOUND;
        found = there->base, size = there->bytes;
    } else if (!s->sharing().range_of(at, found, size)) {
        return real();
    }
    if (base) *base = found;
    if (bytes) *bytes = size;
    return CUDA_SUCCESS;
}

// A network card would read what a copy has not written yet. Contexts can be told to wait for all of theirs.
CUresult memops_refused(CUdeviceptr at, bool on, CUresult refusal) noexcept {
    Session* const s = Session::get();
    pager::Buffer* const b = s && s->pager().in_arena(at) ? s->pager().find(at) : nullptr;
    if (!b || !holds("memops")) return refusal;
    if (!on) return CUDA_SUCCESS;
    static const auto get = UDNNMEM_REAL(cuCtxGetFlags);
    static const auto set = UDNNMEM_REAL(cuCtxSetFlags);
    const pager::Within there(s->pager().driver(), b->device->context());
    unsigned flags = 0;
    if (!there || !get || !set || get(&flags) != CUDA_SUCCESS || set(flags | CU_CTX_SYNC_MEMOPS) != CUDA_SUCCESS) return refusal;
    g_memops.store(true);
    return CUDA_SUCCESS;
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    CUresult result;
    if (!s || !data || !s->pager().in_arena(at) || !answer(*s, data, attribute, at, result)) return real();
    return result;
}

CUresult pointer_attributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !attributes || !data || !s->pager().in_arena(at)) return real();
    // The plural form never fails for a pointer: what does not apply is what it says of memory that it does not know.
    static const auto ask_all = UDNNMEM_REAL(cuPointerGetAttributes);
    static const auto ask = UDNNMEM_REAL(cuPointerGetAttribute);
    if (!ask_all || !ask) return real();
    const CUresult result = ask_all(count, attributes, data, kNobodys);
    for (unsigned i = 0; i < count; ++i) {
        CUresult ignored;
        if (data[i] && !answer(*s, data[i], attributes[i], at, ignored)) ask(data[i], attributes[i], at);
    }
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

}  // namespace udnnmem::preload::handle
