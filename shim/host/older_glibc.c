// Functions that a newer glibc than anything else here needs would give: arc4random of 2.36 and _dl_find_object of 2.35, which
// the static libstdc++ and libgcc take, and the names of 2.38 that its headers put in the place of strtol and its like. Defined inside the library and the tool (hidden, nobody else sees them), they let both
// run from glibc 2.34 on, which tests/e2e/packages.py holds them to.
#define _GNU_SOURCE
#include <link.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>

// For std::random_device. Blocks until the kernel has its entropy, as glibc's does.
unsigned arc4random(void) {
    unsigned value = 0;
    while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
    }
    return value;
}

// For the unwinder, as <dlfcn.h> of 2.35 describes it. Takes the loader's lock, as unwinding did before.
struct found_object {
    unsigned long long flags;
    void* map_start;
    void* map_end;
    struct link_map* link_map;
    void* eh_frame;
    unsigned long long reserved[7];
};

struct question {
    uintptr_t address;
    struct found_object* result;
};

static int holds_address(struct dl_phdr_info* info, size_t size, void* data) {
    (void)size;
    struct question* const asked = data;
    uintptr_t low = UINTPTR_MAX, high = 0;
    void* eh_frame = NULL;
    int inside = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)* const segment = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;
        if (segment->p_type == PT_GNU_EH_FRAME) eh_frame = (void*)start;
        if (segment->p_type != PT_LOAD) continue;
        if (start < low) low = start;
        if (end > high) high = end;
        inside |= asked->address >= start && asked->address < end;
    }
    if (!inside) return 0;
    asked->result->flags = 0;
    asked->result->map_start = (void*)low;
    asked->result->map_end = (void*)high;
    asked->result->link_map = NULL;
    asked->result->eh_frame = eh_frame;
    return eh_frame != NULL;
}

// Under another name here, because newer headers declare it with a struct that older ones lack.
int find_object(void* address, struct found_object* result) __asm__("_dl_find_object");
int find_object(void* address, struct found_object* result) {
    struct question asked = {(uintptr_t)address, result};
    return dl_iterate_phdr(holds_address, &asked) ? 0 : -1;
}

// The older functions by their own names in the object, whatever a header calls them. They differ by binary numbers ("0b1") alone.
long old_strtol(const char*, char**, int) __asm__("strtol");
long long old_strtoll(const char*, char**, int) __asm__("strtoll");
unsigned long long old_strtoull(const char*, char**, int) __asm__("strtoull");
int old_vsscanf(const char*, const char*, va_list) __asm__("vsscanf");

long __isoc23_strtol(const char* text, char** end, int base) { return old_strtol(text, end, base); }
long long __isoc23_strtoll(const char* text, char** end, int base) { return old_strtoll(text, end, base); }
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) { return old_strtoull(text, end, base); }
int __isoc23_sscanf(const char* text, const char* format, ...) {
    va_list values;
    va_start(values, format);
    const int read = old_vsscanf(text, format, values);
    va_end(values);
    return read;
}
