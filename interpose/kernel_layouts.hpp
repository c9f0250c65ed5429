// The parameter layouts of kernels by handle. Asked at every launch: a look-up is a lock-free read of an open hash
// table; only a handle never seen before takes the lock and asks the driver.
//
// Invariants
//   - A slot's key never changes once set; its value is set after the key and becomes null when modules or contexts end
//     (the handle may come back for another kernel: then it is asked again and set anew).
//   - Layouts live as long as the process and are shared by equal kernels, so that loading and unloading the same
//     code for ever costs no memory.
#pragma once

#include "interpose/internal.hpp"

namespace udnnmem::interpose {

struct LayoutSlot {
    std::atomic<CUfunction> key{nullptr};
    std::atomic<const KernelLayout*> value{nullptr};
};
struct LayoutTable {
    std::size_t mask;
    LayoutSlot* slots;
};
extern constinit std::atomic<const LayoutTable*> layout_table;
const KernelLayout* ask_layout(CUfunction) noexcept;

inline std::size_t layout_hash(CUfunction f) noexcept {
    const auto x = reinterpret_cast<std::uintptr_t>(f) * 0x9E3779B97F4A7C15ull;
    return static_cast<std::size_t>(x >> 32);
}

// Never null; `known` is false where nobody can say.
inline const KernelLayout* layout_of(CUfunction f) noexcept {
    if (const LayoutTable* t = layout_table.load(std::memory_order_acquire)) [[likely]] {
        for (std::size_t i = layout_hash(f) & t->mask;; i = (i + 1) & t->mask) {
            const CUfunction key = t->slots[i].key.load(std::memory_order_acquire);
            if (key == f) {
                if (const KernelLayout* value = t->slots[i].value.load(std::memory_order_acquire)) return value;
                break;
            }
            if (key == nullptr) break;
        }
    }
    return ask_layout(f);
}

// Births and deaths, told by the hooks.
void kernel_born(CUkernel, CUlibrary, const char* name) noexcept;  // not a CUfunction by birth
void function_born(CUfunction, CUmodule, const char* name) noexcept;
// Before the end of a module, a library or a context: every handle is asked again. Not after it: by then another thread may have
// been given a handle that died.
void forget_layouts() noexcept;

}  // namespace udnnmem::interpose
