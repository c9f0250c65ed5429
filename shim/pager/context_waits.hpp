// The program's waits for everything of a context (cuCtxSynchronize), which are for our copies too: those that are on their way, not
// those that come. What would be queued while it waits only for copies can wait itself, until the program goes on.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/pager/streams.hpp"

namespace udnnmem::pager {

std::int64_t now_ns();

// Any thread. Held back is only what no launch waits for; at worst it comes kGrace after the program's last wait.
class ContextWaits {
  public:
    void began(StreamTable& streams) {
        streams.mark_tails();   // so that it is seen when they have completed
        at_.store(streams.now());
        until_ns_.store(INT64_MAX);
    }
    void ended() { until_ns_.store(now_ns() + kGrace); }
    // Whether the program waits, or just has, and the device has nothing of its own to do.
    bool for_copies_only(StreamTable& streams) const {
        if (until_ns_.load() < now_ns() || streams.now() != at_.load()) return false;
        return streams.complete(streams.all_streams(), at_.load());
    }

  private:
    static constexpr std::int64_t kGrace = 500'000;   // ns from a wait's end: what a program does before it waits again, or copies
    std::atomic<std::uint64_t> at_{0};                // ops that had been submitted
    std::atomic<std::int64_t> until_ns_{INT64_MIN};   // then it is not heeded any more
};

}  // namespace udnnmem::pager
