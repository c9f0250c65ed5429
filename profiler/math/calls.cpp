#include "profiler/math/calls.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "profiler/math/internal.hpp"

// Ours, to be told from the library's.
#define DECLARATION(release, version, name) extern "C" udnnmem::profiler::math::api::name MATH_NAME(name, release);
#define CALL(library, name, ...) library##_RELEASES(DECLARATION, name)
#include "profiler/math/calls.def"
#undef CALL
#undef DECLARATION

namespace udnnmem::profiler::math {
namespace {

struct Known {
    const char* name;
    const char* version;
    bool any() const noexcept { return *version == '@'; }
};
constexpr Known kKnown[] = {
#define ROW(release, version, name) {#name, version},
#define CALL(library, name, ...) library##_RELEASES(ROW, name)
#include "profiler/math/calls.def"
#undef CALL
#undef ROW
};
constexpr std::size_t kFunctions = std::size(kKnown);
// Under the names of their releases: where a library was loaded for somebody alone, the loader's order does not reach it.
constexpr const char* kLibraries[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcudnn.so.9", "libcudnn.so.8"};

constinit std::atomic<void*> g_real[kFunctions] = {};
constinit std::atomic<bool> g_watching{false};
constinit std::atomic<std::uint64_t> g_number{0};
thread_local bool g_looking = false;   // our own look-ups come by the same door
thread_local unsigned g_depth = 0;
thread_local Call g_call;

struct Looking {
    Looking() { g_looking = true; }
    ~Looking() {
        g_looking = false;
        ::dlerror();  // what was not found is nobody's error
    }
};

std::span<void* const> ours() noexcept {
    static void* const list[] = {
#define ADDRESS(release, version, name) reinterpret_cast<void*>(&::MATH_NAME(name, release)),
#define CALL(library, name, ...) library##_RELEASES(ADDRESS, name)
#include "profiler/math/calls.def"
#undef CALL
#undef ADDRESS
    };
    return list;
}

// A function, and a reference to its library.
struct Found {
    void* function = nullptr;
    void* library = nullptr;
};

Found in(const char* library, const char* name, const char* version = nullptr) noexcept {
    void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return {};
    if (void* const function = version ? ::dlvsym(handle, name, version) : ::dlsym(handle, name)) return {function, handle};
    ::dlclose(handle);
    return {};
}

Found with_library(void* function) noexcept {
    Dl_info info{};
    if (!function || !::dladdr(function, &info) || !info.dli_fname) return {function};
    return {function, ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)};
}

// In any object, or what came with it: packages bring copies under sonames of their own, for themselves alone. But not ours,
// which is such a function too.
Found in_any(const char* name, const char* version, void* ours) noexcept {
    try {
        std::vector<std::string> objects;
        const auto note = [](dl_phdr_info* info, std::size_t, void* to) {
            try {
                if (info->dlpi_name && *info->dlpi_name) static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
                return 0;
            } catch (const std::bad_alloc&) {
                return 1;
            }
        };
        ::dl_iterate_phdr(note, &objects);
        for (const std::string& object : objects) {
            const Found found = in(object.c_str(), name, version);
            if (found.function && found.function != ours) return found;
            if (found.library) ::dlclose(found.library);
        }
    } catch (const std::bad_alloc&) {
    }
    return {};
}

Found find(std::size_t which) noexcept {
    const auto [name, version] = kKnown[which];
    if (kKnown[which].any()) {
        if (const Found found = with_library(::dlsym(RTLD_NEXT, name)); found.function) return found;
        for (const char* library : kLibraries)
            if (const Found found = in(library, name); found.function) return found;
        return {};
    }
    if (const Found found = in(version, name); found.function) return found;
    if (const Found found = with_library(::dlvsym(RTLD_NEXT, name, version)); found.function) return found;
    if (const Found found = in_any(name, version, ours()[which]); found.function) return found;
    return with_library(::dlsym(RTLD_NEXT, name));
}

// Of the functions of that name, ours for what a look-up has found; null: a copy of the library that none of them leads to.
void* in_front_of(Function any, void* function) noexcept {
    if (g_looking) return nullptr;
    const Looking looking;
    const auto first = static_cast<std::size_t>(any);
    std::size_t end = first + 1;
    while (end < kFunctions && !kKnown[end].any()) ++end;
    for (std::size_t i = end; i-- > first;) {
        void* known = g_real[i].load(std::memory_order_acquire);
        if (!known) {  // before the first call the library may still go
            const Found found = kKnown[i].any() ? find(i) : in(kKnown[i].version, kKnown[i].name);
            if (found.library) ::dlclose(found.library);
            known = found.function;
        }
        if (known == function) return ours()[i];
    }
    return nullptr;
}

}  // namespace

void* real(Function which) noexcept {
    const auto i = static_cast<std::size_t>(which);
    void* p = g_real[i].load(std::memory_order_acquire);
    if (p) return p;
    const Looking looking;
    // The reference is kept: the program may let go of the library.
    const Found found = find(i);
    g_real[i].store(found.function, std::memory_order_release);
    return found.function;
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
#define ONE(...) +1
    static const Export list[] = {
#define CALL(library, name, ...)                                                                       \
    {#name, ours().subspan(static_cast<std::size_t>(Function::name##_any), library##_RELEASES(ONE, )), \
     []() noexcept { return real(Function::name##_any) != nullptr; },                                  \
     [](void* found) noexcept { return in_front_of(Function::name##_any, found); }},
#include "profiler/math/calls.def"
#undef CALL
    };
#undef ONE
    return list;
}

}  // namespace udnnmem::profiler::math
