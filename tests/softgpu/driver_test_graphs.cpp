// Graphs, stream capture, stream-ordered pools.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/softgpu/driver_test.hpp"

using namespace softgpu_test;

namespace {
struct Setup : Context {
    CUdeviceptr a;
    CUstream s, t;
    Setup() {
        OK(cuMemAlloc_v2(&a, 4096));
        OK(cuMemsetD32_v2(a, 0, 1024));
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
        OK(cuCtxSynchronize());
    }
    CUDA_MEMSET_NODE_PARAMS set(unsigned word, unsigned value) { return {a + 4 * word, 0, value, 4, 1, 1}; }
    CUgraphNode add_set(CUgraph g, std::vector<CUgraphNode> after, unsigned word, unsigned value) {
        CUgraphNode n;
        auto p = set(word, value);
        OK(cuGraphAddMemsetNode(&n, g, after.data(), after.size(), &p, context));
        return n;
    }
    CUgraphNode add_copy(CUgraph g, std::vector<CUgraphNode> after, unsigned from, unsigned to) {
        CUgraphNode n;
        CUDA_MEMCPY3D p{};
        p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        p.srcDevice = a + 4 * from;
        p.dstDevice = a + 4 * to;
        p.WidthInBytes = 4;
        p.Height = p.Depth = 1;
        OK(cuGraphAddMemcpyNode(&n, g, after.data(), after.size(), &p, context));
        return n;
    }
    void run(CUgraphExec e) {
        OK(cuGraphLaunch(e, s));
        OK(cuStreamSynchronize(s));
    }
};
CUgraphExec instantiate(CUgraph g) {
    CUgraphExec e;
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    return e;
}
}  // namespace

TEST_CASE("a graph runs in the order of its edges, again and again, with new parameters") {
    Setup u;
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    // Added in an order that is not the order of the edges.
    CUgraphNode copy = u.add_copy(g, {}, 0, 1), set = u.add_set(g, {}, 0, 5);
    OK(cuGraphAddDependencies_v2(g, &set, &copy, nullptr, 1));
    CUgraphNode last = u.add_set(g, {copy}, 0, 6);
    CUgraphExec e = instantiate(g);
    u.run(e);
    CHECK(words(u.a, 2) == std::vector<std::uint32_t>{6, 5});
    auto p = u.set(0, 50);
    OK(cuGraphExecMemsetNodeSetParams(e, set, &p, u.context));
    u.run(e);
    CHECK(words(u.a, 2) == std::vector<std::uint32_t>{6, 50});
    CUDA_MEMSET_NODE_PARAMS q;
    OK(cuGraphMemsetNodeGetParams(set, &q));
    CHECK(q.value == 5);  // the graph itself is as it was
    OK(cuGraphNodeSetEnabled(e, last, 0));
    u.run(e);
    CHECK(words(u.a, 1)[0] == 50);
    size_t n = 0;
    OK(cuGraphGetNodes(g, nullptr, &n));
    CHECK(n == 3);
    OK(cuGraphGetEdges_v2(g, nullptr, nullptr, nullptr, &n));
    CHECK(n == 2);
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(copy, &type));
    CHECK(type == CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuGraphAddDependencies_v2(g, &last, &set, nullptr, 1));  // a cycle
    CUgraphExec none;
    CHECK(cuGraphInstantiateWithFlags(&none, g, 0) == CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphExecDestroy(e));
    OK(cuGraphDestroy(g));
}

TEST_CASE("child graphs, events and host functions are nodes; launches of one executable are ordered") {
    Setup u;
    CUgraph child, g;
    OK(cuGraphCreate(&child, 0));
    CUgraphNode inner = u.add_set(child, {}, 0, 1);
    u.add_copy(child, {inner}, 0, 1);
    OK(cuGraphCreate(&g, 0));
    CUgraphNode first = u.add_set(g, {}, 1, 9), nested, counted, recorded;
    OK(cuGraphAddChildGraphNode(&nested, g, &first, 1, child));
    static int calls;
    calls = 0;
    CUDA_HOST_NODE_PARAMS host{[](void*) { ++calls; }, nullptr};
    OK(cuGraphAddHostNode(&counted, g, &nested, 1, &host));
    CUevent event;
    OK(cuEventCreate(&event, 0));
    OK(cuGraphAddEventRecordNode(&recorded, g, &counted, 1, event));
    CUgraphExec e = instantiate(g);
    for (int i = 0; i < 50; ++i) OK(cuGraphLaunch(e, i % 2 ? u.s : u.t));
    OK(cuEventSynchronize(event));
    CHECK(calls == 50);
    CHECK(words(u.a, 2) == std::vector<std::uint32_t>{1, 1});
    OK(cuGraphDestroy(child));
    CUgraph clone;
    OK(cuGraphClone(&clone, g));
    CUgraphNode found;
    OK(cuGraphNodeFindInClone(&found, counted, clone));
    OK(cuGraphNodeGetType(found, reinterpret_cast<CUgraphNodeType*>(&calls)));
    CHECK(calls == CU_GRAPH_NODE_TYPE_HOST);
    OK(cuGraphDestroy(clone));
    OK(cuGraphExecDestroy(e));
    OK(cuGraphDestroy(g));
}

TEST_CASE("an executable is updated from a graph of the same shape only") {
    Setup u;
    CUgraph g, same, other;
    OK(cuGraphCreate(&g, 0));
    u.add_set(g, {u.add_set(g, {}, 0, 1)}, 1, 1);
    OK(cuGraphCreate(&same, 0));
    u.add_set(same, {u.add_set(same, {}, 0, 2)}, 1, 3);
    OK(cuGraphCreate(&other, 0));
    u.add_set(other, {}, 0, 4);
    u.add_set(other, {}, 1, 5);
    CUgraphExec e = instantiate(g);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate_v2(e, same, &info));
    u.run(e);
    CHECK(words(u.a, 2) == std::vector<std::uint32_t>{2, 3});
    CHECK(cuGraphExecUpdate_v2(e, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    u.run(e);
    CHECK(words(u.a, 2) == std::vector<std::uint32_t>{2, 3});
}

TEST_CASE("capture over two streams becomes a graph; nothing runs until it is launched") {
    Setup u;
    CUevent fork, join;
    OK(cuEventCreate(&fork, 0));
    OK(cuEventCreate(&join, 0));
    OK(cuStreamBeginCapture_v2(u.s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(u.a, 1, 1, u.s));
    OK(cuEventRecord(fork, u.s));
    OK(cuStreamWaitEvent(u.t, fork, 0));
    OK(cuMemsetD32Async(u.a + 4, 2, 1, u.t));
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(u.t, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuEventRecord(join, u.t));
    OK(cuStreamWaitEvent(u.s, join, 0));
    OK(cuMemcpyDtoDAsync_v2(u.a + 8, u.a, 8, u.s));
    CUgraph g;
    OK(cuStreamEndCapture(u.s, &g));
    OK(cuStreamIsCapturing(u.t, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(words(u.a, 1)[0] == 0);
    size_t n;
    OK(cuGraphGetNodes(g, nullptr, &n));
    CHECK(n == 3);
    CUgraphExec e = instantiate(g);
    u.run(e);
    CHECK(words(u.a, 4) == std::vector<std::uint32_t>{1, 2, 1, 2});
    CHECK(cuEventQuery(fork) == CUDA_ERROR_CAPTURED_EVENT);
}

TEST_CASE("what capture forbids ends it with the documented error") {
    Setup u;
    CUgraph g;
    CUdeviceptr b;
    OK(cuStreamBeginCapture_v2(u.s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAlloc_v2(&b, 4) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuMemsetD32Async(u.a, 1, 1, u.s) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamEndCapture(u.s, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(g == nullptr);

    OK(cuStreamBeginCapture_v2(u.s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuStreamSynchronize(u.s) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuStreamEndCapture(u.s, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cuStreamBeginCapture_v2(u.s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    OK(cuMemAlloc_v2(&b, 4));
    OK(cuMemFree_v2(b));
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    CHECK(relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamEndCapture(u.s, &g));
    OK(cuGraphDestroy(g));

    CUevent e;
    OK(cuEventCreate(&e, 0));
    OK(cuStreamBeginCapture_v2(u.s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(e, u.s));
    OK(cuStreamWaitEvent(u.t, e, 0));
    OK(cuMemsetD32Async(u.a, 1, 1, u.t));
    CHECK(cuStreamEndCapture(u.t, &g) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    CHECK(cuStreamEndCapture(u.s, &g) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

    CUstream blocking;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD32Async(u.a, 1, 1, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(cuStreamEndCapture(blocking, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_CASE("pool memory is taken and given back in stream order, and counted") {
    Setup u;
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    auto figure = [&](CUmemPool_attribute what) {
        cuuint64_t v = 0;
        OK(cuMemPoolGetAttribute(pool, what, &v));
        return v;
    };
    const auto held = stats().device_bytes;
    CUdeviceptr p, q, r;
    OK(cuMemAllocAsync(&p, 1 << 20, u.s));
    CHECK(figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 1 << 20);
    OK(cuMemsetD8Async(p, 1, 1 << 20, u.s));
    OK(cuMemFreeAsync(p, u.s));
    CHECK(cuMemFreeAsync(p, u.s) == CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(u.s));
    CHECK(figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    CHECK(figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);  // the threshold is 0
    CHECK(stats().device_bytes == held);
    OK(cuMemAllocAsync(&q, 1 << 20, u.s));
    CHECK(words(q, 1)[0] == 0x7fffffffu);
    cuuint64_t threshold = UINT64_MAX;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(cuMemFreeAsync(q, u.s));
    OK(cuStreamSynchronize(u.s));
    CHECK(figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 1 << 20);
    CHECK(figure(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 1 << 20);
    OK(cuMemAllocAsync(&r, 60 << 20, u.s));
    OK(cuMemFreeAsync(r, u.s));
    OK(cuMemAllocAsync(&p, 50 << 20, u.s));  // fits only when the free has been reached
    CHECK(cuMemAllocAsync(&q, 30 << 20, u.s) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(p, u.s));
    OK(cuStreamSynchronize(u.s));
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(stats().device_bytes == held);
    threshold = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

TEST_CASE("pool memory used after its free was reached faults; the same stream gets it back at once") {
    Setup u;
    CUdeviceptr p, q;
    OK(cuMemAllocAsync(&p, 8192, u.s));
    OK(cuLaunchHostFunc(u.s, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, nullptr));
    OK(cuMemFreeAsync(p, u.s));
    OK(cuMemAllocAsync(&q, 8192, u.s));
    CHECK(p == q);
    OK(cuMemsetD8Async(q, 5, 8192, u.s));
    OK(cuStreamSynchronize(u.s));
    OK(cuMemFreeAsync(q, u.s));
    OK(cuStreamSynchronize(u.s));
    CHECK(cuMemsetD8Async(q, 6, 8192, u.s) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("allocation in a captured graph has its address at capture") {
    Setup u;
    CUgraph g;
    CUdeviceptr p;
    OK(cuStreamBeginCapture_v2(u.s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&p, 4096, u.s));
    OK(cuMemsetD32Async(p, 77, 1024, u.s));
    OK(cuMemcpyDtoDAsync_v2(u.a, p, 4, u.s));
    OK(cuMemFreeAsync(p, u.s));
    OK(cuStreamEndCapture(u.s, &g));
    CUgraphExec e = instantiate(g);
    OK(cuGraphDestroy(g));
    u.run(e);
    CHECK(words(u.a, 1)[0] == 77);
    const auto held = stats().device_bytes;
    OK(cuGraphExecDestroy(e));
    CHECK(stats().device_bytes == held - 4096);
}

TEST_CASE("a graph's own memory is taken when it is first uploaded or launched, and may not be there") {
    Setup u;
    std::size_t free = 0;
    OK(cuMemGetInfo_v2(&free, nullptr));
    const auto before = stats().device_bytes;
    for (const bool uploaded : {true, false}) {
        CUgraph g;
        OK(cuGraphCreate(&g, 0));
        CUDA_MEM_ALLOC_NODE_PARAMS p{};
        p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
        p.bytesize = 1 << 20;
        CUgraphNode node;
        OK(cuGraphAddMemAllocNode(&node, g, nullptr, 0, &p));
        CUgraphExec e = instantiate(g);
        CHECK(stats().device_bytes == before);
        const auto begin = [&] { return uploaded ? cuGraphUpload(e, u.s) : cuGraphLaunch(e, u.s); };
        CUdeviceptr rest;
        OK(cuMemAlloc_v2(&rest, free - (512 << 10)));
        CHECK(begin() == CUDA_ERROR_OUT_OF_MEMORY);
        OK(cuMemFree_v2(rest));
        // What a pool only keeps is no hindrance.
        CUmemoryPool pool;
        cuuint64_t keep = UINT64_MAX;
        OK(cuDeviceGetDefaultMemPool(&pool, 0));
        OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
        OK(cuMemAllocAsync(&rest, free - (512 << 10), u.s));
        OK(cuMemFreeAsync(rest, u.s));
        OK(begin());
        OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(keep = 0)));
        CHECK(stats().device_bytes == before + (1 << 20));
        u.run(e);
        CHECK(stats().device_bytes == before + (1 << 20));
        OK(cuGraphExecDestroy(e));
        OK(cuGraphDestroy(g));
        CHECK(stats().device_bytes == before);
    }
}

TEST_CASE("a user object lives as long as the last graph that holds it") {
    Setup u;
    static int destroyed;
    destroyed = 0;
    CUuserObject object;
    OK(cuUserObjectCreate(&object, nullptr, [](void*) { ++destroyed; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    u.add_set(g, {}, 0, 1);
    OK(cuGraphRetainUserObject(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUgraphExec e = instantiate(g);
    OK(cuGraphDestroy(g));
    CHECK(destroyed == 0);
    OK(cuGraphExecDestroy(e));
    CHECK(destroyed == 1);
}
