// Small allocations, carved from slabs that never leave the device: 256-byte units, best fit, neighbours merged. Each call
// takes a time that grows with the logarithm of what there is: it is made under the device's mutex.
//
// Invariants: guarded by the device's mutex; a slab is a pinned Buffer; a block freed in stream order is given
// only to its own stream (StreamTable::goes_on()) until every op before the free has completed. What a free waits for is all that was submitted before it,
// on whatever stream: so frees complete in the order in which they were made. A slab is given up only when memory is wanted:
// what allocates and frees in turn keeps its own.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace udnnmem::pager {

struct Buffer;
struct StreamSlot;
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

    // 0: no slab has room; the caller adds one and asks again. `stream`: that which asks, null for none.
    CUdeviceptr take(std::size_t bytes, const StreamSlot* stream, CUmemoryPool pool, CUcontext context);
    void add(Buffer* slab);
    // Slabs in which nothing lives, and which are none of the allocator's from now on: of `bytes` together or more, if there are so
    // many. They are in use until what was freed there has completed. Short of all (SIZE_MAX) the first is kept, and any where
    // something has not completed. `in_hand(slab)`: it stays.
    template <class InHand>
    std::vector<Buffer*> give_up(std::size_t bytes, InHand in_hand) {
        collect();
        std::vector<Buffer*> given;
        std::size_t sum = 0;
        for (auto at = unused_.rbegin(); at != unused_.rend() && sum < bytes; ++at) {
            const auto& slab = *slabs_.find(*at);
            const bool stays = bytes != SIZE_MAX && (std::next(at) == unused_.rend() || awaited(slab));
            if (stays || in_hand(slab.second.buffer)) continue;
            sum += slab.second.bytes;
            given.push_back(slab.second.buffer);
        }
        for (const Buffer* slab : given) forget(slab);
        return given;
    }
    // Bytes that live in a slab, as they were asked for.
    std::size_t live_in(const Buffer* slab) const;
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
    struct Slab {
        Buffer* buffer;
        std::size_t bytes;
        std::size_t blocks = 0, live = 0;   // blocks that live there, and their bytes
    };
    using Slabs = std::map<CUdeviceptr, Slab>;
    Slabs::iterator slab_of(CUdeviceptr at);
    bool awaited(const Slabs::value_type&) const;
    void forget(const Buffer* slab);
    Slabs slabs_;
    std::set<CUdeviceptr> unused_;   // those in which nothing lives
    std::uint32_t next_id_ = 0;
};

}  // namespace udnnmem::pager
