// libcublas.so.13, as far as products.cpp goes. cublasGemmEx hands on to cublasLtMatmul, as the real one may.
#include "tests/workloads/math/device.hpp"
#include "tests/workloads/math/math_api.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))
using P = const void*;

EXPORT int cublasSetStream_v2(void*, CUstream stream) { return stream_in_use() = stream, 0; }
EXPORT int cublasSgemm_v2(void*, int, int, int m, int n, int k, P, P a, int, P b, int, P, void* c, int) { return multiply(data(a, m * k), data(b, k * n), data(c, m * n), m * n, k); }
EXPORT int cublasSgemm_v2_64(void*, int, int, std::int64_t m, std::int64_t n, std::int64_t k, P, P a, std::int64_t, P b, std::int64_t, P, void* c, std::int64_t) {
  return multiply(data(a, m * k), data(b, k * n), data(c, m * n), m * n, k);
}
EXPORT int cublasCgemm_v2(void*, int, int, int m, int n, int k, P, P a, int, P b, int, P, void* c, int) { return multiply(data(a, 2 * m * k), data(b, 2 * k * n), data(c, 2 * m * n), 2 * m * n, 2 * k); }
EXPORT int cublasSgemmStridedBatched(void*, int, int, int m, int n, int k, P, P a, int, long long, P b, int, long long, P, void* c, int, long long, int batch) {
  return multiply(data(a, m * k * batch), data(b, k * n * batch), data(c, m * n * batch), m * n * batch, k);
}
EXPORT int cublasSgemmGroupedBatched(void*, const int*, const int*, const int* m, const int* n, const int* k, P, P a, const int*, P b, const int*, P, void* c, const int*, int groups, const int* sizes) {
  for (int g = 0; g < groups; g++) multiply(data(a, m[g] * k[g]), data(b, k[g] * n[g]), data(c, m[g] * n[g] * sizes[g]), m[g] * n[g] * sizes[g], k[g]);
  return 0;
}

EXPORT int cublasLtMatrixLayoutGetAttribute(void* layout, int attribute, void* to, std::size_t, std::size_t* written) {
  const LtLayout& l = *static_cast<LtLayout*>(layout);
  switch (attribute) {
    case 0: *static_cast<std::int32_t*>(to) = l.type, *written = 4; return 0;
    case 2: *static_cast<std::uint64_t*>(to) = l.rows, *written = 8; return 0;
    case 3: *static_cast<std::uint64_t*>(to) = l.columns, *written = 8; return 0;
    case 5: *static_cast<std::int32_t*>(to) = l.batch, *written = 4; return 0;
  }
  return 7;
}
EXPORT int cublasLtMatmulDescGetAttribute(void* description, int attribute, void* to, std::size_t, std::size_t* written) {
  if (attribute != 3) return 7;
  *static_cast<std::int32_t*>(to) = static_cast<LtMatmul*>(description)->transpose_a;
  *written = 4;
  return 0;
}
EXPORT int cublasLtMatmul(void*, void* description, P, P a, void* al, P b, void*, P, P, void*, void* d, void* dl, P, void*, std::size_t, void*) {
  const LtLayout &out = *static_cast<LtLayout*>(dl), &in = *static_cast<LtLayout*>(al);
  const double k = static_cast<double>(static_cast<LtMatmul*>(description)->transpose_a ? in.rows : in.columns), count = static_cast<double>(out.rows * out.columns) * out.batch;
  return multiply(data(a, static_cast<double>(in.rows * in.columns)), data(b, k), data(d, count), count, k);
}

EXPORT int cublasGemmEx(void*, int, int, int m, int n, int k, P, P a, int at, int, P b, int, int, P, void* c, int, int, int, int) {
  LtMatmul description{0};
  LtLayout al{at, static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(k), 1}, bl{at, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n), 1},
      cl{at, static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(n), 1};
  return cublasLtMatmul(nullptr, &description, nullptr, a, &al, b, &bl, nullptr, c, &cl, c, &cl, nullptr, nullptr, 0, nullptr);
}
