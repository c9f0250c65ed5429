// Reading graphs, and issuing their nodes one by one.
#include "interpose/graph_records.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <queue>
#include <unordered_map>

#include "interpose/kernel_layouts.hpp"
#include "interpose/spans.hpp"

namespace udnnmem::interpose {
namespace {

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

WorkKind kind_of(CUgraphNodeType type) noexcept {
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: return WorkKind::kernel;
        case CU_GRAPH_NODE_TYPE_MEMCPY: return WorkKind::copy;
        case CU_GRAPH_NODE_TYPE_MEMSET: return WorkKind::fill;
        case CU_GRAPH_NODE_TYPE_HOST: return WorkKind::host;
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return WorkKind::memop;
        default: return WorkKind::other;
    }
}

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

// ---- from the driver ----
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

NodeParamsPtr read_node(CUgraphNode node, CUgraphNodeType type) {
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

constexpr std::size_t max_nodes = 1u << 24;
constexpr int max_nesting = 32;

struct Edge {
    CUgraphNode from, to;
};

bool read_nodes(CUgraph graph, std::vector<CUgraphNode>& nodes) {
    std::size_t count = 0;
    if (OWN(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS || count > max_nodes) return false;
    nodes.resize(count);
    return count == 0 || (OWN(cuGraphGetNodes)(graph, nodes.data(), &count) == CUDA_SUCCESS && count == nodes.size());
}

bool read_edges(CUgraph graph, std::vector<Edge>& edges) {
    std::size_t count = 0;
    const bool v2 = driver_has(Symbol::cuGraphGetEdges_v2);
    const auto ask = [&](CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data) {
        return v2 ? OWN(cuGraphGetEdges_v2)(graph, from, to, data, &count) : OWN(cuGraphGetEdges)(graph, from, to, &count);
    };
    if (ask(nullptr, nullptr, nullptr) != CUDA_SUCCESS || count > max_nodes) return false;
    std::vector<CUgraphNode> from(count), to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (count != 0 && ask(from.data(), to.data(), data.data()) != CUDA_SUCCESS) return false;
    for (std::size_t i = 0; i < std::min(count, from.size()); ++i) edges.push_back({from[i], to[i]});
    return true;
}

}  // namespace

class GraphRecord final : public GraphExec {
  public:
    GraphRecord() { nodes_.push_back(make_node(add_params(unknown_node(CU_GRAPH_NODE_TYPE_CONDITIONAL)))); }
    explicit GraphRecord(CUgraph graph) {
        if (!read(graph, {}, 0)) *this = GraphRecord();
        settle();
    }
    GraphRecord(const GraphRecord&) = default;
    GraphRecord& operator=(const GraphRecord&) = default;
    ~GraphRecord() = default;

    const std::vector<GraphNode>& nodes() const override { return nodes_; }
    bool issuable() const override { return issuable_; }
    CUcontext context() const override { return context_; }
    CUresult issue(std::size_t node, CUstream stream) const override;

    // Another graph's parameters, under this one's handles: those are what the program goes on naming nodes by. The driver pairs
    // nodes by their dependencies; who is whose is known where both graphs list nodes with the same ones in the same order.
    void take_names(const GraphRecord& before) {
        const bool alike = std::equal(nodes_.begin(), nodes_.end(), before.nodes_.begin(), before.nodes_.end(),
                                      [](const GraphNode& a, const GraphNode& b) { return a.type == b.type && a.depends_on == b.depends_on; });
        if (!alike || before.order_.size() != order_.size()) return forget_names(before);
        std::unordered_map<CUgraphNode, std::uint32_t> positions;
        for (std::size_t i = 0; i < order_.size(); ++i) {
            const auto at = std::as_const(position_).find(order_[i]);
            const auto was = before.position_.find(before.order_[i]);
            const bool both = at != position_.cend() && was != before.position_.end();
            if (both && at->second != was->second) return forget_names(before);
            if (at != position_.cend()) positions[before.order_[i]] = at->second;
        }
        position_ = std::move(positions);
        order_ = before.order_;
        child_of_ = before.child_of_;
        for (auto& [node, position] : position_)
            if (auto was = before.position_.find(node); was != before.position_.end())
                nodes_[position].enabled = before.nodes_[was->second].enabled;
    }

    void set(CUgraphNode node, NodeParamsPtr params) {
        auto at = position_.find(node);
        if (at == position_.end() || params_[at->second]->type != params->type) return lose();
        params_[at->second] = seal(std::move(params));
        nodes_[at->second].work = work_of(*params_[at->second]);
        if (lost_) nodes_[at->second].work.proven = false;
        settle();
    }
    const NodeParams* params(CUgraphNode node) const {
        auto at = position_.find(node);
        return at == position_.end() ? nullptr : params_[at->second].get();
    }
    void enable(CUgraphNode node, bool on) {
        auto at = position_.find(node);
        if (at == position_.end()) return lose();
        nodes_[at->second].enabled = on;
    }
    // The nodes below a child graph node take the parameters of `graph`'s, in order.
    void set_child(CUgraphNode node, CUgraph graph) {
        std::vector<CUgraphNode> now, was;
        for (CUgraphNode n : order_)
            if (auto it = child_of_.find(n); it != child_of_.end() && it->second == node) was.push_back(n);
        if (!read_nodes(graph, now) || now.size() != was.size()) return lose();
        for (std::size_t i = 0; i < now.size(); ++i) {
            CUgraphNodeType type;
            if (OWN(cuGraphNodeGetType)(now[i], &type) != CUDA_SUCCESS) return lose();
            if (type != CU_GRAPH_NODE_TYPE_GRAPH) {
                set(was[i], read_node(now[i], type));
                continue;
            }
            CUgraph inner = nullptr;
            if (OWN(cuGraphChildGraphNodeGetGraph)(now[i], &inner) != CUDA_SUCCESS) return lose();
            set_child(was[i], inner);
        }
    }

  private:
    static Work work_of(const NodeParams& p) {
        Work w;
        w.kind = kind_of(p.type);
        w.entry_point = "cuGraphLaunch";
        w.proven = p.proven;
        if (p.type == CU_GRAPH_NODE_TYPE_KERNEL && p.launch.function != nullptr) w.launch = &p.launch;
        if (p.type == CU_GRAPH_NODE_TYPE_MEMSET) w.fill = &p.fill;
        w.spans = p.spans.data();
        w.span_count = static_cast<std::uint32_t>(p.spans.size());
        return w;
    }
    // The launch names its own copies: they lie still from here on.
    static NodeParamsPtr seal(NodeParamsPtr p) {
        auto& mine = const_cast<NodeParams&>(*p);
        mine.launch.buffer = mine.buffer.empty() ? nullptr : mine.buffer.data();
        mine.launch.buffer_bytes = mine.buffer.size();
        mine.launch.attributes = mine.attributes.data();
        mine.launch.attribute_count = static_cast<unsigned>(mine.attributes.size());
        return p;
    }
    std::uint32_t add_params(NodeParamsPtr p) {
        params_.push_back(seal(std::move(p)));
        return static_cast<std::uint32_t>(params_.size() - 1);
    }
    GraphNode make_node(std::uint32_t at) const {
        GraphNode n;
        n.type = params_[at]->type;
        n.work = work_of(*params_[at]);
        return n;
    }

    // Appends `graph`, its roots after `before`: in the order in which the driver lists its nodes, as far as what they depend on
    // lets them, for that is the order in which the program thought of them. A child graph stands as an empty node with its
    // nodes behind it; what comes after it waits for all of them.
    bool read(CUgraph graph, const std::vector<std::uint32_t>& before, int nesting, CUgraphNode owner = nullptr) {
        std::vector<CUgraphNode> nodes;
        std::vector<Edge> edges;
        if (nesting > max_nesting || !read_nodes(graph, nodes) || !read_edges(graph, edges)) return false;
        std::unordered_map<CUgraphNode, std::vector<CUgraphNode>> successors;
        std::unordered_map<CUgraphNode, std::vector<std::uint32_t>> waits;  // positions that a node comes after
        std::unordered_map<CUgraphNode, std::size_t> open;                  // predecessors that are not placed yet
        for (const Edge& e : edges) successors[e.from].push_back(e.to), ++open[e.to];
        std::unordered_map<CUgraphNode, std::size_t> listed;
        std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;   // by place in `nodes`
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const CUgraphNode n = nodes[i];
            listed[n] = i;
            order_.push_back(n);
            if (owner != nullptr) child_of_[n] = owner;
            if (!open.contains(n)) ready.push(i), waits[n] = before;
        }
        std::size_t placed = 0;
        for (; !ready.empty(); ++placed) {
            const CUgraphNode n = nodes[ready.top()];
            ready.pop();
            CUgraphNodeType type;
            if (OWN(cuGraphNodeGetType)(n, &type) != CUDA_SUCCESS) return false;
            const bool child = type == CU_GRAPH_NODE_TYPE_GRAPH;
            const std::uint32_t at = add_params(read_node(n, child ? CU_GRAPH_NODE_TYPE_EMPTY : type));
            nodes_.push_back(make_node(at));
            nodes_.back().depends_on = std::move(waits[n]);
            if (const Handlers* up = state.handlers.load(std::memory_order_acquire); up && up->node_tag) nodes_.back().tag = up->node_tag(n);
            position_[n] = at;
            std::vector<std::uint32_t> done{at};
            if (child) {
                CUgraph inner = nullptr;
                if (OWN(cuGraphChildGraphNodeGetGraph)(n, &inner) != CUDA_SUCCESS || !read(inner, {at}, nesting + 1, n)) return false;
                for (std::uint32_t p = at + 1; p < nodes_.size(); ++p) done.push_back(p);
            }
            for (CUgraphNode next : successors[n]) {
                auto& list = waits[next];
                list.insert(list.end(), done.begin(), done.end());
                if (--open[next] > 0) continue;
                const auto known = listed.find(next);
                if (known == listed.end()) return false;
                ready.push(known->second);
            }
        }
        return placed == nodes.size();
    }

    void settle() {
        context_ = nullptr;
        issuable_ = !lost_;
        for (const NodeParamsPtr& p : params_) {
            issuable_ = issuable_ && p->issuable && (p->context == nullptr || context_ == nullptr || p->context == context_);
            if (p->context != nullptr) context_ = p->context;
        }
    }
    // The program changed something that we cannot place: any node may be what was changed.
    void lose() {
        lost_ = true;
        issuable_ = false;
        for (GraphNode& n : nodes_) n.work.proven = false;
    }
    // Which of the nodes `before` had disabled are so now is not known either.
    void forget_names(const GraphRecord& before) {
        position_.clear();
        if (std::any_of(before.nodes_.begin(), before.nodes_.end(), [](const GraphNode& n) { return !n.enabled; })) lose();
    }

    std::vector<GraphNode> nodes_;
    std::vector<NodeParamsPtr> params_;                             // by position
    std::unordered_map<CUgraphNode, std::uint32_t> position_;       // by the handles of the graph first instantiated
    std::vector<CUgraphNode> order_;                                // of all graphs within, as the driver lists them
    std::unordered_map<CUgraphNode, CUgraphNode> child_of_;         // node of a child graph -> the node that holds it
    CUcontext context_ = nullptr;
    bool issuable_ = false;
    bool lost_ = false;
};

CUresult GraphRecord::issue(std::size_t node, CUstream stream) const {
    const NodeParams& p = *params_[node];
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

const GraphExec& as_exec(const GraphRecord& record) noexcept { return record; }

std::vector<Span> GraphExec::own_memory() const {
    std::vector<Span> own;
    if (issuable()) return own;   // none of its nodes allocates
    for (const GraphNode& node : nodes())
        if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) own.insert(own.end(), node.work.spans, node.work.spans + node.work.span_count);
    return own;
}

// ---- the records ----
namespace {

struct Records {
    std::mutex mutex;
    std::unordered_map<CUgraphExec, std::shared_ptr<GraphRecord>> by_exec;
};
Records& records() {
    static Records& r = *new Records;  // programs destroy graphs from static destructors
    return r;
}

// Changes the record of an exec: in place where nobody reads it, else a copy takes its place.
template <class Change>
void change(CUgraphExec exec, Change apply) noexcept {
    Records& r = records();
    std::lock_guard lock(r.mutex);
    auto it = r.by_exec.find(exec);
    if (it == r.by_exec.end()) return;
    if (it->second.use_count() > 1)
        it->second = std::make_shared<GraphRecord>(*it->second);
    else
        std::shared_ptr<GraphRecord>(it->second).reset();  // after the last reader, in the count's own order: use_count() has none
    apply(*it->second);
}

}  // namespace

void graph_instantiated(CUgraphExec exec, CUgraph graph) noexcept {
    auto record = std::make_shared<GraphRecord>(graph);
    Records& r = records();
    std::lock_guard lock(r.mutex);
    r.by_exec[exec] = std::move(record);
}

void graph_updated(CUgraphExec exec, CUgraph graph) noexcept {
    auto record = std::make_shared<GraphRecord>(graph);
    Records& r = records();
    std::lock_guard lock(r.mutex);
    auto& slot = r.by_exec[exec];
    if (slot) record->take_names(*slot);
    slot = std::move(record);
}

void graph_destroyed(CUgraphExec exec) noexcept {
    std::shared_ptr<GraphRecord> last;
    Records& r = records();
    std::lock_guard lock(r.mutex);
    if (auto it = r.by_exec.find(exec); it != r.by_exec.end()) last = std::move(it->second), r.by_exec.erase(it);
}

void graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool on) noexcept {
    change(exec, [&](GraphRecord& r) { r.enable(node, on); });
}
void graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1& p) noexcept {
    change(exec, [&](GraphRecord& r) { r.set(node, kernel_node(p, r.params(node))); });
}
void graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& p) noexcept {
    change(exec, [&](GraphRecord& r) { r.set(node, kernel_node(p, r.params(node))); });
}
void graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& p, CUcontext context) noexcept {
    change(exec, [&](GraphRecord& r) { r.set(node, copy_node(p, context)); });
}
void graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1& p, CUcontext context) noexcept {
    change(exec, [&](GraphRecord& r) { r.set(node, fill_node(p, context)); });
}
void graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS_v1& p) noexcept {
    change(exec, [&](GraphRecord& r) { r.set(node, host_node(p)); });
}
void graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& p) noexcept {
    change(exec, [&](GraphRecord& r) { r.set(node, memop_node(p)); });
}
void graph_node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& p) noexcept {
    change(exec, [&](GraphRecord& r) {
        switch (p.type) {
            case CU_GRAPH_NODE_TYPE_KERNEL: return r.set(node, kernel_node(p.kernel, r.params(node)));
            case CU_GRAPH_NODE_TYPE_MEMCPY: return r.set(node, copy_node(p.memcpy.copyParams, p.memcpy.copyCtx));
            case CU_GRAPH_NODE_TYPE_MEMSET: return r.set(node, fill_node(p.memset, p.memset.ctx));
            case CU_GRAPH_NODE_TYPE_HOST: return r.set(node, host_node(p.host));
            case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return r.set(node, memop_node(p.memOp));
            case CU_GRAPH_NODE_TYPE_GRAPH: return r.set_child(node, p.graph.graph);
            default: return;  // events and semaphores: nothing that a record says
        }
    });
}
void graph_child_set(CUgraphExec exec, CUgraphNode node, CUgraph graph) noexcept {
    change(exec, [&](GraphRecord& r) { r.set_child(node, graph); });
}

GraphRecordPtr graph_record(CUgraphExec exec) noexcept {
    static const GraphRecordPtr& unknown = *new GraphRecordPtr(std::make_shared<GraphRecord>());
    Records& r = records();
    std::lock_guard lock(r.mutex);
    auto it = r.by_exec.find(exec);
    return it == r.by_exec.end() ? unknown : it->second;
}

}  // namespace udnnmem::interpose
