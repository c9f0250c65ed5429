// When the ops of a followed iteration run on the device: a few of each iteration between a pair of events, others in the
// next one, until all were seen often enough; from then on very few, for two events are most of what an op costs the program.
//
// Not thread-safe. begin() and end() are called by launching threads with their context current and never wait.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "profiler/trace/units.hpp"
#include "shim/pager/driver.hpp"

namespace udnnmem::executor {

class OpClock {
  public:
    static constexpr std::int32_t most_timed = 64;   // ops of an iteration ...
    static constexpr std::int32_t few_timed = 4;     // ... and once each was timed `often` times
    static constexpr std::uint64_t often = 16;

    explicit OpClock(const pager::Driver& driver) : driver_(driver) {}

    // How far apart the ops of an iteration of so many are that are timed, when so many were timed before it.
    static std::uint32_t apart(std::size_t steps, std::uint64_t iterations) {
        const auto of = [steps](std::size_t timed) { return static_cast<std::uint32_t>((steps + timed - 1) / timed); };
        const std::uint32_t all = of(most_timed);
        return iterations < often * all ? all : of(few_timed);
    }
    // Whether the op of `step` is to be timed in this iteration. Asked in the order of the steps.
    bool wants(std::int32_t step, std::uint32_t apart) {
        if (!step) {
            due_ = 1;
            return true;
        }
        if (step < due_) [[likely]] return false;
        const std::uint32_t since = (static_cast<std::uint32_t>(step) + phase_) % apart;
        due_ = step + static_cast<std::int32_t>(since ? apart - since : 1);
        return base_ && !since;
    }
    // It is about to be handed to the driver; `tag` names the iteration's kind.
    void begin(CUstream stream, std::uint64_t tag, std::int32_t step);
    // It was.
    void end(CUstream stream);
    // What was timed and has ended: since the iteration's first op began, and how long.
    struct Timed {
        std::uint64_t tag;
        std::int32_t step;
        Nanoseconds since, took;
    };
    void poll(const std::function<void(const Timed&)>& timed);
    // The program left the sequence: what is timed now is not worth telling.
    void lost() { base_ = nullptr; }
    // The events of that context go with it.
    void context_destroying(CUcontext context);

  private:
    struct Pair {
        CUevent begin = nullptr, end = nullptr;
        std::uint64_t tag = 0;
        std::int32_t step = 0;
        CUevent base = nullptr;      // first op of the iteration; the pair of step 0 owns it
    };
    bool take(Pair& pair);
    void drop();

    const pager::Driver& driver_;
    CUcontext context_ = nullptr;
    std::vector<Pair> spare_;
    std::deque<Pair> out_;
    Pair now_;
    CUstream stream_ = nullptr;      // now_'s
    bool timing_ = false;
    CUevent base_ = nullptr;
    std::uint32_t phase_ = 0;
    std::int32_t due_ = 0;           // no step before it is timed
};

}  // namespace udnnmem::executor
