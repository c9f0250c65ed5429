// Several releases of cuBLAS in one process. Prints for each the status of a call with a handle of its own: 0, or whose it was.
//   releases linked PLUGIN...       plugins for themselves alone, each linked with one
//   releases again PLUGIN...        each is unloaded before the next, and its cuBLAS with it, and other memory lies there
//   releases looked-up LIBRARY...   by look-ups; also which object has what was found, and whether dlerror has anything to say
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int Gemm(void*, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);

static void* load(const char* file) {
  void* const library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (!library) printf("%s\n", dlerror()), exit(1);
  return library;
}
static void* use(const char* plugin) {
  void* const library = load(plugin);
  printf("%d\n", ((int (*)(void))dlsym(library, "use"))());
  fflush(stdout);
  return library;
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  if (!strcmp(arguments[1], "looked-up")) {
    void* libraries[8];
    const int end = count < 10 ? count : 10;
    for (int i = 2; i < end; ++i) libraries[i - 2] = load(arguments[i]);
    for (int i = 2; i < end; ++i) {
      void* handle;
      ((int (*)(void**))dlsym(libraries[i - 2], "cublasCreate_v2"))(&handle);
      dlerror();
      void* const gemm = dlsym(libraries[i - 2], "cublasSgemm_v2");
      const char* const error = dlerror();
      Dl_info info;
      dladdr(gemm, &info);
      const int status = ((Gemm*)gemm)(handle, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1);
      printf("%d %s%s\n", status, strrchr(info.dli_fname, '/') + 1, error ? " with an error" : "");
    }
    return 0;
  }
  const int again = !strcmp(arguments[1], "again");
  for (int i = 2; i < count; ++i) {
    void* const plugin = use(arguments[i]);
    if (!again) continue;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), there = (uintptr_t)dlsym(plugin, "cublasCreate_v2") / page * page;
    dlclose(plugin);
    mmap((void*)there, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  }
  return 0;
}
