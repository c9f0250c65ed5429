// What products.cpp and the made-up libraries know of each other: signatures as the public headers have them, with pointers for
// handles; descriptors are these structures.
#pragma once

#include <cstddef>
#include <cstdint>

struct LtLayout {
  int type;
  std::uint64_t rows, columns;
  int batch;
};
struct LtMatmul {
  int transpose_a;
};
struct Shape {   // of a tensor or a filter
  int dimensions;
  int sizes[8];
};

struct CUstream_st;
extern "C" {
int cublasSetStream_v2(void*, CUstream_st*);
int cudnnSetStream(void*, CUstream_st*);
int cublasSgemm_v2(void*, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);
int cublasSgemm_v2_64(void*, int, int, std::int64_t, std::int64_t, std::int64_t, const void*, const void*, std::int64_t, const void*, std::int64_t, const void*, void*, std::int64_t);
int cublasCgemm_v2(void*, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);
int cublasSgemmStridedBatched(void*, int, int, int, int, int, const void*, const void*, int, long long, const void*, int, long long, const void*, void*, int, long long, int);
int cublasSgemmGroupedBatched(void*, const int*, const int*, const int*, const int*, const int*, const void*, const void*, const int*, const void*, const int*, const void*, void*, const int*, int,
                              const int*);
int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*, const void*, void*, std::size_t, void*);
int cudnnConvolutionForward(void*, const void*, const void*, const void*, const void*, const void*, const void*, int, void*, std::size_t, const void*, const void*, void*);
int cudnnConvolutionBackwardData(void*, const void*, const void*, const void*, const void*, const void*, const void*, int, void*, std::size_t, const void*, const void*, void*);
int cudnnConvolutionBackwardFilter(void*, const void*, const void*, const void*, const void*, const void*, const void*, int, void*, std::size_t, const void*, const void*, void*);
int cudnnBackendCreateDescriptor(int, void**);
int cudnnBackendDestroyDescriptor(void*);
int cudnnBackendFinalize(void*);
int cudnnBackendSetAttribute(void*, int, int, std::int64_t, const void*);
int cudnnBackendGetAttribute(void*, int, int, std::int64_t, std::int64_t*, void*);
int cudnnBackendExecute(void*, void*, void*);
}
