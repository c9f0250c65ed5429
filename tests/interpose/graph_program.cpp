// Graphs of every making, launched again and again: captured from two streams, built by hand with every kind of node
// that can be issued alone, a child graph, parameters set on the executable graph by each call there is, nodes switched
// off, a whole update. Prints sums; the same whoever launches the graphs, and however.
#include <cstring>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

namespace {

constexpr unsigned words = 1 << 12;

struct Packed {
    CUdeviceptr a, b, out;
    unsigned count;
};

void show(Program& p, const char* what, std::initializer_list<CUdeviceptr> buffers) {
    std::printf("%s", what);
    for (CUdeviceptr b : buffers) std::printf(" %08x", p.total(b, words));
    std::printf("\n");
}

CUDA_KERNEL_NODE_PARAMS kernel(CUfunction f, void** params, void** extra = nullptr) {
    CUDA_KERNEL_NODE_PARAMS k{};
    k.func = f;
    k.gridDimX = 8, k.blockDimX = 64, k.gridDimY = k.gridDimZ = k.blockDimY = k.blockDimZ = 1;
    k.kernelParams = params, k.extra = extra;
    return k;
}

CUDA_MEMCPY3D copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUDA_MEMCPY3D c{};
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = from, c.dstDevice = to;
    c.WidthInBytes = bytes, c.Height = c.Depth = 1;
    c.srcPitch = c.dstPitch = bytes, c.srcHeight = c.dstHeight = 1;
    return c;
}

}  // namespace

int main() {
    Program p;
    CUdeviceptr a = p.allocate(words * 4), b = p.allocate(words * 4), c = p.allocate(words * 4), d = p.allocate(words * 4);
    unsigned n = words, one = 1, two = 2, three = 3;

    // Captured, forked to a second stream and joined.
    CUstream s, t;
    CUevent forked, joined;
    CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    void *fill_a[] = {&a, &one, &n}, *fill_b[] = {&b, &two, &n}, *add_c[] = {&a, &b, &c, &n};
    CHECK(cuMemsetD32Async(c, 7, words, s));
    CHECK(cuEventRecord(forked, s));
    CHECK(cuStreamWaitEvent(t, forked, 0));
    CHECK(cuLaunchKernel(p.fill, 8, 1, 1, 64, 1, 1, 0, s, fill_a, nullptr));
    CHECK(cuLaunchKernel(p.fill, 8, 1, 1, 64, 1, 1, 0, t, fill_b, nullptr));
    CHECK(cuEventRecord(joined, t));
    CHECK(cuStreamWaitEvent(s, joined, 0));
    CHECK(cuLaunchKernel(p.add, 8, 1, 1, 64, 1, 1, 0, s, add_c, nullptr));
    CHECK(cuMemcpyDtoDAsync(d, c, words * 4, s));
    CUgraph captured;
    CUgraphExec run;
    CHECK(cuStreamEndCapture(s, &captured));
    CHECK(cuGraphInstantiate(&run, captured, 0));
    CHECK(cuGraphDestroy(captured));
    for (int i = 0; i < 3; ++i) CHECK(cuGraphLaunch(run, s));
    CHECK(cuStreamSynchronize(s));
    show(p, "captured", {a, b, c, d});
    CHECK(cuGraphExecDestroy(run));

    // By hand, from parameters that are gone afterwards.
    CUgraph graph, inner;
    CUgraphNode fill, set, sum, copied, child, host, in_child;
    static int calls = 0;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphCreate(&inner, 0));
    {
        void* params[] = {&a, &three, &n};
        const CUDA_KERNEL_NODE_PARAMS k = kernel(p.fill, params);
        CHECK(cuGraphAddKernelNode(&fill, graph, nullptr, 0, &k));
        const CUDA_MEMSET_NODE_PARAMS m{b, 0, 5, 4, words, 1};
        CHECK(cuGraphAddMemsetNode(&set, graph, nullptr, 0, &m, p.context));
        Packed packed{a, b, c, words};
        size_t bytes = 28;
        void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
        const CUDA_KERNEL_NODE_PARAMS e = kernel(p.add, nullptr, extra);
        const CUgraphNode both[] = {fill, set};
        CHECK(cuGraphAddKernelNode(&sum, graph, both, 2, &e));
        const CUDA_MEMCPY3D m3 = copy(d, c, words * 4);
        CHECK(cuGraphAddMemcpyNode(&copied, inner, nullptr, 0, &m3, p.context));
        CHECK(cuGraphAddChildGraphNode(&child, graph, &sum, 1, inner));
        const CUDA_HOST_NODE_PARAMS h{[](void* counter) { ++*static_cast<int*>(counter); }, &calls};
        CHECK(cuGraphAddHostNode(&host, graph, &child, 1, &h));
        std::memset(&packed, 0, sizeof packed);
    }
    CHECK(cuGraphInstantiate(&run, graph, 0));
    CHECK(cuGraphLaunch(run, s));
    CHECK(cuStreamSynchronize(s));
    show(p, "by hand", {a, b, c, d});

    // Parameters set on the executable graph.
    void* params[] = {&a, &two, &n};
    const CUDA_KERNEL_NODE_PARAMS k = kernel(p.fill, params);
    CHECK(cuGraphExecKernelNodeSetParams(run, fill, &k));
    const CUDA_MEMSET_NODE_PARAMS m{b, 0, 9, 4, words / 2, 1};
    CHECK(cuGraphExecMemsetNodeSetParams(run, set, &m, p.context));
    CHECK(cuGraphLaunch(run, s));
    CHECK(cuStreamSynchronize(s));
    show(p, "parameters", {a, b, c, d});
    CUgraph within;
    size_t one_node = 1;
    CHECK(cuGraphChildGraphNodeGetGraph(child, &within));
    CHECK(cuGraphGetNodes(within, &in_child, &one_node));
    const CUDA_MEMCPY3D half = copy(d, a, words * 2);
    CHECK(cuGraphExecMemcpyNodeSetParams(run, in_child, &half, p.context));
    CHECK(cuGraphLaunch(run, s));
    CHECK(cuStreamSynchronize(s));
    show(p, "in the child", {a, b, c, d});

    // Switched off and on again.
    CHECK(cuGraphNodeSetEnabled(run, fill, 0));
    CHECK(cuMemsetD32(a, 3, words));
    CHECK(cuGraphLaunch(run, s));
    CHECK(cuStreamSynchronize(s));
    show(p, "switched off", {a, b, c, d});
    CHECK(cuGraphNodeSetEnabled(run, fill, 1));
    CHECK(cuGraphLaunch(run, s));
    CHECK(cuStreamSynchronize(s));
    show(p, "switched on", {a, b, c, d});

    // Updated as a whole from the graph as it was built.
    CUgraphExecUpdateResultInfo info{};
    CHECK(cuGraphExecUpdate(run, graph, &info));
    CHECK(cuGraphLaunch(run, s));
    CHECK(cuGraphLaunch(run, s));
    CHECK(cuStreamSynchronize(s));
    show(p, "updated", {a, b, c, d});
    std::printf("host %d\n", calls);
    CHECK(cuGraphExecDestroy(run));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(inner));
    return 0;
}
