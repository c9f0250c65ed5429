// Executable graphs: a copy of the graph with its children expanded into one list of steps, in an order
// that respects the dependencies. A launch enqueues one op a step; a launch waits for its stream and
// for the launch of the same executable before it.
#include <algorithm>

#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/listing.hpp"
#include "tests/softgpu/driver/module.hpp"
#include "tests/softgpu/driver/pool.hpp"
#include "tests/softgpu/driver/streams.hpp"
#include "tests/softgpu/driver/work.hpp"

namespace softgpu {
namespace {

// Appends the nodes of `g` behind the steps `after`; returns the steps that nothing in `g` waits for.
CUresult expand(CUgraph g, const std::vector<std::size_t>& after, std::vector<CUgraphExec_st::Step>& steps, std::vector<std::size_t>* leaves) {
    std::unordered_map<CUgraphNode, std::vector<std::size_t>> end_of;  // the steps that a node's end means
    std::unordered_map<CUgraphNode, std::size_t> waits;
    std::vector<CUgraphNode> ready;
    std::unordered_map<CUgraphNode, std::vector<CUgraphNode>> dependents;
    for (CUgraphNode n : g->nodes) {
        waits[n] = n->dependencies.size();
        for (CUgraphNode d : n->dependencies) dependents[d].push_back(n);
        if (n->dependencies.empty()) ready.push_back(n);
    }
    std::size_t seen = 0;
    for (; seen < ready.size(); ++seen) {
        CUgraphNode n = ready[seen];
        std::vector<std::size_t> before;
        for (CUgraphNode d : n->dependencies) before.insert(before.end(), end_of[d].begin(), end_of[d].end());
        if (before.empty()) before = after;
        if (n->child && !n->child->nodes.empty()) {
            TRY(expand(n->child, before, steps, &end_of[n]));
        } else {
            steps.push_back({n, std::move(before)});
            end_of[n].push_back(steps.size() - 1);
        }
        if (dependents[n].empty()) leaves->insert(leaves->end(), end_of[n].begin(), end_of[n].end());
        for (CUgraphNode m : dependents[n])
            if (--waits[m] == 0) ready.push_back(m);
    }
    return seen == g->nodes.size() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // else there is a cycle
}

// Strict: what is copied and filled is looked at again, as it was when the node was made.
CUresult look_at_addresses(CUgraph g) {
    for (CUgraphNode n : g->nodes) {
        if (n->child) TRY(look_at_addresses(n->child));
        std::shared_ptr<CopyWork> copy;
        std::shared_ptr<MemsetWork> fill;
        std::shared_ptr<MemOpWork> ops;
        if (auto* w = dynamic_cast<CopyWork*>(n->work.get())) TRY(make_copy(w->device, w->params, false, &copy, true));
        if (auto* w = dynamic_cast<MemsetWork*>(n->work.get())) TRY(make_memset(w->device, w->params, &fill));
        if (auto* w = dynamic_cast<MemOpWork*>(n->work.get())) TRY(make_memops(w->context, static_cast<unsigned>(w->ops.size()), w->ops.data(), w->flags, &ops));
    }
    return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph g, unsigned long long flags) {
    REQUIRE(out && g && g->magic == graph_magic);
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return CUDA_ERROR_NOT_SUPPORTED;
    REQUIRE((flags & ~15ull) == 0);
    CUcontext c;
    TRY(usable_context(&c));
    TRY(look_at_addresses(g));
    auto* e = new CUgraphExec_st;
    e->context = c;
    e->flags = flags;
    e->graph = copy_graph(g, &e->copy_of);
    std::vector<std::size_t> leaves;
    if (CUresult r = expand(e->graph, {}, e->steps, &leaves)) {
        destroy_graph(e->graph);
        delete e;
        return r;
    }
    *out = e;
    return CUDA_SUCCESS;
}

CUresult upload(CUgraphExec e) {
    const auto held = [e] { return std::all_of(e->steps.begin(), e->steps.end(), [](const auto& step) { return !step.node->memory || step.node->memory->hold(); }); };
    return held() || (release_unused_pool_memory(e->context->device) && held()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult launch(CUgraphExec e, CUstream s) {
    if (is_capturing(s)) return capture_child(s, e->graph);
    TRY(upload(e));
    std::vector<const Work*> works;
    if (listing())
        for (const auto& step : e->steps)
            if (Work* w = step.node->enabled ? step.node->work.get() : nullptr; dynamic_cast<KernelWork*>(w) || dynamic_cast<CopyWork*>(w) || dynamic_cast<MemsetWork*>(w)) works.push_back(w);
    const Listed listed(s, works);
    std::lock_guard lock(schedule_mutex());
    TRY(capture_blocks_legacy_locked(s));
    std::vector<OpRef> start, ops;
    stream_dependencies_locked(s, start);
    if (!is_done(e->last)) start.push_back(e->last);
    OpRef begin = submit_locked(s->context, s, nullptr, start);
    ops.reserve(e->steps.size());
    std::vector<bool> waited(e->steps.size());
    for (auto& step : e->steps) {
        std::vector<OpRef> after;
        for (std::size_t i : step.after) {
            after.push_back(ops[i]);
            waited[i] = true;
        }
        if (after.empty()) after.push_back(begin);
        std::shared_ptr<Work> work = step.node->enabled ? step.node->work : nullptr;
        if (auto* m = dynamic_cast<MemOpWork*>(work.get())) work = std::make_shared<MemOpWork>(*m);  // it keeps its place
        auto* event = dynamic_cast<EventWork*>(work.get());
        if (event && !event->record && valid(event->event)) after.push_back(event->event->op);
        ops.push_back(submit_locked(s->context, s, event ? nullptr : std::move(work), after));
        if (event && event->record && valid(event->event)) {
            event->event->op = ops.back();
            event->event->recorded = true;
        }
    }
    std::vector<OpRef> last{begin};
    for (std::size_t i = 0; i < ops.size(); ++i)
        if (!waited[i]) last.push_back(ops[i]);
    s->tail = e->last = submit_locked(s->context, s, nullptr, last);
    return CUDA_SUCCESS;
}

// The nodes of `g` in the order of ours: same shape, new work.
bool update(CUgraph own, CUgraph g, CUgraphNode* wrong, CUgraphExecUpdateResult* why) {
    if (own->nodes.size() != g->nodes.size()) {
        *why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        return false;
    }
    auto index = [](CUgraph graph, CUgraphNode n) { return std::find(graph->nodes.begin(), graph->nodes.end(), n) - graph->nodes.begin(); };
    for (std::size_t i = 0; i < g->nodes.size(); ++i) {
        CUgraphNode a = own->nodes[i], b = g->nodes[i];
        *wrong = b;
        if (a->type != b->type) {
            *why = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
            return false;
        }
        std::vector<std::ptrdiff_t> x, y;
        for (CUgraphNode d : a->dependencies) x.push_back(index(own, d));
        for (CUgraphNode d : b->dependencies) y.push_back(index(g, d));
        std::sort(x.begin(), x.end()), std::sort(y.begin(), y.end());
        if (x != y) {
            *why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            return false;
        }
        if (a->child && !update(a->child, b->child, wrong, why)) return false;
    }
    *wrong = nullptr;
    return true;
}
void assign(CUgraph own, CUgraph g) {
    for (std::size_t i = 0; i < g->nodes.size(); ++i) {
        own->nodes[i]->work = g->nodes[i]->work;
        own->nodes[i]->memory = g->nodes[i]->memory;
        if (own->nodes[i]->child) assign(own->nodes[i]->child, g->nodes[i]->child);
    }
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph g, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags);
    return instantiate(out, g, flags);
}
SOFTGPU_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph g, CUgraphNode* wrong, char* log, size_t bytes) {
    ENTER(cuGraphInstantiate_v2);
    if (wrong) *wrong = nullptr;
    if (log && bytes) *log = 0;
    return instantiate(out, g, 0);
}
SOFTGPU_API cuGraphInstantiate(CUgraphExec* out, CUgraph g, CUgraphNode* wrong, char* log, size_t bytes) { return cuGraphInstantiate_v2(out, g, wrong, log, bytes); }
CUresult impl_cuGraphInstantiateWithParams(Default, CUgraphExec* out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
    ENTER(cuGraphInstantiateWithParams);
    REQUIRE(p);
    p->hErrNode_out = nullptr;
    CUresult r = instantiate(out, g, p->flags);
    p->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return r;
}
SOFTGPU_API cuGraphExecGetFlags(CUgraphExec e, cuuint64_t* flags) {
    ENTER(cuGraphExecGetFlags);
    REQUIRE(valid(e) && flags);
    *flags = e->flags;
    return CUDA_SUCCESS;
}
CUresult impl_cuGraphUpload(Default d, CUgraphExec e, CUstream handle) {
    ENTER(cuGraphUpload);
    REQUIRE(valid(e));
    CUstream s;
    TRY(find_stream(d, handle, &s));
    return upload(e);
}
CUresult impl_cuGraphLaunch(Default d, CUgraphExec e, CUstream handle) {
    ENTER(cuGraphLaunch);
    REQUIRE(valid(e));
    CUstream s;
    TRY(find_stream(d, handle, &s));
    return launch(e, s);
}
SOFTGPU_API cuGraphExecDestroy(CUgraphExec e) {
    ENTER(cuGraphExecDestroy);
    REQUIRE(valid(e));
    e->magic = 0;  // a launch in flight holds its work
    destroy_graph(e->graph);
    delete e;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphExecUpdate_v2(CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo* info) {
    ENTER(cuGraphExecUpdate);
    REQUIRE(valid(e) && g && g->magic == graph_magic && info);
    *info = {};
    info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (!update(e->graph, g, &info->errorNode, &info->result)) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    TRY(look_at_addresses(g));
    assign(e->graph, g);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphExecUpdate(CUgraphExec e, CUgraph g, CUgraphNode* wrong, CUgraphExecUpdateResult* result) {
    CUgraphExecUpdateResultInfo info;
    CUresult r = cuGraphExecUpdate_v2(e, g, &info);
    if (wrong) *wrong = info.errorNode;
    if (result) *result = info.result;
    return r;
}
SOFTGPU_API cuGraphExecChildGraphNodeSetParams(CUgraphExec e, CUgraphNode n, CUgraph child) {
    ENTER(cuGraphExecChildGraphNodeSetParams);
    REQUIRE(valid(e) && child && child->magic == graph_magic);
    auto it = e->copy_of.find(n);
    REQUIRE(it != e->copy_of.end() && it->second->child);
    CUgraphNode wrong;
    CUgraphExecUpdateResult why;
    REQUIRE(update(it->second->child, child, &wrong, &why));
    TRY(look_at_addresses(child));
    assign(it->second->child, child);
    return CUDA_SUCCESS;
}
