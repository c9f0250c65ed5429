// Handlers of work that is submitted: launches, copies, memsets, and nodes of graphs as they are made.
//
// What a launch by plan runs through is `hot`, here and in the pager and the executor: it lies side by side in the library, and takes few
// lines of the caches that a program shares with it.
#include "shim/preload/work.hpp"

#include <algorithm>

#include "shim/pager/rules.hpp"
#include "shim/preload/captured_calls.hpp"
#include "shim/preload/context_wait.hpp"
#include "shim/preload/handlers.hpp"
#include "shim/preload/launch_source.hpp"
#include "shim/preload/launch_words.hpp"

namespace udnnmem::preload {

using namespace interpose;
using pager::DevicePager;
using pager::holds;
using pager::Op;
using pager::Pager;

std::uint64_t shape_of(const Work& w) {
    std::uint64_t h = static_cast<std::uint64_t>(w.kind);
    auto mix = [&](std::uint64_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u, h ^= h >> 29; };
    if (w.launch) {
        mix(w.launch->layout->fingerprint);
        for (int i = 0; i < 3; ++i) mix(w.launch->grid[i]), mix(w.launch->block[i]);
        mix(w.launch->shared_bytes);
    }
    for (std::uint32_t i = 0; i < w.span_count; ++i) mix(w.spans[i].bytes), mix(static_cast<std::uint64_t>(w.spans[i].access));
    return h;
}

[[gnu::hot]] CUresult plan_of(Session& s, CUstream stream, executor::Executor*& plan) {
    plan = s.executing();
    const pager::StreamTable& streams = s.pager().streams();
    if (!plan || !streams.capturing()) return CUDA_SUCCESS;
    return streams.is_capturing(stream) ? (plan = nullptr, CUDA_SUCCESS) : std::exchange(plan, nullptr)->untold();
}

[[gnu::hot]] CUresult follow_replays(Session& s, const Op& op) {
    executor::Executor* const executor = s.executing();
    return executor && !op.captured ? executor->follow_replays(op) : CUDA_SUCCESS;
}

CUresult explained(Session& s, const Op& op, const char* name, CUresult result) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    std::size_t bytes = 0;
    DevicePager* device = nullptr;
    const auto add = [&](const pager::Buffer* b) { bytes += b->bytes, device = b->device; };
    for (std::uint32_t i = 0; i < op.count && i < pager::Lease::kMany; ++i) add(op.buffers[i]);
    for (const pager::Buffer* b : op.more) add(b);
    if (device) s.refused(*device, name, bytes, true);
    return result;
}

CUresult note_escaped(Session& s, CUdeviceptr at) {
    pager::Buffer* const b = s.pager().find(at);
    if (!b) return CUDA_SUCCESS;
    const bool again = !b->device->escape(b, at);
    executor::Executor* const plan = s.executor();
    return plan ? plan->escaping(again) : CUDA_SUCCESS;
}

CUresult let_escape(Session& s, CUdeviceptr at) {
    pager::Buffer* const b = s.pager().find(at);
    if (!b) return CUDA_ERROR_INVALID_VALUE;
    if (!b->slab)
        if (const CUresult result = b->device->pin(b); result != CUDA_SUCCESS) return result;
    return note_escaped(s, at);
}

CUresult let_pointers_escape(Session& s, const Work& w) {
    return pointers_escaping(s.pager(), w, [&s](CUdeviceptr at) {
        const CUresult result = let_escape(s, at);
        return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
    });
}

namespace {
// Whether the host has waited for the op when the call returns: of copies that reach memory of its own, not of those from device to
// device, nor of fills.
bool host_waits(const Pager& p, const Work& w) {
    return w.blocking && w.kind == WorkKind::copy && !std::all_of(w.spans, w.spans + w.span_count, [&](const Span& s) { return p.in_arena(s.address); });
}

const char* name_of(const Work& w) { return w.launch ? w.launch->layout->name : w.entry_point; }

// Freed memory may still be mapped, so the driver would not see that the call is wrong.
bool copies_freed_memory(const Pager& p, const Work& w) {
    for (std::uint32_t i = 0; i < w.span_count; ++i)
        if (w.spans[i].bytes && p.in_arena(w.spans[i].address))
            if (const pager::Buffer* b = p.find(w.spans[i].address); b && !b->slab && !b->live) return true;
    return false;
}

// `drivers`: the result is the driver's.
[[gnu::hot]] CUresult submit_once(const Work& w, Submit submit, bool& drivers) noexcept {
    drivers = false;
    if (w.stream == CU_STREAM_PER_THREAD) [[unlikely]] name_own_stream();
    Session* s = Session::get();
    if (!s) return submit();
    Pager& p = s->pager();
    if (copies_freed_memory(p, w)) return CUDA_ERROR_INVALID_VALUE;
    Op op;
    Entered entered(p, op);
    Observation seen(*s, w.stream);
    op.stream = w.stream;
    op.kernel = w.kind == WorkKind::kernel;
    op.by_cpu = !op.kernel;
    executor::Executor* plan = nullptr;
    if (const CUresult result = plan_of(*s, w.stream, plan); result != CUDA_SUCCESS) return result;
    executor::Executor::Place place;
    std::uint64_t shape = 0;
    if (plan && gates(w)) plan->gating();
    try {
        for (std::uint32_t i = 1; i < w.part_count; ++i) op.also.push_back(&p.streams().slot(w.parts[i].stream));
        if (w.kind == WorkKind::copy)
            if (const CUresult result = let_pointers_escape(*s, w); result != CUDA_SUCCESS) return result;
        const WorkWords words(p, w);
        const bool may_know = plan && w.launch && !seen.touches();
        if (!may_know || !plan->recall(name_of(w), words, op, place)) {
            name_accesses(p, w, op, seen.touches());
            drop_repeats(op);
            if (Touches* all = seen.touches()) name_led(p, w, *all);
            if (!op.count && !op.everything) {
                if (!op.loose_count) return submit();
                if (plan)
                    if (const CUresult result = std::exchange(plan, nullptr)->untold(); result != CUDA_SUCCESS) return result;   // the recorder is not told of it either
            }
            if (plan || seen.touches()) shape = shape_of(w);
            if (plan) place = plan->before(name_of(w), shape, op, may_know ? &words : nullptr);
        }
        const WorkLaunch launch(w);
        CUresult ready = CUDA_SUCCESS;
        if (plan) ready = plan->compute_again(place, op, w.launch || w.fill || w.kind == WorkKind::copy ? &launch : nullptr);
        if (ready == CUDA_SUCCESS) ready = entered.enter();
        if (ready == CUDA_SUCCESS) ready = follow_replays(*s, op);
        if (ready != CUDA_SUCCESS) return explained(*s, op, name_of(w), ready);
        seen.submitting();
        if (plan) plan->submitting(place, op);
        // Before the call: what the copy brings may be used by an op of another thread as soon as it is submitted.
        if (w.kind == WorkKind::copy && !op.captured) note_pointers_copied(p, w);
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = submit();
    drivers = true;
    if (plan && result == CUDA_SUCCESS) plan->submitted(place, op);
    if (seen.touches()) seen.submitted(name_of(w), shape, host_waits(p, w), result);
    if (op.captured && s->learning()) captured::note(w.stream);
    entered.leave(result);
    if (plan && result == CUDA_SUCCESS) plan->after(place, op);
    if (w.launch) s->launched();
    return result;
}
}  // namespace

namespace handle {

// With a launch the driver may take memory of its own: for code that it has not loaded so far, for stacks. Of ours it gets some then.
[[gnu::hot]] CUresult work(const Work& w, Submit submit) noexcept {
    bool drivers = false;
    CUresult result = submit_once(w, submit, drivers);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && drivers && w.launch) [[unlikely]]
        give_way([&] { return result = submit_once(w, submit, drivers); });
    return result;
}

// Nothing runs, but the driver looks at the addresses: they are mapped, wherever to.
CUresult graph_node(const Span* spans, std::size_t count, Submit submit) noexcept {
    Session* s = Session::get();
    if (!s) return submit();
    Pager& p = s->pager();
    Op op;
    op.looked_at = true;
    try {
        for (std::size_t i = 0; i < count; ++i)
            if (pager::Buffer* b = spans[i].bytes ? p.find(spans[i].address) : nullptr) op.name(b);
        drop_repeats(op);
        if (!op.count || !holds("graph-node")) return submit();
        if (const CUresult result = p.enter(op); result != CUDA_SUCCESS) return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = submit();
    p.leave(op, result);
    return result;
}

}  // namespace handle
}  // namespace udnnmem::preload
