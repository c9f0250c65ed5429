// programs WHAT [linked|opened]: uses the fake libraries as training programs use the real ones, in many buffers, and prints a
// sum of each. The same lines whatever the memory.
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

namespace {

constexpr int kUint8 = 1, kUint32 = 3, kSum = 0;
constexpr unsigned kWords = 1 << 16, kBuffers = 24;

#define CALL(...)                                                                            \
    do {                                                                                     \
        if (const int r = (__VA_ARGS__)) { printf("%s answers %d\n", #__VA_ARGS__, r); exit(1); } \
    } while (0)

template <class F>
F* symbol(const char* library, const char* name) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void* p = handle ? dlsym(handle, name) : nullptr;
    if (!p) { printf("%s has no %s\n", library, name); exit(1); }
    return reinterpret_cast<F*>(p);
}

}  // namespace

extern "C" {
int ncclCommInitAll(void**, int, const int*);
int ncclCommGetAsyncError(void*, int*);
int ncclAllReduce(const void*, void*, size_t, int, int, void*, CUstream);
int ncclAllGather(const void*, void*, size_t, int, void*, CUstream);
int ncclSend(const void*, size_t, int, int, void*, CUstream);
int ncclRecv(void*, size_t, int, int, void*, CUstream);
int ncclCommRegister(void*, void*, size_t, void**);
int ncclGroupStart();
int ncclGroupEnd();
int ncclGroupSimulateEnd(void*);
int cublasCreate_v2(void**);
int cublasSetWorkspace_v2(void*, void*, size_t);
int cublasSgemm_v2(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*, float*, int);
int cublasSgemmBatched(void*, int, int, int, int, int, const float*, const float* const[], int, const float* const[], int, const float*, float* const[], int, int);
int cudnnCreate(void**);
int cudnnSetStream(void*, CUstream);
int cudnnConvolutionForward(void*, const void*, const void*, const void*, const void*, const void*, const void*, int, void*, size_t, const void*, const void*, void*);
int cudnnReduceTensor(void*, const void*, void*, size_t, void*, size_t, const void*, const void*, const void*, const void*, const void*, void*);
int cufftCreate(int*);
int cufftMakePlan1d(int, int, int, int, size_t*);
int cufftSetStream(int, CUstream);
int cufftSetWorkArea(int, void*);
int cufftExecC2C(int, void*, void*, int);
int cufftDestroy(int);
}

namespace {

struct Training : Program {
    std::vector<CUdeviceptr> ring;
    CUstream stream;
    Training() {
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (unsigned b = 0; b < kBuffers; ++b) {
            ring.push_back(allocate(kWords * 4));
            launch(fill, ring[b], b, kWords);
        }
        CHECK(cuCtxSynchronize());
    }
    void* at(unsigned i) { return reinterpret_cast<void*>(ring[i % kBuffers]); }
    void sums() {
        CHECK(cuCtxSynchronize());
        for (unsigned b = 0; b < kBuffers; ++b) printf("buffer %u sum %08x\n", b, total(ring[b], kWords));
    }
    // A communicator that does not block is polled, as its users do.
    void settled(void* comm, int result) {
        for (int state = result; result == 7 && state == 7;) CALL(ncclCommGetAsyncError(comm, &state));
        if (result != 0 && result != 7) { printf("NCCL answers %d\n", result); exit(1); }
    }
};

void collectives(bool opened) {
    Training t;
    void* comm;
    CALL(ncclCommInitAll(&comm, 1, nullptr));
    auto* all_reduce = opened ? symbol<decltype(ncclAllReduce)>("libnccl.so.2", "ncclAllReduce") : &ncclAllReduce;
    auto* all_gather = opened ? symbol<decltype(ncclAllGather)>("libnccl.so.2", "ncclAllGather") : &ncclAllGather;
    for (unsigned step = 0; step < 3 * kBuffers; ++step) {
        const int result = all_reduce(t.at(step), t.at(step + 5), kWords, kUint32, kSum, comm, t.stream);
        // Before it is asked whether that has been launched, other work pushes memory out.
        // What is only read may be read elsewhere too: it comes back, while the collective is at it.
        for (unsigned i = 13; i < 19; ++i) t.launch(t.fill, t.ring[(step + i) % kBuffers], step + i, kWords);
        t.launch(t.add, t.ring[step % kBuffers], t.ring[(step + 13) % kBuffers], t.ring[(step + 14) % kBuffers], kWords);
        t.settled(comm, result);
        CHECK(cuCtxSynchronize());
        t.settled(comm, all_reduce(t.at(step), t.at(step), kWords, kUint32, kSum, comm, t.stream));  // in place
        t.settled(comm, all_gather(t.at(step + 1), t.at(step + 9), kWords, kUint32, comm, t.stream));
        t.launch(t.add, t.ring[step % kBuffers], t.ring[(step + 7) % kBuffers], t.ring[(step + 3) % kBuffers], kWords);
        CHECK(cuCtxSynchronize());
    }
    t.sums();
}

void groups() {
    Training t;
    void* comm;
    CALL(ncclCommInitAll(&comm, 1, nullptr));
    for (unsigned step = 0; step < 2 * kBuffers; ++step) {
        CALL(ncclGroupStart());
        t.settled(comm, ncclSend(t.at(step), kWords, kUint32, 0, comm, t.stream));
        t.settled(comm, ncclRecv(t.at(step + 11), kWords, kUint32, 0, comm, t.stream));
        CALL(ncclGroupStart());  // nested
        t.settled(comm, ncclAllReduce(t.at(step + 2), t.at(step + 2), kWords, kUint32, kSum, comm, t.stream));
        CALL(ncclGroupEnd());
        const int ended = ncclGroupEnd();
        // Something else pushes memory out while that may still wait its turn.
        for (unsigned i = 0; i < 6; ++i) t.launch(t.fill, t.ring[(step + 13 + i) % kBuffers], step + i, kWords);
        t.settled(comm, ended);
        CALL(ncclGroupStart());  // bytes, that are a quarter of a buffer
        t.settled(comm, ncclSend(t.at(step + 3), kWords, kUint8, 0, comm, t.stream));
        t.settled(comm, ncclRecv(t.at(step + 20), kWords, kUint8, 0, comm, t.stream));
        t.settled(comm, ncclGroupEnd());
        CALL(ncclGroupStart());
        t.settled(comm, ncclAllReduce(t.at(step), t.at(step + 4), kWords, kUint32, kSum, comm, t.stream));
        CALL(ncclGroupSimulateEnd(nullptr));  // never runs
        CHECK(cuCtxSynchronize());
    }
    t.sums();
}

// Two ranks in one process, one group.
void devices() {
    Training t;
    CUcontext second;
    CUstream streams[2] = {t.stream, nullptr};
    std::vector<CUdeviceptr> there(8);
    CHECK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(cuCtxPushCurrent(second));
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr& p : there) {
        CHECK(cuMemAlloc(&p, kWords * 4));
        CHECK(cuMemsetD32(p, 3, kWords));
    }
    CHECK(cuCtxPopCurrent(&second));
    void* comms[2];
    CALL(ncclCommInitAll(comms, 2, nullptr));
    for (unsigned step = 0; step < 2 * kBuffers; ++step) {
        // The second device comes late: with the first one's part the group is not over.
        if (step % 8 == 0) {
            CHECK(cuCtxPushCurrent(second));
            CHECK(cuLaunchHostFunc(streams[1], [](void*) { usleep(50000); }, nullptr));
            CHECK(cuCtxPopCurrent(&second));
        }
        CALL(ncclGroupStart());
        t.settled(comms[0], ncclAllReduce(t.at(step), t.at(step + 5), kWords, kUint32, kSum, comms[0], streams[0]));
        void* const mine = reinterpret_cast<void*>(there[step % 8]);
        t.settled(comms[1], ncclAllReduce(mine, reinterpret_cast<void*>(there[(step + 1) % 8]), kWords, kUint32, kSum, comms[1], streams[1]));
        const int ended = ncclGroupEnd();
        t.settled(comms[0], ended);
        t.settled(comms[1], ended);
        // The second device is still at it: there, too, other work pushes memory out.
        CHECK(cuCtxPushCurrent(second));
        for (unsigned i = 2; i < 7; ++i) CHECK(cuMemsetD32Async(there[(step + i) % 8], step + i, kWords, CU_STREAM_LEGACY));
        CHECK(cuMemcpyDtoDAsync(there[(step + 2) % 8], there[step % 8], kWords * 4, CU_STREAM_LEGACY));
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxPopCurrent(&second));
        CHECK(cuCtxSynchronize());
    }
    t.sums();
    CHECK(cuCtxPushCurrent(second));
    CHECK(cuCtxSynchronize());
    for (CUdeviceptr p : there) {
        unsigned word = 0;
        CHECK(cuMemcpyDtoH(&word, p + 4 * (kWords - 1), 4));
        printf("there %u\n", word);
    }
    CHECK(cuCtxPopCurrent(&second));
}

// Captured once, launched while memory is short; and a buffer that is registered.
void captured() {
    Training t;
    void *comm, *handle;
    CALL(ncclCommInitAll(&comm, 1, nullptr));
    CALL(ncclCommRegister(comm, t.at(0), kWords * 4, &handle));
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CALL(ncclAllReduce(t.at(1), t.at(2), kWords, kUint32, kSum, comm, t.stream));
    CHECK(cuStreamEndCapture(t.stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned step = 0; step < kBuffers; ++step) {
        t.launch(t.add, t.ring[(step + 4) % kBuffers], t.ring[(step + 5) % kBuffers], t.ring[1], kWords);
        CHECK(cuCtxSynchronize());
        CHECK(cuGraphLaunch(exec, t.stream));
        CHECK(cuCtxSynchronize());
        t.launch(t.add, t.ring[2], t.ring[step % 8 ? 3 : 0], t.ring[4 + step % (kBuffers - 4)], kWords);
    }
    t.sums();
}

void products() {
    Training t;
    void* handle;
    CALL(cublasCreate_v2(&handle));
    CALL(cublasSetWorkspace_v2(handle, reinterpret_cast<void*>(t.allocate(kWords * 4)), kWords * 4));
    constexpr unsigned kBatch = 3;
    const float one = 1, none = 0;
    const CUdeviceptr tables = t.allocate(3 * kBatch * sizeof(CUdeviceptr));
    for (unsigned step = 0; step < 2 * kBuffers; ++step) {
        const auto matrix = [&](unsigned i) { return static_cast<float*>(t.at(i)); };
        CALL(cublasSgemm_v2(handle, 0, 0, kWords, 1, 1, &one, matrix(step), kWords, matrix(step + 1), 1, &none, matrix(step + 2), kWords));
        CUdeviceptr pointers[3 * kBatch];
        for (unsigned k = 0; k < kBatch; ++k)
            for (unsigned i = 0; i < 3; ++i) pointers[i * kBatch + k] = t.ring[(step + 3 + 3 * k + i) % kBuffers];
        CHECK(cuMemcpyHtoD(tables, pointers, sizeof pointers));
        const auto table = [&](unsigned i) { return reinterpret_cast<float**>(tables + i * kBatch * sizeof(CUdeviceptr)); };
        CALL(cublasSgemmBatched(handle, 0, 0, kWords, 1, 1, &one, table(0), kWords, table(1), 1, &none, table(2), kWords, kBatch));
    }
    t.sums();
}

// Convolutions in a workspace of the program's, and reductions in memory of the library's own.
void convolutions() {
    Training t;
    void* handle;
    CALL(cudnnCreate(&handle));
    CALL(cudnnSetStream(handle, t.stream));
    const unsigned words = kWords;
    constexpr size_t kWorkspace = kWords * 4 + 4096;
    void* const workspace = reinterpret_cast<void*>(t.allocate(kWorkspace));
    void* const sum = reinterpret_cast<void*>(t.allocate(4));
    CHECK(cuMemsetD32(reinterpret_cast<CUdeviceptr>(sum), 0, 1));
    for (unsigned step = 0; step < 2 * kBuffers; ++step) {
        CALL(cudnnConvolutionForward(handle, nullptr, &words, t.at(step), &words, t.at(step + 9), nullptr, static_cast<int>(step % 3), workspace, kWorkspace, nullptr, &words, t.at(step + 4)));
        if (step % 6 == 5) CALL(cudnnReduceTensor(handle, nullptr, nullptr, 0, nullptr, 0, nullptr, &words, t.at(step + 4), nullptr, nullptr, sum));
    }
    CHECK(cuCtxSynchronize());
    printf("reduced %08x\n", t.total(reinterpret_cast<CUdeviceptr>(sum), 1));
    t.sums();
}

// Transforms in the library's own work area and in the program's, in turn; while memory is pushed out.
void transforms() {
    Training t;
    int plans[2];
    size_t bytes;
    for (int& plan : plans) {
        CALL(cufftCreate(&plan));
        CALL(cufftMakePlan1d(plan, kWords, 0, 1, &bytes));
        CALL(cufftSetStream(plan, t.stream));
    }
    for (unsigned step = 0; step < 2 * kBuffers; ++step) {
        if (step % 8 == 3) CALL(cufftSetWorkArea(plans[1], reinterpret_cast<void*>(t.allocate(bytes))));
        CALL(cufftExecC2C(plans[step % 2], t.at(step), t.at(step % 3 ? step + 5 : step), -1));
        CHECK(cuStreamSynchronize(t.stream));
        for (unsigned i = 8; i < 12; ++i) t.launch(t.add, t.ring[(step + i) % kBuffers], t.ring[(step + i + 1) % kBuffers], t.ring[(step + i + 5) % kBuffers], kWords);
        CHECK(cuCtxSynchronize());
    }
    for (int plan : plans) CALL(cufftDestroy(plan));
    t.sums();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const bool opened = argc > 2 && std::string(argv[2]) == "opened";
    if (what == "collectives") collectives(opened);
    else if (what == "groups") groups();
    else if (what == "devices") devices();
    else if (what == "captured") captured();
    else if (what == "products") products();
    else if (what == "convolutions") convolutions();
    else if (what == "transforms") transforms();
    else return 2;
    return 0;
}
