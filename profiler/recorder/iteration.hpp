// From the recent past of a run to the trace of one iteration.
#pragma once

#include "profiler/recorder/history.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::profiler {

// Where an iteration of `period` ops begins: the position among those of the last-but-one period at which the fewest
// bytes of transient allocations are alive; of equals, the first that is a copy from the host (the input), else the
// first. The last 2 * period ops correspond pairwise.
Position iteration_begin(const History& history, Position period);

// The trace of the ops from `begin`. Persistent: alive all the while. An allocation that is alive across the
// iteration's begin is two transient buffers, one to its release and one from its making. An op's duration is
// the shorter of its own and that of the op a period later (kernels are slow the first time), where measured; if neither is,
// the mean of the others. Streams are numbered in the order of their first ops.
Trace iteration_trace(const History& history, Position begin, Position period);

}  // namespace udnnmem::profiler
