// Why there is no plan, and what would have to be there: by what no plan can do without.
#pragma once

#include <optional>
#include <string>

#include "policy/liveness.hpp"
#include "policy/machine.hpp"

namespace udnnmem::cli {

// Of a memory that is one of many tried: "the largest op alone needs 3.0 GiB", or `error` (a planner's, a judge's) with what the host lacks.
std::string why_no_plan(const std::string& error, const policy::Liveness& live, const policy::Machine& machine, bool recompute);

// Of a memory that was asked for: "no plan in 2.0 GiB: the largest op alone needs 3.0 GiB: give at least --memory 3221225472".
// `enough`: a host budget beside which there is a plan, where one was looked for; the least that could do need not.
std::string no_plan(const std::string& error, const policy::Liveness& live, const policy::Machine& machine, bool recompute, std::optional<Bytes> enough = {});

}  // namespace udnnmem::cli
