// Streams, events, contexts, capture, and what the program waits for; host functions on a stream. Real calls are
// never changed here, only told of: before them where a handle dies, after them otherwise.
#include "interpose/internal.hpp"

#include "interpose/kernel_layouts.hpp"
#include "interpose/primary_contexts.hpp"

namespace udnnmem::interpose {

#define BEFORE(symbol, PARAMS, ARGS, TOLD)                                                                             \
    HOOK(symbol, PARAMS) {                                                                                             \
        Guard up;                                                                                                      \
        if (up) { TOLD; }                                                                                              \
        return REAL(symbol) ARGS;                                                                                      \
    }

// Nothing of CUDA survives a fork once this was called: neither do the handlers.
HOOK(cuInit, (unsigned flags)) {
    wipe_state_in_children();
    const CUresult result = REAL(cuInit)(flags);
    Guard up;
    if (up && result == CUDA_SUCCESS && up->initialised) up->initialised();
    return result;
}

// ---- waiting, and polling that finds it done ----
HOOK(cuCtxSynchronize, ()) {
    Guard up;
    const auto real = [] { return REAL(cuCtxSynchronize)(); };
    const CUresult result = up ? up->wait_for_context(nullptr, real) : real();
    if (up && result == CUDA_SUCCESS) up->synchronised(SyncScope::context, nullptr, nullptr);
    return result;
}
HOOK(cuCtxSynchronize_v2, (CUcontext context)) {
    Guard up;
    CUcontext current = nullptr;
    if (up && context != nullptr) OWN(cuCtxGetCurrent)(&current);
    const auto real = [context] { return REAL(cuCtxSynchronize_v2)(context); };
    const CUresult result = up ? up->wait_for_context(context, real) : real();
    if (up && result == CUDA_SUCCESS && (context == nullptr || context == current))
        up->synchronised(SyncScope::context, nullptr, nullptr);
    return result;
}
#define STREAM_DONE(symbol)                                                                                            \
    OBSERVE(symbol, (CUstream stream), (stream), up->synchronised(SyncScope::stream, legacy(stream), nullptr))         \
    OBSERVE(symbol##_ptsz, (CUstream stream), (stream),                                                                \
            up->synchronised(SyncScope::stream, per_thread(stream), nullptr))
STREAM_DONE(cuStreamSynchronize)
STREAM_DONE(cuStreamQuery)
OBSERVE(cuEventSynchronize, (CUevent event), (event), up->synchronised(SyncScope::event, nullptr, event))
OBSERVE(cuEventQuery, (CUevent event), (event), up->synchronised(SyncScope::event, nullptr, event))

// ---- events ----
OBSERVE(cuEventRecord, (CUevent event, CUstream stream), (event, stream), up->event_recorded(event, legacy(stream)))
OBSERVE(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream), up->event_recorded(event, per_thread(stream)))
OBSERVE(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags),
        up->event_recorded(event, legacy(stream)))
OBSERVE(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags),
        up->event_recorded(event, per_thread(stream)))
OBSERVE(cuCtxRecordEvent, (CUcontext context, CUevent event), (context, event), up->event_recorded(event, nullptr))
OBSERVE(cuGreenCtxRecordEvent, (CUgreenCtx context, CUevent event), (context, event), up->event_recorded(event, nullptr))
BEFORE(cuEventDestroy, (CUevent event), (event), if (up->event_destroying) up->event_destroying(event))
BEFORE(cuEventDestroy_v2, (CUevent event), (event), if (up->event_destroying) up->event_destroying(event))
OBSERVE(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags),
        up->event_waited(legacy(stream), event))
OBSERVE(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags),
        up->event_waited(per_thread(stream), event))
OBSERVE(cuCtxWaitEvent, (CUcontext context, CUevent event), (context, event), up->event_waited(nullptr, event))
OBSERVE(cuGreenCtxWaitEvent, (CUgreenCtx context, CUevent event), (context, event), up->event_waited(nullptr, event))

// ---- streams ----
STREAM_MADE(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags), *stream, false)
STREAM_MADE(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority), (stream, flags, priority), *stream, false)
STREAM_MADE(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx context, unsigned flags, int priority), (stream, context, flags, priority),
            *stream, true)
// It has a default stream of its own.
STREAM_MADE(cuGreenCtxCreate, (CUgreenCtx * context, CUdevResourceDesc resources, CUdevice device, unsigned flags),
            (context, resources, device, flags), nullptr, true)
STREAM_GOES(cuStreamDestroy)
STREAM_GOES(cuStreamDestroy_v2)

// ---- capture ----
// Told of before it begins: what another thread does on the stream meanwhile must not be captured.
#define CAPTURE_BEGINS_ON(symbol, STREAM, PARAMS, ARGS)                                                                \
    HOOK(symbol, PARAMS) {                                                                                             \
        Guard up;                                                                                                      \
        if (up) up->capture_beginning(STREAM);                                                                         \
        const CUresult result = REAL(symbol) ARGS;                                                                     \
        if (up && result != CUDA_SUCCESS) up->capture_ended(STREAM);                                                   \
        return result;                                                                                                 \
    }
#define CAPTURE_BEGINS(symbol, PARAMS, ARGS)                                                                           \
    CAPTURE_BEGINS_ON(symbol, legacy(stream), PARAMS, ARGS)                                                            \
    CAPTURE_BEGINS_ON(symbol##_ptsz, per_thread(stream), PARAMS, ARGS)
CAPTURE_BEGINS(cuStreamBeginCapture, (CUstream stream), (stream))
CAPTURE_BEGINS_ON(cuStreamBeginCapture_v2, legacy(stream), (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
CAPTURE_BEGINS_ON(cuStreamBeginCapture_v2_ptsz, per_thread(stream), (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
CAPTURE_BEGINS(cuStreamBeginCaptureToGraph,
               (CUstream stream, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges, size_t count,
                CUstreamCaptureMode mode),
               (stream, graph, after, edges, count, mode))
// A graph that is captured anew changes, but what was instantiated from it does so only by an update, which is read then. What the
// program's callback does to executable graphs meanwhile is told to their records as ever.
CAPTURE_BEGINS(cuStreamBeginRecaptureToGraph,
               (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback changed, void* data),
               (stream, mode, graph, changed, data))
// Into a command list of a graphics queue.
#define CAPTURE_TO_CIG(symbol, STREAM)                                                                                 \
    HOOK(symbol, (CUstream stream, CUstreamCigCaptureParams * into)) {                                                 \
        Guard up;                                                                                                      \
        if (up && up->recorded_elsewhere)                                                                              \
            if (const CUresult refused = up->recorded_elsewhere(STREAM); refused != CUDA_SUCCESS) return refused;      \
        if (up) up->capture_beginning(STREAM);                                                                         \
        const CUresult result = REAL(symbol)(stream, into);                                                            \
        if (up && result != CUDA_SUCCESS) up->capture_ended(STREAM);                                                   \
        return result;                                                                                                 \
    }
CAPTURE_TO_CIG(cuStreamBeginCaptureToCig, legacy(stream))
CAPTURE_TO_CIG(cuStreamBeginCaptureToCig_ptsz, per_thread(stream))
// An invalidated capture ends with an error, but ends; calls on streams that do not capture end nothing.
#define CAPTURE_ENDS(symbol, STREAM, PARAMS, ARGS)                                                                     \
    HOOK(symbol, PARAMS) {                                                                                             \
        Guard up;                                                                                                      \
        const CUresult result = REAL(symbol) ARGS;                                                                     \
        if (up && (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||                        \
                   result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED))                                                      \
            up->capture_ended(STREAM);                                                                                 \
        return result;                                                                                                 \
    }
CAPTURE_ENDS(cuStreamEndCapture, legacy(stream), (CUstream stream, CUgraph* graph), (stream, graph))
CAPTURE_ENDS(cuStreamEndCapture_ptsz, per_thread(stream), (CUstream stream, CUgraph* graph), (stream, graph))
CAPTURE_ENDS(cuStreamEndCaptureToCig, legacy(stream), (CUstream stream), (stream))
CAPTURE_ENDS(cuStreamEndCaptureToCig_ptsz, per_thread(stream), (CUstream stream), (stream))

// ---- contexts ----
#define ENDS(symbol, PARAMS, ARGS, CONTEXT, GREEN)                                                                     \
    HOOK(symbol, PARAMS) {                                                                                             \
        Guard up;                                                                                                      \
        const CUcontext dying = up ? (CONTEXT) : nullptr;                                                              \
        if (dying) forget_layouts(), up->context_destroying(dying, GREEN); /* its modules go with it */                \
        const CUresult result = REAL(symbol) ARGS;                                                                     \
        if (dying && result == CUDA_SUCCESS) up->context_destroyed(dying);                                             \
        if (dying && result != CUDA_SUCCESS && up->context_kept) up->context_kept(dying);                              \
        return result;                                                                                                 \
    }
#define CONTEXT_ENDS(symbol, PARAMS, ARGS, CONTEXT) ENDS(symbol, PARAMS, ARGS, CONTEXT, false)
CONTEXT_ENDS(cuCtxDestroy, (CUcontext context), (context), attachments->ended(context))
CONTEXT_ENDS(cuCtxDestroy_v2, (CUcontext context), (context), attachments->ended(context))
ALWAYS_OBSERVE(cuCtxAttach, (CUcontext * context, unsigned flags), (context, flags), attachments->attached(*context))
CONTEXT_ENDS(cuCtxDetach, (CUcontext context), (context), attachments->detached(context))
// A larger stack, heap or buffer of what kernels print is device memory.
ALWAYS_OBSERVE_TAKING(0, cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value), )
static CUcontext context_of(CUgreenCtx green) noexcept {
    CUcontext context = nullptr;
    OWN(cuCtxFromGreenCtx)(&context, green);
    return context;
}
ENDS(cuGreenCtxDestroy, (CUgreenCtx green), (green), context_of(green), true)
ALWAYS_OBSERVE(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device),
        primary_contexts.retained(device, *context))
CONTEXT_ENDS(cuDevicePrimaryCtxRelease, (CUdevice device), (device), primary_contexts.released(device))
CONTEXT_ENDS(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device), primary_contexts.released(device))
CONTEXT_ENDS(cuDevicePrimaryCtxReset, (CUdevice device), (device), primary_contexts.reset(device))
CONTEXT_ENDS(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device), primary_contexts.reset(device))

// ---- host functions ----
#define HOST_WORK(symbol, STREAM, PARAMS, ARGS)                                                                        \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        return tell(up, WorkKind::host, #symbol, STREAM, false, nullptr, 0, real);                                     \
    }
HOST_WORK(cuLaunchHostFunc, legacy(stream), (CUstream stream, CUhostFn function, void* data), (stream, function, data))
HOST_WORK(cuLaunchHostFunc_ptsz, per_thread(stream), (CUstream stream, CUhostFn function, void* data),
          (stream, function, data))
HOST_WORK(cuLaunchHostFunc_v2, legacy(stream), (CUstream stream, CUhostFn function, void* data, unsigned waits),
          (stream, function, data, waits))
HOST_WORK(cuLaunchHostFunc_v2_ptsz, per_thread(stream), (CUstream stream, CUhostFn function, void* data, unsigned waits),
          (stream, function, data, waits))
HOST_WORK(cuStreamAddCallback, legacy(stream), (CUstream stream, CUstreamCallback function, void* data, unsigned flags),
          (stream, function, data, flags))
HOST_WORK(cuStreamAddCallback_ptsz, per_thread(stream),
          (CUstream stream, CUstreamCallback function, void* data, unsigned flags), (stream, function, data, flags))

}  // namespace udnnmem::interpose
