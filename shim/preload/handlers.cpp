// The table of handlers behind the hooks, and those of them that only pass on what they are told.
#include "shim/preload/handlers.hpp"

#include <cstdlib>
#include <mutex>
#include <string>

#include "shim/log/log.hpp"
#include "shim/preload/captured_calls.hpp"
#include "shim/preload/context_wait.hpp"
#include "shim/preload/work.hpp"

namespace udnnmem::preload {
namespace handle {
namespace {

using namespace interpose;

// ---- ordering --------------------------------------------------------------------------------------------------------

CUresult wait_for_context(CUcontext context, Submit real) noexcept {
    Session* s = Session::get();
    return s ? preload::wait_for_context(*s, context, real) : real();
}
// Who is to be told what orders ops; nobody while a stream captures: it may be recorded, and order nothing now.
profiler::Recorder* recorder() {
    Session* s = Session::get();
    Learner* learner = s ? s->listening() : nullptr;
    return learner && !s->pager().streams().capturing() ? &learner->recorder : nullptr;
}
std::uint64_t number(CUevent event) { return reinterpret_cast<std::uintptr_t>(event); }

void synchronised(SyncScope, CUstream stream, CUevent event) noexcept {
    end_graphs();
    if (profiler::Recorder* r = recorder()) r->host_waited(stream ? stream_number(stream) : 0, number(event));
}
void event_recorded(CUevent event, CUstream stream) noexcept {
    if (stream == CU_STREAM_PER_THREAD) name_own_stream();
    if (profiler::Recorder* r = recorder()) r->event_recorded(number(event), stream ? stream_number(stream) : 0);
}
void event_waited(CUstream stream, CUevent event) noexcept {
    if (stream == CU_STREAM_PER_THREAD) name_own_stream();
    if (Session* s = Session::get()) s->pager().streams().event_waited();
    if (profiler::Recorder* r = stream ? recorder() : nullptr) r->stream_waits(stream_number(stream), number(event));
}
void stream_destroying(CUstream stream) noexcept {
    if (Session* s = Session::get()) s->pager().streams().stream_destroying(stream);
    forget_stream(stream);
}
void capture_beginning(CUstream stream) noexcept {
    if (Session* s = Session::get(true)) s->pager().streams().capture_beginning(stream);
}
void capture_ended(CUstream stream) noexcept {
    if (Session* s = Session::get()) s->pager().streams().capture_ended(stream);
}
CUresult recorded_elsewhere(CUstream) noexcept {
    if (!Session::get(true)) return CUDA_SUCCESS;
    UDNNMEM_LOG_ONCE(warn, "cuStreamBeginCaptureToCig: a graphics queue would run what is captured unseen, where managed memory may have moved; use UDNNMEM_ONLY or UDNNMEM_DISABLE for this program");
    return CUDA_ERROR_NOT_SUPPORTED;
}

void context_destroying(CUcontext context, bool green) noexcept {
    Session* s = Session::get();
    if (!s) return;
    if (executor::Executor* plan = s->executor()) plan->context_destroying(context);
    if (!green) s->sharing().context_destroying(context);
    s->pager().context_destroying(context, !green);
    if (Learner* learner = s->learner()) learner->timers.context_destroying(context);
    graphs_end_with(context);
    s->pager().streams().context_destroying(context);
}
void context_destroyed(CUcontext context) noexcept {
    forget_streams(context);
    if (Session* s = Session::get()) s->pager().streams().context_destroyed(context);
}
void context_kept(CUcontext context) noexcept {
    if (Session* s = Session::get()) s->pager().streams().context_destroyed(context, false);
}

// ---- what cannot be followed -----------------------------------------------------------------------------------------

CUresult escaping(CUdeviceptr at, Escape kind, const char*) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) return CUDA_SUCCESS;
    // To the program this is memory of cuMemAlloc, which has no handle; libraries (NCCL) tell by that how to share it.
    if (kind == Escape::allocation_handle) return CUDA_ERROR_INVALID_VALUE;
    return let_escape(*s, at);
}

CUresult ipc_get(CUipcMemHandle* handle, CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    if (!s || !s->pager().in_arena(at)) return real();
    CUcontext context = nullptr;
    if (s->pager().driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    try {
        CUresult result = s->sharing().get(*handle, at);
        if (result == CUDA_SUCCESS) result = note_escaped(*s, at);
        if (result == CUDA_SUCCESS) UDNNMEM_LOG_ONCE(info, "memory shared by IPC handles stays on the device; processes without this library cannot open them");
        if (result == CUDA_ERROR_NOT_SUPPORTED)
            UDNNMEM_LOG_ONCE(warn, "cuIpcGetMemHandle: managed memory cannot be shared by IPC handles here (its frames cannot be exported, or are the host's); use UDNNMEM_ONLY or UDNNMEM_DISABLE for this program");
        return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

CUresult ipc_open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags, Submit real) noexcept {
    if (!ipc::Sharing::ours(handle)) return real();
    Session* s = Session::get(true);
    if (!s) return real();
    if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    try {
        const CUresult result = s->sharing().open(*address, handle);
        if (result == CUDA_ERROR_MAP_FAILED) UDNNMEM_LOG_ONCE(warn, "cuIpcOpenMemHandle: the process that shared the memory has ended, freed it, or is another user's");
        return result;
    } catch (...) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

CUresult ipc_close(CUdeviceptr at, Submit real) noexcept {
    Session* s = Session::get();
    CUresult result;
    return s && s->sharing().close(at, result) ? result : real();
}

// The driver ends at exit, by a handler of its own that cuInit has set up: this one is younger, so its turn comes just before.
void initialised() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        std::atexit([] {
            if (Session* s = Session::get()) s->pager().driver_ends();
        });
    });
}

bool code_unloading() noexcept {
    Session* s = Session::get();
    executor::Executor* const plan = s ? s->executor() : nullptr;
    const bool may = !plan || plan->code_unloading();
    if (!may) UDNNMEM_LOG_ONCE(info, "kernels that the program unloads stay loaded: what they made and was dropped cannot be computed again now");
    return may;
}

void tensor_map(const void* descriptor, CUdeviceptr at) noexcept {
    if (Session* s = Session::get()) remember_tensor_map(s->pager(), descriptor, at);
}

void tensor_map_changed(const void* before, const void* after) noexcept { forward_tensor_map(before, after); }

void unknown_version(const char* name, int version) noexcept {
    static log::Once once;
    if (once.first())
        Session::end_paging(std::string(name) + " of CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                            " is not known to this version of udnnmem");
}

}  // namespace
}  // namespace handle

const interpose::Handlers handlers = {
    .allocate = handle::allocate,
    .take_unmanaged = handle::take_unmanaged,
    .free = handle::free_now,
    .free_async = handle::free_async,
    .work = handle::work,
    .launch_graph = handle::launch_graph,
    .wait_for_context = handle::wait_for_context,
    .synchronised = handle::synchronised,
    .event_recorded = handle::event_recorded,
    .event_waited = handle::event_waited,
    .stream_created = remember_stream,
    .stream_destroying = handle::stream_destroying,
    .capture_beginning = handle::capture_beginning,
    .capture_ended = handle::capture_ended,
    .context_destroying = handle::context_destroying,
    .context_destroyed = handle::context_destroyed,
    .memory_info = handle::memory_info,
    .total_memory = handle::total_memory,
    .address_range = handle::address_range,
    .pointer_attribute = handle::pointer_attribute,
    .pointer_attributes = handle::pointer_attributes,
    .pool_attribute = handle::pool_attribute,
    .pool_trim = handle::pool_trim,
    .escaping = handle::escaping,
    .ipc_get = handle::ipc_get,
    .ipc_open = handle::ipc_open,
    .ipc_close = handle::ipc_close,
    .tensor_map = handle::tensor_map,
    .unknown_version = handle::unknown_version,
    .initialised = handle::initialised,
    .graph_node = handle::graph_node,
    .unmanaged_memory = handle::unmanaged_memory,
    .context_kept = handle::context_kept,
    .code_unloading = handle::code_unloading,
    .graph_destroying = handle::graph_destroying,
    .node_tag = captured::tag_of,
    .peer_access = handle::peer_access,
    .memops_refused = handle::memops_refused,
    .between_devices = handle::between_devices,
    .tensor_map_changed = handle::tensor_map_changed,
    .recorded_elsewhere = handle::recorded_elsewhere,
    .pool_access = handle::pool_access,
};

}  // namespace udnnmem::preload
