// Asks the loader for the next definition after its own: the answer must not depend on who stands before dlsym.
#define _GNU_SOURCE
#include <dlfcn.h>
__attribute__((visibility("default"))) int answer(void) { return 1; }
__attribute__((visibility("default"))) int next_answer(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "answer");
    return next ? next() : -1;
}
