#include "tests/model/image.hpp"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

extern "C" char __data_start, _end;  // the linker's: the program's own data

// Goes on on another stack; *from is where this one goes on. (swapcontext asks the system for the signal mask each time.)
extern "C" void model_switch(void** from, void* to);
asm(R"(
    .text
    .globl model_switch
    .type model_switch, @function
model_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size model_switch, . - model_switch
)");

namespace model {
namespace {

constexpr std::size_t kHeap = 64 << 20, kStack = 128 << 10, kRedZone = 1024, kCleared = 16 << 10;
constexpr int kFibers = 8, kClasses = 64 + 40, kKept = 6;  // registers that model_switch keeps

// What is in use of it begins with this, at the heap's beginning, so that it is saved with the rest.
struct Heap {
    char* top;
    void* free[kClasses];
    Fiber* fibers[kFibers];
    int count;
};
char* g_memory = nullptr;  // the heap, then the stacks
constexpr std::size_t kPage = 4096;
constexpr int kPages = 32;
char* g_pages[kPages];     // of large memory, those that count
bool g_inside = false;
Fiber* g_running = nullptr;
void* g_explorer = nullptr;  // its stack pointer while a fiber runs

Heap& heap() { return *reinterpret_cast<Heap*>(g_memory); }
bool in_heap(const void* p) { return p >= g_memory && p < g_memory + kHeap; }

// The program's thread-local variables in the one thread there is.
struct Locals {
    char* at = nullptr;
    std::size_t size = 0;
    const char* initial = nullptr;
    std::size_t initial_size = 0;
};
Locals& locals() {
    static Locals found = [] {
        Locals l;
        dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* out) {
                for (int i = 0; i < info->dlpi_phnum; ++i)
                    if (const auto& h = info->dlpi_phdr[i]; h.p_type == PT_TLS)
                        *static_cast<Locals*>(out) = {static_cast<char*>(info->dlpi_tls_data), h.p_memsz, reinterpret_cast<const char*>(info->dlpi_addr + h.p_vaddr), h.p_filesz};
                return 1;  // the first object is the program
            },
            &l);
        return l;
    }();
    return found;
}

// Classes: multiples of 32 bytes, then powers of two; in front of a block stands its class.
constexpr std::size_t kUnit = 32, kFine = kUnit * 64;
void* take(std::size_t bytes) {
    const auto units = std::max<std::size_t>(1, (bytes + kUnit - 1) / kUnit);
    const int c = bytes <= kFine ? static_cast<int>(units) : 64 + std::bit_width(bytes - 1);
    const std::size_t room = bytes <= kFine ? units * kUnit : std::size_t{1} << (c - 64);
    Heap& h = heap();
    void* block = h.free[c];
    if (block) {
        h.free[c] = *static_cast<void**>(block);
    } else {
        block = h.top + 16;
        h.top += 16 + room;
        if (h.top > g_memory + kHeap) std::fputs("the model's heap is full\n", stderr), std::abort();
        *reinterpret_cast<int*>(static_cast<char*>(block) - 16) = c;
    }
    return block;
}
void give_back(void* block) {
    const int c = *reinterpret_cast<int*>(static_cast<char*>(block) - 16);
    *static_cast<void**>(block) = heap().free[c];
    heap().free[c] = block;
}
// Alignment beyond 16 is had by room; the block's address is kept in front.
void* take_aligned(std::size_t bytes, std::size_t alignment) {
    char* block = static_cast<char*>(g_inside ? take(bytes + alignment + 16) : std::malloc(bytes + alignment + 16));
    char* at = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(block) + 16 + alignment - 1) / alignment * alignment);
    reinterpret_cast<void**>(at)[-1] = block;
    return at;
}

}  // namespace

struct Fiber {
    std::function<void()> body;
    void* at = nullptr;      // its stack pointer while another runs: the registers that a call keeps lie there, then where it goes on
    char* stack = nullptr;   // its beginning
    char* lowest = nullptr;  // in use from here on
    char* locals = nullptr;
    bool ended = false;
};

bool inside() { return g_inside; }
Inside::Inside(bool on) : before_(g_inside) {
    if (!g_memory) {
        g_memory = static_cast<char*>(mmap(nullptr, kHeap + kFibers * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (g_memory == MAP_FAILED) std::abort();
        heap() = {.top = g_memory + (sizeof(Heap) + 15) / 16 * 16};
    }
    g_inside = on;
}
Inside::~Inside() { g_inside = before_; }

static void begin_fiber() {
    Fiber* f = g_running;
    f->body();
    f->ended = true;
    give_way();
}

Fiber* make_fiber(std::function<void()> body) {
    Heap& h = heap();
    if (h.count == kFibers) std::abort();
    auto* f = new Fiber;
    f->body = std::move(body);
    f->stack = g_memory + kHeap + h.count * kStack;
    f->lowest = f->stack + kStack;
    f->locals = static_cast<char*>(take(locals().size));
    std::memset(f->locals, 0, locals().size);
    std::memcpy(f->locals, locals().initial, locals().initial_size);
    auto* top = reinterpret_cast<std::uint64_t*>(f->stack + kStack) - 1;  // as behind a call: 8 bytes short of a multiple of 16
    *--top = reinterpret_cast<std::uint64_t>(begin_fiber);
    for (int i = 0; i < kKept; ++i) *--top = 0;
    f->at = top;
    f->lowest = f->stack + kStack - kRedZone;
    h.fibers[h.count++] = f;
    return f;
}

void run_fiber(Fiber* f) {
    g_running = f;
    std::memset(f->lowest - kCleared, 0, kCleared);  // what calls have left there is nobody's state
    std::memcpy(locals().at, f->locals, locals().size);
    {
        Inside here(true);
        model_switch(&g_explorer, f->at);
    }
    std::memcpy(f->locals, locals().at, locals().size);
}

void give_way() {
    Fiber* f = g_running;
    f->lowest = static_cast<char*>(__builtin_frame_address(0)) - kRedZone;
    model_switch(&f->at, g_explorer);
}

std::uint64_t place_of(const Fiber* f) {
    std::uint64_t h = f->ended;
    if (f->ended) return h;
    // Frame pointers lead from caller to caller (module.mk).
    auto at = static_cast<const std::uint64_t*>(f->at)[kKept - 1];
    while (at >= reinterpret_cast<std::uint64_t>(f->stack) && at + 16 <= reinterpret_cast<std::uint64_t>(f->stack + kStack)) {
        const auto* frame = reinterpret_cast<const std::uint64_t*>(at);
        h = (h ^ frame[1]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
        at = frame[0];
    }
    return h;
}

// Calls part(address, bytes) for each piece of memory.
template <class Part>
static void for_each_part(Part part) {
    part(&__data_start, static_cast<std::size_t>(&_end - &__data_start));
    part(g_memory, static_cast<std::size_t>(heap().top - g_memory));
    for (char* page : g_pages)
        if (page) part(page, kPage);
    for (int i = 0; i < heap().count; ++i) {
        const Fiber* f = heap().fibers[i];
        if (!f->ended) part(f->lowest, static_cast<std::size_t>(f->stack + kStack - f->lowest));
    }
}

Snapshot save() {
    static const int kept = mallopt(M_MMAP_THRESHOLD, 1 << 30) + mallopt(M_TRIM_THRESHOLD, 1 << 30);  // pages are not given back
    (void)kept;
    Snapshot s;
    for_each_part([&](char*, std::size_t bytes) { s.size += bytes; });
    s.bytes = static_cast<char*>(std::malloc(s.size));
    std::size_t at = 0;
    for_each_part([&](char* from, std::size_t bytes) {
        std::memcpy(s.bytes + at, from, bytes);
        at += bytes;
    });
    return s;
}

// Data and heap come first and say which parts follow.
void restore(const Snapshot& s) {
    const char* volatile from = s.bytes;
    char* const data = &__data_start;
    const std::size_t data_bytes = static_cast<std::size_t>(&_end - data);
    std::memcpy(data, from, data_bytes);
    std::size_t at = data_bytes;
    Heap saved;
    std::memcpy(&saved, from + at, sizeof saved);
    const std::size_t heap_bytes = static_cast<std::size_t>(saved.top - g_memory);
    std::memcpy(g_memory, from + at, heap_bytes);
    at += heap_bytes;
    for (char* page : g_pages) {
        if (!page) continue;
        std::memcpy(page, from + at, kPage);
        at += kPage;
    }
    for (int i = 0; i < heap().count; ++i) {
        const Fiber* f = heap().fibers[i];
        if (f->ended) continue;
        const auto bytes = static_cast<std::size_t>(f->stack + kStack - f->lowest);
        std::memcpy(f->lowest, from + at, bytes);
        at += bytes;
    }
}
void forget(Snapshot& s) {
    std::free(s.bytes);
    s = {};
}

}  // namespace model

void* operator new(std::size_t bytes) {
    if (model::g_inside) return model::take(bytes);
    void* p = std::malloc(bytes ? bytes : 1);
    if (!p) std::abort();
    return p;
}
void operator delete(void* p) noexcept {
    if (!p) return;
    if (model::in_heap(p)) model::give_back(p);
    else std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return model::take_aligned(bytes, static_cast<std::size_t>(alignment)); }
void operator delete(void* p, std::align_val_t) noexcept {
    if (p) operator delete(static_cast<void**>(p)[-1]);
}
void operator delete(void* p, std::size_t, std::align_val_t alignment) noexcept { operator delete(p, alignment); }

// Thread-local objects of the model's threads have no destructors to run: their threads never end.
extern "C" int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }

void* model::large_memory(std::size_t bytes, bool rest_is_never_written) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    if (rest_is_never_written && mprotect(static_cast<char*>(memory) + kPage, bytes - kPage, PROT_READ) != 0) std::abort();
    keep(memory, kPage);
    return memory;
}
void model::keep(const void* memory, std::size_t bytes) {
    for (auto at = reinterpret_cast<std::uintptr_t>(memory) / kPage * kPage; at < reinterpret_cast<std::uintptr_t>(memory) + bytes; at += kPage) {
        char** entry = std::begin(g_pages);
        while (entry != std::end(g_pages) && *entry && *entry != reinterpret_cast<char*>(at)) ++entry;
        if (entry == std::end(g_pages)) std::abort();
        *entry = reinterpret_cast<char*>(at);
    }
}
