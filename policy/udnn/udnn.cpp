#include "policy/udnn/udnn.hpp"

#include "policy/udnn/search.hpp"

namespace udnnmem::policy {

Plan plan_udnn(const profiler::Trace& trace, const Machine& machine, const PlannerOptions& options) {
    const auto begin = udnn::Search::Clock::now();
    const CompiledTrace compiled(trace);
    udnn::Search search(compiled, machine, options.recompute);
    search.first();
    const auto until = begin + std::chrono::nanoseconds(options.time_budget.value);
    search.sweep(until);
    search.improve(until, compiled.ideal, {});
    return decompile_plan(search.best_plan(), "udnn");
}

}  // namespace udnnmem::policy
