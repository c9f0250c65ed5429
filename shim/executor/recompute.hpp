// What a planner is told of ops that can be run again.
#pragma once

#include <string>

#include "profiler/trace/trace.hpp"
#include "shim/executor/sequence.hpp"
#include "shim/replay/known.hpp"

namespace udnnmem::executor {

// Who made what each use reads, and what has to be kept with a launch (KnownOp::Use). Once all proofs are over.
void find_versions(replay::Known& known, const Sequence& sequence);

// `seen` (the sequence's plan_trace, with what was seen of its writes) with what was proved: which ops may be run again, and what
// they read and write. What lies in slabs is there too, as buffers of no size: they cost nothing, but a replay needs them as they were, unless they are saved.
profiler::Trace with_proofs(const profiler::Trace& seen, const Sequence& sequence, const replay::Known& known);

// In words: how many ops may be run again, and why the others may not, most frequent first.
std::string summary_of(const replay::Known& known);

}  // namespace udnnmem::executor
