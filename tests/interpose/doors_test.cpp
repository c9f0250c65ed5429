// Every hooked entry point is reached through each door, forwards what it was given, and tells the layer above. The
// program links a driver that only notes calls; it starts itself again under the probe preload.
#include "tests/interpose/table.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/catch.hpp"
#include "tests/interpose/probe.hpp"

namespace {

// ---- starting under the preload ----
std::string folder() {
    char path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    std::string exe(path, n > 0 ? n : 0);
    return exe.substr(0, exe.rfind('/')) + "/interpose";
}

__attribute__((constructor)) void preload_self(int, char** argv, char**) {
    if (getenv("LD_PRELOAD") != nullptr) return;
    setenv("LD_PRELOAD", (folder() + "/libprobe.so").c_str(), 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
    setenv("FAKE_PARAMS", "8@0 8@8 4@16", 1);
    execv("/proc/self/exe", argv);
}

// ---- the other side ----
struct FakeCall {
    const char* symbol;
    std::intptr_t arguments[16];
    unsigned long calls;
};
extern "C" FakeCall fake_calls[];
extern "C" int fake_answer;

Probe& probe() {
    static Probe& p = *reinterpret_cast<Probe* (*)()>(dlsym(RTLD_DEFAULT, "probe_state"))();
    return p;
}

std::string object_of(const void* p) {
    Dl_info info{};
    if (!p || !dladdr(p, &info)) return "nowhere";
    return std::string(info.dli_fname).substr(std::string(info.dli_fname).rfind('/') + 1);
}

// ---- calling anything ----
using Word = std::intptr_t;
using Any = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
alignas(64) char block[65536];

// A word of its own for each parameter: memory that says `linear` where it is taken for a resource, else zeros.
void fill_words(Word (&a)[16], const std::string& symbol);

int call(void* f, const Word (&a)[16]) {
    return reinterpret_cast<Any>(f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                                    a[14], a[15]);
}

bool starts(const std::string& s, std::initializer_list<const char*> prefixes) {
    for (const char* p : prefixes)
        if (s.rfind(p, 0) == 0) return true;
    return false;
}

// Calls whose parameters say how much there is to read: nothing.
bool takes_a_list(const std::string& s) {
    return s.find("Batch") != std::string::npos && s.find("NodeSetParams") == std::string::npos;
}
void fill_words(Word (&a)[16], const std::string& symbol) {
    for (int i = 0; i < 16; ++i) {
        block[i * 4096] = CU_RESOURCE_TYPE_LINEAR;
        a[i] = takes_a_list(symbol) ? 0 : reinterpret_cast<Word>(&block[i * 4096]);
    }
    if (symbol == "cuLaunchCooperativeKernelMultiDevice") a[1] = 1;
    // Memory of a device, for the call that may be asked for other.
    auto& prop = *reinterpret_cast<CUmemAllocationProp*>(&block[2 * 4096]);
    prop.location.type = symbol == "cuMemCreate" ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_INVALID;
}
// Hooks that keep what they see to interpose, or have nothing to tell for the arguments that the tests give.
bool quiet(const std::string& s) {
    return starts(s, {"cuInit", "cuModule", "cuLibrary", "cuLink", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolImport", "cuDeviceSetMemPool",
                      "cuMemSetMemPool", "cuGraphInstantiate", "cuGraphExec", "cuGraphNodeSetEnabled", "cuDevicePrimaryCtx",
                      "cuGreenCtxDestroy", "cuCtxAttach", "cuCtxSynchronize_v2", "cuGetProcAddress"});
}

// How many leading parameters arrive as one word each, and how wide each is.
template <class... A>
std::vector<std::size_t> widths(CUresult (*)(A...)) {
    std::vector<std::size_t> w;
    ((w.push_back(std::is_floating_point_v<A> || sizeof(A) > 8 ? 0 : sizeof(A))), ...);
    return w;
}

struct Linked {
    std::size_t index;
    void* function;
    std::vector<std::size_t> widths;
};
enum Index : std::size_t {
#define ENTRY(symbol, ...) index_##symbol,
#include "interpose/entry_points.def"
#undef ENTRY
};
// Every hooked symbol, bound by the linker.
const std::vector<Linked>& linked() {
#define LINK_manage(symbol) all.push_back({index_##symbol, reinterpret_cast<void*>(&::symbol), widths(&::symbol)});
#define LINK_observe(symbol) LINK_manage(symbol)
#define LINK_refuse(symbol) LINK_manage(symbol)
#define LINK_pass(symbol)
    static const std::vector<Linked> result = [] {
        std::vector<Linked> all;
#define ENTRY(symbol, base, version, flavour, kind, need) LINK_##kind(symbol)
#include "interpose/entry_points.def"
#undef ENTRY
        return all;
    }();
    return result;
}

void exercise(const Linked& l, void* function) {
    const TableEntry& e = table[l.index];
    if (starts(e.symbol, {"cuGetProcAddress"})) return;
    Word a[16];
    fill_words(a, e.symbol);
    fake_calls[l.index] = {};
    const unsigned long told = probe().told;
    probe().handler = "";
    const int result = call(function, a);
    CAPTURE(e.symbol);
    CHECK(result == CUDA_SUCCESS);
    CHECK(fake_calls[l.index].calls == 1);
    for (std::size_t i = 0; i < l.widths.size(); ++i) {
        if (l.widths[i] == 0) break;  // from here on words hold something else
        CAPTURE(i);
        CHECK(std::memcmp(&fake_calls[l.index].arguments[i], &a[i], l.widths[i]) == 0);
    }
    if (!quiet(e.symbol)) CHECK(probe().told > told);
}

using GetProc = int (*)(const char*, void**, int, std::uint64_t, int*);

}  // namespace

TEST_CASE("linked calls arrive at the hooks", "[doors]") {
    REQUIRE(linked().size() > 200);
    for (const Linked& l : linked()) {
        CAPTURE(table[l.index].symbol);
        CHECK(object_of(l.function) == "libprobe.so");
        exercise(l, l.function);
    }
}

TEST_CASE("dlsym on the driver's handle arrives at the hooks, by name and by absolute path", "[doors]") {
    for (const std::string& name : {std::string("libcuda.so.1"), folder() + "/libcuda.so.1", folder() + "/libcuda.so"}) {
        void* handle = dlopen(name.c_str(), RTLD_NOW);
        REQUIRE(handle);
        for (const Linked& l : linked()) {
            void* f = dlsym(handle, table[l.index].symbol.c_str());
            CHECK(f == l.function);
            exercise(l, f);
        }
        for (const TableEntry& e : table)
            if (!e.hooked()) CHECK(object_of(dlsym(handle, e.symbol.c_str())) == "libcuda.so.1");
        CHECK(dlsym(handle, "cuNoSuchFunction") == nullptr);
        CHECK(dlerror() != nullptr);
        dlclose(handle);
    }
}

TEST_CASE("RTLD_DEFAULT and the program's own handle find the hooks", "[doors]") {
    for (const Linked& l : linked()) {
        CHECK(dlsym(RTLD_DEFAULT, table[l.index].symbol.c_str()) == l.function);
        CHECK(dlsym(dlopen(nullptr, RTLD_NOW), table[l.index].symbol.c_str()) == l.function);
    }
}

TEST_CASE("cuGetProcAddress answers with the hook of the version and the stream flavour", "[doors]") {
    void* handle = dlopen("libcuda.so.1", RTLD_NOW);
    auto ask = reinterpret_cast<GetProc>(dlsym(handle, "cuGetProcAddress_v2"));
    auto ask_v1 = reinterpret_cast<int (*)(const char*, void**, int, std::uint64_t)>(dlsym(handle, "cuGetProcAddress"));
    std::set<std::string> seen;
    for (const TableEntry& e : table) {
        // Each version from which on a form is answered, and the last before the next.
        void *p = nullptr, *q = nullptr;
        REQUIRE(ask(e.base.c_str(), &p, e.version, e.per_thread ? 2 : 0, nullptr) == 0);
        REQUIRE(ask_v1(e.base.c_str(), &q, e.version, e.per_thread ? 2 : 0) == 0);
        CAPTURE(e.symbol, e.version);
        CHECK(p == q);
        CHECK(p == dlsym(handle, e.symbol.c_str()));
        CHECK(object_of(p) == (e.hooked() ? "libprobe.so" : "libcuda.so.1"));
        if (e.hooked()) seen.insert(e.symbol);
    }
    CHECK(seen.size() == linked().size());
    for (const Linked& l : linked()) {
        void* p = nullptr;
        const TableEntry& e = table[l.index];
        ask(e.base.c_str(), &p, e.version, e.per_thread ? 2 : 0, nullptr);
        exercise(l, p);
    }
}

TEST_CASE("cuGetProcAddress asked for itself answers with a hook that works", "[doors]") {
    void *first = nullptr, *second = nullptr, *launch = nullptr;
    REQUIRE(cuGetProcAddress_v2("cuGetProcAddress", &first, 12000, 0, nullptr) == CUDA_SUCCESS);
    CHECK(first == reinterpret_cast<void*>(&cuGetProcAddress_v2));
    REQUIRE(reinterpret_cast<GetProc>(first)("cuGetProcAddress", &second, 11030, 0, nullptr) == 0);
    CHECK(second == reinterpret_cast<void*>(&cuGetProcAddress));
    REQUIRE(reinterpret_cast<int (*)(const char*, void**, int, std::uint64_t)>(second)("cuLaunchKernel", &launch, 12000, 0) == 0);
    CHECK(launch == reinterpret_cast<void*>(&cuLaunchKernel));
}

TEST_CASE("an unheard-of version of a managed name is told of and passed through", "[doors]") {
    void* p = nullptr;
    probe().unknown_version = 0;
    REQUIRE(cuGetProcAddress_v2("cuMemcpyBatchAsync", &p, 19990, 0, nullptr) == CUDA_SUCCESS);
    CHECK(probe().unknown_version == 19990);
    CHECK(object_of(p) == "libcuda.so.1");
    probe().unknown_version = 0;
    REQUIRE(cuGetProcAddress_v2("cuDeviceGetName", &p, 19990, 0, nullptr) == CUDA_SUCCESS);
    CHECK(probe().unknown_version == 0);  // none of our business
}

// The runtime of a toolkit later than the one that built us asks so.
TEST_CASE("all that drivers up to 13.5 have is known, whatever the toolkit", "[doors]") {
    probe().unknown_version = 0;
    const auto answer = [](const char* name, int version, cuuint64_t flags) {
        void* p = nullptr;
        CHECK(cuGetProcAddress_v2(name, &p, version, flags, nullptr) == CUDA_SUCCESS);
        return p;
    };
    const auto is = [](auto* function) { return reinterpret_cast<void*>(function); };
    CHECK(answer("cuMemcpyWithAttributesAsync", 13020, 0) == is(&cuMemcpyWithAttributesAsync));
    CHECK(answer("cuMemcpy3DWithAttributesAsync", 13050, 2) == is(&cuMemcpy3DWithAttributesAsync_ptsz));
    CHECK(answer("cuGraphNodeSetParams", 13030, 0) == is(&cuGraphNodeSetParams));
    CHECK(answer("cuGraphNodeSetParams", 13040, 0) == is(&cuGraphNodeSetParams_v2));
    CHECK(answer("cuGraphAddNode", 13030, 0) == is(&cuGraphAddNode_v2));
    CHECK(answer("cuGraphAddNode", 13050, 0) == is(&cuGraphAddNode_v3));
    CHECK(answer("cuLaunchHostFunc", 13000, 2) == is(&cuLaunchHostFunc_ptsz));
    CHECK(answer("cuLaunchHostFunc", 13050, 2) == is(&cuLaunchHostFunc_v2_ptsz));
    CHECK(answer("cuMulticastBindAddr", 13050, 0) == is(&cuMulticastBindAddr_v2));
    CHECK(answer("cuFabricCpyBatchAsync", 13050, 2) == is(&cuFabricCpyBatchAsync_ptsz));
    CHECK(answer("cuMemcpyBatchAsync", 13050, 0) == is(&cuMemcpyBatchAsync_v2));
    CHECK(object_of(answer("cuMulticastBindMem", 13050, 0)) == "libcuda.so.1");
    CHECK(probe().unknown_version == 0);
}

TEST_CASE("without handlers, and with the guard held, calls pass through", "[doors]") {
    auto install = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "probe_install"));
    const auto before = probe().told;
    install(0);
    fake_calls[index_cuMemFree_v2] = {};
    CHECK(cuMemFree_v2(64) == CUDA_SUCCESS);
    install(1);
    CHECK(probe().told == before);
    CHECK(fake_calls[index_cuMemFree_v2].calls == 1);
}

TEST_CASE("a handler that does not submit keeps the driver out, and its answer is the program's", "[doors]") {
    probe().swallow = true;
    for (const Linked& l : linked()) {
        const TableEntry& e = table[l.index];
        if (e.kind != "manage" || starts(e.symbol, {"cuGetProcAddress"})) continue;
        Word a[16];
        fill_words(a, e.symbol);
        fake_calls[l.index] = {};
        CAPTURE(e.symbol);
        CHECK(call(l.function, a) != CUDA_SUCCESS);
        CHECK(fake_calls[l.index].calls == 0);
    }
    probe().swallow = false;
}

TEST_CASE("a failed call is not told as done", "[doors]") {
    fake_answer = CUDA_ERROR_NOT_READY;
    const auto before = probe().told;
    CHECK(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
    CHECK(cuEventQuery(nullptr) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamSynchronize(nullptr) == CUDA_ERROR_NOT_READY);
    CHECK(cuEventRecord(nullptr, nullptr) == CUDA_ERROR_NOT_READY);
    CHECK(probe().told == before);
    // A capture is told of before it begins, and taken back.
    CHECK(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_ERROR_NOT_READY);
    CHECK((probe().told == before + 2 && std::string(probe().handler) == "capture_ended"));
    fake_answer = 0;
}

TEST_CASE("streams are named without their variant", "[doors]") {
    const auto real = reinterpret_cast<CUstream>(0x1234);
    cuMemcpyAsync(1, 2, 3, nullptr);
    CHECK(probe().stream == CU_STREAM_LEGACY);
    cuMemcpyAsync_ptsz(1, 2, 3, nullptr);
    CHECK(probe().stream == CU_STREAM_PER_THREAD);
    cuMemcpyAsync_ptsz(1, 2, 3, CU_STREAM_LEGACY);
    CHECK(probe().stream == CU_STREAM_LEGACY);
    cuMemcpyAsync_ptsz(1, 2, 3, real);
    CHECK(probe().stream == real);
    cuMemcpy(1, 2, 3);
    CHECK((probe().stream == CU_STREAM_LEGACY && probe().blocking));
    cuMemcpy_ptds(1, 2, 3);
    CHECK((probe().stream == CU_STREAM_PER_THREAD && probe().blocking));
    CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
    cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr);
    CHECK(probe().stream == CU_STREAM_PER_THREAD);
    cuStreamSynchronize_ptsz(nullptr);
    CHECK(probe().stream == CU_STREAM_PER_THREAD);
    cuGraphLaunch(nullptr, nullptr);
    CHECK(probe().stream == CU_STREAM_LEGACY);
    // Every per-thread form names the calling thread's stream when it is given none.
    for (const Linked& l : linked()) {
        const TableEntry& e = table[l.index];
        const bool named = starts(e.symbol, {"cuMemcpy", "cuMemset", "cuStreamW", "cuStreamB", "cuStreamA", "cuLaunchH", "cuMemP",
                                             "cuMemD", "cuStreamS", "cuStreamQ", "cuEventRecord", "cuStreamE", "cuFabric"});
        if (!e.per_thread || !named) continue;
        Word a[16] = {};
        if (starts(e.symbol, {"cuMemcpy2D", "cuMemcpy3D"}) && !takes_a_list(e.symbol)) a[0] = reinterpret_cast<Word>(block);
        probe().stream = nullptr;
        CAPTURE(e.symbol);
        call(l.function, a);
        CHECK(probe().stream == CU_STREAM_PER_THREAD);
    }
}

TEST_CASE("the child of a fork passes through once cuInit was called, and not before", "[doors]") {
    const auto told_in_child = [] {
        const pid_t child = fork();
        if (child == 0) {
            const auto before = probe().told;
            cuMemFree_v2(64);
            _exit(probe().told == before ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status) == 1;
    };
    // In a process of its own, where nothing was called yet.
    const pid_t fresh = fork();
    if (fresh == 0) {
        setenv("DOORS_FORK_CHILD", "1", 1);
        execl("/proc/self/exe", "doors", "[fork-child]", static_cast<char*>(nullptr));
        _exit(9);
    }
    int status = 0;
    waitpid(fresh, &status, 0);
    CHECK(WEXITSTATUS(status) == 0);
    cuInit(0);
    CHECK_FALSE(told_in_child());
    const auto before = probe().told;
    cuMemFree_v2(64);
    CHECK(probe().told == before + 1);  // the parent goes on as before
}

TEST_CASE("a fork before cuInit stays told of", "[.][fork-child]") {
    const pid_t child = fork();
    if (child == 0) {
        const auto before = probe().told;
        cuMemFree_v2(64);
        _exit(probe().told == before ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WEXITSTATUS(status) == 0);
}
