// The device code of the program: the images that its constructors register, and which host symbol is which kernel
// or variable of which image. An image is loaded at the first use of something in it (cuLibraryLoadData), a kernel
// is looked up at its first use; both stay until the image is unregistered. Thread-safe.
#pragma once
#include "tests/softgpu/cudart/driver.hpp"

namespace cudart {

// The kernel behind a host function; a cudaKernel_t handed out earlier is taken as itself.
// cudaErrorInvalidDeviceFunction where it is neither.
cudaError_t find_kernel(const void* function, CUkernel* out);
// The host function of a kernel, or the kernel itself where there is none.
void* host_function(CUkernel kernel);
// The loaded function (of the current context) behind a host function.
cudaError_t find_function(const void* function, CUfunction* out);
// Address and bytes of a __device__ or __constant__ variable in the current context; cudaErrorInvalidSymbol.
cudaError_t find_symbol(const void* symbol, CUdeviceptr* address, size_t* bytes);

}  // namespace cudart
