// Records of executable graphs: read from graphs that the test plays the driver for, changed, and issued node by node.
#include "tests/interpose/scripted.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "interpose/graph_records.hpp"
#include "interpose/kernel_layouts.hpp"
#include "tests/catch.hpp"

using namespace udnnmem::interpose;

namespace {

// ---- a driver's graphs ----
struct Graph;
struct Node {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUDA_KERNEL_NODE_PARAMS kernel{};
    std::vector<void*> params;
    CUDA_MEMCPY3D copy{};
    CUDA_MEMSET_NODE_PARAMS fill{};
    CUDA_HOST_NODE_PARAMS host{};
    CUDA_BATCH_MEM_OP_NODE_PARAMS memop{};
    Graph* child = nullptr;
    int priority = 0;
    int device_updatable = 0;
};
struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
    std::vector<std::pair<Node*, Node*>> edges;
    Node* add(CUgraphNodeType type, std::initializer_list<Node*> after = {}) {
        nodes.push_back(std::make_unique<Node>());
        nodes.back()->type = type;
        for (Node* n : after) edges.emplace_back(n, nodes.back().get());
        return nodes.back().get();
    }
};
CUgraph handle(Graph& g) { return reinterpret_cast<CUgraph>(&g); }
CUgraphNode handle(Node* n) { return reinterpret_cast<CUgraphNode>(n); }
Graph& of(CUgraph g) { return *reinterpret_cast<Graph*>(g); }
Node& of(CUgraphNode n) { return *reinterpret_cast<Node*>(n); }
CUgraphExec exec_of(int i) { return reinterpret_cast<CUgraphExec>(static_cast<std::uintptr_t>(0x1000 + i)); }

const auto f_known = reinterpret_cast<CUfunction>(0x10), f_unknown = reinterpret_cast<CUfunction>(0x20);

struct Issued {
    std::string what;
    CUfunction f = nullptr;
    std::vector<std::byte> buffer;
    CUdeviceptr to = 0;
    std::size_t n = 0;
    unsigned attributes = 0;
};
std::vector<Issued> issued;

std::vector<std::byte> buffer_of(void** extra) {
    if (!extra) return {};
    const auto* from = static_cast<const std::byte*>(extra[1]);
    return {from, from + *static_cast<std::size_t*>(extra[3])};
}

void play_driver() {
    SCRIPT(cuGraphGetNodes, [](CUgraph g, CUgraphNode* nodes, std::size_t* n) {
        for (std::size_t i = 0; nodes && i < *n; ++i) nodes[i] = handle(of(g).nodes[i].get());
        *n = of(g).nodes.size();
        return CUDA_SUCCESS;
    });
    SCRIPT(cuGraphGetEdges_v2, [](CUgraph g, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData*, std::size_t* n) {
        for (std::size_t i = 0; from && i < *n; ++i) from[i] = handle(of(g).edges[i].first), to[i] = handle(of(g).edges[i].second);
        *n = of(g).edges.size();
        return CUDA_SUCCESS;
    });
    SCRIPT(cuGraphNodeGetType, [](CUgraphNode n, CUgraphNodeType* type) { return *type = of(n).type, CUDA_SUCCESS; });
    SCRIPT(cuGraphKernelNodeGetParams_v2, [](CUgraphNode n, CUDA_KERNEL_NODE_PARAMS* p) { return *p = of(n).kernel, CUDA_SUCCESS; });
    SCRIPT(cuGraphMemcpyNodeGetParams, [](CUgraphNode n, CUDA_MEMCPY3D* p) { return *p = of(n).copy, CUDA_SUCCESS; });
    SCRIPT(cuGraphMemsetNodeGetParams, [](CUgraphNode n, CUDA_MEMSET_NODE_PARAMS* p) { return *p = of(n).fill, CUDA_SUCCESS; });
    SCRIPT(cuGraphHostNodeGetParams, [](CUgraphNode n, CUDA_HOST_NODE_PARAMS* p) { return *p = of(n).host, CUDA_SUCCESS; });
    SCRIPT(cuGraphBatchMemOpNodeGetParams, [](CUgraphNode n, CUDA_BATCH_MEM_OP_NODE_PARAMS* p) { return *p = of(n).memop, CUDA_SUCCESS; });
    SCRIPT(cuGraphChildGraphNodeGetGraph, [](CUgraphNode n, CUgraph* g) { return *g = handle(*of(n).child), CUDA_SUCCESS; });
    SCRIPT(cuGraphKernelNodeGetAttribute, [](CUgraphNode n, CUkernelNodeAttrID id, CUkernelNodeAttrValue* v) {
        std::memset(v, 0, sizeof *v);
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) v->priority = of(n).priority;
        if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) v->deviceUpdatableKernelNode.deviceUpdatable = of(n).device_updatable;
        return CUDA_SUCCESS;
    });
    SCRIPT(cuFuncGetParamInfo, [](CUfunction f, std::size_t i, std::size_t* offset, std::size_t* size) {
        if (f == f_unknown) return CUDA_ERROR_NOT_SUPPORTED;
        if (i > 2) return CUDA_ERROR_INVALID_VALUE;
        *offset = i * 8, *size = i == 2 ? 4 : 8;
        return CUDA_SUCCESS;
    });
    SCRIPT(cuKernelGetParamInfo, [](CUkernel, std::size_t, std::size_t*, std::size_t*) { return CUDA_ERROR_NOT_SUPPORTED; });
    SCRIPT(cuLaunchKernel, [](CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                              void** extra) { return issued.push_back({"launch", f, buffer_of(extra)}), CUDA_SUCCESS; });
    SCRIPT(cuLaunchKernelEx, [](const CUlaunchConfig* c, CUfunction f, void**, void** extra) {
        return issued.push_back({"launch", f, buffer_of(extra), 0, 0, c->numAttrs}), CUDA_SUCCESS;
    });
    SCRIPT(cuMemcpy3DAsync_v2, [](const CUDA_MEMCPY3D* c, CUstream) {
        return issued.push_back({"copy", nullptr, {}, c->dstDevice, c->WidthInBytes}), CUDA_SUCCESS;
    });
    SCRIPT(cuMemsetD16Async, [](CUdeviceptr to, unsigned short, std::size_t n, CUstream) {
        return issued.push_back({"fill16", nullptr, {}, to, n}), CUDA_SUCCESS;
    });
    SCRIPT(cuMemsetD2D32Async, [](CUdeviceptr to, std::size_t pitch, unsigned, std::size_t, std::size_t, CUstream) {
        return issued.push_back({"fill2d", nullptr, {}, to, pitch}), CUDA_SUCCESS;
    });
    SCRIPT(cuLaunchHostFunc, [](CUstream, CUhostFn f, void* data) { return f(data), CUDA_SUCCESS; });
    issued.clear();
}

// A kernel node with three parameters: two addresses and a number.
Node* add_kernel(Graph& g, CUdeviceptr* a, CUdeviceptr* b, int* n, std::initializer_list<Node*> after = {}, CUfunction f = f_known) {
    Node* node = g.add(CU_GRAPH_NODE_TYPE_KERNEL, after);
    node->params = {a, b, n};
    node->kernel.func = f;
    node->kernel.gridDimX = 7;
    node->kernel.kernelParams = node->params.data();
    return node;
}
CUdeviceptr word(const std::vector<std::byte>& buffer, std::size_t i) {
    CUdeviceptr w;
    std::memcpy(&w, buffer.data() + i * 8, 8);
    return w;
}
CUdeviceptr word(const GraphNode& n, std::size_t i) {
    CUdeviceptr w;
    std::memcpy(&w, static_cast<const char*>(n.work.launch->buffer) + i * 8, 8);
    return w;
}
const GraphExec& exec(const GraphRecordPtr& r) { return as_exec(*r); }

}  // namespace

TEST_CASE("a graph is read whole: order, parameters copied, spans", "[graphs]") {
    play_driver();
    auto g = std::make_unique<Graph>();
    CUdeviceptr a = 0xa000, b = 0xb000;
    int n = 5;
    // Listed against the order of execution.
    Node* last = add_kernel(*g, &b, &a, &n);
    Node* copy = g->add(CU_GRAPH_NODE_TYPE_MEMCPY);
    Node* fill = g->add(CU_GRAPH_NODE_TYPE_MEMSET, {});
    g->edges = {{fill, copy}, {copy, last}, {fill, last}};
    copy->copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy->copy.srcDevice = 0x1000;
    copy->copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy->copy.dstDevice = 0x2000;
    copy->copy.WidthInBytes = 64, copy->copy.Height = copy->copy.Depth = 1;
    fill->fill = {0x3000, 0, 9, 2, 10, 1};
    graph_instantiated(exec_of(0), read_graph(handle(*g)));
    a = b = 1;
    g.reset();
    const auto record = graph_record(exec_of(0));
    const auto& nodes = exec(record).nodes();
    REQUIRE(nodes.size() == 3);
    CHECK(exec(record).issuable());
    CHECK(nodes[0].type == CU_GRAPH_NODE_TYPE_MEMSET);
    CHECK(nodes[0].work.kind == WorkKind::fill);
    CHECK((nodes[0].work.spans[0].bytes == 20 && nodes[0].work.spans[0].access == Access::overwrite));
    CHECK(nodes[1].depends_on == std::vector<std::uint32_t>{0});
    CHECK((nodes[1].work.span_count == 2 && nodes[1].work.spans[1].address == 0x2000 && nodes[1].work.spans[1].bytes == 64));
    CHECK((std::set<std::uint32_t>(nodes[2].depends_on.begin(), nodes[2].depends_on.end()) == std::set<std::uint32_t>{0, 1}));
    REQUIRE(nodes[2].work.launch);
    CHECK((nodes[2].work.launch->buffer_bytes == 20 && nodes[2].work.launch->params == nullptr));
    CHECK((word(nodes[2], 0) == 0xb000 && word(nodes[2], 1) == 0xa000));
    for (std::size_t i = 0; i < 3; ++i) CHECK(exec(record).issue(i, nullptr) == CUDA_SUCCESS);
    REQUIRE(issued.size() == 3);
    CHECK((issued[0].what == "fill16" && issued[0].to == 0x3000 && issued[0].n == 10));
    CHECK((issued[1].what == "copy" && issued[1].to == 0x2000 && issued[1].n == 64));
    CHECK((issued[2].f == f_known && word(issued[2].buffer, 0) == 0xb000 && issued[2].buffer.size() == 20));
    graph_destroyed(exec_of(0));
    CHECK_FALSE(exec(graph_record(exec_of(0))).issuable());
    CHECK(exec(record).nodes().size() == 3);  // whoever holds it keeps it
}

TEST_CASE("kernels given by `extra`, attributes, host functions, rows", "[graphs]") {
    play_driver();
    Graph g;
    CUdeviceptr buffer[2] = {0xc000, 0xd000};
    std::size_t bytes = 16;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    Node* k = g.add(CU_GRAPH_NODE_TYPE_KERNEL);
    k->kernel.kern = reinterpret_cast<CUkernel>(f_unknown);  // by kernel handle; and nobody knows its layout
    k->kernel.extra = extra;
    k->priority = -3;
    Node* fill = g.add(CU_GRAPH_NODE_TYPE_MEMSET, {k});
    fill->fill = {0x4000, 256, 1, 4, 10, 3};
    static int called = 0;
    Node* host = g.add(CU_GRAPH_NODE_TYPE_HOST, {fill});
    host->host = {[](void* p) { *static_cast<int*>(p) = 42; }, &called};
    graph_instantiated(exec_of(1), read_graph(handle(g)));
    buffer[0] = 0;
    const auto record = graph_record(exec_of(1));
    CHECK((exec(record).issuable() && exec(record).nodes()[0].work.proven));
    CHECK(word(exec(record).nodes()[0], 1) == 0xd000);
    CHECK((exec(record).nodes()[1].work.spans[0].bytes == 2 * 256 + 40 && exec(record).nodes()[1].work.spans[0].access == Access::write));
    for (std::size_t i = 0; i < 3; ++i) exec(record).issue(i, nullptr);
    REQUIRE(issued.size() == 2);
    CHECK((issued[0].f == f_unknown && word(issued[0].buffer, 0) == 0xc000 && issued[0].attributes == 1));
    CHECK((issued[1].what == "fill2d" && issued[1].n == 256));
    CHECK(called == 42);
}

TEST_CASE("what cannot be known is not claimed", "[graphs]") {
    play_driver();
    CUdeviceptr a = 1, b = 2;
    int n = 3;
    Graph unknown, conditional, allocates, cyclic;
    add_kernel(unknown, &a, &b, &n, {}, f_unknown);
    conditional.add(CU_GRAPH_NODE_TYPE_CONDITIONAL);
    allocates.add(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    Node* x = cyclic.add(CU_GRAPH_NODE_TYPE_EMPTY);
    cyclic.edges = {{x, x}};
    int i = 10;
    for (Graph* g : {&unknown, &conditional, &cyclic}) {
        graph_instantiated(exec_of(++i), read_graph(handle(*g)));
        const auto record = graph_record(exec_of(i));
        CHECK_FALSE(exec(record).issuable());
        REQUIRE(exec(record).nodes().size() == 1);
        CHECK_FALSE(exec(record).nodes()[0].work.proven);
    }
    graph_instantiated(exec_of(20), read_graph(handle(allocates)));
    CHECK_FALSE(exec(graph_record(exec_of(20))).issuable());
    CHECK(exec(graph_record(exec_of(20))).nodes()[0].work.proven);
    const auto stranger = graph_record(exec_of(999));
    CHECK_FALSE(exec(stranger).issuable());
    CHECK_FALSE(exec(stranger).nodes()[0].work.proven);
}

TEST_CASE("a graph that kernels may launch does what nobody sees, and so does any graph with kernels while there is one") {
    play_driver();
    CUdeviceptr a = 1, b = 2;
    int n = 3;
    Graph g, copies;
    add_kernel(g, &a, &b, &n);
    copies.add(CU_GRAPH_NODE_TYPE_EMPTY);
    SCRIPT(cuGraphExecGetFlags, [](CUgraphExec exec, cuuint64_t* flags) { return *flags = exec == exec_of(31) ? CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH : 0, CUDA_SUCCESS; });
    graph_instantiated(exec_of(30), read_graph(handle(g)));
    graph_instantiated(exec_of(32), read_graph(handle(copies)));
    const auto other = graph_record(exec_of(30)), without = graph_record(exec_of(32));
    CHECK(exec(other).issuable());
    CHECK_FALSE(exec(other).launches_others());
    graph_instantiated(exec_of(31), read_graph(handle(g)));
    for (int again = 0; again < 2; ++again) {
        CHECK_FALSE(exec(graph_record(exec_of(31))).issuable());
        CHECK_FALSE(exec(graph_record(exec_of(31))).nodes()[0].work.proven);
        CHECK_FALSE(exec(other).issuable());
        CHECK(exec(other).launches_others());
        CHECK(exec(without).issuable());
        graph_updated(exec_of(31), read_graph(handle(g)));
    }
    graph_destroyed(exec_of(31));
    CHECK(exec(other).issuable());
    CHECK_FALSE(exec(other).launches_others());
    UNSCRIPT(cuGraphExecGetFlags);
}

TEST_CASE("copies from and to host memory that is not pinned are left to the graph", "[graphs]") {
    play_driver();
    SCRIPT(cuPointerGetAttribute, [](void*, CUpointer_attribute, CUdeviceptr at) { return at < 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
    const auto issuable = [](CUmemorytype from, CUmemorytype to, CUdeviceptr at) {
        Graph g;
        CUDA_MEMCPY3D& c = g.add(CU_GRAPH_NODE_TYPE_MEMCPY)->copy;
        c.srcMemoryType = from, c.dstMemoryType = to;
        c.srcDevice = c.dstDevice = at;
        c.srcHost = c.dstHost = reinterpret_cast<void*>(at);
        graph_instantiated(exec_of(30), read_graph(handle(g)));
        const auto record = graph_record(exec_of(30));
        CHECK(exec(record).nodes()[0].work.proven);
        return exec(record).issuable();
    };
    CHECK(issuable(CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, 10));
    CHECK_FALSE(issuable(CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, 1000));
    CHECK_FALSE(issuable(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, 1000));
    CHECK(issuable(CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_DEVICE, 10));
    CHECK_FALSE(issuable(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, 1000));
    CHECK(issuable(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE, 1000));
}

TEST_CASE("child graphs are flattened between what comes before and after", "[graphs]") {
    play_driver();
    CUdeviceptr a = 1, b = 2;
    int n = 3;
    Graph inner, outer;
    Node* i1 = inner.add(CU_GRAPH_NODE_TYPE_EMPTY);
    add_kernel(inner, &a, &b, &n, {i1});
    Node* before = outer.add(CU_GRAPH_NODE_TYPE_EMPTY);
    Node* child = outer.add(CU_GRAPH_NODE_TYPE_GRAPH, {before});
    child->child = &inner;
    outer.add(CU_GRAPH_NODE_TYPE_EMPTY, {child});
    graph_instantiated(exec_of(2), read_graph(handle(outer)));
    auto record = graph_record(exec_of(2));
    const auto& nodes = exec(record).nodes();
    REQUIRE(nodes.size() == 5);
    CHECK(exec(record).issuable());
    CHECK(nodes[1].depends_on == std::vector<std::uint32_t>{0});
    CHECK(nodes[2].depends_on == std::vector<std::uint32_t>{1});
    CHECK(nodes[3].work.kind == WorkKind::kernel);
    CHECK(std::count(nodes[4].depends_on.begin(), nodes[4].depends_on.end(), 3u) == 1);
    // Another graph for the child node: the same nodes, other parameters.
    Graph other;
    CUdeviceptr c = 77;
    Node* o1 = other.add(CU_GRAPH_NODE_TYPE_EMPTY);
    add_kernel(other, &c, &b, &n, {o1});
    graph_child_set(exec_of(2), handle(child), handle(other));
    CHECK(word(exec(graph_record(exec_of(2))).nodes()[3], 0) == 77);
    CHECK(word(exec(record).nodes()[3], 0) == 1);  // who holds the old one still sees it
    other.nodes.pop_back();
    other.edges.clear();
    graph_child_set(exec_of(2), handle(child), handle(other));
    CHECK_FALSE(exec(graph_record(exec_of(2))).issuable());
}

TEST_CASE("parameters set on the executable graph take the place of those read", "[graphs]") {
    play_driver();
    Graph g;
    CUdeviceptr a = 1, b = 2, c = 3;
    int n = 4;
    Node* k = add_kernel(g, &a, &b, &n);
    Node* fill = g.add(CU_GRAPH_NODE_TYPE_MEMSET, {k});
    fill->fill = {0x100, 0, 0, 1, 8, 1};
    graph_instantiated(exec_of(3), read_graph(handle(g)));
    CUDA_KERNEL_NODE_PARAMS_v1 v1{};
    void* params[] = {&c, &b, &n};
    v1.func = f_known, v1.kernelParams = params;
    graph_node_set(exec_of(3), handle(k), v1);
    CHECK(word(exec(graph_record(exec_of(3))).nodes()[0], 0) == 3);
    CUgraphNodeParams any{};
    any.type = CU_GRAPH_NODE_TYPE_MEMSET;
    any.memset = {0x900, 0, 0, 4, 8, 1, nullptr};
    graph_node_set(exec_of(3), handle(fill), any);
    CHECK((exec(graph_record(exec_of(3))).nodes()[1].work.spans[0].address == 0x900));
    CHECK((exec(graph_record(exec_of(3))).nodes()[1].work.spans[0].bytes == 32));
    graph_node_enabled(exec_of(3), handle(fill), false);
    CHECK_FALSE(exec(graph_record(exec_of(3))).nodes()[1].enabled);
    // Updated from another graph: its parameters, under the handles of the first.
    Graph second;
    CUdeviceptr d = 8;
    Node* k2 = add_kernel(second, &d, &b, &n);
    second.add(CU_GRAPH_NODE_TYPE_MEMSET, {k2})->fill = {0x500, 0, 0, 1, 8, 1};
    graph_updated(exec_of(3), read_graph(handle(second)));
    CHECK(word(exec(graph_record(exec_of(3))).nodes()[0], 0) == 8);
    CHECK_FALSE(exec(graph_record(exec_of(3))).nodes()[1].enabled);
    graph_node_set(exec_of(3), handle(k), v1);
    CHECK(word(exec(graph_record(exec_of(3))).nodes()[0], 0) == 3);
    CHECK(exec(graph_record(exec_of(3))).issuable());
    // A node that nobody has heard of: now any may be meant.
    graph_node_set(exec_of(3), handle(k2), v1);
    CHECK_FALSE(exec(graph_record(exec_of(3))).issuable());
    CHECK_FALSE(exec(graph_record(exec_of(3))).nodes()[1].work.proven);
    // An update says what its nodes do, but not which of them are off.
    graph_updated(exec_of(3), read_graph(handle(second)));
    CHECK(exec(graph_record(exec_of(3))).issuable());
    graph_node_enabled(exec_of(3), handle(k2), false);
    graph_updated(exec_of(3), read_graph(handle(second)));
    CHECK_FALSE(exec(graph_record(exec_of(3))).issuable());
}

TEST_CASE("a node that kernels may switch on is never off", "[graphs]") {
    play_driver();
    Graph g;
    CUdeviceptr a = 1, b = 2;
    int n = 4;
    Node* k = add_kernel(g, &a, &b, &n);
    Node* other = add_kernel(g, &a, &b, &n);
    k->device_updatable = 1;
    graph_instantiated(exec_of(6), read_graph(handle(g)));
    for (Node* node : {k, other}) graph_node_enabled(exec_of(6), handle(node), false);
    const auto& nodes = exec(graph_record(exec_of(6))).nodes();
    CHECK((nodes[0].enabled && !nodes[0].work.proven && !nodes[1].enabled));
}

// Drivers of CUDA 13.2 and later can be asked what is in them.
TEST_CASE("lists of copies as nodes are read where the driver says what they copy", "[graphs]") {
    play_driver();
    static CUdeviceptr to[] = {0x1000, 0x3000}, from[] = {0x2000, 0x4000}, elsewhere[] = {0x1000, 0x7000};
    static std::size_t bytes[] = {8, 16};
    static const auto list = [](CUdeviceptr* destinations) {
        CUgraphNodeParams p{};
        p.type = static_cast<CUgraphNodeType>(kMemcpyBatchNode);
        const MemcpyBatchNodeParams copies{2, destinations, from, bytes, nullptr, nullptr, 0, nullptr};
        std::memcpy(&p.reserved1, &copies, sizeof copies);
        return p;
    };
    Graph g;
    Node* node = g.add(static_cast<CUgraphNodeType>(kMemcpyBatchNode));
    SCRIPT(cuGraphNodeGetParams, [](CUgraphNode, CUgraphNodeParams*) { return CUDA_ERROR_NOT_SUPPORTED; });
    graph_instantiated(exec_of(8), read_graph(handle(g)));
    auto record = graph_record(exec_of(8));
    CHECK_FALSE(exec(record).nodes()[0].work.proven);
    SCRIPT(cuGraphNodeGetParams, [](CUgraphNode, CUgraphNodeParams* p) { return *p = list(to), CUDA_SUCCESS; });
    graph_instantiated(exec_of(8), read_graph(handle(g)));
    record = graph_record(exec_of(8));
    const Work& read = exec(record).nodes()[0].work;
    REQUIRE(read.span_count == 4);
    CHECK((read.kind == WorkKind::copy && read.proven && read.spans[3].address == 0x3000 && read.spans[3].bytes == 16));
    CHECK_FALSE(exec(record).issuable());
    graph_node_set(exec_of(8), handle(node), list(elsewhere));
    record = graph_record(exec_of(8));
    REQUIRE(exec(record).nodes()[0].work.span_count == 4);
    CHECK((exec(record).nodes()[0].work.proven && exec(record).nodes()[0].work.spans[3].address == 0x7000));
    graph_destroyed(exec_of(8));
    UNSCRIPT(cuGraphNodeGetParams);
}

TEST_CASE("the nodes of random graphs come after what they depend on, else as the driver lists them", "[graphs]") {
    play_driver();
    std::mt19937 random(11);
    for (int round = 0; round < 200; ++round) {
        Graph g;
        const unsigned count = 1 + random() % 40;
        std::vector<unsigned> rank(count);
        for (unsigned i = 0; i < count; ++i) {
            Node* n = g.add(CU_GRAPH_NODE_TYPE_MEMSET);
            n->fill = {i, 0, 0, 1, 1, 1};  // known again by its address
            rank[i] = i;
        }
        std::shuffle(rank.begin(), rank.end(), random);
        std::map<unsigned, std::set<unsigned>> predecessors;
        for (unsigned e = random() % (count * 2); e--;) {
            const unsigned x = random() % count, y = random() % count;
            if (rank[x] >= rank[y] || !predecessors[y].insert(x).second) continue;
            g.edges.emplace_back(g.nodes[x].get(), g.nodes[y].get());
        }
        graph_instantiated(exec_of(4), read_graph(handle(g)));
        const auto record = graph_record(exec_of(4));
        const auto& nodes = exec(record).nodes();
        REQUIRE(nodes.size() == count);
        for (std::uint32_t i = 0; i < count; ++i) {
            std::set<unsigned> found;
            for (std::uint32_t d : nodes[i].depends_on) {
                REQUIRE(d < i);
                found.insert(static_cast<unsigned>(nodes[d].work.spans[0].address));
            }
            const auto id = static_cast<unsigned>(nodes[i].work.spans[0].address);   // its place in the list, too
            REQUIRE(found == predecessors[id]);
            const std::uint32_t could = nodes[i].depends_on.empty() ? 0 : *std::max_element(nodes[i].depends_on.begin(), nodes[i].depends_on.end()) + 1;
            for (std::uint32_t earlier = could; earlier < i; ++earlier) REQUIRE(nodes[earlier].work.spans[0].address < id);
        }
    }
}

TEST_CASE("a record that is being read is not changed under its reader", "[graphs]") {
    play_driver();
    Graph g;
    CUdeviceptr a = 1, b = 2;
    int n = 4;
    Node* k = add_kernel(g, &a, &b, &n);
    graph_instantiated(exec_of(5), read_graph(handle(g)));
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        for (CUdeviceptr i = 0; i < 2000; ++i) {
            CUDA_KERNEL_NODE_PARAMS_v2 p{};
            CUdeviceptr x = i, y = i;
            void* params[] = {&x, &y, &n};
            p.func = f_known, p.kernelParams = params;
            graph_node_set(exec_of(5), handle(k), p);
        }
        stop = true;
    });
    bool torn = false;
    graph_node_set(exec_of(5), handle(k), CUDA_KERNEL_NODE_PARAMS_v1{f_known, 1, 1, 1, 1, 1, 1, 0, k->params.data(), nullptr});
    while (!stop) {
        const auto record = graph_record(exec_of(5));
        const GraphNode& node = exec(record).nodes()[0];
        const CUdeviceptr first = word(node, 0), second = word(node, 1);
        torn = torn || (first != second && !(first == 1 && second == 2));
        torn = torn || word(node, 0) != first;
    }
    writer.join();
    CHECK_FALSE(torn);
}
