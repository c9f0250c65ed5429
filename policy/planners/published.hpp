// The published planners, one function each; policy/planner.cpp puts them in the table. Each file says
// which paper it follows and where a trace forces it to deviate.
#pragma once

#include "policy/planner.hpp"

namespace udnnmem::policy {

Plan plan_demand(const profiler::Trace&, const Machine&, const PlannerOptions&);         // paging.cpp
Plan plan_belady(const profiler::Trace&, const Machine&, const PlannerOptions&);

}  // namespace udnnmem::policy
