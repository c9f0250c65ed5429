// Building graphs: nodes of every type the software GPU runs, what they depend on, copies, queries.
// Types that it does not run (external semaphores, conditionals) are refused.
#include "tests/softgpu/driver/graph.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>

#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/module.hpp"
#include "tests/softgpu/driver/pool.hpp"
#include "tests/softgpu/driver/work.hpp"

namespace softgpu {

namespace {
std::mutex unlaunched_mutex;
std::set<std::uint64_t>& unlaunched = *new std::set<std::uint64_t>;   // memory of graphs that never ran, by id
}  // namespace

bool awaits_launch(std::uint64_t id) {
    std::lock_guard lock(unlaunched_mutex);
    return unlaunched.contains(id);
}

GraphMemory::~GraphMemory() {
    launched();
    // The program may have freed it, and the address may be in use again: the id tells.
    if (auto r = find_range(address); r && r->id == id) pool_free_now(address);
}

void GraphMemory::launched() const {
    std::lock_guard lock(unlaunched_mutex);
    unlaunched.erase(id);
}

bool GraphMemory::hold() const {
    launched();
    const auto r = find_range(address);
    return !r || r->id != id || softgpu::hold(*r->frame);
}

CUgraph new_graph() {
    static std::atomic<std::uint64_t> next{1};
    auto* g = new CUgraph_st;
    g->id = next++;
    return g;
}

CUgraphNode new_node(CUgraph g, CUgraphNodeType type, std::vector<CUgraphNode> dependencies) {
    auto* n = new CUgraphNode_st;
    n->graph = g;
    n->type = type;
    n->dependencies = std::move(dependencies);
    g->nodes.push_back(n);
    return n;
}

CUgraph copy_graph(CUgraph g, std::unordered_map<CUgraphNode, CUgraphNode>* map) {
    std::unordered_map<CUgraphNode, CUgraphNode> own;
    auto& to = map ? *map : own;
    CUgraph copy = new_graph();
    copy->user_objects = g->user_objects;
    for (CUgraphNode n : g->nodes) {
        CUgraphNode c = new_node(copy, n->type, {});
        c->work = n->work;
        c->memory = n->memory;
        c->freed = n->freed;
        c->enabled = n->enabled;
        if (n->child) {
            c->child = copy_graph(n->child, &to);
            c->child->is_child = true;
        }
        to[n] = c;
    }
    for (CUgraphNode n : g->nodes)
        for (CUgraphNode d : n->dependencies) to[n]->dependencies.push_back(to[d]);
    return copy;
}

void destroy_graph(CUgraph g) {
    for (CUgraphNode n : g->nodes) {
        if (n->child) destroy_graph(n->child);
        n->magic = 0;
        delete n;
    }
    g->magic = 0;
    delete g;
}

CUgraphNodeType type_of(const Work& w) {
    if (dynamic_cast<const KernelWork*>(&w)) return CU_GRAPH_NODE_TYPE_KERNEL;
    if (dynamic_cast<const CopyWork*>(&w)) return CU_GRAPH_NODE_TYPE_MEMCPY;
    if (dynamic_cast<const MemsetWork*>(&w)) return CU_GRAPH_NODE_TYPE_MEMSET;
    if (dynamic_cast<const HostWork*>(&w)) return CU_GRAPH_NODE_TYPE_HOST;
    if (dynamic_cast<const MemOpWork*>(&w)) return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    if (auto* e = dynamic_cast<const EventWork*>(&w)) return e->record ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    return CU_GRAPH_NODE_TYPE_EMPTY;
}

CUresult make_allocation_node(CUgraphNode n, CUcontext c, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
    if (!p->bytesize || p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    auto m = std::make_shared<GraphMemory>();
    TRY(pool_allocate_now(c, c->device, p->bytesize, &m->address));
    m->id = find_range(m->address)->id;
    {
        std::lock_guard lock(unlaunched_mutex);
        unlaunched.insert(m->id);
    }
    p->dptr = m->address;
    m->params = *p;
    n->memory = std::move(m);
    return CUDA_SUCCESS;
}

CUresult make_node_work(CUcontext c, const CUgraphNodeParams& p, std::shared_ptr<Work>* out) {
    auto keep = [&](auto made, CUresult r) {
        if (r == CUDA_SUCCESS) *out = std::move(made);
        return r;
    };
    switch (p.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            auto& k = p.kernel;
            std::shared_ptr<KernelWork> w;
            CUresult r = make_kernel(c, {k.func, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY, k.blockDimZ, k.sharedMemBytes, k.kernelParams, k.extra, k.kern, k.ctx}, false, &w);
            return keep(std::move(w), r);
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY: {
            std::shared_ptr<CopyWork> w;
            CUresult r = make_copy(c->device, p.memcpy.copyParams, false, &w, true);
            return keep(std::move(w), r);
        }
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            auto& m = p.memset;
            std::shared_ptr<MemsetWork> w;
            CUresult r = make_memset(c->device, {m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, &w);
            return keep(std::move(w), r);
        }
        case CU_GRAPH_NODE_TYPE_HOST:
            REQUIRE(p.host.fn);
            *out = host_work(c->device, p.host.fn, p.host.userData);
            return CUDA_SUCCESS;
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            REQUIRE(valid(p.eventRecord.event));
            *out = event_record_work(p.eventRecord.event);
            return CUDA_SUCCESS;
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            REQUIRE(valid(p.eventWait.event));
            *out = event_wait_work(p.eventWait.event);
            return CUDA_SUCCESS;
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            std::shared_ptr<MemOpWork> w;
            CUresult r = make_memops(c, p.memOp.count, p.memOp.paramArray, p.memOp.flags, &w);
            return keep(std::move(w), r);
        }
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

namespace {

CUresult add_node(CUgraphNode* out, CUgraph g, const CUgraphNode* dependencies, std::size_t count, CUgraphNodeParams* p, CUcontext c = nullptr) {
    REQUIRE(out && valid(g) && (dependencies || !count));
    std::vector<CUgraphNode> after;
    for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(valid(dependencies[i]) && dependencies[i]->graph == g);
        if (std::find(after.begin(), after.end(), dependencies[i]) == after.end()) after.push_back(dependencies[i]);
    }
    if (!c) TRY(usable_context(&c));
    if (!valid(c)) return CUDA_ERROR_INVALID_CONTEXT;
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL && p->kernel.ctx && valid(p->kernel.ctx)) c = p->kernel.ctx;
    CUgraphNode n = new_node(g, p->type, std::move(after));
    CUresult r = CUDA_SUCCESS;
    switch (p->type) {
        case CU_GRAPH_NODE_TYPE_EMPTY: break;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            if (!valid(p->graph.graph) || p->graph.graph == g) {
                r = CUDA_ERROR_INVALID_VALUE;
                break;
            }
            n->child = copy_graph(p->graph.graph, nullptr);
            n->child->is_child = true;
            break;
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
            auto& a = p->alloc;
            CUDA_MEM_ALLOC_NODE_PARAMS q{a.poolProps, a.accessDescs, a.accessDescCount, a.bytesize, 0};
            r = make_allocation_node(n, c, &q);
            a.dptr = q.dptr;
            break;
        }
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            n->freed = p->free.dptr;
            if (!n->freed) r = CUDA_ERROR_INVALID_VALUE;
            break;
        default: r = make_node_work(c, *p, &n->work);
    }
    if (r != CUDA_SUCCESS) {
        g->nodes.pop_back();
        delete n;
        return r;
    }
    *out = n;
    return CUDA_SUCCESS;
}

CUgraphNodeParams generic(const CUDA_KERNEL_NODE_PARAMS& k) {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_KERNEL;
    p.kernel = {k.func, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY, k.blockDimZ, k.sharedMemBytes, k.kernelParams, k.extra, k.kern, k.ctx};
    return p;
}
CUgraphNodeParams generic(const CUDA_KERNEL_NODE_PARAMS_v1& k) {
    return generic(CUDA_KERNEL_NODE_PARAMS{k.func, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY, k.blockDimZ, k.sharedMemBytes, k.kernelParams, k.extra, nullptr, nullptr});
}
CUgraphNodeParams generic(const CUDA_MEMCPY3D& m) {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    p.memcpy.copyParams = m;
    return p;
}
CUgraphNodeParams generic(const CUDA_MEMSET_NODE_PARAMS& m) {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_MEMSET;
    p.memset.dst = m.dst, p.memset.pitch = m.pitch, p.memset.value = m.value, p.memset.elementSize = m.elementSize;
    p.memset.width = m.width, p.memset.height = m.height;
    return p;
}
CUgraphNodeParams generic(const CUDA_HOST_NODE_PARAMS& h) {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_HOST;
    p.host.fn = h.fn;
    p.host.userData = h.userData;
    return p;
}
CUgraphNodeParams generic(const CUDA_BATCH_MEM_OP_NODE_PARAMS& m) {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    p.memOp.ctx = m.ctx, p.memOp.count = m.count, p.memOp.paramArray = m.paramArray, p.memOp.flags = m.flags;
    return p;
}
CUgraphNodeParams generic_event(CUgraphNodeType type, CUevent e) {
    CUgraphNodeParams p{};
    p.type = type;
    if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) p.eventRecord.event = e;
    else p.eventWait.event = e;
    return p;
}

template <class T>
T* work_of(CUgraphNode n) {
    return valid(n) ? dynamic_cast<T*>(n->work.get()) : nullptr;
}

// SetParams of a graph's or of an executable's node.
CUresult set_params(CUgraphNode n, const CUgraphNodeParams& p) {
    REQUIRE(valid(n) && n->type == p.type);
    CUcontext c;
    TRY(usable_context(&c));
    if (p.type == CU_GRAPH_NODE_TYPE_KERNEL && p.kernel.ctx && valid(p.kernel.ctx)) c = p.kernel.ctx;
    std::shared_ptr<Work> w;
    TRY(make_node_work(c, p, &w));
    if (auto* k = dynamic_cast<KernelWork*>(w.get())) {
        auto* old = static_cast<KernelWork*>(n->work.get());
        k->attributes = old->attributes;
        k->dims.cooperative = old->dims.cooperative;
    }
    n->work = std::move(w);
    return CUDA_SUCCESS;
}

CUresult exec_node(CUgraphExec e, CUgraphNode n, CUgraphNode* out) {
    REQUIRE(e && e->magic == exec_magic);
    auto it = e->copy_of.find(n);
    REQUIRE(it != e->copy_of.end());
    *out = it->second;
    return CUDA_SUCCESS;
}
CUresult exec_set_params(CUgraphExec e, CUgraphNode n, const CUgraphNodeParams& p) {
    CUgraphNode own;
    TRY(exec_node(e, n, &own));
    return set_params(own, p);
}

CUresult kernel_params(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS* p) {
    auto* k = work_of<KernelWork>(n);
    REQUIRE(k && p);
    if (k->pointers.empty())
        for (auto& param : k->code->kernels()[k->function->index].params) k->pointers.push_back(k->params() + param.offset);
    const bool is_kernel = k->handle->magic == kernel_magic;
    *p = {is_kernel ? nullptr : k->handle, k->dims.grid.x, k->dims.grid.y, k->dims.grid.z, k->dims.block.x, k->dims.block.y, k->dims.block.z,
          k->dims.dynamic_shared_bytes, k->pointers.empty() ? nullptr : k->pointers.data(), nullptr, is_kernel ? reinterpret_cast<CUkernel>(k->handle) : nullptr,
          k->function->module->context};
    return CUDA_SUCCESS;
}

// Fills a list as these calls do: no list: the count; a short list: cut.
template <class T>
CUresult list(const std::vector<T>& all, T* out, std::size_t* count) {
    REQUIRE(count);
    if (out) {
        for (std::size_t i = 0; i < *count; ++i) out[i] = i < all.size() ? all[i] : nullptr;
        *count = std::min(*count, all.size());
    } else {
        *count = all.size();
    }
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphCreate(CUgraph* out, unsigned flags) {
    ENTER(cuGraphCreate);
    REQUIRE(out && flags == 0);
    *out = new_graph();
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphDestroy(CUgraph g) {
    ENTER(cuGraphDestroy);
    REQUIRE(valid(g) && !g->is_child);
    destroy_graph(g);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphClone(CUgraph* out, CUgraph g) {
    ENTER(cuGraphClone);
    REQUIRE(out && valid(g));
    *out = copy_graph(g, nullptr);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode n, CUgraph clone) {
    ENTER(cuGraphNodeFindInClone);
    REQUIRE(out && valid(n) && valid(clone));
    auto& all = n->graph->nodes;  // copies keep the order
    auto index = static_cast<std::size_t>(std::find(all.begin(), all.end(), n) - all.begin());
    REQUIRE(index < clone->nodes.size() && clone->nodes[index]->type == n->type);
    *out = clone->nodes[index];
    return CUDA_SUCCESS;
}

#define ADD_NODE(name, parameter, ...)                                                                                          \
    SOFTGPU_API name(CUgraphNode* out, CUgraph g, const CUgraphNode* dependencies, size_t count, parameter) {                   \
        ENTER(name);                                                                                                            \
        __VA_ARGS__                                                                                                             \
    }
#define ADD_GENERIC(name, type)                                            \
    ADD_NODE(name, const type* p, {                                        \
        REQUIRE(p);                                                        \
        auto q = generic(*p);                                              \
        return add_node(out, g, dependencies, count, &q);                  \
    })
ADD_GENERIC(cuGraphAddKernelNode, CUDA_KERNEL_NODE_PARAMS_v1)
ADD_GENERIC(cuGraphAddKernelNode_v2, CUDA_KERNEL_NODE_PARAMS)
ADD_GENERIC(cuGraphAddHostNode, CUDA_HOST_NODE_PARAMS)
ADD_GENERIC(cuGraphAddBatchMemOpNode, CUDA_BATCH_MEM_OP_NODE_PARAMS)
SOFTGPU_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph g, const CUgraphNode* dependencies, size_t count, const CUDA_MEMCPY3D* p, CUcontext c) {
    ENTER(cuGraphAddMemcpyNode);
    REQUIRE(p);
    auto q = generic(*p);
    return add_node(out, g, dependencies, count, &q, c);
}
SOFTGPU_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph g, const CUgraphNode* dependencies, size_t count, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext c) {
    ENTER(cuGraphAddMemsetNode);
    REQUIRE(p);
    auto q = generic(*p);
    return add_node(out, g, dependencies, count, &q, c);
}
ADD_NODE(cuGraphAddChildGraphNode, CUgraph child, {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_GRAPH;
    p.graph.graph = child;
    return add_node(out, g, dependencies, count, &p);
})
SOFTGPU_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph g, const CUgraphNode* dependencies, size_t count) {
    ENTER(cuGraphAddEmptyNode);
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_EMPTY;
    return add_node(out, g, dependencies, count, &p);
}
ADD_NODE(cuGraphAddEventRecordNode, CUevent event, {
    auto p = generic_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return add_node(out, g, dependencies, count, &p);
})
ADD_NODE(cuGraphAddEventWaitNode, CUevent event, {
    auto p = generic_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return add_node(out, g, dependencies, count, &p);
})
ADD_NODE(cuGraphAddMemAllocNode, CUDA_MEM_ALLOC_NODE_PARAMS* params, {
    REQUIRE(params);
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    p.alloc.poolProps = params->poolProps;
    p.alloc.bytesize = params->bytesize;
    TRY(add_node(out, g, dependencies, count, &p));
    params->dptr = p.alloc.dptr;
    return CUDA_SUCCESS;
})
ADD_NODE(cuGraphAddMemFreeNode, CUdeviceptr freed, {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    p.free.dptr = freed;
    return add_node(out, g, dependencies, count, &p);
})
ADD_NODE(cuGraphAddNode, CUgraphNodeParams* p, {
    REQUIRE(p);
    return add_node(out, g, dependencies, count, p);
})
SOFTGPU_API cuGraphAddNode_v2(CUgraphNode* out, CUgraph g, const CUgraphNode* dependencies, const CUgraphEdgeData*, size_t count, CUgraphNodeParams* p) {
    return cuGraphAddNode(out, g, dependencies, count, p);
}
SOFTGPU_API cuGraphAddNode_v3(CUgraphNode* out, CUgraph g, const CUgraphNode* dependencies, const CUgraphEdgeData*, size_t count, CUgraphNodeParams* p) {
    return cuGraphAddNode(out, g, dependencies, count, p);
}

#define SET_PARAMS(name, type)                                           \
    SOFTGPU_API name(CUgraphNode n, const type* p) {                                \
        ENTER(name);                                                                \
        REQUIRE(p);                                                                 \
        return set_params(n, generic(*p));                                          \
    }
#define EXEC_SET_PARAMS(name, type)                                                 \
    SOFTGPU_API name(CUgraphExec e, CUgraphNode n, const type* p) {                 \
        ENTER(name);                                                                \
        REQUIRE(p);                                                                 \
        return exec_set_params(e, n, generic(*p));                                  \
    }
#define EXEC_SET_PARAMS_CONTEXT(name, type)                                         \
    SOFTGPU_API name(CUgraphExec e, CUgraphNode n, const type* p, CUcontext) {      \
        ENTER(name);                                                                \
        REQUIRE(p);                                                                 \
        return exec_set_params(e, n, generic(*p));                                  \
    }
SET_PARAMS(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1)
SET_PARAMS(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS)
SET_PARAMS(cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D)
SET_PARAMS(cuGraphMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS)
SET_PARAMS(cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS)
SET_PARAMS(cuGraphBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS)
EXEC_SET_PARAMS(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1)
EXEC_SET_PARAMS(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS)
EXEC_SET_PARAMS(cuGraphExecHostNodeSetParams, CUDA_HOST_NODE_PARAMS)
EXEC_SET_PARAMS(cuGraphExecBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS)
EXEC_SET_PARAMS_CONTEXT(cuGraphExecMemcpyNodeSetParams, CUDA_MEMCPY3D)
EXEC_SET_PARAMS_CONTEXT(cuGraphExecMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS)

SOFTGPU_API cuGraphNodeSetParams(CUgraphNode n, CUgraphNodeParams* p) {
    ENTER(cuGraphNodeSetParams);
    REQUIRE(p);
    return set_params(n, *p);
}
SOFTGPU_API cuGraphNodeSetParams_v2(CUgraphNode n, CUgraphNodeParams* p) { return cuGraphNodeSetParams(n, p); }
SOFTGPU_API cuGraphExecNodeSetParams(CUgraphExec e, CUgraphNode n, CUgraphNodeParams* p) {
    ENTER(cuGraphExecNodeSetParams);
    REQUIRE(p);
    return exec_set_params(e, n, *p);
}
SOFTGPU_API cuGraphEventRecordNodeSetEvent(CUgraphNode n, CUevent event) {
    ENTER(cuGraphEventRecordNodeSetEvent);
    return set_params(n, generic_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}
SOFTGPU_API cuGraphEventWaitNodeSetEvent(CUgraphNode n, CUevent event) {
    ENTER(cuGraphEventWaitNodeSetEvent);
    return set_params(n, generic_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}
SOFTGPU_API cuGraphExecEventRecordNodeSetEvent(CUgraphExec e, CUgraphNode n, CUevent event) {
    ENTER(cuGraphExecEventRecordNodeSetEvent);
    return exec_set_params(e, n, generic_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}
SOFTGPU_API cuGraphExecEventWaitNodeSetEvent(CUgraphExec e, CUgraphNode n, CUevent event) {
    ENTER(cuGraphExecEventWaitNodeSetEvent);
    return exec_set_params(e, n, generic_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

SOFTGPU_API cuGraphKernelNodeGetParams_v2(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS* p) {
    ENTER(cuGraphKernelNodeGetParams_v2);
    return kernel_params(n, p);
}
SOFTGPU_API cuGraphKernelNodeGetParams(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v1* p) {
    ENTER(cuGraphKernelNodeGetParams);
    REQUIRE(p);
    CUDA_KERNEL_NODE_PARAMS q;
    TRY(kernel_params(n, &q));
    if (!q.func) return CUDA_ERROR_INVALID_VALUE;
    *p = {q.func, q.gridDimX, q.gridDimY, q.gridDimZ, q.blockDimX, q.blockDimY, q.blockDimZ, q.sharedMemBytes, q.kernelParams, nullptr};
    return CUDA_SUCCESS;
}
#define GET_PARAMS(name, type, work_type)           \
    SOFTGPU_API name(CUgraphNode n, type* p) {      \
        ENTER(name);                                \
        auto* w = work_of<work_type>(n);            \
        REQUIRE(w && p);                            \
        *p = w->params;                             \
        return CUDA_SUCCESS;                        \
    }
GET_PARAMS(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CopyWork)
GET_PARAMS(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS, MemsetWork)
GET_PARAMS(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, HostWork)
SOFTGPU_API cuGraphBatchMemOpNodeGetParams(CUgraphNode n, CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
    ENTER(cuGraphBatchMemOpNodeGetParams);
    auto* w = work_of<MemOpWork>(n);
    REQUIRE(w && p);
    *p = {w->context, static_cast<unsigned>(w->ops.size()), w->ops.data(), w->flags};
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphEventRecordNodeGetEvent(CUgraphNode n, CUevent* e) {
    ENTER(cuGraphEventRecordNodeGetEvent);
    auto* w = work_of<EventWork>(n);
    REQUIRE(w && e && w->record);
    *e = w->event;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphEventWaitNodeGetEvent(CUgraphNode n, CUevent* e) {
    ENTER(cuGraphEventWaitNodeGetEvent);
    auto* w = work_of<EventWork>(n);
    REQUIRE(w && e && !w->record);
    *e = w->event;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphChildGraphNodeGetGraph(CUgraphNode n, CUgraph* out) {
    ENTER(cuGraphChildGraphNodeGetGraph);
    REQUIRE(out && valid(n) && n->child);
    *out = n->child;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphMemAllocNodeGetParams(CUgraphNode n, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
    ENTER(cuGraphMemAllocNodeGetParams);
    REQUIRE(p && valid(n) && n->memory);
    *p = n->memory->params;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphMemFreeNodeGetParams(CUgraphNode n, CUdeviceptr* p) {
    ENTER(cuGraphMemFreeNodeGetParams);
    REQUIRE(p && valid(n) && n->type == CU_GRAPH_NODE_TYPE_MEM_FREE);
    *p = n->freed;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphNodeGetType(CUgraphNode n, CUgraphNodeType* type) {
    ENTER(cuGraphNodeGetType);
    REQUIRE(type && valid(n));
    *type = n->type;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphKernelNodeSetAttribute(CUgraphNode n, CUkernelNodeAttrID a, const CUkernelNodeAttrValue* value) {
    ENTER(cuGraphKernelNodeSetAttribute);
    auto* k = work_of<KernelWork>(n);
    REQUIRE(k && value);
    k->attributes[a] = *value;
    if (a == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) k->dims.cooperative = value->cooperative != 0;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphKernelNodeGetAttribute(CUgraphNode n, CUkernelNodeAttrID a, CUkernelNodeAttrValue* value) {
    ENTER(cuGraphKernelNodeGetAttribute);
    auto* k = work_of<KernelWork>(n);
    REQUIRE(k && value);
    *value = {};
    if (auto it = k->attributes.find(a); it != k->attributes.end()) *value = it->second;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
    ENTER(cuGraphKernelNodeCopyAttributes);
    auto *t = work_of<KernelWork>(to), *f = work_of<KernelWork>(from);
    REQUIRE(t && f);
    t->attributes = f->attributes;
    t->dims.cooperative = f->dims.cooperative;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphGetNodes(CUgraph g, CUgraphNode* out, size_t* count) {
    ENTER(cuGraphGetNodes);
    REQUIRE(valid(g));
    return list(g->nodes, out, count);
}
SOFTGPU_API cuGraphGetRootNodes(CUgraph g, CUgraphNode* out, size_t* count) {
    ENTER(cuGraphGetRootNodes);
    REQUIRE(valid(g));
    std::vector<CUgraphNode> roots;
    for (CUgraphNode n : g->nodes)
        if (n->dependencies.empty()) roots.push_back(n);
    return list(roots, out, count);
}
SOFTGPU_API cuGraphGetEdges_v2(CUgraph g, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges, size_t* count) {
    ENTER(cuGraphGetEdges);
    REQUIRE(valid(g) && count && !from == !to);
    std::vector<CUgraphNode> f, t;
    for (CUgraphNode n : g->nodes)
        for (CUgraphNode d : n->dependencies) f.push_back(d), t.push_back(n);
    size_t same = *count;
    if (edges && from) std::fill_n(edges, std::min(*count, f.size()), CUgraphEdgeData{});
    TRY(list(f, from, count));
    return list(t, to, to ? &same : count);
}
SOFTGPU_API cuGraphGetEdges(CUgraph g, CUgraphNode* from, CUgraphNode* to, size_t* count) { return cuGraphGetEdges_v2(g, from, to, nullptr, count); }
SOFTGPU_API cuGraphNodeGetDependencies_v2(CUgraphNode n, CUgraphNode* out, CUgraphEdgeData* edges, size_t* count) {
    ENTER(cuGraphNodeGetDependencies);
    REQUIRE(valid(n) && count);
    if (edges && out) std::fill_n(edges, std::min(*count, n->dependencies.size()), CUgraphEdgeData{});
    return list(n->dependencies, out, count);
}
SOFTGPU_API cuGraphNodeGetDependencies(CUgraphNode n, CUgraphNode* out, size_t* count) { return cuGraphNodeGetDependencies_v2(n, out, nullptr, count); }
SOFTGPU_API cuGraphNodeGetDependentNodes_v2(CUgraphNode n, CUgraphNode* out, CUgraphEdgeData* edges, size_t* count) {
    ENTER(cuGraphNodeGetDependentNodes);
    REQUIRE(valid(n) && count);
    std::vector<CUgraphNode> found;
    for (CUgraphNode m : n->graph->nodes)
        if (std::find(m->dependencies.begin(), m->dependencies.end(), n) != m->dependencies.end()) found.push_back(m);
    if (edges && out) std::fill_n(edges, std::min(*count, found.size()), CUgraphEdgeData{});
    return list(found, out, count);
}
SOFTGPU_API cuGraphNodeGetDependentNodes(CUgraphNode n, CUgraphNode* out, size_t* count) { return cuGraphNodeGetDependentNodes_v2(n, out, nullptr, count); }
SOFTGPU_API cuGraphAddDependencies_v2(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData*, size_t count) {
    ENTER(cuGraphAddDependencies);
    REQUIRE(valid(g) && ((from && to) || !count));
    for (size_t i = 0; i < count; ++i) {
        REQUIRE(valid(from[i]) && valid(to[i]) && from[i]->graph == g && to[i]->graph == g && from[i] != to[i]);
        auto& d = to[i]->dependencies;
        REQUIRE(std::find(d.begin(), d.end(), from[i]) == d.end());
        d.push_back(from[i]);
    }
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphAddDependencies(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, size_t count) { return cuGraphAddDependencies_v2(g, from, to, nullptr, count); }
SOFTGPU_API cuGraphRemoveDependencies_v2(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData*, size_t count) {
    ENTER(cuGraphRemoveDependencies);
    REQUIRE(valid(g) && ((from && to) || !count));
    for (size_t i = 0; i < count; ++i) {
        REQUIRE(valid(from[i]) && valid(to[i]));
        REQUIRE(std::erase(to[i]->dependencies, from[i]) == 1);
    }
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphRemoveDependencies(CUgraph g, const CUgraphNode* from, const CUgraphNode* to, size_t count) { return cuGraphRemoveDependencies_v2(g, from, to, nullptr, count); }
SOFTGPU_API cuGraphDestroyNode(CUgraphNode n) {
    ENTER(cuGraphDestroyNode);
    REQUIRE(valid(n));
    std::erase(n->graph->nodes, n);
    for (CUgraphNode m : n->graph->nodes) std::erase(m->dependencies, n);
    if (n->child) destroy_graph(n->child);
    n->magic = 0;
    delete n;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphNodeSetEnabled(CUgraphExec e, CUgraphNode n, unsigned enabled) {
    ENTER(cuGraphNodeSetEnabled);
    CUgraphNode own;
    TRY(exec_node(e, n, &own));
    REQUIRE(own->type == CU_GRAPH_NODE_TYPE_KERNEL || own->type == CU_GRAPH_NODE_TYPE_MEMCPY || own->type == CU_GRAPH_NODE_TYPE_MEMSET);
    own->enabled = enabled != 0;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphNodeGetEnabled(CUgraphExec e, CUgraphNode n, unsigned* enabled) {
    ENTER(cuGraphNodeGetEnabled);
    REQUIRE(enabled);
    CUgraphNode own;
    TRY(exec_node(e, n, &own));
    *enabled = own->enabled;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphDebugDotPrint(CUgraph g, const char* path, unsigned) {
    ENTER(cuGraphDebugDotPrint);
    REQUIRE(valid(g) && path);
    FILE* f = std::fopen(path, "we");
    if (!f) return CUDA_ERROR_OPERATING_SYSTEM;
    std::fprintf(f, "digraph dot {\n");
    for (CUgraphNode n : g->nodes) std::fprintf(f, "  \"%p\" [label=\"%s\"];\n", static_cast<void*>(n), n->work ? n->work->describe().c_str() : "node");
    for (CUgraphNode n : g->nodes)
        for (CUgraphNode d : n->dependencies) std::fprintf(f, "  \"%p\" -> \"%p\";\n", static_cast<void*>(d), static_cast<void*>(n));
    std::fprintf(f, "}\n");
    std::fclose(f);
    return CUDA_SUCCESS;
}

// User objects: a count of references; the graph's are shared by its copies and given up with the last.
struct CUuserObject_st {
    void* pointer;
    CUhostFn destroy;
    std::atomic<unsigned> references;
};
namespace {
void give_up(CUuserObject o, unsigned count) {
    if (o->references.fetch_sub(count) != count) return;
    o->destroy(o->pointer);
    delete o;
}
}  // namespace
SOFTGPU_API cuUserObjectCreate(CUuserObject* out, void* pointer, CUhostFn destroy, unsigned references, unsigned flags) {
    ENTER(cuUserObjectCreate);
    REQUIRE(out && destroy && references && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    *out = new CUuserObject_st{pointer, destroy, {references}};
    return CUDA_SUCCESS;
}
SOFTGPU_API cuUserObjectRetain(CUuserObject o, unsigned count) {
    ENTER(cuUserObjectRetain);
    REQUIRE(o && count);
    o->references += count;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuUserObjectRelease(CUuserObject o, unsigned count) {
    ENTER(cuUserObjectRelease);
    REQUIRE(o && count);
    give_up(o, count);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphRetainUserObject(CUgraph g, CUuserObject o, unsigned count, unsigned flags) {
    ENTER(cuGraphRetainUserObject);
    REQUIRE(valid(g) && o && count && flags <= CU_GRAPH_USER_OBJECT_MOVE);
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) o->references += count;
    for (unsigned i = 0; i < count; ++i) g->user_objects.emplace_back(static_cast<void*>(o), [](void* p) { give_up(static_cast<CUuserObject>(p), 1); });
    return CUDA_SUCCESS;
}
SOFTGPU_API cuGraphReleaseUserObject(CUgraph g, CUuserObject o, unsigned count) {
    ENTER(cuGraphReleaseUserObject);
    REQUIRE(valid(g) && o && count);
    for (auto it = g->user_objects.begin(); it != g->user_objects.end() && count;)
        if (it->get() == o) it = g->user_objects.erase(it), --count;
        else ++it;
    REQUIRE(count == 0);
    return CUDA_SUCCESS;
}
