// Order: streams, events, the legacy stream, host functions, gates on memory, copies and their staging.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/softgpu/driver_test.hpp"

using namespace softgpu_test;

namespace {
// A stream that stands still until open() is called.
struct Gate {
    CUdeviceptr word;
    void* host;
    Gate() {
        OK(cuMemHostAlloc(&host, 64, 0));
        *static_cast<volatile std::uint32_t*>(host) = 0;
        OK(cuMemHostGetDevicePointer_v2(&word, host, 0));
    }
    void hold(CUstream s) { OK(cuStreamWaitValue32_v2(s, word, 1, CU_STREAM_WAIT_VALUE_GEQ)); }
    void open() { *static_cast<volatile std::uint32_t*>(host) = 1; }
};

struct Setup : Context {
    CUdeviceptr a;
    CUstream s, t;
    Gate gate;
    explicit Setup(unsigned flags = CU_STREAM_NON_BLOCKING) {
        OK(cuMemAlloc_v2(&a, 4096));
        OK(cuMemsetD32_v2(a, 0, 1024));
        OK(cuStreamCreate(&s, flags));
        OK(cuStreamCreate(&t, flags));
        OK(cuCtxSynchronize());
    }
    void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
};
}  // namespace

TEST_CASE("a stream is in order, two are not") {
    Setup u;
    u.gate.hold(u.s);
    OK(cuMemsetD32Async(u.a, 1, 1, u.s));
    OK(cuMemsetD32Async(u.a + 4, 2, 1, u.t));
    OK(cuStreamSynchronize(u.t));
    CHECK(cuStreamQuery(u.s) == CUDA_ERROR_NOT_READY);
    std::uint32_t w[2];
    OK(cuMemcpyDtoHAsync_v2(w, u.a, 8, u.t));
    CHECK(w[0] == 0);
    CHECK(w[1] == 2);
    u.gate.open();
    OK(cuStreamSynchronize(u.s));
    OK(cuStreamQuery(u.s));
    CHECK(words(u.a, 1)[0] == 1);
}

TEST_CASE("a synchronous memset waits where the host sees the memory, and only there") {
    Setup u(CU_STREAM_DEFAULT);
    void* pinned;
    OK(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CUdeviceptr managed, p;
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostGetDevicePointer_v2(&p, pinned, 0));
    for (CUdeviceptr to : {p, managed}) {
        OK(cuLaunchHostFunc(nullptr, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(15)); }, nullptr));
        OK(cuMemsetD8_v2(to, 9, 4096));
        CHECK(reinterpret_cast<volatile unsigned char*>(to == p ? pinned : reinterpret_cast<void*>(managed))[4095] == 9);
        OK(cuStreamQuery(nullptr));
    }
    u.gate.hold(nullptr);
    OK(cuMemsetD8_v2(u.a, 9, 4096));  // returns, or this test never ends
    CHECK(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
    u.gate.open();
    OK(cuStreamSynchronize(nullptr));
}

TEST_CASE("an event orders streams; one not recorded orders nothing") {
    Setup u;
    CUevent e, never;
    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&never, 0));
    OK(cuEventQuery(never));
    OK(cuStreamWaitEvent(u.t, never, 0));
    u.gate.hold(u.s);
    OK(cuMemsetD32Async(u.a, 1, 1, u.s));
    OK(cuEventRecord(e, u.s));
    OK(cuStreamWaitEvent(u.t, e, 0));
    OK(cuMemsetD32Async(u.a, 2, 1, u.t));
    u.settle();
    CHECK(cuEventQuery(e) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(u.t) == CUDA_ERROR_NOT_READY);
    u.gate.open();
    OK(cuStreamSynchronize(u.t));
    OK(cuEventSynchronize(e));
    CHECK(words(u.a, 1)[0] == 2);
    OK(cuEventDestroy_v2(e));
    CHECK(cuEventQuery(e) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("the legacy stream waits for blocking streams and they for it, non-blocking ones do not") {
    Setup u(CU_STREAM_DEFAULT);
    CUstream free_stream;
    OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    u.gate.hold(u.s);
    OK(cuMemsetD32Async(u.a, 1, 1, u.s));
    OK(cuMemsetD32Async(u.a, 2, 1, nullptr));
    OK(cuMemsetD32Async(u.a, 3, 1, u.t));
    OK(cuMemsetD32Async(u.a + 4, 9, 1, free_stream));
    OK(cuStreamSynchronize(free_stream));
    u.settle();
    CHECK(cuStreamQuery(u.t) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
    u.gate.open();
    OK(cuStreamSynchronize(u.t));
    CHECK(words(u.a, 2) == std::vector<std::uint32_t>{3, 9});
    CHECK(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS);
}

TEST_CASE("events measure time, in order") {
    Setup u;
    CUevent from, to, untimed;
    OK(cuEventCreate(&from, 0));
    OK(cuEventCreate(&to, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(from, u.s));
    OK(cuLaunchHostFunc(u.s, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(15)); }, nullptr));
    OK(cuEventRecord(to, u.s));
    OK(cuEventRecord(untimed, u.s));
    OK(cuEventSynchronize(to));
    float ms = 0;
    OK(cuEventElapsedTime_v2(&ms, from, to));
    CHECK(ms >= 14);
    CHECK(ms < 500);
    CHECK(cuEventElapsedTime_v2(&ms, from, untimed) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a stream's priority is none of its copies'") {
    Setup u;
    constexpr std::size_t large = 32 << 20;
    CUstream urgent[2];
    for (CUstream& s : urgent) OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, -1));
    CUdeviceptr from;
    void* to;
    OK(cuMemAlloc_v2(&from, large));
    OK(cuMemHostAlloc(&to, large, 0));
    CUevent small_ended, large_ended;
    OK(cuEventCreate(&small_ended, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&large_ended, CU_EVENT_DEFAULT));
    for (CUstream s : {urgent[0], u.t, urgent[1]}) u.gate.hold(s);   // all are submitted before any runs
    OK(cuMemcpyDtoHAsync_v2(to, from, large, urgent[0]));
    OK(cuMemcpyDtoHAsync_v2(to, from, 4, u.t));
    OK(cuEventRecord(small_ended, u.t));
    OK(cuMemcpyDtoHAsync_v2(to, from, large, urgent[1]));
    OK(cuEventRecord(large_ended, urgent[1]));
    u.gate.open();
    OK(cuCtxSynchronize());
    float ms = 0;
    OK(cuEventElapsedTime(&ms, small_ended, large_ended));
    CHECK(ms > 0);
}

TEST_CASE("a host function runs in stream order and may wait for the launching thread") {
    Setup u;
    static std::atomic<bool> allowed;
    allowed = false;
    OK(cuLaunchHostFunc(u.s, [](void*) { while (!allowed) std::this_thread::yield(); }, nullptr));
    OK(cuMemsetD32Async(u.a, 7, 1, u.s));
    OK(cuMemsetD32Async(u.a + 4, 8, 1, u.t));
    OK(cuStreamSynchronize(u.t));
    CHECK(cuStreamQuery(u.s) == CUDA_ERROR_NOT_READY);
    allowed = true;
    OK(cuStreamSynchronize(u.s));
    CHECK(words(u.a, 1)[0] == 7);
}

TEST_CASE("gates: every comparison, 64 bits, and batches") {
    Setup u;
    OK(cuMemsetD32_v2(u.a, 0, 8));
    auto held = [&](unsigned flags, std::uint32_t value) {
        OK(cuStreamWaitValue32_v2(u.s, u.a, value, flags));
        u.settle();
        return cuStreamQuery(u.s) == CUDA_ERROR_NOT_READY;
    };
    auto write = [&](std::uint32_t v) { OK(cuStreamWriteValue32_v2(u.t, u.a, v, 0)); OK(cuStreamSynchronize(u.t)); OK(cuStreamSynchronize(u.s)); };
    CHECK(held(CU_STREAM_WAIT_VALUE_EQ, 5));
    write(5);
    CHECK(held(CU_STREAM_WAIT_VALUE_GEQ, 6));
    write(8);
    CHECK(held(CU_STREAM_WAIT_VALUE_AND, 3));
    write(2);
    CHECK(held(CU_STREAM_WAIT_VALUE_NOR, 0xfffffffdu));
    write(0);
    CUstreamBatchMemOpParams ops[2] = {};
    ops[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    ops[0].writeValue.address = u.a + 8;
    ops[0].writeValue.value64 = 1ull << 40;
    ops[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    ops[1].waitValue.address = u.a + 8;
    ops[1].waitValue.value64 = 1ull << 39;
    OK(cuStreamBatchMemOp_v2(u.s, 2, ops, 0));
    OK(cuStreamSynchronize(u.s));
    CHECK(words(u.a + 12, 1)[0] == 256);
    int pageable = 0;
    CHECK(cuStreamWaitValue32_v2(u.s, reinterpret_cast<CUdeviceptr>(&pageable), 1, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a pageable source is staged at the call, a pinned one is read when the copy runs") {
    Setup u;
    std::uint32_t pageable = 11;
    u.gate.hold(u.s);
    OK(cuMemcpyHtoDAsync_v2(u.a, &pageable, 4, u.s));
    pageable = 12;
    auto* pinned = static_cast<std::uint32_t*>(u.gate.host) + 4;
    *pinned = 13;
    OK(cuMemcpyHtoDAsync_v2(u.a + 4, pinned, 4, u.s));
    *pinned = 14;
    u.gate.open();
    OK(cuStreamSynchronize(u.s));
    CHECK(words(u.a, 2) == std::vector<std::uint32_t>{11, 14});
}

TEST_CASE("copies with attributes, of the version that has them: a source is read in stream order or before the call returns") {
    Setup u;
    void *flat_fn, *box_fn, *none;
    CUdriverProcAddressQueryResult result;
    OK(cuGetProcAddress_v2("cuMemcpyWithAttributesAsync", &none, 13010, 0, &result));
    CHECK((none == nullptr && result == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    OK(cuGetProcAddress_v2("cuMemcpyWithAttributesAsync", &flat_fn, 13020, 0, &result));
    OK(cuGetProcAddress_v2("cuMemcpy3DWithAttributesAsync", &box_fn, 13020, 0, &result));
    const auto flat = reinterpret_cast<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes*, CUstream)>(flat_fn);
    const auto box = reinterpret_cast<CUresult (*)(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream)>(box_fn);
    auto* pinned = static_cast<std::uint32_t*>(u.gate.host) + 4;
    const auto source = reinterpret_cast<CUdeviceptr>(pinned);
    CUmemcpyAttributes how{};
    CHECK(flat(u.a, source, 4, &how, u.s) == CUDA_ERROR_INVALID_VALUE);
    CHECK(flat(u.a, source, 4, nullptr, u.s) == CUDA_ERROR_INVALID_VALUE);
    how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    *pinned = 13;
    OK(flat(u.a, source, 4, &how, u.s));
    *pinned = 14;
    how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    u.gate.hold(u.s);
    OK(flat(u.a + 4, source, 4, &how, u.s));
    CUDA_MEMCPY3D_BATCH_OP two{};
    two.src.type = two.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    two.src.op.ptr.ptr = u.a, two.dst.op.ptr.ptr = u.a + 8;
    two.dst.op.ptr.rowLength = 8;
    two.extent = {4, 2, 1};
    CHECK(box(&two, 0, u.s) == CUDA_ERROR_INVALID_VALUE);
    two.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    OK(box(&two, 0, u.s));
    *pinned = 15;
    u.gate.open();
    OK(cuStreamSynchronize(u.s));
    CHECK(words(u.a, 3) == std::vector<std::uint32_t>{13, 15, 13});
    CHECK(words(u.a + 16, 1)[0] == 15);
}

TEST_CASE("two- and three-dimensional copies and memsets, between all kinds of memory") {
    Setup u;
    CUdeviceptr p;
    size_t pitch;
    OK(cuMemAllocPitch_v2(&p, &pitch, 40, 6, 4));
    CHECK(pitch >= 40);
    OK(cuMemsetD2D32_v2(p, pitch, 3, 10, 6));
    std::vector<std::uint32_t> host(100, 0);
    CUDA_MEMCPY2D c{};
    c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = p;
    c.srcPitch = pitch;
    c.srcXInBytes = 4;
    c.srcY = 1;
    c.dstMemoryType = CU_MEMORYTYPE_HOST;
    c.dstHost = host.data();
    c.dstPitch = 40;
    c.dstXInBytes = 8;
    c.WidthInBytes = 20;
    c.Height = 4;
    OK(cuMemcpy2D_v2(&c));
    CHECK(host[1] == 0);
    CHECK(host[2] == 3);
    CHECK(host[6] == 3);
    CHECK(host[7] == 0);
    CHECK(host[32] == 3);
    CHECK(host[42] == 0);
    CUDA_MEMCPY3D v{};
    v.srcMemoryType = CU_MEMORYTYPE_HOST;
    v.srcHost = host.data();
    v.srcPitch = 40;
    v.srcHeight = 2;
    v.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    v.dstDevice = u.a;
    v.dstPitch = 16;
    v.dstHeight = 2;
    v.WidthInBytes = 16;
    v.Height = 2;
    v.Depth = 2;
    OK(cuMemcpy3DAsync_v2(&v, u.s));
    OK(cuStreamSynchronize(u.s));
    auto w = words(u.a, 16);
    CHECK(w[2] == host[2]);
    CHECK(w[4] == host[10]);
    CHECK(w[8] == host[20]);
    CHECK(w[12] == host[30]);
    OK(cuMemcpyDtoDAsync_v2(u.a + 64, u.a, 64, u.s));
    OK(cuStreamSynchronize(u.s));
    CHECK(words(u.a + 64, 16) == w);
}

TEST_CASE("a stream destroyed with work in it does that work") {
    Setup u;
    u.gate.hold(u.s);
    OK(cuMemsetD32Async(u.a, 21, 1, u.s));
    OK(cuStreamDestroy_v2(u.s));
    CHECK(cuStreamQuery(u.s) == CUDA_ERROR_INVALID_HANDLE);
    u.gate.open();
    OK(cuCtxSynchronize());
    CHECK(words(u.a, 1)[0] == 21);
}

TEST_CASE("every thread has a default stream of its own through the per-thread entry points") {
    Setup u;
    using Memset = CUresult (*)(CUdeviceptr, unsigned, size_t, CUstream);
    using Sync = CUresult (*)(CUstream);
    void *memset_fn, *sync_fn, *plain;
    OK(cuGetProcAddress_v2("cuMemsetD32Async", &memset_fn, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    OK(cuGetProcAddress_v2("cuMemsetD32Async", &plain, 13000, 0, nullptr));
    OK(cuGetProcAddress_v2("cuStreamSynchronize", &sync_fn, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    CHECK(memset_fn == ::dlsym(RTLD_DEFAULT, "cuMemsetD32Async_ptsz"));
    CHECK(plain == ::dlsym(RTLD_DEFAULT, "cuMemsetD32Async"));
    u.gate.hold(CU_STREAM_PER_THREAD);
    std::thread([&] {
        cuCtxSetCurrent(u.context);
        reinterpret_cast<Memset>(memset_fn)(u.a, 5, 1, nullptr);
        reinterpret_cast<Sync>(sync_fn)(nullptr);
    }).join();
    u.gate.open();
    CHECK(words(u.a, 1)[0] == 5);
}

TEST_CASE("resolution: versions, unknown names, refusals") {
    Context c;
    void *v1, *v2;
    CUdriverProcAddressQueryResult result;
    OK(cuGetProcAddress_v2("cuMemAlloc", &v1, 2000, 0, &result));
    OK(cuGetProcAddress_v2("cuMemAlloc", &v2, 13000, 0, &result));
    CHECK(v1 != v2);
    CHECK(v2 == ::dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &v1, 11000, 0, &result));
    CHECK(result == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(v1 == nullptr);
    OK(cuGetProcAddress_v2("cuNothing", &v1, 13000, 0, &result));
    CHECK(result == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR d{};
    CHECK(cuArrayCreate_v2(&array, &d) == CUDA_ERROR_NOT_SUPPORTED);
    const void* table = &table;
    CUuuid id{};
    CHECK(cuGetExportTable(&table, &id) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(table == nullptr);
}
