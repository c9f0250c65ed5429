// The real driver's entry points, for hooks and for the library's own calls. Nothing is looked up before the
// program itself reaches for CUDA; from then on every pointer is either the driver's own or null.
#pragma once

#include <cuda.h>

#include <span>
#include <string_view>

#include "interpose/own_calls.hpp"

namespace udnnmem::interpose {

// Finds the real driver if it is loaded or can be loaded (libcuda.so.1), and fills in the table behind real(). True
// if it is there with every required entry point. Thread-safe, idempotent, makes no CUDA call.
bool resolve_driver() noexcept;

// One line: why resolve_driver() said no ("" otherwise).
const char* driver_error() noexcept;

// The driver's own pointer for an exported symbol of entry_points.def ("cuMemAlloc_v2", "cuMemcpyAsync_ptsz"),
// null if this driver lacks it. Constant time is not promised: keep the answer.
void* real_symbol(const char* symbol) noexcept;

// The oldest driver that is managed.
inline constexpr int kOldestDriver = 12040;

// The symbol, if that driver has it; else it does not compile: there the call would be missed in silence.
consteval const char* of_oldest_driver(const char* symbol) {
    struct Entry {
        std::string_view symbol;
        int version;
    };
    constexpr Entry entries[] = {
#define ENTRY(symbol, base, version, ...) {#symbol, version},
#include "interpose/entry_points.def"
#undef ENTRY
    };
    for (const Entry& e : entries)
        if (e.symbol == symbol && e.version <= kOldestDriver) return symbol;
    throw "the oldest driver that is managed lacks this symbol";
}

// Typed: UDNNMEM_REAL(cuMemMap)(...). The signature is the header's for that symbol. The header's renaming macros
// apply as they do to a call: UDNNMEM_REAL(cuMemAlloc) is cuMemAlloc_v2.
#define UDNNMEM_SYMBOL_NAME(symbol) #symbol
#define UDNNMEM_REAL(symbol)                                  \
    UDNNMEM_OWN_CALL(UDNNMEM_SYMBOL_NAME(symbol), (reinterpret_cast<decltype(&::symbol)>( \
                                              ::udnnmem::interpose::real_symbol(::udnnmem::interpose::of_oldest_driver(UDNNMEM_SYMBOL_NAME(symbol))))))

// The layout of a kernel's parameters, cached by handle. Handles both CUfunction and a CUkernel cast to it.
struct KernelLayout;
const KernelLayout* kernel_layout(CUfunction) noexcept;

// Look-ups are left alone from now on, for good: what the program asks for it gets from the driver. What was handed
// out before stays (and passes through without a table). For the kill switch.
void close_doors() noexcept;

// Objects loaded from now on no longer see the exported cu* names (they bind to the driver's, or to their own data of
// that name); look-ups by dlsym and cuGetProcAddress work on. False if the pages could not be changed.
bool hide_exports() noexcept;

// Names of other libraries that the object exports beside the driver's. What holds for those holds for them: a library whose
// data is called so is kept apart, hide_exports() hides them, a look-up of all objects (RTLD_DEFAULT) finds none of ours
// that nothing stands behind, and a look-up in a library finds ours in front of that library's. Once, from a constructor; the list lives as long as the process.
struct OtherName {
    const char* symbol;
    std::span<void* const> functions;   // exported by that name, one for each version; the first is for references without one
    bool (*backed)() noexcept;          // whether there is another of that name
    void* (*in_front_of)(void* found) noexcept;   // the function that hands on to `found`, of that name: a look-up of it may answer with ours; null: none
};
void other_names(const OtherName* begin, const OtherName* end) noexcept;

// One line for each look-up (`door: dlsym cuMemAlloc_v2 -> hook`), without line end; null: none. `sink` is called
// from any thread, perhaps before main, and must not look up symbols itself.
void trace_lookups(void (*sink)(const char* line) noexcept) noexcept;

}  // namespace udnnmem::interpose
