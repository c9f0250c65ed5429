// What an executable graph does, kept beside the driver's own handle: read from the graph by CUDA's public queries
// when it is instantiated or updated, changed by the calls that set a node's parameters afterwards.
//
// Invariants
//   - A record never says less than the graph does: a node whose parameters cannot be read or copied is there with
//     work that is not `proven`, and makes the graph not issuable on its own.
//   - Parameters are copied deeply: the program may free or change what it passed.
//   - A record is replaced, never edited, while a launch reads it: readers hold a reference.
#pragma once

#include "interpose/internal.hpp"

#include <memory>

namespace udnnmem::interpose {

class GraphRecord;
using GraphRecordPtr = std::shared_ptr<const GraphRecord>;

// All make real calls with the guard held by the caller; none throws.
// What an executable that is made of the graph, or changed to it, will do: read once, before the driver makes it. Never null.
std::shared_ptr<GraphRecord> read_graph(CUgraph) noexcept;
void graph_instantiated(CUgraphExec, std::shared_ptr<GraphRecord>) noexcept;
void graph_updated(CUgraphExec, std::shared_ptr<GraphRecord>) noexcept;
void graph_destroyed(CUgraphExec) noexcept;
void graph_node_enabled(CUgraphExec, CUgraphNode, bool) noexcept;
void graph_node_set(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1&) noexcept;
void graph_node_set(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2&) noexcept;
void graph_node_set(CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D&, CUcontext) noexcept;
void graph_node_set(CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS_v1&, CUcontext) noexcept;
void graph_node_set(CUgraphExec, CUgraphNode, const CUDA_HOST_NODE_PARAMS_v1&) noexcept;
void graph_node_set(CUgraphExec, CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1&) noexcept;
void graph_node_set(CUgraphExec, CUgraphNode, const CUgraphNodeParams&) noexcept;
void graph_child_set(CUgraphExec, CUgraphNode, CUgraph) noexcept;

// Never null: an exec that was born out of our sight has a record that names nothing and proves nothing.
GraphRecordPtr graph_record(CUgraphExec) noexcept;
const GraphExec& as_exec(const GraphRecord&) noexcept;

}  // namespace udnnmem::interpose
