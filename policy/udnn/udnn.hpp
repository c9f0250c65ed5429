// Our planner: swaps and replays chosen together by what they cost on the critical path, then improved by
// local search on the simulator until near a bound or out of time. See udnn.cpp for the method.
#pragma once

#include "policy/planner.hpp"

namespace udnnmem::policy {

Plan plan_udnn(const profiler::Trace& trace, const Machine& machine, const PlannerOptions& options);

}  // namespace udnnmem::policy
