// What several published planners share: where the forward pass ends, and trying variants.
#pragma once

#include <cstdint>
#include <functional>

#include "policy/liveness.hpp"
#include "policy/machine.hpp"
#include "policy/plan.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

// The first op of the backward pass: by the ops' phases, or where the trace states none, after the op of peak live.
std::int32_t turning_op(const profiler::Trace& trace, const Liveness& live);

// The plan with the shortest simulated time of `count` that `make` makes; the last one if none can be carried out.
Plan fastest(const profiler::Trace& trace, const Machine& machine, std::size_t count, const std::function<Plan(std::size_t)>& make);

}  // namespace udnnmem::policy
