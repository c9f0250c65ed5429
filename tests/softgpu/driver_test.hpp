// What the driver's tests share: the options (set before the driver reads them), a context for each
// test (a wrong access ends a context, not the process), and short names for common calls.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/catch.hpp"
#include "tests/softgpu/softgpu.h"

#define OK(call) REQUIRE((call) == CUDA_SUCCESS)

namespace softgpu_test {

inline const bool options_set = [] {
    const int mine = std::getenv("SOFTGPU_TEST_BODY") == nullptr;  // children are given theirs
    ::setenv("SOFTGPU_MEMORY", "64MiB", mine);
    ::setenv("SOFTGPU_DEVICES", "2", mine);
    ::setenv("SOFTGPU_GRANULARITY", "64KiB", mine);
    return true;
}();

constexpr std::size_t granule = 64 << 10;

inline struct softgpu_stats stats() {
    struct softgpu_stats s;
    ::softgpu_stats(&s);
    return s;
}

struct Context {
    CUcontext context = nullptr;
    explicit Context(int device = 0) {
        OK(cuInit(0));
        OK(cuCtxCreate_v4(&context, nullptr, 0, device));
    }
    ~Context() { cuCtxDestroy_v2(context); }
};

inline CUmemAllocationProp on_device(int d = 0) {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = d;
    return p;
}
inline CUmemAllocationProp on_host() {
    CUmemAllocationProp p = on_device();
    p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return p;
}
inline CUmemAccessDesc read_write(int d = 0) {
    CUmemAccessDesc a{};
    a.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    a.location.id = d;
    a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return a;
}
inline std::vector<std::uint32_t> words(CUdeviceptr a, std::size_t n) {
    std::vector<std::uint32_t> w(n);
    OK(cuMemcpyDtoH_v2(w.data(), a, n * 4));
    return w;
}

}  // namespace softgpu_test
