// The parts of cuBLAS's, cuBLASLt's and cuDNN's interfaces that are needed, as the binary interface has them: handles,
// descriptors and data are pointers, enumerations ints. From the public headers cublas_api.h, cublasLt.h, cudnn_cnn.h and
// cudnn_graph.h (toolkit 13.0, cuDNN 9).
#pragma once

#include <cstddef>
#include <cstdint>

namespace udnnmem::profiler::math::api {

// `I` is int, or int64_t for the names that end in _64.
#define GEMM(I) int(void*, int, int, I, I, I, const void*, const void*, I, const void*, I, const void*, void*, I)
#define GEMM_TYPED(I) int(void*, int, int, I, I, I, const void*, const void*, int, I, const void*, int, I, const void*, void*, int, I)
#define GEMM_EX(I) int(void*, int, int, I, I, I, const void*, const void*, int, I, const void*, int, I, const void*, void*, int, I, int, int)
#define GEMM_BATCHED(I) int(void*, int, int, I, I, I, const void*, const void*, I, const void*, I, const void*, void*, I, I)
#define GEMM_STRIDED(I) int(void*, int, int, I, I, I, const void*, const void*, I, long long, const void*, I, long long, const void*, void*, I, long long, I)
#define GEMM_BATCHED_EX(I) int(void*, int, int, I, I, I, const void*, const void*, int, I, const void*, int, I, const void*, void*, int, I, I, int, int)
#define GEMM_STRIDED_EX(I) \
    int(void*, int, int, I, I, I, const void*, const void*, int, I, long long, const void*, int, I, long long, const void*, void*, int, I, long long, I, int, int)
#define GEMM_GROUPED(I) \
    int(void*, const int*, const int*, const I*, const I*, const I*, const void*, const void*, const I*, const void*, const I*, const void*, void*, const I*, I, const I*)
#define GEMM_GROUPED_EX(I)                                                                                                                            \
    int(void*, const int*, const int*, const I*, const I*, const I*, const void*, const void*, int, const I*, const void*, int, const I*, const void*, void*, int, \
        const I*, I, const I*, int)
#define LT_MATMUL \
    int(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*, const void*, void*, std::size_t, void*)
#define CONVOLUTION int(void*, const void*, const void*, const void*, const void*, const void*, const void*, int, void*, std::size_t, const void*, const void*, void*)
#define CONVOLUTION_BIAS                                                                                                                             \
    int(void*, const void*, const void*, const void*, const void*, const void*, const void*, int, void*, std::size_t, const void*, const void*, const void*, \
        const void*, const void*, const void*, const void*, void*)
#define BACKEND_CREATE int(int, void**)
#define BACKEND_DESTROY int(void*)
#define BACKEND_SET int(void*, int, int, std::int64_t, const void*)
#define BACKEND_GET int(void*, int, int, std::int64_t, std::int64_t*, void*)
#define BACKEND_EXECUTE int(void*, void*, void*)

#define CALL(library, name, ...) using name = __VA_ARGS__;
#include "profiler/math/calls.def"
#undef CALL

// Asked of the library itself, by name.
using cublasLtMatrixLayoutGetAttribute = int(void*, int, void*, std::size_t, std::size_t*);
using cublasLtMatmulDescGetAttribute = cublasLtMatrixLayoutGetAttribute;
using cudnnGetTensorNdDescriptor = int(const void*, int, int* type, int* dimensions, int* sizes, int* strides);
using cudnnGetFilterNdDescriptor = int(const void*, int, int* type, int* format, int* dimensions, int* sizes);

constexpr int lt_layout_type = 0, lt_layout_rows = 2, lt_layout_columns = 3, lt_layout_batch = 5, lt_transpose_a = 3;
enum Descriptor { engine = 2, engine_config = 3, engine_heuristics = 4, execution_plan = 5, convolution_forward = 10, convolution_filter = 11, convolution_data = 12, operation_graph = 15, tensor = 17, matmul = 19 };
enum Attribute {
    heuristics_graph = 201, heuristics_results = 202, config_engine = 300, plan_config = 401, forward_w = 703, forward_y = 705, data_w = 709, data_dy = 711, filter_dw = 715, filter_dy = 717,
    graph_operations = 801, tensor_dimensions = 902, engine_graph = 1300, matmul_a = 1520, matmul_c = 1522,
};
constexpr int type_int64 = 3, type_descriptor = 15;
constexpr int not_initialised = 1;   // cuBLAS's and cuDNN's status for a library that is not there

// Whether a cudaDataType is a complex one.
constexpr bool is_complex(int type) { return (type >= 4 && type <= 7) || (type >= 9 && type <= 27 && type % 2 == 1); }

}  // namespace udnnmem::profiler::math::api
