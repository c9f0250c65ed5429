// dlopen, for the sake of libraries whose own data is named like the driver's functions (a loader's table of function
// pointers): bound to our exports, such data is our code, and the first write to it is a crash. They are loaded with
// RTLD_DEEPBIND, so that their own names come first for them.
//
// Invariants
//   - Whatever else is loaded is loaded as the program asked, by a jump from the program's own frame: the loader finds
//     the caller's own search path.
//   - Seen are libraries opened by a path, and what those need beside them. A bare name is out of sight: hide_exports()
//     is for that. So is a library that the program is linked with, which is bound before any code of ours has run:
//     libudnnmem-hidden.so is for that.
#include "interpose/internal.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>

#include "interpose/elf_file.hpp"

namespace udnnmem::interpose {
namespace {

constinit std::atomic<bool> exports_hidden{false};
constexpr std::size_t max_files = 64;

bool defines_our_names(const ElfFile& file) noexcept {
    for (std::size_t i = 0; i < symbol_count; ++i)
        if (hooks[i] != nullptr && file.defines_data(entry_points[i].symbol)) return true;
    const OtherName* const end = others_end.load(std::memory_order_acquire);
    for (const OtherName* other = others_begin.load(std::memory_order_relaxed); other != end; ++other)
        if (file.defines_data(other->symbol)) return true;
    return false;
}

// The library or one that comes with it.
bool brings_our_names(const char* path) {
    std::vector<std::string> files{path};
    std::set<std::string> seen{path};
    for (std::size_t i = 0; i < files.size() && i < max_files; ++i) {
        const ElfFile file(files[i]);
        if (defines_our_names(file)) return true;
        const auto folders = file.search_folders();
        for (const std::string& name : file.needed())
            for (const std::string& folder : folders) {
                std::string candidate = folder + "/" + name;
                if (access(candidate.c_str(), R_OK) != 0) continue;
                if (seen.insert(candidate).second) files.push_back(std::move(candidate));
                break;
            }
    }
    return false;
}

// `all`: false if it was not in the table. The answer: false if the table's page could not be changed.
bool hide(void* function, const char* name, bool& all) noexcept {
    const long page = sysconf(_SC_PAGESIZE);
    Dl_info info{};
    ElfW(Sym)* symbol = nullptr;
    if (!dladdr1(function, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) || !symbol || !info.dli_sname || std::strcmp(info.dli_sname, name) != 0) {
        all = false;
        return true;
    }
    const auto first = reinterpret_cast<std::uintptr_t>(symbol) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(symbol + 1);
    if (mprotect(reinterpret_cast<void*>(first), end - first, PROT_READ | PROT_WRITE) != 0) return false;
    symbol->st_shndx = SHN_UNDEF;
    symbol->st_value = 0;
    mprotect(reinterpret_cast<void*>(first), end - first, PROT_READ);
    return true;
}

}  // namespace

// Two registers: the loader's function, and the flags for it.
struct Loading {
    void* function;
    std::uintptr_t flags;
};

extern "C" __attribute__((visibility("hidden"), used)) Loading udnnmem_door_dlopen(const char* file, int flags) noexcept {
    if (deep_load_pending) [[unlikely]] take_up_deep_load();
    Loading loading{real_dlopen_address(), static_cast<std::uintptr_t>(static_cast<unsigned>(flags))};
    const bool sees_us = file != nullptr && std::strchr(file, '/') && !(flags & (RTLD_NOLOAD | RTLD_DEEPBIND)) &&
                         !exports_hidden.load(std::memory_order_relaxed);
    if (sees_us && brings_our_names(file)) {
        loading.flags |= RTLD_DEEPBIND;
        trace_lookup("dlopen", file, 0, 0, false);
    }
    if (file != nullptr && (loading.flags & RTLD_DEEPBIND) && !(flags & RTLD_NOLOAD)) deep_load_begins();
    return loading;
}

// Takes the names out of our own symbol table, in memory: the loader then looks further.
bool hide_exports() noexcept {
    bool all = true;
    for (std::size_t i = 0; i < symbol_count; ++i)
        if (hooks[i] != nullptr && !hide(hooks[i], entry_points[i].symbol, all)) return false;
    const OtherName* const end = others_end.load(std::memory_order_acquire);
    for (const OtherName* other = others_begin.load(std::memory_order_relaxed); other != end; ++other)
        for (void* const function : other->functions)
            if (!hide(function, other->symbol, all)) return false;
    exports_hidden.store(true);
    return all;
}

}  // namespace udnnmem::interpose

#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl udnnmem_dlopen
    .type udnnmem_dlopen, @function
udnnmem_dlopen:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    call udnnmem_door_dlopen
    popq %rdi
    .cfi_adjust_cfa_offset -8
    movl %edx, %esi
    jmp *%rax
    .cfi_endproc
    .size udnnmem_dlopen, .-udnnmem_dlopen
)" LOADER_VERSIONS("dlopen"));
#elif defined(__aarch64__)
asm(R"(
    .text
    .p2align 4
    .globl udnnmem_dlopen
    .type udnnmem_dlopen, %function
udnnmem_dlopen:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    str x0, [sp, #16]
    bl udnnmem_door_dlopen
    mov x16, x0
    ldr x0, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size udnnmem_dlopen, .-udnnmem_dlopen
)" LOADER_VERSIONS("dlopen"));
#endif
