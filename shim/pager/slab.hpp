// Small allocations, carved from slabs that never leave the device: 256-byte units, first fit, neighbours merged.
//
// Invariants: guarded by the device's mutex; a slab is a pinned Buffer; a block freed in stream order is given
// only to its own stream until every op before the free has completed.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <vector>

namespace udnnmem::pager {

struct Buffer;
class DevicePager;

class SlabAllocator {
  public:
    static constexpr std::size_t kUnit = 256;

    explicit SlabAllocator(DevicePager& device) : device_(device) {}

    // 0: no slab has room; the caller adds one and asks again. `slot`: the stream that asks, -1 for none.
    CUdeviceptr take(std::size_t bytes, int slot, CUmemoryPool pool);
    void add(Buffer* slab);
    // False if `at` is not the base of a live block.
    bool free(CUdeviceptr at, int slot, std::uint64_t number, std::uint64_t streams);
    bool find(CUdeviceptr at, CUdeviceptr& base, std::size_t& bytes, CUmemoryPool* pool) const;

  private:
    void merge(CUdeviceptr at, std::size_t bytes);
    void collect();

    DevicePager& device_;
    std::map<CUdeviceptr, std::size_t> free_;    // ready to be taken, neighbours merged within a slab
    struct Block {
        std::size_t bytes, units;
        CUmemoryPool pool;
    };
    std::map<CUdeviceptr, Block> live_;
    struct Pending {
        CUdeviceptr at;
        std::size_t units;
        int slot;
        std::uint64_t number, streams;
    };
    std::vector<Pending> pending_;
    std::map<CUdeviceptr, std::size_t> slabs_;
};

}  // namespace udnnmem::pager
