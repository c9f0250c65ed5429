#include "interpose/graph_nodes.hpp"

#include <algorithm>
#include <cstring>

#include "interpose/kernel_layouts.hpp"
#include "interpose/spans.hpp"

namespace udnnmem::interpose {
namespace {

// Whether an end of a copy is host memory that is not pinned. A graph reads and writes such memory when it comes to the node; a call
// of the copy's own reads it at once, and waits for the stream to write it.
bool is_pageable(CUmemorytype type, const void* host, CUdeviceptr device) {
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_UNIFIED) return false;
    const CUdeviceptr at = type == CU_MEMORYTYPE_HOST ? address_of(host) : device;
    unsigned found = 0;
    const auto real = [&] { return OWN(cuPointerGetAttribute)(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at); };
    const Handlers* up = state.handlers.load(std::memory_order_acquire);
    return (up && up->pointer_attribute ? up->pointer_attribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at, real) : real()) != CUDA_SUCCESS;
}

void read_attributes(CUgraphNode node, NodeParams& p) {
    if (!driver_has(Symbol::cuGraphKernelNodeGetAttribute)) return;
    const auto ask = [&](CUlaunchAttributeID id, auto wanted) {
        CUlaunchAttribute a{};
        a.id = id;
        if (OWN(cuGraphKernelNodeGetAttribute)(node, id, &a.value) == CUDA_SUCCESS && wanted(a.value)) p.attributes.push_back(a);
    };
    ask(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, [&](auto& v) { return p.launch.cooperative = v.cooperative != 0; });
    ask(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [](auto& v) { return v.clusterDim.x > 0; });
    if (!p.attributes.empty())
        ask(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
            [](auto& v) { return v.clusterSchedulingPolicyPreference != CU_CLUSTER_SCHEDULING_POLICY_DEFAULT; });
    ask(CU_LAUNCH_ATTRIBUTE_PRIORITY, [](auto& v) { return v.priority != 0; });
    ask(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, [&](auto& v) {
        if (v.deviceUpdatableKernelNode.deviceUpdatable) p.device_updatable = true, p.proven = p.issuable = false;
        return false;
    });
}

// Touches nothing that others named, but nobody else can run it.
std::shared_ptr<NodeParams> only_the_drivers(CUgraphNodeType type) {
    auto p = std::make_shared<NodeParams>();
    p->type = type;
    p->issuable = false;
    return p;
}

}  // namespace

NodeParamsPtr unknown_node(CUgraphNodeType type) {
    auto p = std::make_shared<NodeParams>();
    p->type = type;
    p->proven = p->issuable = false;
    return p;
}

// ---- from CUDA's structs ----
template <class Params>
NodeParamsPtr kernel_node(const Params& k, const NodeParams* before) {
    auto p = std::make_shared<NodeParams>();
    p->type = CU_GRAPH_NODE_TYPE_KERNEL;
    CUfunction f = k.func;
    if constexpr (requires { k.kern; }) {
        if (f == nullptr) f = reinterpret_cast<CUfunction>(k.kern);
        p->context = k.ctx;
    }
    const KernelLayout* layout = layout_of(f);
    p->launch.function = f;
    p->launch.layout = layout;
    p->launch.grid[0] = k.gridDimX, p->launch.grid[1] = k.gridDimY, p->launch.grid[2] = k.gridDimZ;
    p->launch.block[0] = k.blockDimX, p->launch.block[1] = k.blockDimY, p->launch.block[2] = k.blockDimZ;
    p->launch.shared_bytes = k.sharedMemBytes;
    if (k.kernelParams != nullptr) {
        p->proven = p->issuable = layout->known;
        p->buffer.resize(layout->bytes);
        for (std::size_t i = 0; i < layout->params.size(); ++i)
            std::memcpy(p->buffer.data() + layout->params[i].offset, k.kernelParams[i], layout->params[i].size);
    } else if (k.extra != nullptr) {
        const void* from = nullptr;
        std::size_t bytes = 0;
        for (void** e = k.extra; e < k.extra + 16 && *e != CU_LAUNCH_PARAM_END; e += 2) {
            if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) from = e[1];
            if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE && e[1]) bytes = *static_cast<const std::size_t*>(e[1]);
        }
        if (from) p->buffer.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    } else {
        p->proven = p->issuable = layout->known && layout->params.empty();
    }
    if (before != nullptr) {
        p->attributes = before->attributes;
        if (p->context == nullptr) p->context = before->context;
        p->launch.cooperative = before->launch.cooperative;
        if (before->device_updatable) p->device_updatable = true, p->proven = p->issuable = false;
    }
    return p;
}

NodeParamsPtr copy_node(const CUDA_MEMCPY3D& c, CUcontext context) {
    auto p = std::make_shared<NodeParams>();
    p->type = CU_GRAPH_NODE_TYPE_MEMCPY;
    p->context = context;
    p->copy = c;
    p->spans = {source_of(c), destination_of(c)};
    p->issuable = !is_pageable(c.srcMemoryType, c.srcHost, c.srcDevice) && !is_pageable(c.dstMemoryType, c.dstHost, c.dstDevice);
    return p;
}

template <class Params>
NodeParamsPtr fill_node(const Params& f, CUcontext context) {
    auto p = std::make_shared<NodeParams>();
    p->type = CU_GRAPH_NODE_TYPE_MEMSET;
    p->context = context;
    p->fill = {f.dst, f.pitch, f.value, f.elementSize, f.width, f.height};
    p->spans = {rows_span(f.dst, f.pitch, f.width * f.elementSize, f.height)};
    p->issuable = f.elementSize == 1 || f.elementSize == 2 || f.elementSize == 4;
    return p;
}

template <class Params>
NodeParamsPtr host_node(const Params& h) {
    auto p = std::make_shared<NodeParams>();
    p->type = CU_GRAPH_NODE_TYPE_HOST;
    p->function = h.fn;
    p->data = h.userData;
    return p;
}

template <class Params>
NodeParamsPtr memop_node(const Params& m) {
    auto p = std::make_shared<NodeParams>();
    p->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    p->context = m.ctx;
    p->ops.assign(m.paramArray, m.paramArray + (m.paramArray ? m.count : 0));
    p->flags = m.flags;
    SpanList list;
    list.add_memops(m.paramArray, m.count);
    p->spans.assign(list.data(), list.data() + list.size());
    p->proven = list.complete();
    // On one stream it might wait for a node that comes behind it.
    p->issuable = std::none_of(p->ops.begin(), p->ops.end(), [](const auto& op) { return op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64; });
    return p;
}

NodeParamsPtr copies_node(const CUgraphNodeParams& c) {
    const auto p = only_the_drivers(c.type);
    SpanList list;
    list.add_copies(c);
    p->spans.assign(list.data(), list.data() + list.size());
    p->proven = list.complete();
    return p;
}

// ---- from the driver ----
NodeParamsPtr read_node(CUgraphNode node, CUgraphNodeType type) {
    if (is_list_of_copies(type)) {
        CUgraphNodeParams c{};
        const bool read = driver_has(Symbol::cuGraphNodeGetParams) && OWN(cuGraphNodeGetParams)(node, &c) == CUDA_SUCCESS && c.type == type;
        return read ? copies_node(c) : unknown_node(type);
    }
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            std::shared_ptr<NodeParams> p;
            CUDA_KERNEL_NODE_PARAMS_v2 k{};
            CUDA_KERNEL_NODE_PARAMS_v1 old{};
            if (driver_has(Symbol::cuGraphKernelNodeGetParams_v2) && OWN(cuGraphKernelNodeGetParams_v2)(node, &k) == CUDA_SUCCESS)
                p = std::const_pointer_cast<NodeParams>(kernel_node(k, nullptr));
            else if (driver_has(Symbol::cuGraphKernelNodeGetParams) && OWN(cuGraphKernelNodeGetParams)(node, &old) == CUDA_SUCCESS)
                p = std::const_pointer_cast<NodeParams>(kernel_node(old, nullptr));
            else
                return unknown_node(type);
            read_attributes(node, *p);
            return p;
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY: {
            CUDA_MEMCPY3D c{};
            return OWN(cuGraphMemcpyNodeGetParams)(node, &c) == CUDA_SUCCESS ? copy_node(c, nullptr) : unknown_node(type);
        }
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            CUDA_MEMSET_NODE_PARAMS_v1 f{};
            return OWN(cuGraphMemsetNodeGetParams)(node, &f) == CUDA_SUCCESS ? fill_node(f, nullptr) : unknown_node(type);
        }
        case CU_GRAPH_NODE_TYPE_HOST: {
            CUDA_HOST_NODE_PARAMS_v1 h{};
            return OWN(cuGraphHostNodeGetParams)(node, &h) == CUDA_SUCCESS ? host_node(h) : unknown_node(type);
        }
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 m{};
            return OWN(cuGraphBatchMemOpNodeGetParams)(node, &m) == CUDA_SUCCESS ? memop_node(m) : unknown_node(type);
        }
        case CU_GRAPH_NODE_TYPE_EMPTY: return std::make_shared<NodeParams>();
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return only_the_drivers(type);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
            CUDA_MEM_ALLOC_NODE_PARAMS m{};
            if (!driver_has(Symbol::cuGraphMemAllocNodeGetParams) || OWN(cuGraphMemAllocNodeGetParams)(node, &m) != CUDA_SUCCESS) return unknown_node(type);
            if (const Handlers* up = state.handlers.load(std::memory_order_acquire); up && up->unmanaged_memory) up->unmanaged_memory(m.dptr, m.bytesize, Outside::graph);
            auto p = only_the_drivers(type);
            p->spans.push_back({m.dptr, m.bytesize, Access::overwrite});
            return p;
        }
        default: return unknown_node(type);  // conditional bodies are not to be had by a query
    }
}

template NodeParamsPtr kernel_node(const CUDA_KERNEL_NODE_PARAMS_v1&, const NodeParams*);
template NodeParamsPtr kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2&, const NodeParams*);
template NodeParamsPtr kernel_node(const CUDA_KERNEL_NODE_PARAMS_v3&, const NodeParams*);
template NodeParamsPtr fill_node(const CUDA_MEMSET_NODE_PARAMS_v1&, CUcontext);
template NodeParamsPtr fill_node(const CUDA_MEMSET_NODE_PARAMS_v2&, CUcontext);
template NodeParamsPtr host_node(const CUDA_HOST_NODE_PARAMS_v1&);
template NodeParamsPtr host_node(const CUDA_HOST_NODE_PARAMS_v2&);
template NodeParamsPtr memop_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1&);
template NodeParamsPtr memop_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2&);

// ---- on a stream of its own ----
CUresult issue_node(const NodeParams& p, CUstream stream) {
    switch (p.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            const Launch& l = p.launch;
            std::size_t bytes = l.buffer_bytes;
            void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void*>(l.buffer), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                             CU_LAUNCH_PARAM_END};
            void** given = l.buffer ? extra : nullptr;
            if (l.attribute_count == 0)
                return OWN(cuLaunchKernel)(l.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                                            l.shared_bytes, stream, nullptr, given);
            CUlaunchConfig c{l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared_bytes, stream,
                             const_cast<CUlaunchAttribute*>(l.attributes), l.attribute_count};
            return OWN(cuLaunchKernelEx)(&c, l.function, nullptr, given);
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY: return OWN(cuMemcpy3DAsync_v2)(&p.copy, stream);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            const auto& f = p.fill;
            const auto byte = static_cast<unsigned char>(f.value);
            const auto half = static_cast<unsigned short>(f.value);
            if (f.height <= 1) {
                if (f.elementSize == 1) return OWN(cuMemsetD8Async)(f.dst, byte, f.width, stream);
                if (f.elementSize == 2) return OWN(cuMemsetD16Async)(f.dst, half, f.width, stream);
                return OWN(cuMemsetD32Async)(f.dst, f.value, f.width, stream);
            }
            if (f.elementSize == 1) return OWN(cuMemsetD2D8Async)(f.dst, f.pitch, byte, f.width, f.height, stream);
            if (f.elementSize == 2) return OWN(cuMemsetD2D16Async)(f.dst, f.pitch, half, f.width, f.height, stream);
            return OWN(cuMemsetD2D32Async)(f.dst, f.pitch, f.value, f.width, f.height, stream);
        }
        case CU_GRAPH_NODE_TYPE_HOST: return OWN(cuLaunchHostFunc)(stream, p.function, p.data);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            auto ops = p.ops;
            return OWN(cuStreamBatchMemOp_v2)(stream, static_cast<unsigned>(ops.size()), ops.data(), p.flags);
        }
        case CU_GRAPH_NODE_TYPE_EMPTY: return CUDA_SUCCESS;
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

}  // namespace udnnmem::interpose
