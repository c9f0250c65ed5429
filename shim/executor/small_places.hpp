// Which allocation each small buffer of a learned sequence is, since the last break in it.
//
// Small buffers lie in slabs, which no plan moves, so the Follower does not look at them. What is computed again does: it reads
// them where its launches found them. A program may give an op that looks the same another small buffer than it gave it when it was
// learned, and overwrite what a slice reads; so each small buffer is the same allocation from break to break, and none is another
// one's, or it is a break (Executor::note_epoch).
//
// Not thread-safe: the executor's lock is around it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "shim/pager/pager.hpp"
#include "shim/replay/known.hpp"

namespace udnnmem::executor {

class SmallPlaces {
  public:
    explicit SmallPlaces(const replay::Program& program);   // outlives it

    // The op of step `k` is about to be submitted. False: it names other small buffers than it did when it was learned, or so many
    // that not all are known. Where nobody wrote down any (Passage), no op that is given some is proven, and none is followed.
    // Takes the device's lock.
    bool follow(std::int32_t k, const pager::Op& op, pager::DevicePager& device);
    // A break.
    void forget();

  private:
    bool is(std::int32_t buffer, std::uint64_t allocation);

    const replay::Program& program_;
    const bool any_;
    std::vector<std::uint64_t> allocation_;                       // per logical buffer: its Allocated::id; 0: not seen yet
    std::unordered_map<std::uint64_t, std::int32_t> buffer_;      // the other way round
};

}  // namespace udnnmem::executor
