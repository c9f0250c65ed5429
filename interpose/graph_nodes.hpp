// What a node of a graph does: read from CUDA's structs or asked of the driver, and issued on a stream of its own.
//
// Invariants
//   - Parameters are copied deeply: the program may free or change what it passed.
//   - What cannot be read or copied is not `proven`, and nobody but the driver can issue it.
// All functions make real calls with the guard held by the caller.
#pragma once

#include "interpose/internal.hpp"

#include <memory>
#include <vector>

namespace udnnmem::interpose {

// What one node does, with everything it was given. Immutable once it is in a record.
struct NodeParams {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    bool proven = true;      // the spans or the launch name all that it touches
    bool issuable = true;
    bool device_updatable = false;   // kernels may change what it is given
    CUcontext context = nullptr;
    Launch launch;
    std::vector<std::byte> buffer;
    std::vector<CUlaunchAttribute> attributes;
    CUDA_MEMCPY3D copy{};
    CUDA_MEMSET_NODE_PARAMS_v1 fill{};
    CUhostFn function = nullptr;
    void* data = nullptr;
    std::vector<CUstreamBatchMemOpParams> ops;
    unsigned flags = 0;
    std::vector<Span> spans;
};
using NodeParamsPtr = std::shared_ptr<const NodeParams>;

// From what the program passes, of whichever version of the struct. `before`: what a kernel node was until now, which keeps what
// the struct does not say; may be null. `context`: in which the node runs; null is the one that is current then.
template <class Params>
NodeParamsPtr kernel_node(const Params&, const NodeParams* before);
NodeParamsPtr copy_node(const CUDA_MEMCPY3D&, CUcontext context);
template <class Params>
NodeParamsPtr fill_node(const Params&, CUcontext context);
template <class Params>
NodeParamsPtr host_node(const Params&);
template <class Params>
NodeParamsPtr memop_node(const Params&);
NodeParamsPtr copies_node(const CUgraphNodeParams&);   // a list of copies (newer_symbols.hpp)

// From the driver's own answers.
NodeParamsPtr read_node(CUgraphNode, CUgraphNodeType);
// One of which nothing is known.
NodeParamsPtr unknown_node(CUgraphNodeType);

// A node that is `issuable`; others are CUDA_ERROR_NOT_SUPPORTED.
CUresult issue_node(const NodeParams&, CUstream);

}  // namespace udnnmem::interpose
