// Collectives: their buffers are accesses of one op on the call's stream, or, between ncclGroupStart and ncclGroupEnd, of one op
// that is submitted by the outermost ncclGroupEnd. What NCCL does inside (its kernels, its own memory, its own calls of its
// public names) passes through: the guard is held.
//
// Invariants
//   - The real call is the one that the caller would have reached: in its own object, in what that needs, in another preload, or
//     in a libnccl.so.2 that is loaded. The first found is kept.
//   - An op is over only when its work is in its stream: a communicator that answers "in progress" is waited for.
//   - What is captured into a graph, or registered, is told as escaping: its physical memory stays, since NCCL hands that to
//     other processes.
#include "interpose/nccl.hpp"

#include <dlfcn.h>
#include <sched.h>

#include <cstring>
#include <new>
#include <vector>

#include "interpose/internal.hpp"

namespace udnnmem::interpose {
namespace {

using Result = int;
using Comm = void*;
constexpr Result kSuccess = 0, kCudaError = 1, kSystemError = 2, kInternalError = 3, kInProgress = 7;

enum class Name : int {
#define COLLECTIVE(name, ...) name,
#define REGISTER(name, ...) name,
#include "interpose/nccl.def"
#undef COLLECTIVE
#undef REGISTER
    ncclGroupStart,
    ncclGroupEnd,
    ncclGroupSimulateEnd,
    ncclCommCount,
    ncclCommGetAsyncError,
    count
};
constexpr const char* names[] = {
#define COLLECTIVE(name, ...) #name,
#define REGISTER(name, ...) #name,
#include "interpose/nccl.def"
#undef COLLECTIVE
#undef REGISTER
    "ncclGroupStart", "ncclGroupEnd", "ncclGroupSimulateEnd", "ncclCommCount", "ncclCommGetAsyncError",
};
constinit std::atomic<void*> found[static_cast<int>(Name::count)];

// NCCL's own function, for a call from `caller`.
void* find_real(Name name, void* caller) noexcept {
    std::atomic<void*>& slot = found[static_cast<int>(name)];
    if (void* p = slot.load(std::memory_order_relaxed)) return p;
    const char* const symbol = names[static_cast<int>(name)];
    void* p = nullptr;
    Dl_info info{};
    if (dladdr(caller, &info) && info.dli_fname)
        if (void* handle = real_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) p = real_dlsym(handle, symbol);
    Dl_info own{}, at{};
    dladdr(reinterpret_cast<void*>(&find_real), &own);
    // The main program's own handle is the global scope, where we stand first.
    if (p && dladdr(p, &at) && at.dli_fbase == own.dli_fbase) p = nullptr;
    if (!p) p = real_dlsym(RTLD_NEXT, symbol);
    if (!p)
        if (void* handle = real_dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) p = real_dlsym(handle, symbol);
    if (p) slot.store(p, std::memory_order_relaxed);
    return p;
}

// Callers that were asked about: twice the address, and 1 for NCCL's.
constinit std::atomic<std::uintptr_t> callers[64];

template <class... A>
Result call(Name name, void* caller, A... arguments) noexcept {
    void* const p = find_real(name, caller);
    return p ? reinterpret_cast<Result (*)(A...)>(p)(arguments...) : kInternalError;
}

std::size_t bytes_of(int type) noexcept {  // ncclDataType_t
    constexpr std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < static_cast<int>(std::size(bytes)) ? bytes[type] : 8;
}

// Of a communicator that does not block: until what was asked of it is in its stream.
void settle(Comm comm, void* caller) noexcept {
    Result state = kInProgress;
    while (call(Name::ncclCommGetAsyncError, caller, comm, &state) == kSuccess && state == kInProgress) sched_yield();
}

struct Queued {
    CUstream stream;
    Comm comm;
    Span spans[2];
    std::size_t count;
};
// Of this thread, as NCCL's own groups are.
struct Group {
    int depth = 0;
    std::vector<Queued> calls;
};
thread_local Group group;

// An op that names `spans` around `real`, which answers in NCCL's terms.
template <class Real>
Result submit(Guard& up, const char* entry_point, CUstream stream, const Span* spans, std::size_t count, Real real) noexcept {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (REAL(cuStreamIsCapturing)(stream, &capturing) == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        for (std::size_t i = 0; i < count; ++i)
            if (spans[i].bytes && up->escaping(spans[i].address, Escape::external, entry_point) != CUDA_SUCCESS) return kCudaError;
    Result result = kCudaError;  // refused before the call was made
    tell(up, WorkKind::other, entry_point, stream, false, spans, count, [&] {
        result = real();
        return result == kSuccess || result == kInProgress ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    });
    return result;
}

// One group on several streams (several devices of one process) ends together: its first stream waits for the others, so that
// the op's end is the end of all.
void join(CUstream first, CUstream other) noexcept {
    CUcontext context = nullptr;
    CUevent event = nullptr;
    if (REAL(cuStreamGetCtx)(other, &context) != CUDA_SUCCESS || REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return;
    if (REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        if (REAL(cuEventRecord)(event, other) == CUDA_SUCCESS) REAL(cuStreamWaitEvent)(first, event, 0);
        REAL(cuEventDestroy_v2)(event);  // once it has been passed
    }
    REAL(cuCtxPopCurrent_v2)(&context);
}

template <class Real>
Result collective(Guard& up, const char* entry_point, const Queued& queued, void* caller, Real real) noexcept try {
    if (group.depth > 0) {
        group.calls.push_back(queued);
        return real();
    }
    return submit(up, entry_point, queued.stream, queued.spans, queued.count, [&] {
        const Result result = real();
        if (result == kInProgress) settle(queued.comm, caller);
        return result;
    });
} catch (const std::bad_alloc&) {
    return kSystemError;
}

Result end_group(Guard& up, void* caller) noexcept try {
    if (group.depth > 0) --group.depth;
    const auto real = [&] { return call(Name::ncclGroupEnd, caller); };
    if (group.depth > 0 || group.calls.empty()) return real();
    const std::vector<Queued> calls = std::move(group.calls);
    group.calls.clear();
    std::vector<Span> spans;
    std::vector<CUstream> streams;
    for (const Queued& c : calls) {
        spans.insert(spans.end(), c.spans, c.spans + c.count);
        bool known = false;
        for (CUstream s : streams) known |= s == c.stream;
        if (!known) streams.push_back(c.stream);
    }
    return submit(up, "ncclGroupEnd", streams[0], spans.data(), spans.size(), [&] {
        const Result result = real();
        if (result == kInProgress)
            for (const Queued& c : calls) settle(c.comm, caller);
        for (std::size_t i = 1; i < streams.size(); ++i) join(streams[0], streams[i]);
        return result;
    });
} catch (const std::bad_alloc&) {
    return kSystemError;
}

}  // namespace

#define NCCL_HOOK(name, PARAMS) extern "C" UDNNMEM_EXPORT Result name PARAMS
#define CALLER __builtin_return_address(0)
#define ARGUMENTS(...) __VA_OPT__(, ) __VA_ARGS__

#define READ(address, elements) Span{address_of(address), (elements) * element, Access::read}
#define WRITE(address, elements) Span{address_of(address), (elements) * element, Access::overwrite}
#define BOTH(address, elements) Span{address_of(address), (elements) * element, Access::read_write}
#define COLLECTIVE(name, PARAMS, ARGS, ...)                                                    \
    NCCL_HOOK(name, PARAMS) {                                                                  \
        void* const caller = CALLER;                                                           \
        auto real = [&] { return call(Name::name, caller ARGUMENTS ARGS); };                   \
        Guard up;                                                                              \
        if (!up) return real();                                                                \
        int world = 1;                                                                         \
        call(Name::ncclCommCount, caller, comm, &world);                                       \
        const std::size_t element = bytes_of(type), ranks = static_cast<std::size_t>(world);   \
        static_cast<void>(ranks);                                                              \
        const Span spans[] = {__VA_ARGS__};                                                    \
        Queued queued{legacy(stream), comm, {}, std::size(spans)};                             \
        for (std::size_t i = 0; i < std::size(spans); ++i) queued.spans[i] = spans[i];         \
        return collective(up, #name, queued, caller, real);                                    \
    }
#define REGISTER(name, PARAMS, ARGS)                                                           \
    NCCL_HOOK(name, PARAMS) {                                                                  \
        void* const caller = CALLER;                                                           \
        auto real = [&] { return call(Name::name, caller ARGUMENTS ARGS); };                   \
        Guard up;                                                                              \
        if (!up) return real();                                                                \
        if (up->escaping(address_of(buffer), Escape::external, #name) != CUDA_SUCCESS) return kCudaError; \
        return real();                                                                         \
    }
#include "interpose/nccl.def"
#undef COLLECTIVE
#undef REGISTER

NCCL_HOOK(ncclGroupStart, ()) {
    void* const caller = CALLER;
    Guard up;
    if (up) ++group.depth;
    return call(Name::ncclGroupStart, caller);
}

NCCL_HOOK(ncclGroupEnd, ()) {
    void* const caller = CALLER;
    Guard up;
    return up ? end_group(up, caller) : call(Name::ncclGroupEnd, caller);
}

// Ends a group without running it.
NCCL_HOOK(ncclGroupSimulateEnd, (void* info)) {
    void* const caller = CALLER;
    Guard up;
    if (up && group.depth > 0 && --group.depth == 0) group.calls.clear();
    return call(Name::ncclGroupSimulateEnd, caller, info);
}

namespace {

struct Hook {
    Name name;
    void* function;
};
const Hook nccl_hooks[] = {
#define COLLECTIVE(name, ...) {Name::name, reinterpret_cast<void*>(&::udnnmem::interpose::name)},
#define REGISTER(name, ...) {Name::name, reinterpret_cast<void*>(&::udnnmem::interpose::name)},
#include "interpose/nccl.def"
#undef COLLECTIVE
#undef REGISTER
    {Name::ncclGroupStart, reinterpret_cast<void*>(&ncclGroupStart)},
    {Name::ncclGroupEnd, reinterpret_cast<void*>(&ncclGroupEnd)},
    {Name::ncclGroupSimulateEnd, reinterpret_cast<void*>(&ncclGroupSimulateEnd)},
};

}  // namespace

bool is_nccl(const void* caller) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(caller);
    std::atomic<std::uintptr_t>& slot = callers[(address >> 4) % std::size(callers)];
    if (const std::uintptr_t seen = slot.load(std::memory_order_relaxed); seen >> 1 == address) return seen & 1;
    Dl_info info{};
    bool its = false;
    if (dladdr(caller, &info) && info.dli_fname) {
        const char* const slash = std::strrchr(info.dli_fname, '/');
        its = std::strncmp(slash ? slash + 1 : info.dli_fname, "libnccl.so", 10) == 0;
    }
    slot.store(address << 1 | its, std::memory_order_relaxed);
    return its;
}

void* nccl_look_up(void* handle, const char* name) noexcept {
    for (const Hook& hook : nccl_hooks) {
        if (std::strcmp(name, names[static_cast<int>(hook.name)]) != 0) continue;
        void* p = real_dlsym(handle, name);
        if (p == hook.function) p = real_dlsym(RTLD_NEXT, name);  // our own export: what would be there without us?
        if (!p) return nullptr;
        void* absent = nullptr;
        found[static_cast<int>(hook.name)].compare_exchange_strong(absent, p);
        return hook.function;
    }
    return nullptr;
}

}  // namespace udnnmem::interpose
