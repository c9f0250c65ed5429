// cuda.h with every exported form of every entry point declared under its own name (cuMemAlloc beside
// cuMemAlloc_v2, cuLaunchKernel beside cuLaunchKernel_ptsz) and none of the renaming macros, so that the table can
// be expanded and hooks are checked against the header's own signatures; what it is too old to declare is in
// newer_symbols.hpp. Include it before anything that includes cuda.h; the types are the same either way.
#pragma once

#if defined(CUDA_VERSION) && !defined(__CUDA_API_VERSION_INTERNAL)
#error "interpose/cuda_symbols.hpp must come before cuda.h"
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL_ODR
#endif
#include <cuda.h>

#include "interpose/newer_symbols.hpp"
