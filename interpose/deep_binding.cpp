// Libraries that are loaded with RTLD_DEEPBIND (Taichi's, and those of loading.cpp) are bound to what comes with them before
// anything that was preloaded: to the loader's own dlsym and dlopen. So what they look up of the driver would be the driver's.
// Here those two are bound to ours, once such libraries are there.
//
// Invariants
//   - Only libraries that came with such a load are touched, and of them only references to dlsym and dlopen that are, or would
//     be, bound to the loader's. Another preload's, or one of their own, stay.
//   - It happens at the next dlsym or dlopen of the thread that loaded them, or of their constructors: until then no code of
//     theirs can be bound to us. Python looks a module's first function up as soon as it is loaded.
#include "interpose/internal.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace udnnmem::interpose {

constinit thread_local bool deep_load_pending [[gnu::tls_model("initial-exec")]] = false;

extern "C" {
void udnnmem_dlsym();    // the doors
void udnnmem_dlopen();
}

namespace {

#if defined(__aarch64__)
constexpr unsigned kSlots[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT};
#else
constexpr unsigned kSlots[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT};
#endif

using Addresses = std::vector<ElfW(Addr)>;
constinit thread_local Addresses* before_deep_load [[gnu::tls_model("initial-exec")]] = nullptr;   // of the objects that were there

// An object of the process, by what the loader says of it.
struct Loaded {
    ElfW(Addr) base = 0, first = 0, end = 0, relro = 0, relro_end = 0;
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    const ElfW(Rela)* tables[2] = {};
    std::size_t bytes[2] = {};

    explicit Loaded(const dl_phdr_info& info) noexcept : base(info.dlpi_addr), first(~ElfW(Addr){0}) {
        const ElfW(Dyn)* dynamic = nullptr;
        for (int i = 0; i < info.dlpi_phnum; ++i) {
            const ElfW(Phdr)& p = info.dlpi_phdr[i];
            if (p.p_type == PT_LOAD) first = std::min(first, base + p.p_vaddr), end = std::max(end, base + p.p_vaddr + p.p_memsz);
            if (p.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + p.p_vaddr);
            if (p.p_type == PT_GNU_RELRO) relro = base + p.p_vaddr, relro_end = relro + p.p_memsz;
        }
        bool with_addends = false;
        for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
            // The loader has put the base in, as a rule.
            const ElfW(Addr) at = dynamic->d_un.d_ptr < base ? base + dynamic->d_un.d_ptr : dynamic->d_un.d_ptr;
            switch (dynamic->d_tag) {
                case DT_SYMTAB: symbols = reinterpret_cast<const ElfW(Sym)*>(at); break;
                case DT_STRTAB: strings = reinterpret_cast<const char*>(at); break;
                case DT_JMPREL: tables[0] = reinterpret_cast<const ElfW(Rela)*>(at); break;
                case DT_PLTRELSZ: bytes[0] = dynamic->d_un.d_val; break;
                case DT_PLTREL: with_addends = dynamic->d_un.d_val == DT_RELA; break;
                case DT_RELA: tables[1] = reinterpret_cast<const ElfW(Rela)*>(at); break;
                case DT_RELASZ: bytes[1] = dynamic->d_un.d_val; break;
                default: break;
            }
        }
        if (!with_addends) tables[0] = nullptr;
    }
};

void write_slot(const Loaded& object, void** slot, void* function) noexcept {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<std::uintptr_t>(slot), first = at / page * page, end = at + sizeof *slot;
    // The loader protects the whole pages of what it was to protect.
    const bool sealed = at >= object.relro / page * page && at < object.relro_end / page * page;
    if (sealed && mprotect(reinterpret_cast<void*>(first), end - first, PROT_READ | PROT_WRITE) != 0) return;
    __atomic_store_n(slot, function, __ATOMIC_RELEASE);
    if (sealed) mprotect(reinterpret_cast<void*>(first), end - first, PROT_READ);
}

void bind_to_doors(const Loaded& object) noexcept {
    if (!object.symbols || !object.strings) return;
    const struct {
        const char* name;
        void *ours, *loaders;
    } functions[] = {{"dlsym", reinterpret_cast<void*>(&udnnmem_dlsym), real_dlsym_address()}, {"dlopen", reinterpret_cast<void*>(&udnnmem_dlopen), real_dlopen_address()}};
    for (int t = 0; t < 2; ++t) {
        if (!object.tables[t]) continue;
        const ElfW(Rela)* const last = object.tables[t] + object.bytes[t] / sizeof(ElfW(Rela));
        for (const ElfW(Rela)* r = object.tables[t]; r != last; ++r) {
            const auto type = static_cast<unsigned>(ELF64_R_TYPE(r->r_info));
            if (type != kSlots[0] && type != kSlots[1]) continue;
            const ElfW(Sym)& symbol = object.symbols[ELF64_R_SYM(r->r_info)];
            if (symbol.st_shndx != SHN_UNDEF || object.strings[symbol.st_name] != 'd') continue;
            for (const auto& f : functions) {
                if (std::strcmp(object.strings + symbol.st_name, f.name) != 0) continue;
                void** const slot = reinterpret_cast<void**>(object.base + r->r_offset);
                void* const now = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
                const auto value = reinterpret_cast<ElfW(Addr)>(now);
                const bool not_yet_bound = value >= object.first && value < object.end;   // lazily: it leads to the object's own stub
                if (now == f.loaders || not_yet_bound) write_slot(object, slot, f.ours);
            }
        }
    }
}

}  // namespace

void deep_load_begins() noexcept try {
    if (doors_closed.load(std::memory_order_relaxed) || before_deep_load) return;
    auto there = std::make_unique<Addresses>();
    dl_iterate_phdr([](dl_phdr_info* info, std::size_t, void* list) {
        static_cast<Addresses*>(list)->push_back(info->dlpi_addr);
        return 0;
    }, there.get());
    before_deep_load = there.release();
    deep_load_pending = true;
} catch (const std::bad_alloc&) {   // they stay as they are
}

void take_up_deep_load() noexcept {
    deep_load_pending = false;
    Addresses* const there = before_deep_load;
    before_deep_load = nullptr;
    if (!there) return;
    dl_iterate_phdr([](dl_phdr_info* info, std::size_t, void* list) {
        const auto& old = *static_cast<const Addresses*>(list);
        if (std::find(old.begin(), old.end(), info->dlpi_addr) == old.end()) bind_to_doors(Loaded(*info));
        return 0;
    }, there);
    delete there;
}

}  // namespace udnnmem::interpose
