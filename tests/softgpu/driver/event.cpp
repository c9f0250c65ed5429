// Events: a record is a point in its stream (an op without work), a wait is one more thing that the
// next op of a stream depends on. Also host functions.
#include "tests/softgpu/driver/context.hpp"
#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/streams.hpp"
#include "tests/softgpu/driver/work.hpp"

namespace softgpu {

bool valid(CUevent e) { return e && e->magic == event_magic; }

void names_what_is_gone(const char* call, const char* what) {
    say("%s: %s that is gone, or whose context is: undefined on a card", call, what);
    ++figures().faults;
}

namespace {
// Not so: a fault, where it was one once.
bool there(const char* call, CUevent e) {
    if (valid(e) && e->context->alive) return true;
    if (e) names_what_is_gone(call, "an event");
    return false;
}

// Shells are re-used and never freed, so that a stale handle can be told.
std::vector<CUevent>& spare_events() {
    static auto* const spare = new std::vector<CUevent>;
    return *spare;
}

CUevent take_event() {
    std::lock_guard lock(schedule_mutex());
    auto& spare = spare_events();
    if (spare.empty()) return new CUevent_st;
    CUevent e = spare.back();
    spare.pop_back();
    *e = CUevent_st{};
    return e;
}

void give_event(CUevent e) {
    std::lock_guard lock(schedule_mutex());
    *e = CUevent_st{};
    e->magic = 0;
    spare_events().push_back(e);
}
}  // namespace

CUresult record_event(CUstream s, CUevent e) {
    std::lock_guard lock(schedule_mutex());
    if (s->capture) {
        e->capture = s->capture;
        e->capture_nodes = s->capture_tail;
        e->recorded = false;
        return CUDA_SUCCESS;
    }
    TRY(capture_blocks_legacy_locked(s));
    e->capture.reset();
    e->capture_nodes.clear();
    e->op = submit_in_order_locked(s, nullptr);
    e->recorded = true;
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuEventCreate(CUevent* out, unsigned flags) {
    ENTER(cuEventCreate);
    REQUIRE(out && flags <= 7);
    CUcontext c;
    TRY(usable_context(&c));
    CUevent e = take_event();
    e->flags = flags;
    e->context = c;
    *out = e;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuEventDestroy_v2(CUevent e) {
    ENTER(cuEventDestroy_v2);
    if (!there("cuEventDestroy_v2", e)) return CUDA_ERROR_INVALID_HANDLE;
    give_event(e);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuEventDestroy(CUevent e) { return cuEventDestroy_v2(e); }

CUresult impl_cuEventRecordWithFlags(Default d, CUevent e, CUstream handle, unsigned flags) {
    ENTER(cuEventRecord);
    if (!there("cuEventRecord", e)) return CUDA_ERROR_INVALID_HANDLE;
    REQUIRE(flags <= CU_EVENT_RECORD_EXTERNAL);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    if (s->context != e->context) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture && flags == CU_EVENT_RECORD_EXTERNAL) return capture_work(s, event_record_work(e));
    return record_event(s, e);
}
CUresult impl_cuEventRecord(Default d, CUevent e, CUstream s) { return impl_cuEventRecordWithFlags(d, e, s, 0); }

CUresult impl_cuStreamWaitEvent(Default d, CUstream handle, CUevent e, unsigned flags) {
    ENTER(cuStreamWaitEvent);
    if (!there("cuStreamWaitEvent", e)) return CUDA_ERROR_INVALID_HANDLE;
    REQUIRE(flags <= CU_EVENT_WAIT_EXTERNAL);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    if (s->capture && flags == CU_EVENT_WAIT_EXTERNAL) return capture_work(s, event_wait_work(e));
    std::lock_guard lock(schedule_mutex());
    if (e->capture) return capture_wait_locked(s, e);
    if (s->capture) return e->recorded ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_SUCCESS;
    if (!e->recorded || is_done(e->op)) return CUDA_SUCCESS;
    TRY(capture_blocks_legacy_locked(s));
    submit_in_order_locked(s, nullptr, {&e->op, 1});
    return CUDA_SUCCESS;
}

SOFTGPU_API cuEventQuery(CUevent e) {
    ENTER(cuEventQuery);
    if (!there("cuEventQuery", e)) return CUDA_ERROR_INVALID_HANDLE;
    TRY(sticky(e->context));
    TRY(refuse_under_capture());
    std::lock_guard lock(schedule_mutex());
    if (e->capture) return CUDA_ERROR_CAPTURED_EVENT;
    return is_done(e->op) ? sticky(e->context) : CUDA_ERROR_NOT_READY;
}
SOFTGPU_API cuEventSynchronize(CUevent e) {
    ENTER(cuEventSynchronize);
    if (!there("cuEventSynchronize", e)) return CUDA_ERROR_INVALID_HANDLE;
    OpRef op;
    {
        std::lock_guard lock(schedule_mutex());
        if (e->capture) return CUDA_ERROR_CAPTURED_EVENT;
        op = e->op;
    }
    wait(op);
    return sticky(e->context);
}
SOFTGPU_API cuEventElapsedTime_v2(float* ms, CUevent from, CUevent to) {
    ENTER(cuEventElapsedTime);
    if (!there("cuEventElapsedTime", from) || !there("cuEventElapsedTime", to) || (from->flags | to->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    REQUIRE(ms);
    std::lock_guard lock(schedule_mutex());
    if (!from->recorded || !to->recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(from->op) || !is_done(to->op)) return CUDA_ERROR_NOT_READY;
    *ms = static_cast<float>(static_cast<double>(to->op->finished_ns - from->op->finished_ns) * 1e-6);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuEventElapsedTime(float* ms, CUevent from, CUevent to) { return cuEventElapsedTime_v2(ms, from, to); }

CUresult impl_cuLaunchHostFunc(Default d, CUstream handle, CUhostFn function, void* data) {
    ENTER(cuLaunchHostFunc);
    REQUIRE(function);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    return submit(s, host_work(s->context->device, function, data));
}
CUresult impl_cuLaunchHostFunc_v2(Default d, CUstream handle, CUhostFn function, void* data, unsigned sync_mode) {
    ENTER(cuLaunchHostFunc_v2);
    REQUIRE(sync_mode <= 1);
    return impl_cuLaunchHostFunc(d, handle, function, data);
}
CUresult impl_cuStreamAddCallback(Default d, CUstream handle, CUstreamCallback callback, void* data, unsigned flags) {
    ENTER(cuStreamAddCallback);
    REQUIRE(callback && flags == 0);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return submit(s, callback_work(handle, s->context, callback, data));
}
