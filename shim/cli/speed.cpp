#include "shim/cli/speed.hpp"

#include <algorithm>

#include "policy/bounds.hpp"

namespace udnnmem::cli {
namespace {

using namespace profiler;

constexpr double kApart = 0.95;   // of the sum of their times, that ops take which do not overlap

// Of the recorded iteration, in the budget of its device.
std::optional<Nanoseconds> bound_of(const RunRecord& run) {
    if (run.configs.size() != 1) return std::nullopt;
    policy::Machine machine;
    machine.memory = run.configs[0].budget;
    machine.host = run.configs[0].host_budget;
    if (!run.links.empty()) machine.link_in = run.links[0].in_bytes_per_second, machine.link_out = run.links[0].out_bytes_per_second;
    if (!(machine.link_in > 0 && machine.link_out > 0)) {
        if (peak_live(run.iteration) > machine.memory) return std::nullopt;
        machine.link_in = machine.link_out = 1e9;   // nothing has to move
    }
    return policy::lower_bound(run.iteration, machine);
}

// Whether ops of several streams ran at the same time: then their times, added up, are not what an iteration takes.
bool streams_overlap(const Trace& iteration) {
    std::vector<std::pair<Nanoseconds, Nanoseconds>> ran;
    Nanoseconds sum, at_work, end(-1);
    bool several = false;
    for (const TraceOp& op : iteration.ops) {
        if (op.start.value < 0) return false;
        several |= op.stream != iteration.ops.front().stream;
        ran.emplace_back(op.start, op.start + op.duration);
        sum += op.duration;
    }
    std::sort(ran.begin(), ran.end());
    for (const auto& [from, to] : ran) {
        if (to > end) at_work += to - std::max(from, end);
        end = std::max(end, to);
    }
    return several && static_cast<double>(at_work.value) < kApart * static_cast<double>(sum.value);
}

}  // namespace

std::optional<Speed> speed_of(const RunRecord& run) {
    const auto& ops = run.iteration.ops;
    Nanoseconds ideal, first = Nanoseconds::max(), last(-1);
    for (const TraceOp& op : ops) {
        ideal += op.duration;
        if (op.start.value < 0) continue;
        first = std::min(first, op.start);
        last = std::max(last, op.start + op.duration);
    }
    auto recorded = static_cast<Count>(ops.size());   // ops of the iteration that `ideal` is of
    std::optional<Speed> speed;
    const auto most = std::max_element(run.sequences.begin(), run.sequences.end(), [](const RunSequence& a, const RunSequence& b) { return static_cast<double>(a.iterations) * static_cast<double>(a.ops) < static_cast<double>(b.iterations) * static_cast<double>(b.ops); });
    if (most != run.sequences.end() && (most->planned.value > 0 || most->demand.value > 0)) {
        speed = most->planned.value > 0 ? Speed{most->planned, "plan", {}, {}} : Speed{most->demand, "demand", {}, {}};
        ideal = most->ideal;
        if (recorded != most->ops) recorded = 0, speed->ops = most->ops;
    } else if (run.summary.planned_ns.value > 0 || run.summary.demand_ns.value > 0) {
        speed = run.summary.planned_ns.value > 0 ? Speed{run.summary.planned_ns, "plan", {}, {}} : Speed{run.summary.demand_ns, "demand", {}, {}};
    } else if (last > first) {
        return Speed{last - first, "learning", {}, {}};
    }
    if (!speed) return speed;
    speed->overlaps = streams_overlap(run.iteration);
    if (speed->overlaps) return speed;
    const auto share = [&](Nanoseconds of) { return static_cast<double>(of.value) / static_cast<double>(speed->time.value); };
    if (ideal.value > 0) speed->eta_ideal = share(ideal);
    // What is faster than the bound shows that links carry more than was measured, unless it computed again, for which there is none.
    if (const auto bound = recorded ? bound_of(run) : std::nullopt) speed->eta_bound = run.summary.drops ? share(*bound) : std::min(1.0, share(*bound));
    return speed;
}

}  // namespace udnnmem::cli
