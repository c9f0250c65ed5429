#include "shim/host/tools.hpp"

namespace udnnmem::host {
namespace {

// Variables as the tools of CUDA 12.4 to 13 set them for what they start.
constexpr const char* nsys_says = "what is moved is on the timeline as NVTX ranges";
constexpr const char* ncu_says = "moves happen between its runs of a kernel, so times of whole steps mean nothing";
constexpr const char* sanitizer_says = "it sees the library's own copies and kernels too; UDNNMEM_DISABLE=1 leaves the program alone";
constexpr Tool tools[] = {
    {"nsys", "NSYS_PROFILING_SESSION_ID", false, nsys_says},
    {"ncu", "NV_NSIGHT_INJECTION_PORT_BASE", true, ncu_says},
    {"ncu", "NV_COMPUTE_PROFILER_PERFWORKS_DIR", true, ncu_says},
    {"compute-sanitizer", "NV_SANITIZER_INJECTION_PORT_BASE", true, sanitizer_says},
    {"compute-sanitizer", "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN", true, sanitizer_says},
};

}  // namespace

const Tool* tool_at_work(const std::function<const char*(const char* variable)>& lookup) {
    for (const Tool& tool : tools)
        if (lookup(tool.variable)) return &tool;
    return nullptr;
}

}  // namespace udnnmem::host
