// The JSON report of one run, which CSV and the page take their figures from.
#pragma once

#include <nlohmann/json.hpp>

#include "shim/cli/report_formats.hpp"

namespace udnnmem::cli {

nlohmann::ordered_json report_fields(const Report& report);

}  // namespace udnnmem::cli
