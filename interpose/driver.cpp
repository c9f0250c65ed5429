// Where the real driver is, and its pointers. The driver is whatever libcuda the process uses: one that is loaded
// (by name, or by any path, seen when the program asks it for a symbol), else the one that the loader finds.
//
// Invariants
//   - No locks: every thread that gets here computes the same answers, and the first handle found stays for good.
//     So a fork in the middle leaves nothing locked in the child.
//   - A slot holds only what a look-up on the driver's handle answers (its own function, or that of another preload
//     that stands before it): never our exports.
#include "interpose/internal.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

namespace udnnmem::interpose {

constinit std::atomic<void*> slots[symbol_count];
constinit State state;
constinit std::atomic<bool> doors_closed{false};
constinit std::atomic<TraceSink> trace_sink{nullptr};

namespace {

constinit std::atomic<void*> driver_handle{nullptr};
constinit std::atomic<bool> filled{false};
constinit std::atomic<const char*> missing_symbol{nullptr};

// The next in line: another preload's that comes after us, else the loader's. Called from here, RTLD_NEXT means past us.
void* loader_function(const char* name) noexcept {
    using Lookup = void* (*)(void*, const char*);
    auto look_up = reinterpret_cast<Lookup>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    if (look_up == nullptr) look_up = reinterpret_cast<Lookup>(dlvsym(RTLD_NEXT, "dlsym", OLD_GLIBC));
    return look_up(RTLD_NEXT, name);
}

void* cached(std::atomic<void*>& slot, const char* name) noexcept {
    void* p = slot.load(std::memory_order_relaxed);
    if (p == nullptr) slot.store(p = loader_function(name), std::memory_order_relaxed);
    return p;
}

void fill(void* handle) noexcept {
    for (std::size_t i = 0; i < symbol_count; ++i) {
        void* p = real_dlsym(handle, entry_points[i].symbol);
        if (p != nullptr) slots[i].store(p, std::memory_order_relaxed);
        if (p == nullptr && entry_points[i].need == Need::required) missing_symbol.store(entry_points[i].symbol);
    }
    filled.store(true, std::memory_order_release);
}

void* loaded_driver() noexcept {
    for (const char* name : {"libcuda.so.1", "libcuda.so"})
        if (void* handle = real_dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return handle;
    return nullptr;
}

// Makes `handle` the driver unless there is one; the first stays.
void adopt(void* handle) noexcept {
    void* expected = nullptr;
    if (driver_handle.compare_exchange_strong(expected, handle)) {
        fill(handle);
    } else if (!filled.load(std::memory_order_acquire)) {
        fill(expected);
    }
}

bool find_driver(bool load) noexcept {
    if (filled.load(std::memory_order_acquire)) return true;
    void* handle = loaded_driver();
    if (handle == nullptr && load) handle = real_dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) adopt(handle);
    return filled.load(std::memory_order_acquire);
}

const char* file_part(const char* path) noexcept {
    const char* slash = std::strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool drivers_name(const char* name) noexcept { return std::strncmp(file_part(name), "libcuda.so", 10) == 0; }

// A libcuda by its soname or file name, else by what only a driver exports as functions. Data of a driver function's
// name does not count, nor does our own object.
bool looks_like_driver(void* pointer, const char** path) noexcept {
    Dl_info info{}, own{};
    link_map* map = nullptr;
    ElfW(Sym)* symbol = nullptr;
    if (!dladdr1(pointer, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) || info.dli_fname == nullptr) return false;
    if (symbol != nullptr && ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT) return false;
    dladdr(reinterpret_cast<const void*>(&looks_like_driver), &own);
    if (own.dli_fbase == info.dli_fbase) return false;
    *path = info.dli_fname;
    if (drivers_name(info.dli_fname)) return true;
    if (!dladdr1(pointer, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) || map == nullptr) return false;
    const char* strings = nullptr;
    std::size_t soname = 0;
    for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
        if (d->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
        if (d->d_tag == DT_SONAME) soname = d->d_un.d_val;
    }
    if (strings != nullptr && soname != 0 && drivers_name(strings + soname)) return true;
    void* handle = real_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return false;
    bool all = true;
    for (const char* name : {"cuGetProcAddress_v2", "cuGetExportTable", "cuDriverGetVersion"}) {
        Dl_info at{};
        void* p = real_dlsym(handle, name);
        all = all && p != nullptr && dladdr1(p, &at, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) &&
              at.dli_fbase == info.dli_fbase && symbol != nullptr && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
    }
    dlclose(handle);
    return all;
}

CUresult answer_no_device() noexcept { return CUDA_ERROR_NO_DEVICE; }
CUresult answer_not_initialised() noexcept { return CUDA_ERROR_NOT_INITIALIZED; }
CUresult answer_not_found() noexcept { return CUDA_ERROR_NOT_FOUND; }

}  // namespace

void* real_dlsym_address() noexcept {
    static constinit std::atomic<void*> slot{nullptr};
    return cached(slot, "dlsym");
}

void* real_dlopen_address() noexcept {
    static constinit std::atomic<void*> slot{nullptr};
    return cached(slot, "dlopen");
}

void* real_dlsym(void* handle, const char* name) noexcept {
    return reinterpret_cast<void* (*)(void*, const char*)>(real_dlsym_address())(handle, name);
}

void* real_dlopen(const char* file, int flags) noexcept {
    return reinterpret_cast<void* (*)(const char*, int)>(real_dlopen_address())(file, flags);
}

bool driver_is_loaded() noexcept { return find_driver(false); }

bool is_drivers(Symbol symbol, void* pointer) noexcept {
    if (!filled.load(std::memory_order_acquire)) {
        const char* path = nullptr;
        if (!looks_like_driver(pointer, &path)) return false;
        void* handle = real_dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (handle == nullptr) return false;
        adopt(handle);
    }
    return slots[static_cast<std::size_t>(symbol)].load(std::memory_order_relaxed) == pointer;
}

// The answers take no arguments and are called with some: harmless with the calling conventions that we build for.
void* fill_slot(Symbol symbol) noexcept {
    const bool found = find_driver(true);
    if (void* p = slots[static_cast<std::size_t>(symbol)].load(std::memory_order_relaxed)) return p;
    if (found) return reinterpret_cast<void*>(&answer_not_found);
    return reinterpret_cast<void*>(symbol == Symbol::cuInit ? &answer_no_device : &answer_not_initialised);
}

bool driver_has(Symbol symbol) noexcept {
    return find_driver(true) && slots[static_cast<std::size_t>(symbol)].load(std::memory_order_relaxed) != nullptr;
}

bool resolve_driver() noexcept { return find_driver(true) && missing_symbol.load() == nullptr; }

const char* driver_error() noexcept {
    static thread_local char line[160];
    if (!find_driver(true)) return "libcuda.so.1 cannot be loaded: is an NVIDIA driver installed?";
    const char* missing = missing_symbol.load();
    if (missing == nullptr) return "";
    std::snprintf(line, sizeof line, "the driver lacks %s: needs a driver of CUDA 12.4 or later", missing);
    return line;
}

void* real_symbol(const char* name) noexcept {
    if (!find_driver(true)) return nullptr;
    const Symbol symbol = find_symbol(name);
    if (symbol != Symbol::none) return slots[static_cast<std::size_t>(symbol)].load(std::memory_order_relaxed);
    return real_dlsym(driver_handle.load(), name);
}

void install(const Handlers* handlers) noexcept { state.handlers.store(handlers, std::memory_order_release); }

void hold_guard_for_life() noexcept { ++guard_depth; }

void close_doors() noexcept { doors_closed.store(true); }

void trace_lookups(void (*sink)(const char*) noexcept) noexcept { trace_sink.store(sink); }

void trace_lookup(const char* door, const char* name, int version, long flags, bool hooked) noexcept {
    const TraceSink sink = trace_sink.load(std::memory_order_relaxed);
    if (sink == nullptr) return;
    char line[256];
    if (version > 0)
        std::snprintf(line, sizeof line, "door: %s %s %d %ld -> %s", door, name, version, flags, hooked ? "hook" : "pass");
    else
        std::snprintf(line, sizeof line, "door: %s %s -> %s", door, name, hooked ? "hook" : "pass");
    sink(line);
}

void wipe_state_in_children() noexcept {
    static constinit std::atomic<bool> done{false};
    if (done.exchange(true)) return;
    if (madvise(&state, sizeof state, MADV_WIPEONFORK) != 0)  // Linux before 4.14
        pthread_atfork(nullptr, nullptr, [] { state.handlers.store(nullptr); });
}

}  // namespace udnnmem::interpose
