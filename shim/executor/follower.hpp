// Where in a learned sequence a running program is.
//
// An op is the step that is expected next if it has that step's kernel and dimensions and names the step's buffers:
// the persistent ones themselves, the transient ones in the same places as before. An op that is not is passed over;
// the place is found again at the expected step, or anywhere that the last `window` ops lead to and nothing else does
// (kernels, dimensions and persistent buffers). Wrong answers are possible only for sequences that look the same, and
// cost time, nothing else.
//
// Not thread-safe: the executor's lock is around it. at() allocates nothing while the sequence is followed.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "shim/executor/sequence.hpp"

namespace udnnmem::executor {

class Follower {
  public:
    static constexpr std::int32_t nowhere = -1;
    static constexpr int window = 8;

    explicit Follower(const Sequence& sequence);

    // The step that the op is, or nowhere. `named`: the movable buffers that it names, in its order.
    std::int32_t at(const char* name, std::uint64_t shape, std::span<pager::Buffer* const> named);

    // What logical buffer `i` is in this iteration; null: not seen yet.
    pager::Buffer* bound(std::int32_t i) const { return bound_[static_cast<std::size_t>(i)]; }
    bool lost() const { return missed_ > 0; }

  private:
    bool is(std::int32_t step, const char* name, std::uint64_t shape, std::span<pager::Buffer* const> named, bool bind);
    std::int32_t arrive(std::int32_t step);
    std::int32_t after(std::int32_t step) const { return step + 1 == static_cast<std::int32_t>(sequence_.steps.size()) ? 0 : step + 1; }
    std::int32_t look_around(const char* name, std::uint64_t shape, std::span<pager::Buffer* const> named);

    const Sequence& sequence_;
    std::int32_t next_ = 0;                    // expected
    int missed_ = 1;                           // ops since the last one that was expected; not 0: lost
    std::vector<pager::Buffer*> bound_;
    std::unordered_map<const pager::Buffer*, std::int32_t> logical_;  // of persistent buffers
    std::unordered_map<std::uint64_t, std::int32_t> places_;          // by the hash of a window: where it ends; nowhere: not in one place
    std::uint64_t recent_[window] = {};
    std::uint64_t seen_ = 0;                   // ops in recent_, ever
};

}  // namespace udnnmem::executor
