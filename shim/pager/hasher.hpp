// Looks at memory on the device, on streams of the caller's choice: hashes of frames, and searches for addresses. Answers come
// straight to pinned host memory and are read once the stream has passed.
//
// Invariants: a ticket or a search is its own until it is read; what failed half-way is the caller's to wait out (the stream
// it was queued on has passed before anything else is queued here). The frames that a search looks at exist until it was read.
// Used by the mover only, with the device's context current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "shim/pager/buffer.hpp"
#include "shim/pager/driver.hpp"

namespace udnnmem::pager {

class Hasher {
  public:
    static constexpr int kTickets = 64, kSearches = 8;
    static constexpr std::size_t kMostRanges = 1024;          // frames that one search looks at
    static constexpr std::uint64_t kMostAddresses = 3072;     // that find_addresses() answers with ...
    static constexpr std::uint64_t kMostFound = 256;          // ... and a search

    explicit Hasher(const Driver& driver) : driver_(driver) {}
    // `scratch`: device memory of at least scratch_bytes() that is the hasher's own.
    CUresult start(CUdeviceptr scratch, CUdeviceptr arena_begin, std::size_t arena_bytes);
    void stop();
    static constexpr std::size_t scratch_bytes() { return kTickets * 32; }

    // Whether the next queue() finds a ticket. All come back: they are read once the mover's own streams have passed.
    bool has_ticket() const { return !free_.empty(); }
    // A ticket for the hash of `frames` (through their aliases); -1: none free or a driver error, part of it may be queued.
    int queue(const std::vector<Frame*>& frames, CUstream);
    // Likewise of `bytes` bytes at a device address.
    int queue(CUdeviceptr at, std::size_t bytes, CUstream);
    CUfunction kernel() const { return hash_; }
    CUfunction bytes_kernel() const { return hash_bytes_; }
    CUfunction expect_kernel() const { return expect_; }
    // After the stream has passed: the hash and the number of words that look like arena addresses; frees the ticket.
    Hash read(int ticket, std::uint64_t* addresses);

    struct Found {
        CUdeviceptr at, address;
    };
    // A search for the arena addresses that buffers hold; kBusy: none is free now, kTooMuch: too many frames, or a driver error.
    static constexpr int kBusy = -1, kTooMuch = -2;
    int queue_search(const std::vector<Buffer*>&, CUstream);
    // After the stream has passed: what was found. False: more than kMostFound. Frees the search.
    bool read_search(int search, std::vector<Found>& out);

    // The same, blocking, whatever their number of frames. CUDA_ERROR_INVALID_VALUE: more than kMostAddresses.
    CUresult find_addresses(const std::vector<Buffer*>&, CUstream, std::vector<Found>& out);

  private:
    struct Range {
        CUdeviceptr data;
        std::uint64_t words, place;
    };
    // In pinned memory; see hash.cu.
    template <std::uint64_t most>
    struct Search {
        Range ranges[kMostRanges];
        Found found[most];
        std::uint64_t count;
    };
    struct Pinned {
        std::uint64_t answers[kTickets][4];
        Search<kMostFound> searches[kSearches];
        Search<kMostAddresses> thorough;
    };
    bool clear_slot(int ticket, CUstream);
    static std::vector<Range> ranges_of(const std::vector<Buffer*>&);
    template <std::uint64_t most>
    CUresult launch(Search<most>&, const Range* ranges, std::size_t count, CUstream);

    const Driver& driver_;
    CUmodule module_ = nullptr;
    CUfunction hash_ = nullptr, find_ = nullptr, hash_bytes_ = nullptr, expect_ = nullptr;
    CUdeviceptr scratch_ = 0;
    CUdeviceptr arena_begin_ = 0;
    std::size_t arena_bytes_ = 0;
    Pinned* pinned_ = nullptr;
    std::vector<int> free_, free_searches_;
    bool dirty_[kTickets] = {};   // its slot on the device is not known to be zero
};

}  // namespace udnnmem::pager
