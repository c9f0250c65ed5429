// Who is told of an op when replays are due before it takes a turn; no op that is told later is submitted before the turn is over, by
// whatever thread: it may overwrite what those replays read, for all that the program knows.
//
// Waiting is bounded: the turn may be waiting for memory that only the later op makes free. Then that op goes on; where it does
// overwrite something, the comparison after the replay stops the program.
// Thread-safe but for take() and taken(), which are called under one lock of the caller's, in the order in which ops are told.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace udnnmem::executor {

class Turns {
  public:
    explicit Turns(std::chrono::nanoseconds patience) : patience_(patience) {}

    std::uint64_t take() { return ++taken_; }
    std::uint64_t taken() const { return taken_; }
    // Of `turn` and all before it. One load as a rule.
    void wait_for(std::uint64_t turn) {
        if (over_.load(std::memory_order_acquire) >= turn) [[likely]] return;
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, patience_, [&] { return over_.load(std::memory_order_relaxed) >= turn; });
        finish(turn);   // nobody else waits as long for the same
    }
    void over(std::uint64_t turn) {
        std::lock_guard lock(mutex_);
        finish(turn);
    }

  private:
    void finish(std::uint64_t turn) {
        if (over_.load(std::memory_order_relaxed) >= turn) return;
        over_.store(turn, std::memory_order_release);
        changed_.notify_all();
    }

    const std::chrono::nanoseconds patience_;
    std::uint64_t taken_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<std::uint64_t> over_{0};
};

}  // namespace udnnmem::executor
