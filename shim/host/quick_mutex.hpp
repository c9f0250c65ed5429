// A mutex for what is locked often, held briefly and hardly ever contended: taking it is one locked instruction, giving it back a
// store, and neither calls the C library. Nobody is woken: whoever finds it taken looks again, after a while less and less often.
//
// Not recursive, not fair. Meets the requirements of Lockable.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace udnnmem::host {

class QuickMutex {
  public:
    void lock() {
        if (!try_lock()) [[unlikely]] wait();
    }
    bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
    void unlock() { taken_.store(false, std::memory_order_release); }

  private:
    static constexpr int kSpins = 256, kYields = 16;
    static constexpr std::chrono::microseconds kShortest{20}, kLongest{200};

    [[gnu::noinline]] void wait() {
        std::chrono::microseconds sleeps = kShortest;
        for (int looked = 0;; ++looked) {
            if (!taken_.load(std::memory_order_relaxed) && try_lock()) return;
            if (looked < kSpins) continue;
            if (looked < kSpins + kYields) {
                std::this_thread::yield();
                continue;
            }
            std::this_thread::sleep_for(sleeps);
            sleeps = std::min(2 * sleeps, kLongest);
        }
    }

    std::atomic<bool> taken_{false};
};

}  // namespace udnnmem::host
