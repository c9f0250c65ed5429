// What commands that plan take from the trace that they were given beside its iteration: how much of it could be read, and
// the machine that it ran on.
#pragma once

#include <optional>
#include <string>

#include "profiler/trace/run_record.hpp"
#include "profiler/trace/trace.hpp"
#include "shim/cli/machine_options.hpp"

namespace udnnmem::cli {

// "damaged or cut short from line 5 on: ..."; "": all of it could be read.
std::string damage_of(const profiler::Trace& trace);

// It as a warning, where there is something to say.
void warn_of_damage(const std::string& path, const profiler::Trace& trace);

// The same of a run that is reported: what is wrong in that line, or that the file ends there.
std::string damage_of(const profiler::RunRecord& run);

// Of all devices together: which buffers were where is not told. What exceeds any memory is the most there can be.
Bytes budget_of(const profiler::RunRecord& run);

// Of a recorded run: the budgets of all devices together, the first one's host budget, and its link as it was measured.
struct RanOn {
    std::optional<Bytes> memory, host;
    std::optional<Links> links;
};
RanOn ran_on(const profiler::RunRecord& run);

}  // namespace udnnmem::cli
