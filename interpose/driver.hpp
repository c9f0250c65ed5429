// The real driver's entry points, for hooks and for the library's own calls. Nothing is looked up before the
// program itself reaches for CUDA; from then on every pointer is either the driver's own or null.
#pragma once

#include <cuda.h>

namespace udnnmem::interpose {

// Finds the real driver if it is loaded or can be loaded (libcuda.so.1), and fills in the table behind real(). True
// if it is there with every required entry point. Thread-safe, idempotent, makes no CUDA call.
bool resolve_driver() noexcept;

// One line: why resolve_driver() said no ("" otherwise).
const char* driver_error() noexcept;

// The driver's own pointer for an exported symbol of entry_points.def ("cuMemAlloc_v2", "cuMemcpyAsync_ptsz"),
// null if this driver lacks it. Constant time is not promised: keep the answer.
void* real_symbol(const char* symbol) noexcept;

// Typed: REAL(cuMemMap)(...). The signature is the header's for that symbol.
#define UDNNMEM_REAL(symbol) (reinterpret_cast<decltype(&::symbol)>(::udnnmem::interpose::real_symbol(#symbol)))

// The layout of a kernel's parameters, cached by handle. Handles both CUfunction and a CUkernel cast to it.
struct KernelLayout;
const KernelLayout* kernel_layout(CUfunction) noexcept;

}  // namespace udnnmem::interpose
