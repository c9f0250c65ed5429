// A plan for one iteration: what is moved, dropped and computed again, and when. Written and read as
// JSON Lines by plan_io; judged by simulate(). Actions at one point are carried out in list order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/trace/units.hpp"

namespace udnnmem::policy {

enum class Do : std::uint8_t {
    evict,     // after op: copied out (nothing to copy if the host copy is valid), then its frames are free
    clean,     // after op: copied out while it stays resident, so that a later evict is free
    prefetch,  // after op (-1: at the iteration's start): brought in
    drop,      // after op: frames free at once, contents to be replayed
    replay,    // before op: `ops` run again, in order, on the compute stream; recreates `buffers`
};

struct Action {
    Do what = Do::evict;
    OpIndex op;                        // after_op; for a replay before_op
    BufferId buffer;                   // all but replay
    std::vector<OpIndex> ops;          // replay only
    std::vector<BufferId> buffers;     // replay only
};

struct Plan {
    std::string policy;
    std::vector<BufferId> start_evicted;  // persistent buffers that begin (and end) the iteration off the device
    std::vector<Action> actions;          // those of one op keep their order; ops ascend
};

}  // namespace udnnmem::policy
