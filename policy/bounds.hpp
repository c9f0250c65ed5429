// Lower bounds on the time of an iteration, so that "how good is this plan" is a number. They hold for
// every plan without recompute; with recompute a plan may be faster than they say.
#pragma once

#include "policy/machine.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

struct Bounds {
    Nanoseconds compute;  // LB0: the sum of the durations
    Nanoseconds bytes;    // LB1: what cannot be on the device at some op has to cross the links once an iteration
    Nanoseconds window;   // LB2: the best chain of windows of ops, each bound by compute, by what it must fetch, or by what it must copy out

    Nanoseconds best() const;
    const char* best_name() const;  // LB0, LB1 or LB2: the first that is best()
};

// Both links, any host. At most a few hundred ms (window bounds on a grid of ops for long traces). Thread-safe.
Bounds bounds(const profiler::Trace& trace, const Machine& machine);

// bounds().best()
Nanoseconds lower_bound(const profiler::Trace& trace, const Machine& machine);

}  // namespace udnnmem::policy
