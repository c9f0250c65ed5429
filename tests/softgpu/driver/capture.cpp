// Stream capture: calls on a capturing stream become nodes; events carry a capture to other streams.
// What could synchronise is refused while a capture that forbids it is going on, and invalidates it.
#include <algorithm>

#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/streams.hpp"
#include "tests/softgpu/driver/work.hpp"

namespace softgpu {
namespace {

std::atomic<int> active{0};
std::atomic<unsigned long long> next_id{1};
std::vector<std::shared_ptr<Capture>>& captures_locked() {
    static auto* const all = new std::vector<std::shared_ptr<Capture>>;
    return *all;
}
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::uint64_t this_thread() {
    static std::atomic<std::uint64_t> next{1};
    thread_local const std::uint64_t id = next++;
    return id;
}

CUresult usable_locked(CUstream s) { return s->capture && s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS; }

void join_locked(CUstream s, const std::shared_ptr<Capture>& c) {
    s->capture = c;
    s->capture_tail.clear();
    c->streams.push_back(s);
}

CUresult begin(CUstream s, CUgraph into, const CUgraphNode* dependencies, std::size_t count, CUstreamCaptureMode mode) {
    if (s->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(schedule_mutex());
    if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto c = std::make_shared<Capture>();
    c->owns_graph = !into;
    c->graph = into ? into : new_graph();
    c->id = next_id++;
    c->origin = s;
    c->mode = mode;
    c->thread = this_thread();
    join_locked(s, c);
    s->capture_tail.assign(dependencies, dependencies + count);
    captures_locked().push_back(std::move(c));
    ++active;
    return CUDA_SUCCESS;
}

// Adds a node behind the stream's last one. `fill` may refuse.
template <class Fill>
CUresult add_locked(CUstream s, CUgraphNodeType type, Fill fill) {
    TRY(usable_locked(s));
    CUgraphNode n = new_node(s->capture->graph, type, s->capture_tail);
    if (CUresult r = fill(n)) {
        s->capture->graph->nodes.pop_back();
        delete n;
        return r;
    }
    s->capture_tail.assign(1, n);
    return CUDA_SUCCESS;
}

}  // namespace

CUresult refuse_under_capture(CUstream s) {
    if (active.load(std::memory_order_relaxed) == 0) [[likely]] return CUDA_SUCCESS;
    std::lock_guard lock(schedule_mutex());
    if (s && s->capture) {
        s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    bool refused = false;
    for (auto& c : captures_locked()) {
        bool own = c->thread == this_thread() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool any = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || any) c->invalid = refused = true;
    }
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_blocks_legacy_locked(CUstream s) {
    if (active.load(std::memory_order_relaxed) == 0 || !s->is_legacy) [[likely]] return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (auto& c : captures_locked())
        for (CUstream t : c->streams)
            if (t->context == s->context && t->blocking) {
                c->invalid = true;
                result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
    return result;
}

CUresult capture_wait_locked(CUstream s, CUevent e) {
    auto c = e->capture;
    if (std::find(captures_locked().begin(), captures_locked().end(), c) == captures_locked().end()) return CUDA_ERROR_CAPTURED_EVENT;
    if (c->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->is_legacy) {
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!s->capture) join_locked(s, c);
    if (s->capture != c) {
        c->invalid = s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    for (CUgraphNode n : e->capture_nodes)
        if (std::find(s->capture_tail.begin(), s->capture_tail.end(), n) == s->capture_tail.end()) s->capture_tail.push_back(n);
    return CUDA_SUCCESS;
}

CUresult capture_work(CUstream s, std::shared_ptr<Work> work) {
    std::lock_guard lock(schedule_mutex());
    return add_locked(s, type_of(*work), [&](CUgraphNode n) {
        n->work = std::move(work);
        return CUDA_SUCCESS;
    });
}
CUresult capture_child(CUstream s, CUgraph graph) {
    std::lock_guard lock(schedule_mutex());
    return add_locked(s, CU_GRAPH_NODE_TYPE_GRAPH, [&](CUgraphNode n) {
        n->child = copy_graph(graph, nullptr);
        n->child->is_child = true;
        return CUDA_SUCCESS;
    });
}
CUresult capture_allocation(CUstream s, std::uint64_t bytes, CUdeviceptr* out) {
    std::lock_guard lock(schedule_mutex());
    return add_locked(s, CU_GRAPH_NODE_TYPE_MEM_ALLOC, [&](CUgraphNode n) {
        CUDA_MEM_ALLOC_NODE_PARAMS p{};
        p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {s->context->device}};
        p.bytesize = bytes;
        TRY(make_allocation_node(n, s->context, &p));
        *out = p.dptr;
        return CUDA_SUCCESS;
    });
}
CUresult capture_free(CUstream s, CUdeviceptr a) {
    std::lock_guard lock(schedule_mutex());
    return add_locked(s, CU_GRAPH_NODE_TYPE_MEM_FREE, [&](CUgraphNode n) {
        n->freed = a;
        return CUDA_SUCCESS;
    });
}

CUresult end_capture(CUstream s, CUgraph* out) {
    std::lock_guard lock(schedule_mutex());
    auto c = s->capture;
    if (out) *out = nullptr;
    if (!c) return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (out && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != this_thread()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    // Every stream's last node must have come back to the origin.
    std::vector<CUgraphNode> reached = s->capture_tail;
    for (std::size_t i = 0; i < reached.size(); ++i)
        for (CUgraphNode d : reached[i]->dependencies)
            if (std::find(reached.begin(), reached.end(), d) == reached.end()) reached.push_back(d);
    for (CUstream t : c->streams) {
        for (CUgraphNode n : t->capture_tail)
            if (result == CUDA_SUCCESS && std::find(reached.begin(), reached.end(), n) == reached.end()) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        t->capture.reset();
        if (t != s) t->capture_tail.clear();
    }
    s->capture_tail.clear();
    std::erase(captures_locked(), c);
    --active;
    if (result != CUDA_SUCCESS || !out) {
        if (c->owns_graph) destroy_graph(c->graph);
        return result;
    }
    *out = c->graph;
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

CUresult impl_cuStreamBeginCapture_v2(Default d, CUstream handle, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCapture);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    return begin(s, nullptr, nullptr, 0, mode);
}
CUresult impl_cuStreamBeginCapture(Default d, CUstream handle) { return impl_cuStreamBeginCapture_v2(d, handle, CU_STREAM_CAPTURE_MODE_GLOBAL); }
CUresult impl_cuStreamBeginCaptureToGraph(Default d, CUstream handle, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData*, size_t count,
                                          CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCaptureToGraph);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(graph && graph->magic == graph_magic && (dependencies || !count));
    return begin(s, graph, dependencies, count, mode);
}
CUresult impl_cuStreamEndCapture(Default d, CUstream handle, CUgraph* graph) {
    ENTER(cuStreamEndCapture);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(graph);
    return end_capture(s, graph);
}
CUresult impl_cuStreamIsCapturing(Default d, CUstream handle, CUstreamCaptureStatus* status) {
    ENTER(cuStreamIsCapturing);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(status);
    std::lock_guard lock(schedule_mutex());
    TRY(capture_blocks_legacy_locked(s));
    *status = !s->capture ? CU_STREAM_CAPTURE_STATUS_NONE : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetCaptureInfo_v3(Default d, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,
                                        const CUgraphEdgeData** edges, size_t* count) {
    ENTER(cuStreamGetCaptureInfo);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(status);
    std::lock_guard lock(schedule_mutex());
    TRY(capture_blocks_legacy_locked(s));
    *status = !s->capture ? CU_STREAM_CAPTURE_STATUS_NONE : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id) *id = s->capture->id;
    if (graph) *graph = s->capture->graph;
    if (dependencies) *dependencies = s->capture_tail.data();
    if (edges) *edges = nullptr;
    if (count) *count = s->capture_tail.size();
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamGetCaptureInfo_v2(Default d, CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,
                                        size_t* count) {
    return impl_cuStreamGetCaptureInfo_v3(d, s, status, id, graph, dependencies, nullptr, count);
}
CUresult impl_cuStreamGetCaptureInfo(Default d, CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return impl_cuStreamGetCaptureInfo_v3(d, s, status, id, nullptr, nullptr, nullptr, nullptr);
}
CUresult impl_cuStreamUpdateCaptureDependencies_v2(Default d, CUstream handle, CUgraphNode* dependencies, const CUgraphEdgeData*, size_t count, unsigned flags) {
    ENTER(cuStreamUpdateCaptureDependencies);
    CUstream s;
    TRY(find_stream(d, handle, &s));
    REQUIRE(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES && (dependencies || !count));
    std::lock_guard lock(schedule_mutex());
    if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    TRY(usable_locked(s));
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) s->capture_tail.clear();
    for (size_t i = 0; i < count; ++i)
        if (std::find(s->capture_tail.begin(), s->capture_tail.end(), dependencies[i]) == s->capture_tail.end()) s->capture_tail.push_back(dependencies[i]);
    return CUDA_SUCCESS;
}
CUresult impl_cuStreamUpdateCaptureDependencies(Default d, CUstream s, CUgraphNode* dependencies, size_t count, unsigned flags) {
    return impl_cuStreamUpdateCaptureDependencies_v2(d, s, dependencies, nullptr, count, flags);
}
SOFTGPU_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    ENTER(cuThreadExchangeStreamCaptureMode);
    REQUIRE(mode && *mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}
