// LB3, the tightest of the lower bounds: a linear programme over time steps, with bytes as fractions, solved
// by CBC out of process where it is installed. Holds, as the others, for every plan without recompute.
#pragma once

#include <optional>

#include "policy/machine.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

// Nothing if there is no solver, if it was not done within `limit` of wall time, or if the programme has more
// than `most_variables`. Writes a file of its own to the folder for temporary files and removes it.
// Thread-safe.
std::optional<Nanoseconds> lp_bound(const profiler::Trace& trace, const Machine& machine, Nanoseconds limit, std::size_t most_variables = 200'000);

}  // namespace udnnmem::policy
