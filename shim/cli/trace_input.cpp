#include "shim/cli/trace_input.hpp"

#include <fmt/core.h>

#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"

namespace udnnmem::cli {

std::string damage_of(const profiler::Trace& trace) {
    if (trace.damaged == 0) return {};
    Nanoseconds told;
    for (const profiler::TraceOp& op : trace.ops) told += op.duration;
    const std::string lost = fmt::format("damaged or cut short from line {} on: what follows is left out", trace.damaged);
    return told < trace.header.ideal ? fmt::format("{}, its ops take {} of the {} that its header says", lost, human(told), human(trace.header.ideal)) : lost;
}

void warn_of_damage(const std::string& path, const profiler::Trace& trace) {
    if (const std::string damage = damage_of(trace); !damage.empty()) warn(path + ": " + damage);
}

std::string damage_of(const profiler::RunRecord& run) {
    if (run.damaged == 0) return {};
    if (run.cut_short) return fmt::format("cut short from line {} on (the program was killed, still runs, or this is not the whole file): what follows is left out", run.damaged);
    return fmt::format("damaged from line {} on{}: what follows is left out", run.damaged, run.damage.empty() ? "" : " (" + run.damage + ")");
}

Bytes budget_of(const profiler::RunRecord& run) {
    Bytes sum;
    for (const profiler::RunConfig& config : run.configs) sum += std::min(config.budget, Bytes::max() - sum);
    return sum;
}

RanOn ran_on(const profiler::RunRecord& run) {
    RanOn on;
    if (const Bytes budget = budget_of(run); budget.value > 0) on.memory = budget;
    if (!run.configs.empty() && run.configs[0].host_budget.value > 0) on.host = run.configs[0].host_budget;
    if (!run.links.empty() && run.links[0].in_bytes_per_second > 0 && run.links[0].out_bytes_per_second > 0) on.links = Links{run.links[0].in_bytes_per_second, run.links[0].out_bytes_per_second};
    return on;
}

}  // namespace udnnmem::cli
