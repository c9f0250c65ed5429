// The one small interface behind which all mapping and moving lies: make, map, unmap, copy out, copy in,
// drop. Its body today is CUDA's virtual memory management (VmmBacking); should a card show that unmapping waits
// for running kernels, a second body on managed memory takes its place and nothing above changes.
//
// Invariants
//   - A frame is one physical allocation, a power of two of the granule up to 64 MiB, and is mapped whole.
//   - Every frame has a private alias for life: copies and hashes go through it, never through the arena.
//   - Mappings are changed by the mover, save that a slab that was never handed out is retired by its maker; sharing and peer access
//     come from launching threads. Under the device's mutex, save that the mover calls map() and unmap() without it
//     (DevicePager::remap): other buffers' may be mapped and unmapped at the same time, but share() and allow_again() wait.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shim/pager/driver.hpp"

namespace udnnmem::pager {

enum class Place : std::uint8_t { device, host };

struct Frame {
    Place place = Place::device;
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr alias = 0;   // device address of the alias; 0: the device cannot reach it
    void* cpu = nullptr;     // host frames: where the host (and the copy engines) see it
    int node = 0;            // ... and what NUMA node they lie on, where there is an alias
};

struct Piece {
    std::size_t device_at, host_at, bytes;   // where in the two frames, and how much
};

class Backing {
  public:
    virtual ~Backing() = default;
    virtual std::size_t granule() const = 0;
    virtual bool host_frames_can_be_mapped() const = 0;
    // Whether device frames can be registered with a network card (GPUDirect RDMA), as memory of cuMemAlloc can.
    virtual bool network_can_reach() const = 0;
    virtual CUresult make(Place, std::size_t bytes, Frame& out) = 0;
    virtual void drop(Frame&) = 0;
    // Maps `frames` one after another from `at` on, with access for the device. On failure nothing is mapped.
    virtual CUresult map(CUdeviceptr at, const std::vector<Frame*>& frames) = 0;
    // Access for the CPU as well, to host frames mapped so. It costs more than the device's, and unmapping more than twice as much.
    virtual CUresult allow_cpu(CUdeviceptr at, const std::vector<Frame*>& frames) = 0;
    // Whether `reader`, another device, has access to what is mapped from now on ...
    virtual void share(CUdevice reader, bool on) = 0;
    // ... and to what is mapped now.
    virtual CUresult allow_again(CUdeviceptr at, std::size_t bytes) = 0;
    // A descriptor by which other processes may map the frame; CUDA_ERROR_NOT_SUPPORTED where there is none.
    virtual CUresult share_frame(const Frame&, int& descriptor) = 0;
    virtual CUresult unmap(CUdeviceptr at, std::size_t bytes) = 0;
    // Queues a copy of a part of a frame to a part of the other.
    virtual CUresult copy_out(const Frame& host, const Frame& device, Piece, CUstream) = 0;
    virtual CUresult copy_in(const Frame& device, const Frame& host, Piece, CUstream) = 0;
};

// `device`: the ordinal; `nodes`: NUMA nodes that host frames may lie on when the device's own has no memory left. Null if the device
// has no virtual memory management, or no stream there says when a copy has ended.
std::unique_ptr<Backing> make_vmm_backing(const Driver&, CUdevice, const std::vector<int>& nodes = {});

}  // namespace udnnmem::pager
