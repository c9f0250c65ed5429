// What the program's NVTX ranges say of an iteration: what part of it each op belongs to.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "profiler/trace/trace.hpp"

namespace udnnmem::cli {

// As the trace says, else by the innermost range around the op whose name says it ("backward", "bwd"; "optim", "update";
// "forward", "fwd").
profiler::Phase phase_of(const profiler::TraceOp& op);
const char* text_of(profiler::Phase phase);   // "" for unknown

// For each path of ranges, in the order in which ops are first found in it: range, phase, ops, time_ns, flops, and bytes, the
// sizes of the buffers that its ops name, each once. Empty where the program has no ranges.
nlohmann::ordered_json ranges_of(const profiler::Trace& iteration);
// The same as a table, longest first.
void append_ranges(std::string& to, const profiler::Trace& iteration);

}  // namespace udnnmem::cli
