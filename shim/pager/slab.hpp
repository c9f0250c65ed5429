// Small allocations, carved from slabs that never leave the device: 256-byte units, best fit, neighbours merged. Each call
// takes a time that grows with the logarithm of what there is: it is made under the device's mutex.
//
// Invariants: guarded by the device's mutex; a slab is a pinned Buffer; a block freed in stream order is given
// only to its own stream until every op before the free has completed. What a free waits for is all that was submitted before it,
// on whatever stream: so frees complete in the order in which they were made.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace udnnmem::pager {

struct Buffer;
class DevicePager;

// An allocation as the program knows it.
struct Allocated {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;           // as it asked
    CUmemoryPool pool = nullptr;     // nullptr: of no pool
    CUcontext context = nullptr;     // nullptr: of no context
    std::uint64_t id = 0;            // no other allocation of the process has it, nor had
};

class SlabAllocator {
  public:
    static constexpr std::size_t kUnit = 256;

    explicit SlabAllocator(DevicePager& device) : device_(device) {}

    // 0: no slab has room; the caller adds one and asks again. `stream`: the life of the slot of the stream that asks, 0 for none.
    CUdeviceptr take(std::size_t bytes, std::uint64_t stream, CUmemoryPool pool, CUcontext context);
    void add(Buffer* slab);
    // False if `at` is not the base of a live block.
    bool free(CUdeviceptr at, std::uint64_t stream, std::uint64_t number, std::uint64_t streams);
    // Frees what is left of a context; `freed(at, bytes, pool)` for each block.
    template <class Freed>
    void free_context(CUcontext context, std::uint64_t number, std::uint64_t streams, Freed freed) {
        std::vector<CUdeviceptr> gone;
        for (const auto& [at, block] : live_)
            if (block.context == context) gone.push_back(at);
        for (CUdeviceptr at : gone) {
            freed(at, live_[at].bytes, live_[at].pool);
            free(at, 0, number, streams);
        }
    }
    // The live block that holds `at`; `id` is unique among the blocks of this allocator.
    std::optional<Allocated> find(CUdeviceptr at) const;

    // See DevicePager::escape(), of the block that holds `at`. False: that was known, or there is none.
    bool escape(CUdeviceptr at);
    bool escaped(CUdeviceptr at) const;

    // Whether `at` was part of a block that is freed in the order of work which has not completed.
    bool used_until_freed(CUdeviceptr at) const;

    // Empty if every byte of the slabs is free, live or pending, and only one of them.
    std::string is_valid() const;

  private:
    void merge(CUdeviceptr at, std::size_t bytes);
    void collect();

    DevicePager& device_;
    using Free = std::map<CUdeviceptr, std::size_t>;
    void insert_free(CUdeviceptr at, std::size_t bytes);
    void erase_free(Free::iterator);
    Free free_;    // ready to be taken, neighbours merged within a slab
    std::set<std::pair<std::size_t, CUdeviceptr>> free_by_size_;
    struct Block {
        std::size_t bytes, units;
        CUmemoryPool pool;
        CUcontext context;
        std::uint32_t id;
        bool escaped = false;
    };
    std::map<CUdeviceptr, Block>::const_iterator holding(CUdeviceptr at) const;
    std::map<CUdeviceptr, Block> live_;
    struct Pending {
        std::size_t units;
        std::uint64_t stream;  // that freed it, 0 for none
        std::uint64_t number, streams;
        std::uint64_t nth;     // free of all
    };
    using Waiting = std::map<CUdeviceptr, Pending>;
    void erase_pending(Waiting::iterator);
    Waiting pending_;
    std::map<std::uint64_t, CUdeviceptr> pending_in_order_;                          // by nth
    std::set<std::tuple<std::uint64_t, std::size_t, std::uint64_t>> pending_of_;     // stream, units, nth
    std::uint64_t frees_ = 0;
    std::map<CUdeviceptr, std::size_t> slabs_;
    std::uint32_t next_id_ = 0;
};

}  // namespace udnnmem::pager
