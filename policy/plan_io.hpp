// Plan files: JSON Lines, plain or zstd. A line {"kind":"plan",...} comes first, then start_evicted
// lines, then actions; policy/README.md has the fields. Errors name file, line, field and rule.
#pragma once

#include <string>
#include <string_view>

#include "policy/machine.hpp"
#include "policy/plan.hpp"
#include "profiler/trace/error.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

// A plan with what its file says it was made for. What a file does not say is 0 or empty.
struct PlanFile {
    Plan plan;
    std::string trace;     // the trace's name
    Bytes memory;
    double link_in = 0;    // bytes per second
    double link_out = 0;
    Nanoseconds time;      // the period that the planner expects
};

// Reads a plan file. With `trace`, every op and buffer that the plan names must exist in it, as far as
// lines can be judged one by one; whether the plan can be carried out is simulate()'s to say.
Expected<PlanFile> read_plan(const std::string& path, const profiler::Trace* trace = nullptr);
Expected<PlanFile> parse_plan(const std::string& name, std::string_view text, const profiler::Trace* trace = nullptr);

// The text of a plan file; parse_plan() of it gives an equal plan.
std::string format_plan(const PlanFile& file);

// Writes a plan file, compressed if the path ends in ".zst". Error: the system's reason.
Expected<void> write_plan(const std::string& path, const PlanFile& file);

}  // namespace udnnmem::policy
