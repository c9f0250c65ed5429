// The JSON report of one run, which CSV and the page take their figures from.
#pragma once

#include <nlohmann/json.hpp>

#include "profiler/trace/run_record.hpp"
#include "shim/cli/report_view.hpp"

namespace udnnmem::cli {

// `view` is view_of(run).
nlohmann::ordered_json report_fields(const profiler::RunRecord& run, const IterationView& view);

}  // namespace udnnmem::cli
