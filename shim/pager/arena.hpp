// The reserved address range that all managed buffers of all devices live in, and the table that says for each
// granule which buffer holds it. One subtraction and compare tells whether a 64-bit word points into it.
//
// Invariants
//   - begin()/bytes() are set once, before the first buffer exists, and never change.
//   - The table is read without a lock (launch path) and written under the mutex of the granule's device.
//   - A range is given to one buffer at a time and reused only after free_range().
//   - Beside each range a granule on either side is its own and never mapped: addresses there, which kernels are given that run
//     through memory backwards (one past the end) or count from one (before the begin), are that buffer's and no neighbour's.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include "shim/pager/driver.hpp"

namespace udnnmem::pager {

struct Buffer;

class Arena {
  public:
    // Reserves `bytes` (halved until the driver agrees, not below 1 GiB). False: no address space to be had.
    bool start(const Driver&, std::size_t granule, std::size_t bytes);

    bool contains(CUdeviceptr address) const {
        const std::size_t size = bytes_.load(std::memory_order_acquire);
        return address - begin_.load(std::memory_order_relaxed) < size;
    }
    CUdeviceptr begin() const { return begin_; }
    std::size_t bytes() const { return bytes_; }

    // The buffer at `address`, or no more than a granule before or behind it, which must lie in the arena; null if none.
    Buffer* find(CUdeviceptr address) const {
        return table_[(address - begin_.load(std::memory_order_relaxed)) >> shift_].load(std::memory_order_acquire);
    }

    // `bytes` is a multiple of the granule. 0: full. Thread-safe.
    CUdeviceptr take_range(std::size_t bytes, Buffer* owner);
    // `at`, `bytes`: as taken.
    void free_range(CUdeviceptr at, std::size_t bytes);

  private:
    std::size_t granule() const { return std::size_t{1} << shift_; }
    void mark(CUdeviceptr at, std::size_t bytes, Buffer* owner);

    std::atomic<CUdeviceptr> begin_{0};
    std::atomic<std::size_t> bytes_{0};   // set last, for launches ask while start() is at work
    unsigned shift_ = 0;
    std::atomic<Buffer*>* table_ = nullptr;
    std::mutex mutex_;
    std::map<CUdeviceptr, std::size_t> free_;  // by address, neighbours merged
};

}  // namespace udnnmem::pager
