// Makes a plan that can be carried out from decisions that may not fit together. A planner decides the
// fate of each gap (keep, evict, drop; when to bring back); the player runs the iteration without times,
// follows the decisions where there is room for them, evicts more where an op would not find room, and
// writes down what it did.
//
// Why the result can be carried out: an eviction is counted as done, and a fetch as there, from the op
// after which it is queued, and the sum never exceeds the memory; so whatever waits in the simulator
// waits for transfers that are already queued. A buffer fetched ahead stays until it has been used.
// An op whose own working set exceeds the memory has no plan; what comes back then is invalid.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "policy/liveness.hpp"
#include "policy/machine.hpp"
#include "policy/plan.hpp"
#include "policy/recovery.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

enum class Fate : std::uint8_t { keep, evict, drop };

// What becomes of a buffer between two uses. The gap after the last use of a persistent buffer runs on
// to its first use in the next iteration; op n + k then means op k of that.
struct Gap {
    static constexpr std::int32_t on_demand = -2;
    Fate fate = Fate::keep;
    std::int32_t prefetch_after = on_demand;  // an evicted buffer is asked for after this op
    std::int32_t group = -1;                  // dropped buffers of one group are remade together
    bool may_drop = true;                     // false: not even on demand
};

struct PlayOptions {
    // Who leaves when an op lacks room: the least recently used, the one used again last, or the one with most
    // bytes x time since its use.
    enum class Order : std::uint8_t { recency, next_use, stale_bytes } order = Order::next_use;
    // Whether such a one is dropped (if it can be remade) or evicted; empty: evicted. `remake`: the time of the
    // replay if it were needed now.
    std::function<bool(std::int32_t buffer, std::size_t use, Nanoseconds remake)> drop_on_demand;
};

class Player {
public:
    // Keeps references: all three must outlive it.
    Player(const profiler::Trace& trace, const Liveness& live, const Machine& machine);

    // `gaps` has an entry for every use (Liveness::use_offset); it is changed where a decision had to be
    // given up for the plan to be possible. `done` takes the fates that gaps had in the end, those evicted
    // or dropped for want of room among them. Thread-safe.
    Plan play(std::vector<Gap>& gaps, const PlayOptions& options, std::vector<Gap>* done = nullptr) const;

    const Recovery& recovery() const { return recovery_; }

    static std::vector<Gap> keep_all(const Liveness& live) { return std::vector<Gap>(live.use_count()); }

private:
    const profiler::Trace& trace_;
    const Liveness& live_;
    const Machine& machine_;
    Recovery recovery_;
};

}  // namespace udnnmem::policy
