// libcufft.so.12 as far as the programs here go, on whole numbers: a plan lies in device memory and holds the address of its work
// area, the library's own or one that the program gives. Its kernels are given the plan and one array: the area is in no launch.
#include <cuda.h>

#include <cstddef>
#include <vector>

extern "C" const char closed_ptx[];

namespace {
struct There {
    CUdeviceptr area;
    unsigned words, unused;
};
struct Plan {
    CUfunction out, back;
    CUdeviceptr there, own = 0;
    unsigned words;
    CUstream stream = nullptr;
};
std::vector<Plan> plans;
constexpr int kInternalError = 5;

int point(Plan& p, CUdeviceptr area) {
    const There t{area, p.words, 0};
    return cuMemcpyHtoD(p.there, &t, sizeof t) ? kInternalError : 0;
}
}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cufftCreate(int* plan) {
    Plan p{};
    CUmodule module;
    if (cuModuleLoadData(&module, closed_ptx) || cuModuleGetFunction(&p.out, module, "transform_out") || cuModuleGetFunction(&p.back, module, "transform_back") || cuMemAlloc(&p.there, sizeof(There))) return kInternalError;
    plans.push_back(p);
    *plan = static_cast<int>(plans.size()) - 1;
    return 0;
}
// With an area of its own from here on, as without cufftSetAutoAllocation(plan, 0).
API cufftMakePlan1d(int plan, int words, int, int, std::size_t* bytes) {
    Plan& p = plans[static_cast<std::size_t>(plan)];
    p.words = static_cast<unsigned>(words);
    *bytes = p.words * 4ul;
    return cuMemAlloc(&p.own, *bytes) ? kInternalError : point(p, p.own);
}
API cufftSetStream(int plan, CUstream stream) {
    plans[static_cast<std::size_t>(plan)].stream = stream;
    return 0;
}
API cufftSetWorkArea(int plan, void* area) { return point(plans[static_cast<std::size_t>(plan)], reinterpret_cast<CUdeviceptr>(area)); }
API cufftExecC2C(int plan, void* in, void* out, int) {
    Plan& p = plans[static_cast<std::size_t>(plan)];
    void *first[] = {&p.there, &in}, *second[] = {&p.there, &out};
    if (cuLaunchKernel(p.out, 8, 1, 1, 128, 1, 1, 0, p.stream, first, nullptr)) return kInternalError;
    return cuLaunchKernel(p.back, 8, 1, 1, 128, 1, 1, 0, p.stream, second, nullptr) ? kInternalError : 0;
}
API cufftDestroy(int plan) {
    Plan& p = plans[static_cast<std::size_t>(plan)];
    return cuMemFree(p.own) || cuMemFree(p.there) ? kInternalError : 0;
}
