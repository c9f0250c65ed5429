// What the parts of interpose/ share: the entry points by number, the driver's own pointers, the table of handlers
// in force, and the recursion guard.
//
// Invariants
//   - Everything here works before any constructor has run and after every destructor has: dlsym is called by
//     everybody. State is constant-initialised, read without locks, and never torn down.
//   - Handlers are seen by a process that itself called cuInit or has not called it yet. A child forked after cuInit
//     (CUDA does not survive a fork) finds the handlers wiped by the kernel and passes through.
//   - A slot is null until the driver is found, then the driver's own pointer or null for good.
#pragma once

#include "interpose/cuda_symbols.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "interpose/driver.hpp"
#include "interpose/handlers.hpp"

namespace udnnmem::interpose {

// ---- entry points -------------------------------------------------------------------------------------------------
enum class Symbol : std::uint16_t {
#define ENTRY(symbol, ...) symbol,
#include "interpose/entry_points.def"
#undef ENTRY
    count,
    none = count
};
inline constexpr std::size_t symbol_count = static_cast<std::size_t>(Symbol::count);

enum class Flavour : std::uint8_t { legacy, per_thread };
enum class Class : std::uint8_t { manage, observe, pass, refuse };
enum class Need : std::uint8_t { required, optional };
struct EntryPoint {
    const char* symbol;
    const char* base;
    int version;
    Flavour flavour;
    Class kind;
    Need need;
};
extern const EntryPoint entry_points[symbol_count];       // in the order of Symbol, sorted by symbol
extern void* const hooks[symbol_count];                   // null for `pass`
Symbol find_symbol(const char* symbol) noexcept;          // none: not in the table
// The latest version of which the table says everything.
inline constexpr int newest_version = [] {
    int newest = 0;
#define ENTRY(symbol, base, version, ...) newest = version > newest ? version : newest;
#include "interpose/entry_points.def"
#undef ENTRY
    return newest;
}();
// The symbol that cuGetProcAddress(base, version, flavour) means: of the largest version not above; none.
Symbol find_version(const char* base, int version, Flavour) noexcept;
// The symbol of that base name whose driver pointer it is. Where several share the pointer, what was asked for decides.
Symbol find_pointer(const char* base, const void* pointer, int version, Flavour) noexcept;

// ---- the driver's own pointers --------------------------------------------------------------------------------------
extern constinit std::atomic<void*> slots[symbol_count];
void* fill_slot(Symbol) noexcept;  // finds the driver; a function that answers with an error where there is none

template <class Function>
[[gnu::always_inline]] inline Function real_function(Symbol symbol) noexcept {
    void* p = slots[static_cast<std::size_t>(symbol)].load(std::memory_order_relaxed);
    if (p == nullptr) [[unlikely]] p = fill_slot(symbol);
    return reinterpret_cast<Function>(p);
}
// The driver's function for an exported symbol; never null.
#define REAL(symbol) (::udnnmem::interpose::real_function<decltype(&::symbol)>(::udnnmem::interpose::Symbol::symbol))
// The same for what the program did not ask for.
#define OWN(symbol) UDNNMEM_OWN_CALL(#symbol, REAL(symbol))
// Whether the driver has it.
bool driver_has(Symbol) noexcept;

// The loader's functions as this library finds them: the next preload's that has its own, else the loader's.
extern constinit std::atomic<const OtherName*> others_begin, others_end;
void* real_dlsym_address() noexcept;
void* real_dlopen_address() noexcept;
void* real_dlsym(void* handle, const char* name) noexcept;
void* real_dlopen(const char* file, int flags) noexcept;
#if defined(__aarch64__)
#define OLD_GLIBC "GLIBC_2.17"
#else
#define OLD_GLIBC "GLIBC_2.2.5"
#endif
// Exports udnnmem_NAME as the loader's NAME in each of its versions: the first that this platform had, and the one since
// it moved into libc. Requests without a version get the latter.
#define LOADER_VERSIONS(name)                                      \
    ".symver udnnmem_" name ", " name "@@GLIBC_2.34\n"             \
    ".globl udnnmem_old_" name "\n"                                \
    ".set udnnmem_old_" name ", udnnmem_" name "\n"                \
    ".symver udnnmem_old_" name ", " name "@" OLD_GLIBC "\n"

// Libraries loaded with RTLD_DEEPBIND (deep_binding.cpp): one is about to be, by this thread; it may be there now.
extern constinit thread_local bool deep_load_pending [[gnu::tls_model("initial-exec")]];
void deep_load_begins() noexcept;
void take_up_deep_load() noexcept;

// An object that a program found by itself: if `pointer` is a function of a CUDA driver, that driver becomes ours
// (the first one found stays). True if it is `symbol` of our driver.
bool is_drivers(Symbol symbol, void* pointer) noexcept;
bool driver_is_loaded() noexcept;  // without loading it

// ---- handlers in force ----------------------------------------------------------------------------------------------
#if defined(__aarch64__)
inline constexpr std::size_t page_bytes = 65536;
#else
inline constexpr std::size_t page_bytes = 4096;
#endif
// Alone on its page, which the kernel wipes in a forked child once cuInit has been called.
struct alignas(page_bytes) State {
    std::atomic<const Handlers*> handlers{nullptr};
};
extern constinit State state;
extern constinit std::atomic<bool> doors_closed;
void wipe_state_in_children() noexcept;

using TraceSink = void (*)(const char*) noexcept;
extern constinit std::atomic<TraceSink> trace_sink;
void trace_lookup(const char* door, const char* name, int version, long flags, bool hooked) noexcept;

// ---- the recursion guard ------------------------------------------------------------------------------------------
inline constinit thread_local unsigned guard_depth [[gnu::tls_model("initial-exec")]] = 0;

// At the top of every hook: true and a handler table where the call is the program's own, else pass through.
class Guard {
  public:
    Guard() noexcept : handlers_(guard_depth ? nullptr : state.handlers.load(std::memory_order_acquire)) {
        if (handlers_) ++guard_depth;
    }
    ~Guard() {
        if (handlers_) --guard_depth;
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    explicit operator bool() const noexcept { return handlers_ != nullptr; }
    const Handlers* operator->() const noexcept { return handlers_; }

  private:
    const Handlers* handlers_;
};

// ---- how a hook is written ------------------------------------------------------------------------------------------
#define UDNNMEM_EXPORT __attribute__((visibility("default")))
#define HOOK(symbol, PARAMS) extern "C" UDNNMEM_EXPORT CUresult CUDAAPI symbol PARAMS

// The program's stream without its variant.
template <Flavour flavour>
constexpr CUstream stream_named(CUstream s) noexcept {
    if (s != nullptr) return s;
    return flavour == Flavour::per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}
inline CUstream legacy(CUstream s) noexcept { return stream_named<Flavour::legacy>(s); }
inline CUstream per_thread(CUstream s) noexcept { return stream_named<Flavour::per_thread>(s); }

inline CUdeviceptr address_of(const void* p) noexcept { return reinterpret_cast<CUdeviceptr>(p); }

// Tells of work that is described by its spans alone.
inline CUresult tell(Guard& up, WorkKind kind, const char* entry_point, CUstream stream, bool blocking, const Span* spans,
                     std::size_t count, Submit submit) noexcept {
    Work work;
    work.kind = kind;
    work.entry_point = entry_point;
    work.stream = stream;
    work.blocking = blocking;
    work.spans = spans;
    work.span_count = static_cast<std::uint32_t>(count);
    return up->work(work, submit);
}

// One line a form: WORK(kind, symbol, (parameters), (arguments), stream, blocking, spans...). Not for hooks whose
// parameters must be read to know the spans.
#define WORK(KIND, symbol, PARAMS, ARGS, STREAM, BLOCKING, ...)                                                        \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        const Span spans[] = {__VA_ARGS__};                                                                            \
        return tell(up, WorkKind::KIND, #symbol, STREAM, BLOCKING, spans, std::size(spans), real);                     \
    }
// Both stream flavours of a form that is synchronous, and of one that names `stream`.
#define SYNC_WORK(KIND, symbol, PARAMS, ARGS, ...)                                                                     \
    WORK(KIND, symbol, PARAMS, ARGS, CU_STREAM_LEGACY, true, __VA_ARGS__)                                              \
    WORK(KIND, symbol##_ptds, PARAMS, ARGS, CU_STREAM_PER_THREAD, true, __VA_ARGS__)
#define ASYNC_WORK(KIND, symbol, PARAMS, ARGS, ...)                                                                    \
    WORK(KIND, symbol, PARAMS, ARGS, legacy(stream), false, __VA_ARGS__)                                               \
    WORK(KIND, symbol##_ptsz, PARAMS, ARGS, per_thread(stream), false, __VA_ARGS__)

// A call that is made as it is; `AFTER` runs with `up` in hand once it has succeeded.
#define OBSERVE(symbol, PARAMS, ARGS, AFTER)                                                                           \
    HOOK(symbol, PARAMS) {                                                                                             \
        Guard up;                                                                                                      \
        const CUresult result = REAL(symbol) ARGS;                                                                     \
        if (up && result == CUDA_SUCCESS) { AFTER; }                                                                   \
        return result;                                                                                                 \
    }

// A stream that is made or about to go: told also where it happens within another call (a communicator's end destroys its streams).
#define STREAM_MADE(symbol, PARAMS, ARGS, STREAM, GREEN)                                                               \
    HOOK(symbol, PARAMS) {                                                                                             \
        const CUresult result = REAL(symbol) ARGS;                                                                     \
        const Handlers* const up = result == CUDA_SUCCESS ? state.handlers.load(std::memory_order_acquire) : nullptr;  \
        if (up) up->stream_created(STREAM, GREEN);                                                                     \
        return result;                                                                                                 \
    }
#define STREAM_GOES(symbol)                                                                                            \
    HOOK(symbol, (CUstream stream)) {                                                                                  \
        if (const Handlers* const up = state.handlers.load(std::memory_order_acquire)) up->stream_destroying(stream);  \
        return REAL(symbol)(stream);                                                                                   \
    }

// The same for what interpose itself must know, also while no handlers are installed.
#define ALWAYS_OBSERVE(symbol, PARAMS, ARGS, AFTER)                                                                    \
    HOOK(symbol, PARAMS) {                                                                                             \
        const CUresult result = REAL(symbol) ARGS;                                                                     \
        if (result == CUDA_SUCCESS) { AFTER; }                                                                         \
        return result;                                                                                                 \
    }

// ... of a call for which the driver takes device memory of its own, so many bytes as are known: what the program has freed serves it too.
#define ALWAYS_OBSERVE_TAKING(BYTES, symbol, PARAMS, ARGS, AFTER)                                                      \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        const CUresult result = [&] {                                                                                  \
            Guard up;                                                                                                  \
            return up ? up->take_unmanaged(-1, BYTES, real) : real();                                                  \
        }();                                                                                                           \
        if (result == CUDA_SUCCESS) { AFTER; }                                                                         \
        return result;                                                                                                 \
    }

}  // namespace udnnmem::interpose
