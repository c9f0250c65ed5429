// Looks the driver up by itself, as a library does that is loaded with RTLD_DEEPBIND; and has a name of its own for dlopen's pair.
#include <dlfcn.h>
__attribute__((visibility("default"))) void* find_in_driver(const char* name) {
    void* handle = dlopen("libcuda.so.1", RTLD_NOW);
    return handle ? dlsym(handle, name) : 0;
}
#ifdef OWN_DLSYM
__attribute__((visibility("default"))) void* dlsym(void* restrict handle, const char* restrict name) { return handle ? (void*)name : 0; }
#endif
