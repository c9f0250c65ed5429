// Graphs: instantiated, updated, changed node by node, launched. What is added to a graph before it is instantiated
// needs no hook: the graph is read as a whole then.
#include "interpose/graph_records.hpp"

namespace udnnmem::interpose {

// ---- instantiation ----
ALWAYS_OBSERVE(cuGraphInstantiate,
               (CUgraphExec * exec, CUgraph graph, CUgraphNode* bad, char* log, size_t bytes), (exec, graph, bad, log, bytes),
               graph_instantiated(*exec, graph))
ALWAYS_OBSERVE(cuGraphInstantiate_v2,
               (CUgraphExec * exec, CUgraph graph, CUgraphNode* bad, char* log, size_t bytes), (exec, graph, bad, log, bytes),
               graph_instantiated(*exec, graph))
ALWAYS_OBSERVE(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
               (exec, graph, flags), graph_instantiated(*exec, graph))
ALWAYS_OBSERVE(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params),
               (exec, graph, params), graph_instantiated(*exec, graph))
ALWAYS_OBSERVE(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params),
               (exec, graph, params), graph_instantiated(*exec, graph))
ALWAYS_OBSERVE(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* bad, CUgraphExecUpdateResult* result_out),
               (exec, graph, bad, result_out), graph_updated(exec, graph))
ALWAYS_OBSERVE(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
               (exec, graph, info), graph_updated(exec, graph))
// Before the real call: the handle may be another graph's the moment after.
HOOK(cuGraphExecDestroy, (CUgraphExec exec)) {
    graph_destroyed(exec);
    return REAL(cuGraphExecDestroy)(exec);
}

// ---- parameters ----
ALWAYS_OBSERVE(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned on), (exec, node, on),
               graph_node_enabled(exec, node, on != 0))
ALWAYS_OBSERVE(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p),
               (exec, node, p), graph_node_set(exec, node, *p))
ALWAYS_OBSERVE(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p),
               (exec, node, p), graph_node_set(exec, node, *p))
ALWAYS_OBSERVE(cuGraphExecMemcpyNodeSetParams,
               (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* p, CUcontext context), (exec, node, p, context),
               graph_node_set(exec, node, *p, context))
ALWAYS_OBSERVE(cuGraphExecMemsetNodeSetParams,
               (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext context),
               (exec, node, p, context), graph_node_set(exec, node, *p, context))
ALWAYS_OBSERVE(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* p),
               (exec, node, p), graph_node_set(exec, node, *p))
ALWAYS_OBSERVE(cuGraphExecBatchMemOpNodeSetParams,
               (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p), (exec, node, p),
               graph_node_set(exec, node, *p))
ALWAYS_OBSERVE(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child),
               graph_child_set(exec, node, child))
ALWAYS_OBSERVE(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p), (exec, node, p),
               graph_node_set(exec, node, *p))

// ---- launch ----
#define LAUNCH_GRAPH(symbol, STREAM)                                                                                   \
    HOOK(symbol, (CUgraphExec exec, CUstream stream)) {                                                                \
        auto real = [&] { return REAL(symbol)(exec, stream); };                                                        \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        const GraphRecordPtr record = graph_record(exec);                                                              \
        return up->launch_graph(exec, as_exec(*record), STREAM, real);                                                 \
    }
LAUNCH_GRAPH(cuGraphLaunch, legacy(stream))
LAUNCH_GRAPH(cuGraphLaunch_ptsz, per_thread(stream))

}  // namespace udnnmem::interpose
