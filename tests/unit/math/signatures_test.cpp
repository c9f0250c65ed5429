// The signatures that we export are the public headers', argument by argument, as far as the binary interface goes. Where the
// toolkit has no such headers, nothing is compared.
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <cublas_v2.h>
#define HAVE_CUBLAS 1
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define HAVE_CUDNN 1
#endif

#include <type_traits>

#include "profiler/math/api.hpp"
#include "profiler/math/calls.hpp"
#include "tests/catch.hpp"

namespace {

namespace api = udnnmem::profiler::math::api;

// Two types are passed alike: both pointers (arrays among them), or both whole numbers (enumerations among them) of one size.
template <class A, class B>
constexpr bool alike = (std::is_pointer_v<A> && std::is_pointer_v<B>) ||
                       ((std::is_integral_v<A> || std::is_enum_v<A>) && (std::is_integral_v<B> || std::is_enum_v<B>) && sizeof(A) == sizeof(B));

template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class R, class... A, class S, class... B>
    requires(sizeof...(A) == sizeof...(B))
struct Same<R(A...), S(B...)> : std::bool_constant<alike<R, S> && (alike<A, B> && ...)> {};

static_assert(Same<int(void*, int, const float*), unsigned(char*, int, const void*)>::value);
static_assert(!Same<int(void*, int), int(void*, long)>::value && !Same<int(void*), int(int)>::value && !Same<int(int), int(int, int)>::value);

}  // namespace

#if HAVE_CUBLAS
#define BOTH(name, FORM)                                                                 \
    static_assert(Same<api::name, std::remove_pointer_t<decltype(&::name)>>::value); \
    static_assert(Same<api::name##_64, std::remove_pointer_t<decltype(&::name##_64)>>::value);
BOTH(cublasSgemm_v2, ) BOTH(cublasDgemm_v2, ) BOTH(cublasHgemm, ) BOTH(cublasCgemm_v2, ) BOTH(cublasZgemm_v2, ) BOTH(cublasCgemm3m, ) BOTH(cublasZgemm3m, )
BOTH(cublasSgemmEx, ) BOTH(cublasCgemmEx, ) BOTH(cublasCgemm3mEx, )
BOTH(cublasSgemmBatched, ) BOTH(cublasDgemmBatched, ) BOTH(cublasHgemmBatched, ) BOTH(cublasCgemmBatched, ) BOTH(cublasZgemmBatched, ) BOTH(cublasCgemm3mBatched, )
BOTH(cublasSgemmStridedBatched, ) BOTH(cublasDgemmStridedBatched, ) BOTH(cublasHgemmStridedBatched, ) BOTH(cublasCgemmStridedBatched, ) BOTH(cublasZgemmStridedBatched, )
BOTH(cublasCgemm3mStridedBatched, )
BOTH(cublasSgemmGroupedBatched, ) BOTH(cublasDgemmGroupedBatched, ) BOTH(cublasGemmGroupedBatchedEx, )
// In C++ these have an overload for an older type of one argument.
#define OVERLOADED(name, I, ...)                                          \
    using header_##name = cublasStatus_t(__VA_ARGS__);                    \
    static_assert(sizeof(static_cast<header_##name*>(&::name)) != 0);       \
    static_assert(Same<api::name, header_##name>::value);
#define EX_HEAD(I) cublasHandle_t, cublasOperation_t, cublasOperation_t, I, I, I, const void*
#define OVERLOADS(suffix, I)                                                                                                                                                      \
    OVERLOADED(cublasGemmEx##suffix, I, EX_HEAD(I), const void*, cudaDataType, I, const void*, cudaDataType, I, const void*, void*, cudaDataType, I, cublasComputeType_t, cublasGemmAlgo_t) \
    OVERLOADED(cublasGemmBatchedEx##suffix, I, EX_HEAD(I), const void* const*, cudaDataType, I, const void* const*, cudaDataType, I, const void*, void* const*, cudaDataType, I, I,          \
               cublasComputeType_t, cublasGemmAlgo_t)                                                                                                                             \
    OVERLOADED(cublasGemmStridedBatchedEx##suffix, I, EX_HEAD(I), const void*, cudaDataType, I, long long, const void*, cudaDataType, I, long long, const void*, void*, cudaDataType, I,      \
               long long, I, cublasComputeType_t, cublasGemmAlgo_t)
OVERLOADS(, int)
OVERLOADS(_64, std::int64_t)
static_assert(Same<api::cublasLtMatmul, decltype(::cublasLtMatmul)>::value);
static_assert(Same<api::cublasLtMatrixLayoutGetAttribute, decltype(::cublasLtMatrixLayoutGetAttribute)>::value);
static_assert(Same<api::cublasLtMatmulDescGetAttribute, decltype(::cublasLtMatmulDescGetAttribute)>::value);
static_assert(api::lt_layout_type == CUBLASLT_MATRIX_LAYOUT_TYPE && api::lt_layout_rows == CUBLASLT_MATRIX_LAYOUT_ROWS && api::lt_layout_columns == CUBLASLT_MATRIX_LAYOUT_COLS &&
              api::lt_layout_batch == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && api::lt_transpose_a == CUBLASLT_MATMUL_DESC_TRANSA && api::not_initialised == CUBLAS_STATUS_NOT_INITIALIZED);
static_assert(api::is_complex(CUDA_C_32F) && api::is_complex(CUDA_C_16BF) && api::is_complex(CUDA_C_64I) && api::is_complex(CUDA_C_8I) && !api::is_complex(CUDA_R_32F) &&
              !api::is_complex(CUDA_R_16BF) && !api::is_complex(CUDA_R_8F_E4M3) && !api::is_complex(CUDA_R_8U) && !api::is_complex(CUDA_R_8I));
#endif

#if HAVE_CUDNN
static_assert(Same<api::cudnnConvolutionForward, decltype(::cudnnConvolutionForward)>::value && Same<api::cudnnConvolutionBackwardData, decltype(::cudnnConvolutionBackwardData)>::value &&
              Same<api::cudnnConvolutionBackwardFilter, decltype(::cudnnConvolutionBackwardFilter)>::value &&
              Same<api::cudnnConvolutionBiasActivationForward, decltype(::cudnnConvolutionBiasActivationForward)>::value);
static_assert(Same<api::cudnnGetTensorNdDescriptor, decltype(::cudnnGetTensorNdDescriptor)>::value && Same<api::cudnnGetFilterNdDescriptor, decltype(::cudnnGetFilterNdDescriptor)>::value);
static_assert(Same<api::cudnnBackendCreateDescriptor, decltype(::cudnnBackendCreateDescriptor)>::value && Same<api::cudnnBackendDestroyDescriptor, decltype(::cudnnBackendDestroyDescriptor)>::value &&
              Same<api::cudnnBackendSetAttribute, decltype(::cudnnBackendSetAttribute)>::value && Same<api::cudnnBackendGetAttribute, decltype(::cudnnBackendGetAttribute)>::value &&
              Same<api::cudnnBackendExecute, decltype(::cudnnBackendExecute)>::value);
constexpr bool is(int ours, int theirs) { return ours == theirs; }
static_assert(is(api::engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR) && is(api::engine_config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) && is(api::engine_heuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) &&
              is(api::execution_plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) && is(api::convolution_forward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) &&
              is(api::convolution_filter, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) && is(api::convolution_data, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) &&
              is(api::operation_graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) && is(api::tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR) && is(api::matmul, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
static_assert(is(api::heuristics_graph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) && is(api::heuristics_results, CUDNN_ATTR_ENGINEHEUR_RESULTS) && is(api::config_engine, CUDNN_ATTR_ENGINECFG_ENGINE) &&
              is(api::plan_config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) && is(api::forward_w, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W) && is(api::forward_y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y) &&
              is(api::data_w, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W) && is(api::data_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY) && is(api::filter_dw, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW) &&
              is(api::filter_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY) && is(api::graph_operations, CUDNN_ATTR_OPERATIONGRAPH_OPS) && is(api::tensor_dimensions, CUDNN_ATTR_TENSOR_DIMENSIONS) &&
              is(api::engine_graph, CUDNN_ATTR_ENGINE_OPERATION_GRAPH) && is(api::matmul_a, CUDNN_ATTR_OPERATION_MATMUL_ADESC) && is(api::matmul_c, CUDNN_ATTR_OPERATION_MATMUL_CDESC) &&
              is(api::type_int64, CUDNN_TYPE_INT64) && is(api::type_descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR));
#endif

TEST_CASE("a library that is not there answers that it is not there") {
    for (const auto& e : udnnmem::profiler::math::exports()) {
        INFO(e.name);
        CHECK_FALSE(e.backed());
    }
    CHECK(udnnmem::profiler::math::current().number == 0);
}
