// Tails: what becomes of a buffer between its last use and the op after which it is freed. To the machine model its contents are
// worth nothing then, so planners let it go for nothing. Who carries a plan out cannot know that nobody will ask for it, and lets
// it go only while it can still be made again; else it is copied out, or stays where there is room.
#pragma once

#include <vector>

#include "policy/machine.hpp"
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

// `plan`, valid for `trace` on `machine`, with each drop that no replay follows decided: the action stays (the tail is in
// `dropped`), has become an eviction, or is gone. Of the divisions that were tried it is the fastest by the simulator, and of equally
// fast ones that with the fewest actions. `recompute`: may buffers be made again? O(ops of all tails' chains + a few simulations).
struct SettledPlan {
    Plan plan;
    std::vector<DroppedTail> dropped;
};
SettledPlan settle_tails(const profiler::Trace& trace, const Machine& machine, Plan plan, bool recompute);

}  // namespace udnnmem::policy
