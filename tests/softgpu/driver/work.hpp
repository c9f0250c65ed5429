// The kinds of work that ops and graph nodes do. Each is made once and then shared unchanged: a graph's
// SetParams makes a new one.
#pragma once

#include <cstring>

#include "tests/softgpu/driver/context.hpp"

namespace softgpu {

struct HostWork final : Work {
    CUDA_HOST_NODE_PARAMS params{};
    CUstreamCallback callback = nullptr;  // of cuStreamAddCallback, instead of params.fn
    CUstream callback_stream = nullptr;
    CUcontext context = nullptr;
    void* data = nullptr;
    EngineKind engine() const override { return EngineKind::host; }
    CUresult run() override;
    std::string describe() const override { return "host function"; }
    std::uint64_t identity() const override { return 1; }
    bool always() const override { return callback != nullptr; }
};

// Copies described as 3D; an end that is device memory is reached through the view of `view_device`.
struct CopyWork final : Work {
    CUDA_MEMCPY3D params{};
    const char* source = nullptr;  // first byte, in the address space of the engines
    char* destination = nullptr;
    std::uint64_t source_pitch = 0, source_slice = 0, destination_pitch = 0, destination_slice = 0;
    std::vector<char> staged;  // snapshot of pageable source memory
    EngineKind kind = EngineKind::compute;
    bool source_host = false, destination_host = false;
    bool destination_pageable = false;  // the call must wait
    EngineKind engine() const override { return kind; }
    CUresult run() override;
    std::string describe() const override;
    std::uint64_t bytes() const { return params.WidthInBytes * params.Height * params.Depth; }
    std::uint64_t identity() const override { return mix(2 + static_cast<std::uint64_t>(kind), bytes()); }
    std::uint64_t link_bytes() const override { return source_host != destination_host ? bytes() : 0; }
    std::uint64_t memory_bytes() const override { return 2 * bytes(); }
};

struct MemsetWork final : Work {
    CUDA_MEMSET_NODE_PARAMS params{};
    EngineKind engine() const override { return EngineKind::compute; }
    CUresult run() override;
    std::string describe() const override;
    std::uint64_t identity() const override { return mix(mix(9, params.width), params.height); }
    std::uint64_t memory_bytes() const override { return std::uint64_t{params.width} * params.height * params.elementSize; }
};

// cuStreamWaitValue, cuStreamWriteValue and batches of them.
struct MemOpWork final : Work {
    std::vector<CUstreamBatchMemOpParams> ops;
    std::size_t next = 0;
    CUcontext context = nullptr;
    unsigned flags = 0;
    EngineKind engine() const override { return EngineKind::poll; }
    CUresult run() override { return CUDA_SUCCESS; }
    bool step() override;
    std::string describe() const override { return "stream memory operation"; }
    std::uint64_t identity() const override { return 11; }
};

// Record and wait as graph nodes: no work of their own, the launch of the graph acts on the event.
struct EventWork final : Work {
    CUevent event = nullptr;
    bool record = false;
    EngineKind engine() const override { return EngineKind::none; }
    CUresult run() override { return CUDA_SUCCESS; }
    std::string describe() const override { return "event"; }
    std::uint64_t identity() const override { return 12; }
};

std::shared_ptr<Work> host_work(int device, CUhostFn function, void* data);
std::shared_ptr<Work> callback_work(CUstream handle, CUcontext context, CUstreamCallback callback, void* data);
std::shared_ptr<Work> event_record_work(CUevent event);
std::shared_ptr<Work> event_wait_work(CUevent event);

// Checks and resolves a copy's ends. `snapshot`: pageable source memory is copied away now (not for graphs); `peers`: the call names the
// contexts of both ends, or is a graph's node.
CUresult make_copy(int device, const CUDA_MEMCPY3D& params, bool snapshot, std::shared_ptr<CopyWork>* out, bool peers);
CUresult make_memset(int device, const CUDA_MEMSET_NODE_PARAMS& params, std::shared_ptr<MemsetWork>* out);
CUresult make_memops(CUcontext context, unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags, std::shared_ptr<MemOpWork>* out);
CUDA_MEMCPY3D linear_copy(CUmemorytype to, Address destination, CUmemorytype from, Address source, std::uint64_t bytes);

}  // namespace softgpu
