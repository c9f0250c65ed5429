// What every file of the software driver shares: the driver API's own declarations (all symbol
// versions, exported), the options read from the environment, the figures, and the gate that each
// entry point passes first. Invariants: nothing here is ever destroyed (the runtime calls back into the
// driver from static destructors), and the gate costs one relaxed load when no fault is injected.
#pragma once

#pragma GCC visibility push(default)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
extern "C" {
CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState*);
CUresult cuLinkAddData(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned, CUjit_option*, void**);
CUresult cuLinkAddFile(CUlinkState, CUjitInputType, const char*, unsigned, CUjit_option*, void**);
CUresult cuLinkCreate_v2(unsigned, CUjit_option*, void**, CUlinkState*);
CUresult cuLinkAddData_v2(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned, CUjit_option*, void**);
CUresult cuLinkAddFile_v2(CUlinkState, CUjitInputType, const char*, unsigned, CUjit_option*, void**);
CUresult cuLinkComplete(CUlinkState, void**, size_t*);
CUresult cuLinkDestroy(CUlinkState);
// Of later drivers than the header's.
CUresult cuLaunchHostFunc_v2(CUstream, CUhostFn, void*, unsigned);
CUresult cuLaunchHostFunc_v2_ptsz(CUstream, CUhostFn, void*, unsigned);
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes*, CUstream);
CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes*, CUstream);
CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);
CUresult cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);
CUresult cuGraphAddNode_v3(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, size_t, CUgraphNodeParams*);
CUresult cuGraphNodeSetParams_v2(CUgraphNode, CUgraphNodeParams*);
}
#pragma GCC visibility pop

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/softgpu/softgpu.h"

namespace softgpu {

using Address = std::uint64_t;

struct Options {
    std::uint64_t memory = 1ull << 30;        // bytes of each device
    std::uint64_t granularity = 64ull << 10;  // of virtual memory management
    double host_to_device = 0;                // bytes per second; 0: as fast as memcpy
    double device_to_host = 0;
    int devices = 1;
    std::uint64_t card = 0;  // in the devices' UUIDs: the same in all processes with one SOFTGPU_CARD, else this process' own
    int sm = 75;
    bool shuffle = false;  // SOFTGPU_SEED was given
    std::vector<std::uint64_t> numa;   // SOFTGPU_NUMA: bytes of each node of the host; empty: one node, without end
    std::uint64_t seed = 0;
    bool strict = true;
    std::uint64_t assert_bytes = 0;  // 0: no limit
    std::string cache_folder;
    std::string report;     // file that the figures are appended to at exit
    bool count = false;     // SOFTGPU_COUNT
    std::string fail_name;  // SOFTGPU_FAIL
    std::uint64_t fail_at = 0, fail_times = 1;
    CUresult fail_with = CUDA_ERROR_OUT_OF_MEMORY;
    int workers = 2;
    std::size_t queue = 0;  // SOFTGPU_QUEUE: calls whose work a stream holds at a time; 0: any number
    std::string timeline;   // SOFTGPU_TIMELINE: what each engine did when, on the virtual clock
    bool modelled = false;  // SOFTGPU_TIME=model or table: virtual time (clock.hpp)
    struct Lasts {
        std::int64_t ns = 0;
        int parameter = -1;  // not negative: the kernel's own 64-bit parameter says how many ns
    };
    std::unordered_map<std::string, Lasts> table;  // by kernel, what is not by the roofline
    std::int64_t create_ns = 0, access_ns = 0, unmap_ns = 0;   // SOFTGPU_MAPPING: what those calls take their thread then, for each frame
    double operations_per_second = 1e12, bytes_per_second = 1e11;  // the device's roofline then
};
const Options& options();

struct Figures {
    std::atomic<std::uint64_t> device_bytes{0}, device_peak{0}, host_bytes{0}, host_peak{0}, frames{0}, mappings{0}, ops{0}, kernels{0},
        faults{0}, to_device{0}, to_host{0}, on_device{0};
    std::atomic<std::uint64_t> bytes_read{0}, bytes_written{0}, operations{0}, unwritten{0};  // with SOFTGPU_COUNT only
};
Figures& figures();

// One line on stderr, "softgpu: ..."; thread-safe.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The gate. `gate` is 0 once the driver is initialised and no fault is to be injected.
extern std::atomic<int> gate;
CUresult pass_gate(const char* name);
inline CUresult enter(const char* name) { return gate.load(std::memory_order_relaxed) ? pass_gate(name) : CUDA_SUCCESS; }
CUresult initialise();
bool initialised();

std::int64_t now_ns();
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

// A stream-taking entry point has a twin whose NULL stream is the calling thread's own.
enum class Default { legacy, per_thread };

}  // namespace softgpu

#define SOFTGPU_API extern "C" __attribute__((visibility("default"))) CUresult
// First line of an entry point.
#define ENTER(name)                                                                    \
    do {                                                                               \
        if (CUresult refused_ = softgpu::enter(#name); refused_ != CUDA_SUCCESS) [[unlikely]] return refused_; \
    } while (0)
#define TRY(expression)                                                                \
    do {                                                                               \
        if (CUresult tried_ = (expression); tried_ != CUDA_SUCCESS) [[unlikely]] return tried_; \
    } while (0)
#define REQUIRE(condition)                                        \
    do {                                                          \
        if (!(condition)) [[unlikely]] return CUDA_ERROR_INVALID_VALUE; \
    } while (0)
