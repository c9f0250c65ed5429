// From the recent past of a run to one iteration of it: its trace, and how to know its ops again.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/recorder/history.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::profiler {

// Where an iteration of `period` ops begins: the position among those of the last-but-one period at which the fewest
// bytes of transient allocations are alive; of equals, the first that is a copy from the host (the input), else the
// first. The last 2 * period ops correspond pairwise.
Position iteration_begin(const History& history, Position period);

struct Iteration {
    Position begin = -1;               // ops of the run before it; -1: it was put together, not recorded
    Trace trace;
    struct Step {                      // one for each op of the trace
        const char* name = "";
        std::uint64_t shape = 0;
        std::uint32_t first = 0, count = 0;  // of `used`
        bool timed = false;            // the op's duration was measured, not guessed
    };
    std::vector<Step> steps;
    std::vector<std::int32_t> used;    // buffers in the order in which the op named them, without repeats; not those that tables lead to
    std::vector<std::uint64_t> address;  // of each buffer when it was last seen
};

// The iteration of the ops from `begin`. Persistent: alive all the while, or made in it and used by the same ops of the next
// one too. Another allocation that is alive across the iteration's begin is two transient buffers, one to its release and one
// from its making. An op's duration is the shorter of its own and that of the op a period later (kernels are slow the first
// time), where measured; if neither is, the mean of the others. Streams are numbered in the order of their first ops.
Iteration iteration_at(const History& history, Position begin, Position period);

}  // namespace udnnmem::profiler
