// Graphs: instantiated, updated, changed node by node, launched. What is added to a graph before it is instantiated
// is read as a whole then; but where the driver looks at a new node's addresses they must be mapped.
#include "interpose/graph_records.hpp"
#include "interpose/spans.hpp"

namespace udnnmem::interpose {

// ---- instantiation ----
namespace {
using Spans = std::vector<Span>;
Spans spans_of(const GraphExec& graph) {
    Spans spans;
    for (const GraphNode& node : graph.nodes()) spans.insert(spans.end(), node.work.spans, node.work.spans + node.work.span_count);
    return spans;
}
// What a graph copies and fills the driver looked at when the nodes were made. It may do so again when it makes an executable of them,
// or changes one to them: they are mapped meanwhile. Where they cannot be, the answer is the driver's.
CUresult looking_at(const Guard& up, const GraphExec& graph, Submit real) {
    const Spans spans = spans_of(graph);
    if (!up || !up->graph_node || spans.empty()) return real();
    bool asked = false;
    const auto ask = [&] { return asked = true, real(); };
    const CUresult result = up->graph_node(spans.data(), spans.size(), ask);
    return asked ? result : real();
}
}  // namespace
#define INSTANTIATES(symbol, PARAMS, ARGS)                                                                             \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        auto record = read_graph(graph);                                                                               \
        auto look = [&] { return looking_at(up, as_exec(*record), real); };                                            \
        const CUresult result = up ? up->take_unmanaged(-1, 0, look) : real();                                         \
        if (result == CUDA_SUCCESS) graph_instantiated(*exec, std::move(record));                                      \
        return result;                                                                                                 \
    }
INSTANTIATES(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode* bad, char* log, size_t bytes), (exec, graph, bad, log, bytes))
INSTANTIATES(cuGraphInstantiate_v2, (CUgraphExec * exec, CUgraph graph, CUgraphNode* bad, char* log, size_t bytes), (exec, graph, bad, log, bytes))
INSTANTIATES(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
INSTANTIATES(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params), (exec, graph, params))
INSTANTIATES(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params), (exec, graph, params))
#define CHANGES_TO(symbol, PARAMS, ARGS, GRAPH, TOLD)                                                                  \
    HOOK(symbol, PARAMS) {                                                                                             \
        Guard up;                                                                                                      \
        auto record = read_graph(GRAPH);                                                                               \
        const CUresult result = looking_at(up, as_exec(*record), [&] { return REAL(symbol) ARGS; });                   \
        if (result == CUDA_SUCCESS) { TOLD; }                                                                          \
        return result;                                                                                                 \
    }
CHANGES_TO(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* bad, CUgraphExecUpdateResult* result_out),
           (exec, graph, bad, result_out), graph, graph_updated(exec, std::move(record)))
CHANGES_TO(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info), (exec, graph, info), graph,
           graph_updated(exec, std::move(record)))
CHANGES_TO(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child), child,
           graph_child_set(exec, node, child))
// Before the real call: the handle may be another graph's the moment after.
HOOK(cuGraphExecDestroy, (CUgraphExec exec)) {
    Guard up;
    const bool later = up && up->graph_destroying && up->graph_destroying(exec);
    graph_destroyed(exec);
    return later ? CUDA_SUCCESS : REAL(cuGraphExecDestroy)(exec);
}

// ---- parameters ----
ALWAYS_OBSERVE(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned on), (exec, node, on),
               graph_node_enabled(exec, node, on != 0))
ALWAYS_OBSERVE(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p),
               (exec, node, p), graph_node_set(exec, node, *p))
ALWAYS_OBSERVE(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p),
               (exec, node, p), graph_node_set(exec, node, *p))
ALWAYS_OBSERVE(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* p),
               (exec, node, p), graph_node_set(exec, node, *p))

// ---- nodes that the driver checks the addresses of ----
// Made or changed in a graph, or changed in an executable one (then `KEPT` says so to its record).
namespace {
Spans spans_of(const CUDA_MEMCPY3D* p) { return p ? Spans{source_of(*p), destination_of(*p)} : Spans{}; }
Spans spans_of(const CUDA_MEMSET_NODE_PARAMS* p) {
    return p ? Spans{rows_span(p->dst, p->pitch, p->width * p->elementSize, p->height)} : Spans{};
}
Spans spans_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
    if (!p) return {};
    SpanList list;
    list.add_memops(p->paramArray, p->count);
    return {list.data(), list.data() + list.size()};
}
Spans spans_of(const CUgraphNodeParams* p) {
    if (!p) return {};
    switch (p->type) {
        case CU_GRAPH_NODE_TYPE_MEMCPY: return spans_of(&p->memcpy.copyParams);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return {rows_span(p->memset.dst, p->memset.pitch, p->memset.width * p->memset.elementSize, p->memset.height)};
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            SpanList list;
            list.add_memops(p->memOp.paramArray, p->memOp.count);
            return {list.data(), list.data() + list.size()};
        }
        case CU_GRAPH_NODE_TYPE_GRAPH: return spans_of(as_exec(*read_graph(p->graph.graph)));
        default: break;
    }
    SpanList list;
    list.add_copies(*p);
    return {list.data(), list.data() + list.size()};
}
}  // namespace
#define NODE(symbol, PARAMS, ARGS, P, KEPT)                                                                            \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        const Spans spans = up && up->graph_node ? spans_of(P) : Spans{};                                              \
        const CUresult result = up && up->graph_node ? up->graph_node(spans.data(), spans.size(), real) : real();      \
        if (result == CUDA_SUCCESS) { KEPT; }                                                                          \
        return result;                                                                                                 \
    }
#define NODE_ADDED(symbol, TYPE, MORE, ...)                                                                            \
    NODE(symbol, (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count, TYPE* p MORE),            \
         (node, graph, after, count, p __VA_ARGS__), p, )
#define CONTEXT_TOO , CUcontext context
NODE_ADDED(cuGraphAddMemcpyNode, const CUDA_MEMCPY3D, CONTEXT_TOO, , context)
NODE_ADDED(cuGraphAddMemsetNode, const CUDA_MEMSET_NODE_PARAMS, CONTEXT_TOO, , context)
NODE_ADDED(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS, )
NODE_ADDED(cuGraphAddNode, CUgraphNodeParams, )
NODE(cuGraphAddNode_v2,
     (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* p),
     (node, graph, after, edges, count, p), p, )
NODE(cuGraphAddNode_v3,
     (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* p),
     (node, graph, after, edges, count, p), p, )
NODE(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D* p), (node, p), p, )
NODE(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p), (node, p), p, )
NODE(cuGraphBatchMemOpNodeSetParams, (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p), (node, p), p, )
NODE(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams* p), (node, p), p, )
NODE(cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams* p), (node, p), p, )
NODE(cuGraphExecMemcpyNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* p, CUcontext context),
     (exec, node, p, context), p, graph_node_set(exec, node, *p, context))
NODE(cuGraphExecMemsetNodeSetParams,
     (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext context), (exec, node, p, context), p,
     graph_node_set(exec, node, *p, context))
NODE(cuGraphExecBatchMemOpNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p),
     (exec, node, p), p, graph_node_set(exec, node, *p))
NODE(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p), (exec, node, p), p,
     graph_node_set(exec, node, *p))

// ---- launch ----
namespace {
std::size_t own_bytes(const GraphExec& graph) noexcept {
    std::size_t bytes = 0;
    for (const Span& span : graph.own_memory()) bytes += span.bytes;
    return bytes;
}
}  // namespace
#define UPLOAD_GRAPH(symbol) ALWAYS_OBSERVE_TAKING(own_bytes(as_exec(*graph_record(exec))), symbol, (CUgraphExec exec, CUstream stream), (exec, stream), )
UPLOAD_GRAPH(cuGraphUpload)
UPLOAD_GRAPH(cuGraphUpload_ptsz)
#define LAUNCH_GRAPH(symbol, STREAM)                                                                                   \
    HOOK(symbol, (CUgraphExec exec, CUstream stream)) {                                                                \
        auto real = [&] { return REAL(symbol)(exec, stream); };                                                        \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        const GraphRecordPtr record = graph_record(exec);                                                              \
        const GraphExec& graph = as_exec(*record);                                                                     \
        const auto launch = [&] { return up->launch_graph(exec, graph, STREAM, real); };                               \
        const std::size_t own = own_bytes(graph);                                                                      \
        return own ? up->take_unmanaged(-1, own, launch) : launch();                                                   \
    }
LAUNCH_GRAPH(cuGraphLaunch, legacy(stream))
LAUNCH_GRAPH(cuGraphLaunch_ptsz, per_thread(stream))

}  // namespace udnnmem::interpose
