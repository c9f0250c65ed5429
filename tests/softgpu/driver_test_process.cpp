// What concerns the whole process: the report at exit, limits that abort, injected faults, fork, IPC.
// Each case runs in a child of its own, this program started again, so that options can differ.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/softgpu/driver_test.hpp"
#include "tests/softgpu/sanitised.hpp"

using namespace softgpu_test;

namespace {

struct Result {
    int status;
    std::string output;
};

// Runs one of the bodies below in a fresh process with more options set.
Result run(const std::string& body, const std::string& options = "") {
    char self[4096];
    ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    std::string command = "env " + options + " SOFTGPU_TEST_BODY=" + body + " '" + self + "' 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    Result r;
    char block[4096];
    for (size_t k; (k = std::fread(block, 1, sizeof block, pipe)) > 0;) r.output.append(block, k);
    r.status = ::pclose(pipe);
    return r;
}

int report() {
    cuInit(0);
    CUcontext c;
    CUdeviceptr a;
    if (cuCtxCreate_v4(&c, nullptr, 0, 0) || cuMemAlloc_v2(&a, 1 << 20) || cuMemsetD8_v2(a, 1, 1 << 20)) return 1;
    char host[100];
    return cuMemcpyDtoH_v2(host, a, 100);
}

int exceed() {
    report();
    CUdeviceptr a;
    cuMemAlloc_v2(&a, 4 << 20);
    return 0;
}

int child_of_fork() {
    cuInit(0);
    CUcontext c;
    if (cuCtxCreate_v4(&c, nullptr, 0, 0)) return 1;
    pid_t pid = ::fork();
    CUdeviceptr a;
    if (pid == 0) ::_exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuMemAlloc_v2(&a, 4) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    int status;
    ::waitpid(pid, &status, 0);
    if (cuMemAlloc_v2(&a, 4)) return 2;
    return status;
}

int fork_first() {
    pid_t pid = ::fork();
    if (pid == 0) ::_exit(report());
    int status;
    ::waitpid(pid, &status, 0);
    return status ? status : report();
}

// Counts which of five allocations fail.
int injected() {
    cuInit(0);
    CUcontext c;
    if (cuCtxCreate_v4(&c, nullptr, 0, 0)) return 1;
    for (int i = 1; i <= 5; ++i) {
        CUdeviceptr a;
        CUresult r = cuMemAlloc_v2(&a, 4);
        if (r) std::printf("call %d: %d\n", i, r);
    }
    return 0;
}

int wrong_host_access() {  // a SIGSEGV of the program's own stays one
    report();
    static volatile std::uintptr_t nowhere = 16;
    *reinterpret_cast<volatile int*>(nowhere) = 1;
    return 0;
}

// Two processes, one memory: the child of a fork made before CUDA opens what the parent exports.
int ipc() {
    int pipes[2][2];
    if (::pipe(pipes[0]) || ::pipe(pipes[1])) return 1;
    pid_t pid = ::fork();
    cuInit(0);
    CUcontext c;
    if (cuCtxCreate_v4(&c, nullptr, 0, 0)) return 1;
    CUipcMemHandle handle;
    CUdeviceptr a;
    char done = 0;
    if (pid == 0) {
        if (::read(pipes[0][0], &handle, sizeof handle) != sizeof handle) ::_exit(1);
        if (cuIpcOpenMemHandle_v2(&a, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) ::_exit(2);
        std::uint32_t w = 0;
        if (cuMemcpyDtoH_v2(&w, a + 4, 4) || w != 31) ::_exit(3);
        if (cuMemsetD32_v2(a, 32, 1) || cuIpcCloseMemHandle(a)) ::_exit(4);
        if (cuMemsetD32_v2(a, 33, 1) != CUDA_ERROR_INVALID_VALUE) ::_exit(5);
        ::_exit(::write(pipes[1][1], &done, 1) == 1 ? 0 : 6);
    }
    if (cuMemAlloc_v2(&a, 8192) || cuMemsetD32_v2(a, 31, 2048) || cuCtxSynchronize() || cuIpcGetMemHandle(&handle, a)) return 2;
    if (cuIpcOpenMemHandle_v2(&a, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_ERROR_INVALID_CONTEXT) return 3;
    if (::write(pipes[0][1], &handle, sizeof handle) != sizeof handle) return 4;
    int status;
    ::waitpid(pid, &status, 0);
    std::uint32_t w[2] = {};
    if (status || cuMemcpyDtoH_v2(w, a, 8) || w[0] != 32 || w[1] != 31) return 5;
    CUdeviceptr pool;
    if (cuMemAllocAsync(&pool, 100, nullptr) || cuIpcGetMemHandle(&handle, pool) != CUDA_ERROR_INVALID_VALUE) return 6;
    return 0;
}

// A frame made, mapped twice, one beside the other, and unmapped at once.
int mapping() {
    cuInit(0);
    CUcontext c;
    CUdeviceptr at;
    CUmemGenericAllocationHandle frame;
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const size_t bytes = 2 << 20;
    CUmemAccessDesc access{};
    access.location = made.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (cuCtxCreate_v4(&c, nullptr, 0, 0) || cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0) || cuMemCreate(&frame, bytes, &made, 0)) return 1;
    if (cuMemMap(at, bytes, 0, frame, 0) || cuMemMap(at + bytes, bytes, 0, frame, 0) || cuMemSetAccess(at, 2 * bytes, &access, 1)) return 2;
    return cuMemUnmap(at, 2 * bytes) || cuMemRelease(frame);
}

int body(const std::string& name) {
    if (name == "mapping") return mapping();
    if (name == "ipc") return ipc();
    if (name == "report") return report();
    if (name == "exceed") return exceed();
    if (name == "child_of_fork") return child_of_fork();
    if (name == "fork_first") return fork_first();
    if (name == "injected") return injected();
    return wrong_host_access();
}

// Before Catch's main: the process is a child, and does its one thing.
const bool is_child = [] {
    if (const char* name = std::getenv("SOFTGPU_TEST_BODY")) std::exit(body(name));
    return false;
}();

}  // namespace

TEST_CASE("SOFTGPU_REPORT appends the figures, one object a process") {
    std::string path = "/tmp/softgpu-report-" + std::to_string(::getpid());
    CHECK(run("report", "SOFTGPU_REPORT=" + path).status == 0);
    CHECK(run("fork_first", "SOFTGPU_REPORT=" + path).status == 0);
    std::ifstream file(path);
    std::string line;
    int lines = 0;
    while (std::getline(file, line)) {
        ++lines;
        CHECK(line.find("\"device_bytes_peak\": 1048576") != std::string::npos);
        CHECK(line.find("\"bytes_to_host\": 100") != std::string::npos);
    }
    CHECK(lines == 2);  // the child of the fork ended by _exit
    ::unlink(path.c_str());
}

TEST_CASE("SOFTGPU_ASSERT_BYTES aborts beyond the limit, and not below") {
    CHECK(run("exceed", "SOFTGPU_ASSERT_BYTES=5MiB").status == 0);
    auto r = run("exceed", "SOFTGPU_ASSERT_BYTES=4MiB");
    CHECK(r.status != 0);
    CHECK(r.output.find("SOFTGPU_ASSERT_BYTES: 5242880 device bytes are held, 4194304 are allowed") != std::string::npos);
}

TEST_CASE("SOFTGPU_FAIL fails the call that it names") {
    CHECK(run("injected", "SOFTGPU_FAIL=cuMemAlloc_v2:3").output.find("call 3: 2\n") != std::string::npos);
    CHECK(run("injected", "SOFTGPU_FAIL=cuMemAlloc_v2:2:999").output.find("call 2: 999\n") != std::string::npos);
    CHECK(run("injected").output.empty());
    auto r = run("injected", "SOFTGPU_FAIL=cuMemAlloc_v2");
    CHECK(WEXITSTATUS(r.status) == 2);
    CHECK(r.output.find("SOFTGPU_FAIL=cuMemAlloc_v2: expected NAME:N") != std::string::npos);
}

TEST_CASE("the child of a fork is not initialised; a fork before cuInit changes nothing") {
    CHECK(run("child_of_fork").status == 0);
    CHECK(run("fork_first").status == 0);
}

TEST_CASE("another process opens an allocation by its IPC handle") { CHECK(run("ipc").status == 0); }

TEST_CASE("a wrong access of the program itself still ends it", NOT_SANITISED) {   // it ends the program in its own way
    auto r = run("wrong_host_access");
    CHECK(r.output.find("softgpu: fault") == std::string::npos);
    CHECK((WIFSIGNALED(r.status) || WEXITSTATUS(r.status) == 128 + SIGSEGV));
}

TEST_CASE("a wrong option is told with what is expected") {
    auto r = run("report", "SOFTGPU_GRANULARITY=5000");
    CHECK(WEXITSTATUS(r.status) == 2);
    CHECK(r.output.find("SOFTGPU_GRANULARITY=5000: expected a power of two") != std::string::npos);
    CHECK(run("report", "SOFTGPU_H2D=12GB/s SOFTGPU_D2H=off").status == 0);
    CHECK(WEXITSTATUS(run("report", "SOFTGPU_TIME=sundial").status) == 2);
}

TEST_CASE("SOFTGPU_MAPPING: the calls take that much modelled time, for each mapping that they change") {
    const std::string path = "/tmp/softgpu-mapping-" + std::to_string(::getpid());
    for (const std::string costs : {"1000000:200000:30000", "0:0:7"}) {
        CHECK(run("mapping", "SOFTGPU_TIME=model:1e12:1e11 SOFTGPU_MAPPING=" + costs + " SOFTGPU_REPORT=" + path).status == 0);
        std::ifstream file(path);
        const std::string figures{std::istreambuf_iterator<char>(file), {}};
        CHECK(figures.find(costs == "0:0:7" ? "\"virtual_ns\": 14}" : "\"virtual_ns\": 1460000}") != std::string::npos);
        ::unlink(path.c_str());
    }
    CHECK(run("mapping", "SOFTGPU_MAPPING=1:2:3").status == 0);   // wall time: nothing to add
    for (const char* wrong : {"1:2", "1:2:-3", "1:2:3:4"}) CHECK(WEXITSTATUS(run("mapping", std::string("SOFTGPU_MAPPING=") + wrong).status) == 2);
}

TEST_CASE("bandwidths hold: a copy lasts what its bytes take") {
    auto start = std::chrono::steady_clock::now();
    CHECK(run("report", "SOFTGPU_D2H=1KiB").status == 0);  // 100 bytes at 1 KiB/s
    double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(s >= 0.097);
    CHECK(s < 3);
}
