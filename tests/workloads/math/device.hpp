// The kernels of kernels.cu, launched on the stream that the library was given, at first the legacy one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" const char math_ptx[];

inline void check_call(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: error %d\n", call, result);
  exit(1);
}
#define CHECK(call) check_call(call, #call)

struct Data {
  CUdeviceptr at;
  unsigned words;
};

inline CUstream& stream_in_use() {   // of this library
  static CUstream stream = nullptr;
  return stream;
}

inline CUfunction kernel(const char* name) {
  static CUmodule module;
  if (!module) CHECK(cuModuleLoadData(&module, math_ptx));
  CUfunction f;
  CHECK(cuModuleGetFunction(&f, module, name));
  return f;
}

// `count` numbers of y, each of `length` multiply-adds, after a kernel that prepares.
inline int multiply(Data x, Data w, Data y, double count, double length) {
  static const CUfunction clear = kernel("clear"), dot = kernel("dot");
  unsigned n = static_cast<unsigned>(count), k = static_cast<unsigned>(length);
  void* first[] = {&y.at, &n};
  CHECK(cuLaunchKernel(clear, 8, 1, 1, 64, 1, 1, 0, stream_in_use(), first, nullptr));
  void* second[] = {&x.at, &x.words, &w.at, &w.words, &y.at, &n, &k};
  CHECK(cuLaunchKernel(dot, 8, 1, 1, 64, 1, 1, 0, stream_in_use(), second, nullptr));
  return 0;
}
inline Data data(const void* at, double words) { return {reinterpret_cast<CUdeviceptr>(at), static_cast<unsigned>(words)}; }
