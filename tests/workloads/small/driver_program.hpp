// A program on the driver API in a few lines: context, the kernels of kernels.cu, checked calls. A failed call ends
// the program: exit code 3 and a message when the device's memory is exhausted, 1 for any other error.
#pragma once
#include <cuda.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

extern "C" const char small_ptx[];

inline void check(CUresult r, const char* call) {
  if (r == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(r, &name);
  fprintf(stderr, "%s: %s (%d)\n", call, name ? name : "error", r);
  exit(r == CUDA_ERROR_OUT_OF_MEMORY ? 3 : 1);
}
#define CHECK(call) check(call, #call)

struct Program {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction fill, add, sum;
  Program() {
    CHECK(cuInit(0));
    int devices = 0;
    CHECK(cuDeviceGetCount(&devices));
    const char* rank = getenv("LOCAL_RANK");  // of several, each takes its own device where there are enough
    CHECK(cuDeviceGet(&device, rank && devices ? atoi(rank) % devices : 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, small_ptx));
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    CHECK(cuModuleGetFunction(&add, module, "add"));
    CHECK(cuModuleGetFunction(&sum, module, "sum"));
  }
  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr p;
    CHECK(cuMemAlloc(&p, bytes));
    return p;
  }
  template <class... A>
  void launch(CUfunction f, A... arguments) {
    void* list[] = {&arguments...};
    CHECK(cuLaunchKernel(f, 32, 1, 1, 128, 1, 1, 0, nullptr, list, nullptr));
  }
  // The sum of a buffer's words, computed on the device; waits.
  unsigned total(CUdeviceptr buffer, unsigned words) {
    CUdeviceptr out = allocate(4);
    CHECK(cuMemsetD32(out, 0, 1));
    launch(sum, buffer, out, words);
    unsigned v = 0;
    CHECK(cuMemcpyDtoH(&v, out, 4));
    CHECK(cuMemFree(out));
    return v;
  }
};

// The word that `fill` writes at i.
inline unsigned fill_word(unsigned i, unsigned seed) {
  unsigned v = i * 2654435761u + seed;
  v ^= v >> 15;
  return v * 2246822519u;
}

// A whole number from the command line, or `otherwise` where there are fewer arguments.
inline unsigned long argument(int argc, char** argv, int i, unsigned long otherwise) {
  if (i >= argc) return otherwise;
  char* end;
  unsigned long v = strtoul(argv[i], &end, 10);
  if (*end || v == 0) {
    fprintf(stderr, "%s: argument %d needs a whole number above 0, not '%s'\n", argv[0], i, argv[i]);
    exit(2);
  }
  return v;
}
