// products LIBRARY BATCH STEPS [HOW]: loads libproducts.so for itself alone, as an interpreter loads an extension, and runs it. HOW: looked-up
// (the libraries' functions are found by dlsym), captured (a step is a graph).
// products absent: whether the mathematics libraries' names are there for who has none of them.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

int main(int argc, char** argv) {
  if (argc == 2 && !strcmp(argv[1], "absent")) {
    for (const char* name : {"cublasSgemm_v2", "cublasLtMatmul", "cudnnConvolutionForward"}) printf("%s %s\n", name, dlsym(RTLD_DEFAULT, name) ? "there" : "absent");
    return 0;
  }
  if (argc != 4 && argc != 5) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  return reinterpret_cast<int (*)(int, int, const char*)>(dlsym(library, "run"))(atoi(argv[2]), atoi(argv[3]), argc > 4 ? argv[4] : "");
}
