// Reading graphs, and changing what was read as the program changes them.
#include "interpose/graph_records.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "interpose/graph_nodes.hpp"

namespace udnnmem::interpose {
namespace {

WorkKind kind_of(CUgraphNodeType type) noexcept {
    if (is_list_of_copies(type)) return WorkKind::copy;
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: return WorkKind::kernel;
        case CU_GRAPH_NODE_TYPE_MEMCPY: return WorkKind::copy;
        case CU_GRAPH_NODE_TYPE_MEMSET: return WorkKind::fill;
        case CU_GRAPH_NODE_TYPE_HOST: return WorkKind::host;
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return WorkKind::memop;
        default: return WorkKind::other;
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
    bool issuable() const override { return issuable_ && !launches_others(); }
    bool launches_others() const override;
    CUcontext context() const override { return context_; }
    CUresult issue(std::size_t node, CUstream stream) const override;

    // Another graph's parameters, under this one's handles: those are what the program goes on naming nodes by. The driver pairs
    // nodes by their dependencies; who is whose is known where both graphs list nodes with the same ones in the same order.
    void take_names(const GraphRecord& before) {
        if (before.enabled_unknown_) enabled_unknown_ = true, lose();
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
    // The program changed something that we cannot place, or kernels may launch it, which nobody sees: any node may be another one.
    void lose() {
        lost_ = true;
        issuable_ = false;
        for (GraphNode& n : nodes_) n.work.proven = false;
    }
    void enable(CUgraphNode node, bool on) {
        auto at = position_.find(node);
        if (at == position_.end()) return enabled_unknown_ = true, lose();
        nodes_[at->second].enabled = on || params_[at->second]->device_updatable;   // kernels may switch it on
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
        w.entry_point = w.kind == WorkKind::copy ? "copy node" : p.type == CU_GRAPH_NODE_TYPE_MEMSET ? "memset node" : "graph node";
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
    bool enabled_unknown_ = false;   // a node is on or off, nobody knows which
};

// How many graphs there are that kernels of graphs may launch.
static std::atomic<int> g_launched_by_kernels{0};

bool GraphRecord::launches_others() const {
    return g_launched_by_kernels.load(std::memory_order_relaxed) && std::any_of(nodes_.begin(), nodes_.end(), [](const GraphNode& n) { return n.type == CU_GRAPH_NODE_TYPE_KERNEL; });
}

CUresult GraphRecord::issue(std::size_t node, CUstream stream) const { return issue_node(*params_[node], stream); }

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
    std::unordered_set<CUgraphExec> launched_by_kernels;
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

bool may_be_launched_by_kernels(CUgraphExec exec) {
    cuuint64_t flags = 0;
    return driver_has(Symbol::cuGraphExecGetFlags) && OWN(cuGraphExecGetFlags)(exec, &flags) == CUDA_SUCCESS && flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
}

}  // namespace

std::shared_ptr<GraphRecord> read_graph(CUgraph graph) noexcept { return std::make_shared<GraphRecord>(graph); }

void graph_instantiated(CUgraphExec exec, std::shared_ptr<GraphRecord> record) noexcept {
    const bool unseen = may_be_launched_by_kernels(exec);
    if (unseen) record->lose();
    Records& r = records();
    std::lock_guard lock(r.mutex);
    r.by_exec[exec] = std::move(record);
    if (unseen) r.launched_by_kernels.insert(exec);
    else r.launched_by_kernels.erase(exec);
    g_launched_by_kernels.store(static_cast<int>(r.launched_by_kernels.size()));
}

void graph_updated(CUgraphExec exec, std::shared_ptr<GraphRecord> record) noexcept {
    Records& r = records();
    std::lock_guard lock(r.mutex);
    auto& slot = r.by_exec[exec];
    if (slot) record->take_names(*slot);
    if (r.launched_by_kernels.contains(exec)) record->lose();
    slot = std::move(record);
}

void graph_destroyed(CUgraphExec exec) noexcept {
    std::shared_ptr<GraphRecord> last;
    Records& r = records();
    std::lock_guard lock(r.mutex);
    if (auto it = r.by_exec.find(exec); it != r.by_exec.end()) last = std::move(it->second), r.by_exec.erase(it);
    if (r.launched_by_kernels.erase(exec)) g_launched_by_kernels.store(static_cast<int>(r.launched_by_kernels.size()));
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
        if (is_list_of_copies(p.type)) return r.set(node, copies_node(p));
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
