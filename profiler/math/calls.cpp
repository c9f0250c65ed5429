#include "profiler/math/calls.hpp"

#include <dlfcn.h>

#include <atomic>
#include <iterator>

#include "profiler/math/internal.hpp"

// Ours, to be told from the library's.
#define CALL(name, ...) extern "C" udnnmem::profiler::math::api::name name;
#include "profiler/math/calls.def"
#undef CALL

namespace udnnmem::profiler::math {
namespace {

constexpr std::size_t kFunctions = static_cast<std::size_t>(Function::count);
constexpr const char* kNames[kFunctions] = {
#define CALL(name, ...) #name,
#include "profiler/math/calls.def"
#undef CALL
};
// Under the names of their releases: where a library was loaded for somebody alone, the loader's order does not reach it.
constexpr const char* kLibraries[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcudnn.so.9", "libcudnn.so.8"};

constinit std::atomic<void*> g_real[kFunctions] = {};
constinit std::atomic<bool> g_watching{false};
constinit std::atomic<std::uint64_t> g_number{0};
thread_local bool g_looking = false;   // our own look-ups come by the same door
thread_local unsigned g_depth = 0;
thread_local Call g_call;

// The first that was found stays: a second copy of the library is left to itself.
bool is_real(Function which, void* found) noexcept {
    if (g_looking) return false;
    void* known = nullptr;
    return g_real[static_cast<std::size_t>(which)].compare_exchange_strong(known, found) || known == found;
}

void* find(const char* name) noexcept {
    struct Looking {
        Looking() { g_looking = true; }
        ~Looking() { g_looking = false; }
    } looking;
    if (void* const next = ::dlsym(RTLD_NEXT, name)) return next;
    for (const char* library : kLibraries) {
        void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        if (!handle) continue;
        void* const found = ::dlsym(handle, name);
        ::dlclose(handle);  // one of the references: the program keeps its own
        if (found) return found;
    }
    return nullptr;
}

}  // namespace

void* real(Function which) noexcept {
    std::atomic<void*>& slot = g_real[static_cast<std::size_t>(which)];
    void* p = slot.load(std::memory_order_acquire);
    if (!p) slot.store(p = find(kNames[static_cast<std::size_t>(which)]), std::memory_order_release);
    return p;
}

void* beside(Function which, const char* name) noexcept {
    Dl_info info{};
    void* const p = real(which);
    void* const handle = p && ::dladdr(p, &info) && info.dli_fname ? ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    if (!handle) return nullptr;
    void* const found = ::dlsym(handle, name);
    ::dlclose(handle);
    return found;
}

bool watching() noexcept { return g_watching.load(std::memory_order_relaxed); }
void watch(bool on) noexcept { g_watching.store(on); }
Call current() noexcept { return g_call; }

As::As(const Call& call) noexcept : before_(g_call) { g_call = call; }
As::~As() { g_call = before_; }
std::uint64_t take_numbers(std::uint64_t count) noexcept { return g_number.fetch_add(count, std::memory_order_relaxed) + 1; }

unsigned& Bracket::depth() noexcept { return g_depth; }
void Bracket::begin(const char* name, double flops) noexcept {
    if (flops > 0) g_call = {name, flops, g_number.fetch_add(1, std::memory_order_relaxed) + 1};
}
void Bracket::end() noexcept { g_call = {}; }

std::span<const Export> exports() noexcept {
    static const Export list[] = {
#define CALL(name, ...) {#name, reinterpret_cast<void*>(&::name), []() noexcept { return real(Function::name) != nullptr; }, [](void* found) noexcept { return is_real(Function::name, found); }},
#include "profiler/math/calls.def"
#undef CALL
    };
    return list;
}

}  // namespace udnnmem::profiler::math
