/* Another tool's preload that takes dlsym for itself, as overlays and profilers do: it finds the C library's by dlvsym and
 * passes every look-up on. Loaded before or after ours, both must keep working. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned long looked_up;

__attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
    static void* (*next)(void*, const char*);
    /* The next one in line, which may be another preload's; before glibc 2.34 dlsym lived in libdl. */
    if (!next) next = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!next) next = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    looked_up++;
    return next ? next(handle, name) : NULL;
}

__attribute__((destructor)) static void tell(void) {
    static const char line[] = "other_dlsym: passed look-ups on\n";
    if (looked_up && getenv("OTHER_DLSYM_TELL") && write(2, line, sizeof line - 1) < 0) _exit(9);
}
