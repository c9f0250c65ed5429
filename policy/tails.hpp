// Tails: what becomes of a buffer between its last use and the op after which it is freed. To the machine model its contents are
// worth nothing then, so planners let it go for nothing. Who carries a plan out cannot know that nobody will ask for it, and lets
// it go only while it can still be made again; else it is copied out, or stays where there is room.
#pragma once

#include <vector>

#include "policy/plan.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

// A tail that is dropped: by these ops, ascending, the buffer can be made again at any time until it is freed. They read
// nothing that is freed with it or before.
struct DroppedTail {
    BufferId buffer;
    OpIndex freed;              // after this op
    std::vector<OpIndex> ops;
};

// What the drops of `plan` that no replay follows rest on. Those that cannot be made again have become evictions: all of them without
// `recompute`, else few, for a planner that was told of tails (PlannerOptions::tails) drops none of which it knows that. O(ops of
// all chains).
struct SettledPlan {
    Plan plan;
    std::vector<DroppedTail> dropped;
};
SettledPlan settle_tails(const profiler::Trace& trace, Plan plan, bool recompute);

}  // namespace udnnmem::policy
