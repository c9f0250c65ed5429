// A plan as the launch path reads it: what to order after each step. Immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "policy/plan.hpp"
#include "policy/tails.hpp"
#include "profiler/trace/units.hpp"
#include "shim/executor/sequence.hpp"
#include "shim/pager/order.hpp"
#include "shim/replay/known.hpp"

namespace udnnmem::executor {

struct Rows {
    struct Entry {
        pager::Order::Kind kind;
        std::int32_t buffer;   // logical
        std::int32_t replay = -1;   // drop: which one brings it back
    };
    struct Replay {
        std::int32_t before;   // this step, if what it makes is dropped still
        std::shared_ptr<const replay::Slice> slice;
    };
    std::vector<Entry> entries;
    std::vector<std::uint32_t> begin;    // of each step's entries; one more than there are steps
    std::vector<Replay> replays;         // by step
    std::vector<std::uint32_t> first_replay;  // of each step; one more than there are steps. Empty: there are no replays
    std::vector<bool> kept;              // steps whose launches are kept for them
    Nanoseconds promised{0};             // the simulator's time of an iteration
    Bytes memory, host;                  // that it was made for ...
    Bytes budget;                        // ... and what memory was to be shared with all else then
    Bytes peak;                          // of device memory, by the simulator
    double link_in = 0, link_out = 0;    // likewise, bytes per second
    std::vector<Nanoseconds> start;      // of each step in an iteration, by the simulator
    std::vector<bool> marked;            // steps whose end has to be known: the memory of a later one waits for it
    std::vector<bool> acts;              // steps after which there is something to do: something to order, or their end to be known
    std::string change;                  // what is different about it; "": it is the first of its kind
    bool anew = false;                   // a stored one of which nothing is left: what it replayed was denied
    int lookahead = 0;                   // ops ahead of the device at which it takes memory
    std::shared_ptr<const policy::Plan> plan;   // as the simulator reads it; null: it was stored by an earlier run
};
// Sets `marked`: an op that takes memory, for a new buffer or one that was fetched, does so once the op `lookahead` + 1 before it has
// ended (pager::Op::paced_by). And `acts`.
void mark_steps(Rows& rows, const Sequence& sequence);
// A drop that neither a replay nor one of `tails` brings back is left out.
Rows make_rows(const policy::Plan& plan, std::size_t steps, const std::vector<policy::DroppedTail>& tails = {});
// Sets `first_replay` and `kept`, from `replays`.
void index_replays(Rows& rows, std::size_t steps);
// The same with a third of its orders made wrong: another buffer, another kind, another step, twice, not at all.
Rows distorted(const Rows& rows, std::size_t buffers, std::uint64_t seed);

}  // namespace udnnmem::executor
