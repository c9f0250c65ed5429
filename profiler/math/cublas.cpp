// cuBLAS: m, n, k are arguments. cuBLASLt: they are asked of its descriptors.
#include "profiler/math/internal.hpp"

using namespace udnnmem::profiler::math;

namespace {

constexpr double kReal = 2, kComplex = 8;   // FLOPs of a multiply-add
double by_type(int type) { return api::is_complex(type) ? kComplex : kReal; }
double product(double each, double m, double n, double k, double times = 1) { return each * m * n * k * times; }

template <class I>
double grouped(double each, const I* m, const I* n, const I* k, I groups, const I* sizes) {
    double sum = 0;
    for (I g = 0; m && n && k && sizes && g < groups; ++g) sum += product(each, static_cast<double>(m[g]), static_cast<double>(n[g]), static_cast<double>(k[g]), static_cast<double>(sizes[g]));
    return sum;
}

template <Function which>
double lt_matmul(void* description, void* a, void* d) {
    static const auto layout = reinterpret_cast<api::cublasLtMatrixLayoutGetAttribute*>(beside(which, "cublasLtMatrixLayoutGetAttribute"));
    static const auto describe = reinterpret_cast<api::cublasLtMatmulDescGetAttribute*>(beside(which, "cublasLtMatmulDescGetAttribute"));
    if (!layout || !describe || !description || !a || !d) return 0;
    std::uint64_t m = 0, n = 0, k = 0;
    std::int32_t transposed = 0, batch = 1, type = 0;
    const auto ask = [](auto* call, void* of, int what, auto& to) {
        std::size_t written = 0;
        return call(of, what, &to, sizeof to, &written) == 0;
    };
    if (!ask(describe, description, api::lt_transpose_a, transposed)) return 0;
    if (!ask(layout, d, api::lt_layout_rows, m) || !ask(layout, d, api::lt_layout_columns, n)) return 0;
    if (!ask(layout, a, transposed ? api::lt_layout_rows : api::lt_layout_columns, k)) return 0;
    if (!ask(layout, d, api::lt_layout_batch, batch)) batch = 1;
    if (!ask(layout, a, api::lt_layout_type, type)) type = 0;
    return product(by_type(type), static_cast<double>(m), static_cast<double>(n), static_cast<double>(k), batch);
}

}  // namespace

#define ON(name, flops, ...) hand_on<api::name>(which, #name, [&]() noexcept -> double { return flops; }, __VA_ARGS__)
using P = const void*;

#define GEMM_CALL(name, I, each)                                                                                                          \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, int ta, int tb, I m, I n, I k, P alpha, P a, I lda, P b, I ldb, P beta, void* c, I ldc), \
                    ON(name, product(each, double(m), double(n), double(k)), h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
#define TYPED_CALL(name, I)                                                                                                                               \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, int ta, int tb, I m, I n, I k, P alpha, P a, int at, I lda, P b, int bt, I ldb, P beta, void* c, int ct, \
                    I ldc),                                                                                                                               \
                    ON(name, product(by_type(at), double(m), double(n), double(k)), h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc))
#define EX_CALL(name, I)                                                                                                                                  \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, int ta, int tb, I m, I n, I k, P alpha, P a, int at, I lda, P b, int bt, I ldb, P beta, void* c, int ct, \
                    I ldc, int compute, int algorithm),                                                                                                   \
                    ON(name, product(by_type(at), double(m), double(n), double(k)), h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute, algorithm))
#define BATCHED_CALL(name, I, each)                                                                                                                \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, int ta, int tb, I m, I n, I k, P alpha, P a, I lda, P b, I ldb, P beta, void* c, I ldc, I batch), \
                    ON(name, product(each, double(m), double(n), double(k), double(batch)), h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch))
#define STRIDED_CALL(name, I, each)                                                                                                                  \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, int ta, int tb, I m, I n, I k, P alpha, P a, I lda, long long as, P b, I ldb, long long bs, P beta, \
                    void* c, I ldc, long long cs, I batch),                                                                                          \
                    ON(name, product(each, double(m), double(n), double(k), double(batch)), h, ta, tb, m, n, k, alpha, a, lda, as, b, ldb, bs, beta, c, ldc, cs, batch))
#define BATCHED_EX_CALL(name, I)                                                                                                                          \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, int ta, int tb, I m, I n, I k, P alpha, P a, int at, I lda, P b, int bt, I ldb, P beta, void* c, int ct, \
                    I ldc, I batch, int compute, int algorithm),                                                                                          \
                    ON(name, product(by_type(at), double(m), double(n), double(k), double(batch)), h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, batch, compute, algorithm))
#define STRIDED_EX_CALL(name, I)                                                                                                               \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, int ta, int tb, I m, I n, I k, P alpha, P a, int at, I lda, long long as, P b, int bt, I ldb, \
                    long long bs, P beta, void* c, int ct, I ldc, long long cs, I batch, int compute, int algorithm),                          \
                    ON(name, product(by_type(at), double(m), double(n), double(k), double(batch)), h, ta, tb, m, n, k, alpha, a, at, lda, as, b, bt, ldb, bs, beta, c, ct, ldc, cs, batch, compute, algorithm))
#define GROUPED_CALL(name, I, each)                                                                                                                 \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, const int* ta, const int* tb, const I* m, const I* n, const I* k, P alpha, P a, const I* lda, P b, \
                    const I* ldb, P beta, void* c, const I* ldc, I groups, const I* sizes),                                                         \
                    ON(name, grouped(each, m, n, k, groups, sizes), h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, groups, sizes))
#define GROUPED_EX_CALL(name, I)                                                                                                                       \
    CUBLAS_RELEASES(MATH_EXPORT, name, (void* h, const int* ta, const int* tb, const I* m, const I* n, const I* k, P alpha, P a, int at, const I* lda, \
                    P b, int bt, const I* ldb, P beta, void* c, int ct, const I* ldc, I groups, const I* sizes, int compute),                          \
                    ON(name, grouped(by_type(at), m, n, k, groups, sizes), h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, groups, sizes, compute))
#define WITH(MACRO, name, ...) MACRO(name, int, ##__VA_ARGS__) MACRO(name##_64, std::int64_t, ##__VA_ARGS__)

WITH(GEMM_CALL, cublasSgemm_v2, kReal)
WITH(GEMM_CALL, cublasDgemm_v2, kReal)
WITH(GEMM_CALL, cublasHgemm, kReal)
WITH(GEMM_CALL, cublasCgemm_v2, kComplex)
WITH(GEMM_CALL, cublasZgemm_v2, kComplex)
WITH(GEMM_CALL, cublasCgemm3m, kComplex)
WITH(GEMM_CALL, cublasZgemm3m, kComplex)
WITH(TYPED_CALL, cublasSgemmEx)
WITH(TYPED_CALL, cublasCgemmEx)
WITH(TYPED_CALL, cublasCgemm3mEx)
WITH(EX_CALL, cublasGemmEx)
WITH(BATCHED_CALL, cublasSgemmBatched, kReal)
WITH(BATCHED_CALL, cublasDgemmBatched, kReal)
WITH(BATCHED_CALL, cublasHgemmBatched, kReal)
WITH(BATCHED_CALL, cublasCgemmBatched, kComplex)
WITH(BATCHED_CALL, cublasZgemmBatched, kComplex)
WITH(BATCHED_CALL, cublasCgemm3mBatched, kComplex)
WITH(STRIDED_CALL, cublasSgemmStridedBatched, kReal)
WITH(STRIDED_CALL, cublasDgemmStridedBatched, kReal)
WITH(STRIDED_CALL, cublasHgemmStridedBatched, kReal)
WITH(STRIDED_CALL, cublasCgemmStridedBatched, kComplex)
WITH(STRIDED_CALL, cublasZgemmStridedBatched, kComplex)
WITH(STRIDED_CALL, cublasCgemm3mStridedBatched, kComplex)
WITH(BATCHED_EX_CALL, cublasGemmBatchedEx)
WITH(STRIDED_EX_CALL, cublasGemmStridedBatchedEx)
WITH(GROUPED_CALL, cublasSgemmGroupedBatched, kReal)
WITH(GROUPED_CALL, cublasDgemmGroupedBatched, kReal)
WITH(GROUPED_EX_CALL, cublasGemmGroupedBatchedEx)

CUBLASLT_RELEASES(MATH_EXPORT, cublasLtMatmul, (void* h, void* description, P alpha, P a, void* a_layout, P b, void* b_layout, P beta, P c, void* c_layout, void* d, void* d_layout, P algorithm, void* workspace,
                                                std::size_t size, void* stream),
                  ON(cublasLtMatmul, lt_matmul<which>(description, a_layout, d_layout), h, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace, size, stream))
