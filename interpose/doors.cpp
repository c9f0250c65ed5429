// The doors by which a program reaches the driver without linking it: dlsym and cuGetProcAddress. (Linked calls come
// to the exported hooks by themselves; dlopen is in loading.cpp.)
//
// Invariants
//   - dlsym is everybody's: names other than cu[A-Z]... and nccl... cost a few compares and a jump, and the real function is
//     reached by a jump from the caller's own frame, so that RTLD_NEXT means the caller and not us.
//   - The driver answers first. Its pointer, with the name, says which hook takes its place: version, ABI and stream
//     flavour are right by construction. Names that are not in the table, or pass, are never touched.
#include "interpose/internal.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "interpose/nccl.hpp"

namespace udnnmem::interpose {

constinit std::atomic<const OtherName*> others_begin{nullptr}, others_end{nullptr};

void other_names(const OtherName* begin, const OtherName* end) noexcept {
    others_begin.store(begin, std::memory_order_relaxed);
    others_end.store(end, std::memory_order_release);
}

namespace {

// What dlsym(handle, name) answers for a name of another library: ours, where it hands calls on to what the handle's library has;
// nothing, where a look-up of all objects finds ours and nothing stands behind it. False: what the loader says.
bool others_answer(void* handle, const char* name, void*& answer) noexcept {
    if (handle == RTLD_NEXT || name == nullptr || name[0] != 'c' || name[1] != 'u') return false;
    const OtherName* const end = others_end.load(std::memory_order_acquire);
    for (const OtherName* other = others_begin.load(std::memory_order_relaxed); other != end; ++other) {
        if (std::strcmp(other->symbol, name) != 0) continue;
        answer = real_dlsym(handle, name);
        void* const ours = other->functions.front();
        if (handle == RTLD_DEFAULT) {
            if (answer != ours || other->backed()) return false;
            answer = real_dlsym(RTLD_NEXT, name);  // nothing, and dlerror says so
        } else if (answer != nullptr && answer != ours && !doors_closed.load(std::memory_order_relaxed)) {
            if (void* const front = other->in_front_of(answer)) answer = front;
        }
        return true;
    }
    return false;
}

bool drivers_kind_of_name(const char* name) noexcept {
    return name != nullptr && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

bool nccls_kind_of_name(const char* name) noexcept { return name != nullptr && name[0] == 'n' && std::strncmp(name, "nccl", 4) == 0; }

void* hook_of(Symbol symbol) noexcept {
    return symbol == Symbol::none ? nullptr : hooks[static_cast<std::size_t>(symbol)];
}

// What dlsym(handle, name) answers for a name that we hook.
void* look_up(Symbol symbol, void* handle, const char* name) noexcept {
    void* const hook = hook_of(symbol);
    void* p = real_dlsym(handle, name);
    if (p == hook) {
        // Our own export, by RTLD_DEFAULT or the main program's handle: what would be there without us?
        p = real_dlsym(RTLD_NEXT, name);
        if (p == nullptr && driver_is_loaded()) p = slots[static_cast<std::size_t>(symbol)].load(std::memory_order_relaxed);
    }
    const bool hooked = p != nullptr && is_drivers(symbol, p);
    trace_lookup("dlsym", name, 0, 0, hooked);
    return hooked ? hook : p;
}

// INT_MAX: it does not say.
int driver_version() noexcept {
    int version = 0;
    return OWN(cuDriverGetVersion)(&version) == CUDA_SUCCESS && version > 0 ? version : INT_MAX;
}

void* replacement(const char* name, void* pointer, int version, cuuint64_t flags, bool& hooked) noexcept {
    const Flavour flavour = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? Flavour::per_thread : Flavour::legacy;
    Symbol symbol = find_pointer(name, pointer, version, flavour);
    if (symbol == Symbol::none) {
        // Not among the driver's exports. Up to the table's own version the name and the version say what it is; a driver
        // that is older than what was asked for answers with what it has.
        const Symbol asked = find_version(name, std::min(version, driver_version()), flavour);
        if (hook_of(asked) == nullptr) return pointer;
        if (hook_of(asked) == pointer) {  // a driver that binds its own names by the loader's rules
            hooked = true;
            return pointer;
        }
        if (version > newest_version && driver_version() > newest_version) {
            Guard up;
            if (up) up->unknown_version(name, version);
            return pointer;
        }
        void* absent = nullptr;
        slots[static_cast<std::size_t>(asked)].compare_exchange_strong(absent, pointer);
        symbol = asked;
    }
    void* const hook = hook_of(symbol);
    hooked = hook != nullptr;
    return hooked ? hook : pointer;
}

CUresult answered(CUresult result, const char* name, void** pointer, int version, cuuint64_t flags) noexcept {
    if (name == nullptr) return result;
    bool hooked = false;
    const bool found = result == CUDA_SUCCESS && pointer != nullptr && *pointer != nullptr;
    if (found && drivers_kind_of_name(name) && !doors_closed.load(std::memory_order_relaxed))
        *pointer = replacement(name, *pointer, version, flags, hooked);
    trace_lookup("cuGetProcAddress", name, version, static_cast<long>(flags), hooked);
    return result;
}

}  // namespace

HOOK(cuGetProcAddress, (const char* name, void** pointer, int version, cuuint64_t flags)) {
    return answered(REAL(cuGetProcAddress)(name, pointer, version, flags), name, pointer, version, flags);
}

HOOK(cuGetProcAddress_v2, (const char* name, void** pointer, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult* status)) {
    return answered(REAL(cuGetProcAddress_v2)(name, pointer, version, flags, status), name, pointer, version, flags);
}

// Two registers: what to return, or where to jump.
struct Decision {
    void* address;
    std::uintptr_t answered;
};

extern "C" __attribute__((visibility("hidden"), used)) Decision udnnmem_door_dlsym(void* handle, const char* name) noexcept {
    if (deep_load_pending) [[unlikely]] take_up_deep_load();
    void* const p = real_dlsym_address();
    if (nccls_kind_of_name(name) && handle != RTLD_NEXT && !doors_closed.load(std::memory_order_relaxed))
        if (void* hook = nccl_look_up(handle, name)) return {hook, 1};
    if (!drivers_kind_of_name(name)) {
        void* answer = nullptr;
        if (others_answer(handle, name, answer)) return {answer, 1};
        return {p, 0};
    }
    if (doors_closed.load(std::memory_order_relaxed)) return {p, 0};
    const Symbol symbol = find_symbol(name);
    if (hook_of(symbol) == nullptr || handle == RTLD_NEXT) {
        trace_lookup("dlsym", name, 0, 0, false);
        return {p, 0};
    }
    return {look_up(symbol, handle, name), 1};
}

}  // namespace udnnmem::interpose

#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl udnnmem_dlsym
    .type udnnmem_dlsym, @function
udnnmem_dlsym:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call udnnmem_door_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    jz 1f
    ret
1:  jmp *%rax
    .cfi_endproc
    .size udnnmem_dlsym, .-udnnmem_dlsym
)" LOADER_VERSIONS("dlsym"));
#elif defined(__aarch64__)
asm(R"(
    .text
    .p2align 4
    .globl udnnmem_dlsym
    .type udnnmem_dlsym, %function
udnnmem_dlsym:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp x0, x1, [sp, #16]
    bl udnnmem_door_dlsym
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    cbz x17, 1f
    mov x0, x16
    ret
1:  br x16
    .cfi_endproc
    .size udnnmem_dlsym, .-udnnmem_dlsym
)" LOADER_VERSIONS("dlsym"));
#else
#error "no dlsym door for this architecture: its last call must be a jump"
#endif
