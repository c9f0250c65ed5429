// Out of memory, explained: who held what on device and host when the program was told CUDA_ERROR_OUT_OF_MEMORY, the largest op,
// and what budget would have been enough. One block on stderr, and a record in the trace each time (16 at most).
//
// Reads the buffers without a lock, as launching threads do: what other threads free meanwhile may be among the figures.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

#include "profiler/recorder/recorder.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::preload {

class Refusals {
  public:
    // `wanted`: bytes of the allocation that was refused, or of what the op names. `what` says which call. `largest`: of the ops so
    // far. Nothing throws.
    void note(pager::DevicePager& device, const char* what, std::size_t wanted, bool op, const profiler::Recorder::LargestOp& largest) noexcept;
    // note() would say nothing any more.
    bool enough_told() const noexcept { return count_.load(std::memory_order_relaxed) >= kMost; }
    // Lines for the trace since the last call; empty as a rule.
    std::string take_lines();

  private:
    static constexpr int kMost = 16;
    std::atomic<int> count_{0};
    std::mutex mutex_;               // all that follows
    std::string lines_;
};

}  // namespace udnnmem::preload
