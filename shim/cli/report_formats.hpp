// What `udnnmem report` makes of recorded runs: text for people, JSON and CSV for programs. Field names
// of JSON and CSV are only ever added.
#pragma once

#include <span>
#include <string>

#include "profiler/trace/run_record.hpp"

namespace udnnmem::cli {

// A section a run.
std::string report_text(std::span<const profiler::RunRecord> runs);

// One JSON object a line and run. What this version does not find out is null, what it does not do is 0.
std::string report_json(std::span<const profiler::RunRecord> runs);

// A heading line, then a line a run: the scalar fields of the JSON.
std::string report_csv(std::span<const profiler::RunRecord> runs);

}  // namespace udnnmem::cli
