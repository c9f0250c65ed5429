// Hashes frames on the device, on a stream of the caller's choice; answers are read once that stream has passed.
//
// Invariants: results live in a small ring of pinned host memory and device scratch; a ticket is valid until read().
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
    static constexpr int kTickets = 64;
    static constexpr std::uint64_t kMostAddresses = 3072;

    explicit Hasher(const Driver& driver) : driver_(driver) {}
    // `scratch`: device memory of at least scratch_bytes(), zeroed or not, that is the hasher's own.
    CUresult start(CUdeviceptr scratch, CUdeviceptr arena_begin, std::size_t arena_bytes);
    void stop();
    static constexpr std::size_t scratch_bytes() { return kTickets * 32 + kMostAddresses * 16 + 8; }

    // A ticket for the hash of `frames` (through their aliases); -1: none free or a driver error, part of it may be queued.
    int queue(const std::vector<Frame*>& frames, CUstream);
    // After the stream has passed: the hash and the number of words that look like arena addresses; frees the ticket.
    Hash read(int ticket, std::uint64_t* addresses);

    // Blocking: the arena addresses that buffers hold, in one pass. CUDA_ERROR_INVALID_VALUE: more than kMostAddresses.
    struct Found {
        CUdeviceptr at, address;
    };
    CUresult find_addresses(const std::vector<Buffer*>&, CUstream, std::vector<Found>& out);

  private:
    const Driver& driver_;
    CUmodule module_ = nullptr;
    CUfunction hash_ = nullptr, find_ = nullptr;
    CUdeviceptr scratch_ = 0;
    CUdeviceptr arena_begin_ = 0;
    std::size_t arena_bytes_ = 0;
    std::uint64_t* results_ = nullptr;  // pinned, 4 words a ticket
    std::vector<int> free_;
};

}  // namespace udnnmem::pager
