// Small things that a program does with the loader, one a command, printed for doors_suite.py. Not linked with a
// driver: what it knows of one it looks up.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int next_answer(void);   // libnext_a.so
int open_inner(void);    // libouter.so
__attribute__((weak)) int cuInit(unsigned);
__attribute__((weak)) int cuMemAlloc_v2(unsigned long long*, size_t);

static const char* object_of(void* p) {
    Dl_info info;
    return p && dladdr(p, &info) ? strrchr(info.dli_fname, '/') + 1 : "nowhere";
}

int main(int argc, char** argv) {
    const char* command = argv[1];
    if (!strcmp(command, "next")) printf("%d\n", next_answer());
    if (!strcmp(command, "inner")) printf("%d\n", open_inner());
    if (!strcmp(command, "default")) printf("%s\n", object_of(dlsym(RTLD_DEFAULT, "cuInit")));
    if (!strcmp(command, "weak")) {
        unsigned long long p = 0;
        printf("%d %d\n", cuInit ? cuInit(0) : -1, cuMemAlloc_v2 ? cuMemAlloc_v2(&p, 1) : -1);
    }
    if (!strcmp(command, "symbol") && argc > 3) {
        void* handle = dlopen(argv[2], RTLD_NOW);
        printf("%s\n", handle ? object_of(dlsym(handle, argv[3])) : dlerror());
    }
    // What a library that is bound deep finds of the driver, twice: the second time it was bound by the first call.
    if (!strcmp(command, "deep") && argc > 4) {
        void* handle = dlopen(argv[2], (strcmp(argv[3], "lazy") ? RTLD_NOW : RTLD_LAZY) | RTLD_DEEPBIND);
        void* (*find)(const char*) = handle ? (void* (*)(const char*))dlsym(handle, "find_in_driver") : NULL;
        if (!find) return 1;
        for (int i = 0; i < 2; i++) printf("%s\n", find(argv[4]) == argv[4] ? "its own" : object_of(find(argv[4])));
    }
    if (!strcmp(command, "call") && argc > 3) {
        void* handle = dlopen(argv[2], RTLD_NOW);
        int (*f)(void) = handle ? (int (*)(void))dlsym(handle, argv[3]) : NULL;
        printf("%d\n", f ? f() : -1);
    }
    return 0;
}
