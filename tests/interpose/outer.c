// Opens a library by a bare name that only its own search path knows.
#include <dlfcn.h>
__attribute__((visibility("default"))) int open_inner(void) {
    void* handle = dlopen("libdoor_inner.so", RTLD_NOW);
    int (*f)(void) = handle ? (int (*)(void))dlsym(handle, "answer") : 0;
    return f ? f() : -1;
}
