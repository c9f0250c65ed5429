// What a run's plans promised and what came of them, for the reports: sequences, steps, adaptations, mispredictions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "profiler/trace/run_record.hpp"

namespace udnnmem::cli {

// Adds `sequences`, `steps`, `adaptations` and `mispredicted`. A step's delay_ns is by how much later it began than planned
// beyond what those before it were late already; null where that is not known.
void add_plan_fields(nlohmann::ordered_json& report, const profiler::RunRecord& run);

// The same in words, the largest first.
void append_plan(std::string& to, const profiler::RunRecord& run);

}  // namespace udnnmem::cli
