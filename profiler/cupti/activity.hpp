// When ops ran on the device, by CUPTI. An op is what is submitted between push() and pop() on a thread; what it was given
// on the device (a kernel, the copies of a batch) is one span, from its first begin to its last end.
//
// Invariants
//   - At most one in a process, ever: close() is for good. Another subscriber is left alone.
//   - After close() no call but a last pop() goes to CUPTI, and CUPTI has detached from the driver.
//   - What is kept is bounded by the ops that were pushed: records of others' work are let go.
// push() and pop() are for launching threads, read(), close() and forget() for one consumer. Nothing throws but open().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "profiler/trace/units.hpp"

namespace udnnmem::profiler {

class Activity {
  public:
    // Null: CUPTI cannot be had, `why` says so in a few words.
    static std::unique_ptr<Activity> open(std::string& why);
    Activity(const Activity&) = delete;
    Activity& operator=(const Activity&) = delete;

    // Of an op's number the low bits count the ops, so that there are at most so many; those above say which stream it is on.
    static constexpr int number_bits = 16;

    void push(std::uint64_t op) noexcept;
    void pop() noexcept;

    enum class Found { pending, done, lost };
    // `begin` is CLOCK_MONOTONIC's. An op that is done or lost is forgotten. Ops are asked for in their order, also after close().
    Found read(std::uint64_t op, Nanoseconds& begin, Nanoseconds& duration) noexcept;

    // Detaches. `call` is any call of the driver: CUPTI detaches at the end of one. Null: some thread has still to pop(), so
    // CUPTI records nothing more but stays loaded into the driver.
    void close(void (*call)()) noexcept;
    // After close(): nothing more is asked for.
    void forget() noexcept;

    struct State;

  private:
    explicit Activity(State* state) : state_(state) {}
    State* const state_;  // stays: CUPTI may be in one of its callbacks
};

}  // namespace udnnmem::profiler
