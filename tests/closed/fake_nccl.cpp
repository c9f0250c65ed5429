// libnccl.so.2 as far as the programs here go: one process, its ranks on the devices of ncclCommInitAll. A collective over ranks
// that do not exist adds their number instead, so that a result shows that it ran once. Orders lie in pinned memory, which the
// kernels read; nothing of them is in the launch. FAKE_NCCL_LAZY=1: communicators do not block, and launch when they are asked how far
// they are, the second time.
#include <cuda.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

extern "C" const char closed_ptx[];

namespace {

struct Order {
    CUdeviceptr in, out;
    unsigned words, add, from, to, again, channel_words;
    CUdeviceptr channel;
};
struct Comm {
    int device, rank, ranks;
    CUcontext context;
    CUfunction kernel;
    Order* orders;           // pinned: a ring
    CUdeviceptr channel;     // device memory of its own, which no call names
    unsigned next = 0;
    int state = 0;
    std::vector<struct Call> waiting;  // of one that does not block
    int asked = 0;
};
struct Call {
    Comm* comm;
    CUstream stream;
    std::vector<Order> orders;
};
constexpr unsigned kRing = 1 << 12, kChannel = 1 << 16;
constexpr int kInvalid = 4, kInProgress = 7, kCudaError = 1;
thread_local int depth = 0;
thread_local std::vector<Call> queued;

bool ok(CUresult r) { return r == CUDA_SUCCESS; }

int launch(const Call& c) {
    CUcontext before;
    bool good = ok(cuCtxPushCurrent(c.comm->context));
    if (c.comm->next + c.orders.size() > kRing) {
        good = good && ok(cuStreamSynchronize(c.stream));
        c.comm->next = 0;
    }
    Order* const at = c.comm->orders + c.comm->next;
    std::memcpy(at, c.orders.data(), c.orders.size() * sizeof(Order));
    for (std::size_t i = 0; i < c.orders.size(); ++i) at[i].channel = c.comm->channel, at[i].channel_words = kChannel;
    c.comm->next += static_cast<unsigned>(c.orders.size());
    CUdeviceptr from = 0;
    good = good && ok(cuMemHostGetDevicePointer(&from, at, 0));
    unsigned count = static_cast<unsigned>(c.orders.size());
    void* arguments[] = {&from, &count};
    good = good && ok(cuLaunchKernel(c.comm->kernel, 8, 1, 1, 128, 1, 1, 0, c.stream, arguments, nullptr));
    cuCtxPopCurrent(&before);
    return good ? 0 : kCudaError;
}

int run(std::vector<Call> calls) {
    if (!std::getenv("FAKE_NCCL_LAZY")) {
        int result = 0;
        for (const Call& c : calls)
            if (const int r = launch(c)) result = r;
        return result;
    }
    for (const Call& c : calls) {
        c.comm->state = kInProgress;
        c.comm->asked = 0;
        c.comm->waiting.push_back(c);
    }
    return kInProgress;
}

int submit(Call call) {
    if (depth == 0) return run({std::move(call)});
    queued.push_back(std::move(call));
    return 0;
}

Order order(const void* in, void* out, std::size_t words, unsigned add, std::size_t from = 0, std::size_t to = 0) {
    return {reinterpret_cast<CUdeviceptr>(in), reinterpret_cast<CUdeviceptr>(out), static_cast<unsigned>(words), add, static_cast<unsigned>(from), static_cast<unsigned>(to), 0, 0, 0};
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API ncclCommInitAll(void** comms, int count, const int* devices) {
    for (int i = 0; i < count; ++i) {
        auto* c = new Comm{};
        c->device = devices ? devices[i] : i;
        c->rank = i;
        c->ranks = count;
        CUmodule module;
        CUcontext before;
        if (!ok(cuDevicePrimaryCtxRetain(&c->context, c->device)) || !ok(cuCtxPushCurrent(c->context)) || !ok(cuModuleLoadData(&module, closed_ptx)) ||
            !ok(cuModuleGetFunction(&c->kernel, module, "collective")) || !ok(cuMemHostAlloc(reinterpret_cast<void**>(&c->orders), kRing * sizeof(Order), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)) ||
            !ok(cuMemAlloc(&c->channel, kChannel * 4)))
            return kCudaError;
        cuCtxPopCurrent(&before);
        comms[i] = c;
    }
    return 0;
}

API ncclCommCount(void* comm, int* count) {
    *count = static_cast<Comm*>(comm)->ranks;
    return 0;
}

API ncclCommGetAsyncError(void* comm, int* state) {
    auto* c = static_cast<Comm*>(comm);
    if (c->state == kInProgress && ++c->asked == 2) {
        c->state = 0;
        for (const Call& call : c->waiting)
            if (const int r = launch(call)) c->state = r;
        c->waiting.clear();
    }
    *state = c->state;
    return 0;
}

API ncclAllReduce(const void* in, void* out, std::size_t count, int type, int, void* comm, CUstream stream) {
    auto* c = static_cast<Comm*>(comm);
    if (type != 3) return kInvalid;
    Order o = order(in, out, count, static_cast<unsigned>(c->ranks));
    if (c->rank || std::getenv("FAKE_NCCL_LAZY")) o.again = 4;  // the first rank is done long before the others
    return submit({c, stream, {o}});
}

API ncclAllGather(const void* in, void* out, std::size_t count, int type, void* comm, CUstream stream) {
    auto* c = static_cast<Comm*>(comm);
    if (type != 3) return kInvalid;
    std::vector<Order> orders;
    for (int r = 0; r < c->ranks; ++r) orders.push_back(order(in, out, count, static_cast<unsigned>(r), 0, static_cast<std::size_t>(r) * count));
    return submit({c, stream, orders});
}

// To oneself: what is sent waits for the group's other half.
thread_local const void* sent = nullptr;
API ncclSend(const void* in, std::size_t, int type, int, void*, CUstream) {
    if ((type != 3 && type != 1) || depth == 0) return kInvalid;
    sent = in;
    return 0;
}
API ncclRecv(void* out, std::size_t count, int type, int, void* comm, CUstream stream) {
    if ((type != 3 && type != 1) || depth == 0 || !sent) return kInvalid;
    return submit({static_cast<Comm*>(comm), stream, {order(sent, out, type == 1 ? count / 4 : count, 77)}});
}

// What is registered is read and written behind everybody's back: here at once, by its physical memory.
API ncclCommRegister(void*, void* buffer, std::size_t, void** handle) {
    *handle = buffer;
    return 0;
}

API ncclGroupStart() {
    ++depth;
    return 0;
}
API ncclGroupEnd() {
    if (--depth) return 0;
    sent = nullptr;
    std::vector<Call> calls;
    calls.swap(queued);
    return calls.empty() ? 0 : run(std::move(calls));
}
API ncclGroupSimulateEnd(void*) {
    if (--depth == 0) queued.clear();
    return 0;
}
