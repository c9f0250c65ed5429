// The published planners, one function each; policy/planner.cpp puts them in the table. Each file says
// which paper it follows and where a trace forces it to deviate.
#pragma once

#include "policy/planner.hpp"

namespace udnnmem::policy {

Plan plan_demand(const profiler::Trace&, const Machine&, const PlannerOptions&);         // paging.cpp
Plan plan_belady(const profiler::Trace&, const Machine&, const PlannerOptions&);

Plan plan_vdnn(const profiler::Trace&, const Machine&, const PlannerOptions&);           // vdnn.cpp
Plan plan_capuchin(const profiler::Trace&, const Machine&, const PlannerOptions&);       // capuchin.cpp
Plan plan_g10(const profiler::Trace&, const Machine&, const PlannerOptions&);            // g10.cpp
Plan plan_delta(const profiler::Trace&, const Machine&, const PlannerOptions&);          // delta.cpp
Plan plan_chen(const profiler::Trace&, const Machine&, const PlannerOptions&);           // checkpointing.cpp
Plan plan_checkpoint_n3(const profiler::Trace&, const Machine&, const PlannerOptions&);
Plan plan_checkpoint_n2(const profiler::Trace&, const Machine&, const PlannerOptions&);
Plan plan_pofo(const profiler::Trace&, const Machine&, const PlannerOptions&);           // pofo.cpp

}  // namespace udnnmem::policy
