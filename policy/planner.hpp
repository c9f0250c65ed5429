// The planners by name, one interface for all: the published ones (policy/planners/) and ours. What a
// planner hands back is judged by simulate(), never believed: a planner that finds no plan that can be
// carried out returns its best attempt, and the simulator says which op and rule it fails at.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "policy/machine.hpp"
#include "policy/plan.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

struct PlannerOptions {
    bool recompute = true;                     // drops and replays are allowed
    bool tails = false;                        // what is held after its last use may yet be asked for (tails.hpp); else it is worth nothing then
    Nanoseconds time_budget{10'000'000'000};   // for planners that search, of one core; udnn compares with the others for as long again
    std::function<void(double)> progress;      // told the done part of the work, 0 to 1, now and then; may be empty
};

struct Planner {
    const char* name;      // as --policy and UDNNMEM_POLICY take it
    const char* summary;   // one line for help
    bool needs_recompute;  // all it does is recompute: without it there is nothing for it to plan
    Plan (*make_plan)(const profiler::Trace& trace, const Machine& machine, const PlannerOptions& options);
};

// Every planner, in the order that tables show them; the last is ours. Thread-safe.
const std::vector<Planner>& planners();

// nullptr: no planner of that name.
const Planner* find_planner(std::string_view name);

}  // namespace udnnmem::policy
