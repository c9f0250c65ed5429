#include "policy/planners/forward.hpp"

#include "policy/simulator.hpp"

namespace udnnmem::policy {

std::int32_t turning_op(const profiler::Trace& trace, const Liveness& live) {
    for (const auto& op : trace.ops)
        if (op.phase == profiler::Phase::backward) return op.index.value;
    std::size_t peak = 0;
    for (std::size_t k = 0; k < trace.ops.size(); ++k)
        if (live.live(k) >= live.live(peak)) peak = k;
    return static_cast<std::int32_t>(peak) + 1;
}

Plan fastest(const profiler::Trace& trace, const Machine& machine, std::size_t count, const std::function<Plan(std::size_t)>& make) {
    Plan best;
    Nanoseconds best_time = Nanoseconds::max();
    for (std::size_t i = 0; i < count; ++i) {
        Plan plan = make(i);
        const Outcome outcome = simulate(trace, machine, plan);
        if (outcome.valid ? outcome.time < best_time : best_time == Nanoseconds::max()) {
            if (outcome.valid) best_time = outcome.time;
            best = std::move(plan);
        }
    }
    return best;
}

}  // namespace udnnmem::policy
