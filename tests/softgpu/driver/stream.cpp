// Streams and what orders ops between them: the legacy stream waits for every blocking stream of its
// context and they for it; non-blocking streams wait for nobody. Also the ways to wait for all that.
#include <algorithm>

#include "tests/softgpu/driver/context.hpp"
#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/streams.hpp"

namespace softgpu {

namespace {
std::atomic<std::uint64_t> next_stream_id{10};

CUstream make_stream(CUcontext c, unsigned flags, int priority) {
    auto* s = new CUstream_st;
    s->context = c;
    s->flags = flags;
    s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    s->priority = std::clamp(priority, -5, 0);
    s->id = next_stream_id++;
    std::lock_guard lock(schedule_mutex());
    // Shells whose work has ended need not be looked at any more.
    std::erase_if(c->streams, [](CUstream t) { return t->magic != stream_magic && is_done(t->tail); });
    c->streams.push_back(s);
    return s;
}

struct ThreadStreams {
    std::vector<std::pair<CUcontext, CUstream>> all;
    ~ThreadStreams() {
        std::lock_guard lock(schedule_mutex());
        for (auto& [c, s] : all) s->magic = 0;
    }
};
thread_local ThreadStreams thread_streams;
}  // namespace

bool valid(CUstream s) { return s && s->magic == stream_magic; }

CUresult find_stream(Default d, CUstream handle, CUstream* out) {
    auto value = reinterpret_cast<std::uintptr_t>(handle);
    if (value > 2) [[likely]] {
        if (handle->magic != stream_magic) return names_what_is_gone("a call", "a stream"), CUDA_ERROR_INVALID_HANDLE;
        *out = handle;
        return sticky(handle->context);
    }
    CUcontext c;
    TRY(usable_context(&c));
    if (value == 0) value = d == Default::legacy ? 1 : 2;
    if (value == 1) {
        *out = c->legacy;
        return CUDA_SUCCESS;
    }
    for (auto& [context, stream] : thread_streams.all)
        if (context == c && stream->magic == stream_magic) {
            *out = stream;
            return CUDA_SUCCESS;
        }
    CUstream s = make_stream(c, 0, 0);
    s->per_thread = true;
    thread_streams.all.emplace_back(c, s);
    *out = s;
    return CUDA_SUCCESS;
}

void stream_dependencies_locked(CUstream s, std::vector<OpRef>& after) {
    if (!is_done(s->tail)) after.push_back(s->tail);
    CUcontext c = s->context;
    if (s->is_legacy) {
        for (CUstream other : c->streams)
            if (other->blocking && !is_done(other->tail)) after.push_back(other->tail);
    } else if (s->blocking && !is_done(c->legacy->tail)) {
        after.push_back(c->legacy->tail);
    }
}

OpRef submit_in_order_locked(CUstream s, std::shared_ptr<Work> work, std::span<const OpRef> more) {
    thread_local auto& after = *new std::vector<OpRef>;  // static destructors of the main thread still make calls
    after.clear();
    stream_dependencies_locked(s, after);
    after.insert(after.end(), more.begin(), more.end());
    s->tail = submit_locked(s->context, s, std::move(work), after);
    after.clear();
    return s->tail;
}

bool is_capturing(CUstream s) { return s->capture != nullptr; }

// A stream holds so much, and who gives it more waits, whatever locks that thread holds: as on a card, after a thousand launches.
static void wait_for_a_place(CUstream s) {
    for (;;) {
        OpRef first;
        {
            std::lock_guard lock(schedule_mutex());
            while (!s->queued.empty() && is_done(s->queued.front())) s->queued.pop_front();
            if (s->queued.size() < options().queue) return;
            first = s->queued.front();
        }
        wait(first);
    }
}

CUresult submit(CUstream s, std::shared_ptr<Work> work, OpRef* op, std::span<const OpRef> more) {
    if (s->capture) [[unlikely]] return capture_work(s, std::move(work));
    if (options().queue) [[unlikely]] wait_for_a_place(s);
    std::lock_guard lock(schedule_mutex());
    if (s->is_legacy || s->blocking) TRY(capture_blocks_legacy_locked(s));
    OpRef done = submit_in_order_locked(s, std::move(work), more);
    if (options().queue) [[unlikely]] s->queued.push_back(done);
    if (op) *op = std::move(done);
    return CUDA_SUCCESS;
}

CUresult synchronise(CUstream s) {
    std::vector<OpRef> after;
    {
        std::lock_guard lock(schedule_mutex());
        stream_dependencies_locked(s, after);
        if (!s->is_legacy) after.assign(1, s->tail);
    }
    for (auto& op : after) wait(op);
    return sticky(s->context);
}

CUresult synchronise(CUcontext c) {
    std::vector<OpRef> tails;
    {
        std::lock_guard lock(schedule_mutex());
        tails.push_back(c->legacy->tail);
        for (CUstream s : c->streams) tails.push_back(s->tail);
    }
    for (auto& op : tails) wait(op);
    return sticky(c);
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
    ENTER(cuStreamCreateWithPriority);
    REQUIRE(out && flags <= CU_STREAM_NON_BLOCKING);
    CUcontext c;
    TRY(usable_context(&c));
    *out = make_stream(c, flags, priority);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuStreamCreate(CUstream* out, unsigned flags) {
    ENTER(cuStreamCreate);
    return cuStreamCreateWithPriority(out, flags, 0);
}
SOFTGPU_API cuStreamDestroy_v2(CUstream s) {
    ENTER(cuStreamDestroy_v2);
    if (reinterpret_cast<std::uintptr_t>(s) <= 2 || s->per_thread) return CUDA_ERROR_INVALID_HANDLE;
    if (!valid(s)) return names_what_is_gone("cuStreamDestroy", "a stream"), CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) end_capture(s, nullptr);
    std::lock_guard lock(schedule_mutex());
    s->magic = 0;  // what it still has to do is done
    if (is_done(s->tail)) std::erase(s->context->streams, s);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuStreamDestroy(CUstream s) { return cuStreamDestroy_v2(s); }

CUresult impl_cuStreamSynchronize(Default d, CUstream handle) {
    ENTER(cuStreamSynchronize);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    TRY(refuse_under_capture(s));
    return synchronise(s);
}

CUresult impl_cuStreamQuery(Default d, CUstream handle) {
    ENTER(cuStreamQuery);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    TRY(refuse_under_capture(s));
    std::lock_guard lock(schedule_mutex());
    std::vector<OpRef> after;
    stream_dependencies_locked(s, after);
    if (s->is_legacy ? !after.empty() : !is_done(s->tail)) return CUDA_ERROR_NOT_READY;
    return sticky(s->context);
}

CUresult impl_cuStreamGetPriority(Default d, CUstream handle, int* priority) {
    ENTER(cuStreamGetPriority);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(priority);
    *priority = s->priority;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetFlags(Default d, CUstream handle, unsigned* flags) {
    ENTER(cuStreamGetFlags);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(flags);
    *flags = s->flags;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetId(Default d, CUstream handle, unsigned long long* id) {
    ENTER(cuStreamGetId);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(id);
    *id = s->id;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetDevice(Default d, CUstream handle, CUdevice* device) {
    ENTER(cuStreamGetDevice);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(device);
    *device = s->context->device;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetCtx(Default d, CUstream handle, CUcontext* context) {
    ENTER(cuStreamGetCtx);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(context);
    *context = s->context;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetCtx_v2(Default d, CUstream handle, CUcontext* context, CUgreenCtx* green) {
    if (green) *green = nullptr;
    return impl_cuStreamGetCtx(d, handle, context);
}
CUresult impl_cuStreamSetAttribute(Default d, CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
    ENTER(cuStreamSetAttribute);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(value);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) s->priority = std::clamp(value->priority, -5, 0);
    s->attributes[attribute] = *value;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetAttribute(Default d, CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
    ENTER(cuStreamGetAttribute);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(value);
    *value = {};
    if (auto it = s->attributes.find(attribute); it != s->attributes.end()) *value = it->second;
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = s->priority;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamCopyAttributes(Default d, CUstream to, CUstream from) {
    ENTER(cuStreamCopyAttributes);
    CUstream t, f;
    TRY(find_stream(d, to, &t));
    TRY(find_stream(d, from, &f));
    t->attributes = f->attributes;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamAttachMemAsync(Default d, CUstream handle, CUdeviceptr a, size_t, unsigned) {
    ENTER(cuStreamAttachMemAsync);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    auto r = find_range(a);
    REQUIRE(r && r->kind == Kind::managed);
    return CUDA_SUCCESS;
}
