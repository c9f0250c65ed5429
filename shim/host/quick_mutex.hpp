// A mutex for what is locked often, held briefly and hardly ever contended: taken and given back by one instruction each, without a
// call into the C library. Whoever finds it taken sleeps (the second mutex of Drepper, "Futexes are Tricky").
//
// Not recursive. Meets the requirements of Lockable.
#pragma once

#include <atomic>
#include <cstdint>

namespace udnnmem::host {

class QuickMutex {
  public:
    void lock() {
        if (!try_lock()) [[unlikely]] sleep();
    }
    bool try_lock() {
        std::uint32_t is = free;
        return state_.compare_exchange_strong(is, taken, std::memory_order_acquire, std::memory_order_relaxed);
    }
    void unlock() {
        if (state_.exchange(free, std::memory_order_release) == awaited) [[unlikely]] wake();
    }

  private:
    enum State : std::uint32_t { free, taken, awaited };   // awaited: taken, and somebody sleeps perhaps
    [[gnu::noinline]] void sleep() {
        while (state_.exchange(awaited, std::memory_order_acquire) != free) state_.wait(awaited, std::memory_order_relaxed);
    }
    [[gnu::noinline]] void wake() { state_.notify_one(); }

    std::atomic<std::uint32_t> state_{free};
};

}  // namespace udnnmem::host
