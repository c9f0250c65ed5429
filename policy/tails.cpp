#include "policy/tails.hpp"

#include <algorithm>
#include <unordered_map>

#include "policy/liveness.hpp"
#include "policy/recovery.hpp"
#include "policy/simulator.hpp"

namespace udnnmem::policy {
namespace {

constexpr std::size_t longest_chain = 1024;  // ops: each is looked at whenever the tail is dropped
constexpr int divisions = 8;                 // tried
constexpr double no_slower = 1.001;

struct Tail {
    std::size_t action;       // of the plan
    BufferId buffer;
    OpIndex freed;
    double held;              // bytes x ops from the drop until it is freed
    std::vector<OpIndex> ops; // empty: it cannot be dropped
};

// The drops that no replay follows, in the order of the plan's actions.
std::vector<Tail> tails_of(const profiler::Trace& trace, const Liveness& live, const Plan& plan) {
    std::unordered_map<std::int32_t, std::int32_t> remade;   // buffer -> the last replay that makes it
    for (const Action& a : plan.actions)
        if (a.what == Do::replay)
            for (const BufferId b : a.buffers) remade[b.value] = std::max(remade[b.value], a.op.value);
    std::vector<Tail> tails;
    for (std::size_t i = 0; i < plan.actions.size(); ++i) {
        const Action& a = plan.actions[i];
        if (a.what != Do::drop) continue;
        if (const auto later = remade.find(a.buffer.value); later != remade.end() && later->second > a.op.value) continue;
        const auto b = static_cast<std::size_t>(a.buffer.value);
        const OpIndex freed(live.last(b));
        tails.push_back({i, a.buffer, freed, static_cast<double>(trace.buffers[b].bytes.value) * (freed.value - a.op.value), {}});
    }
    return tails;
}

std::vector<OpIndex> ops_for(const Liveness& live, const Recovery& recovery, const Tail& tail) {
    const auto b = static_cast<std::size_t>(tail.buffer.value);
    const std::size_t uses = live.uses_of(b).size();
    const std::int32_t until = tail.freed.value + 1;   // the op before which it is made again if it was not freed
    if (!uses || recovery.until(b, uses - 1) < until) return {};
    // What is alive then outlives the tail; what is freed after the same op may be freed before it.
    ReplayChain chain;
    if (!recovery.chain({tail.buffer.value}, until, [](std::int32_t) { return true; }, chain) || chain.steps.size() > longest_chain) return {};
    std::vector<OpIndex> ops;
    for (const ReplayChain::Step& step : chain.steps) ops.push_back(OpIndex(step.op));
    return ops;
}

// The plan with the first `kept` of `tails` staying on the device.
Plan divided(const Plan& plan, const std::vector<Tail>& tails, std::size_t kept) {
    std::vector<char> gone(plan.actions.size(), false), evicted(plan.actions.size(), false);
    for (std::size_t i = 0; i < tails.size(); ++i) (i < kept ? gone : evicted)[tails[i].action] = i < kept || tails[i].ops.empty();
    Plan out{plan.policy, plan.start_evicted, {}};
    for (std::size_t i = 0; i < plan.actions.size(); ++i) {
        if (gone[i]) continue;
        out.actions.push_back(plan.actions[i]);
        if (evicted[i]) out.actions.back().what = Do::evict;
    }
    return out;
}

}  // namespace

SettledPlan settle_tails(const profiler::Trace& trace, const Machine& machine, Plan plan, bool recompute) {
    const Liveness live(trace);
    std::vector<Tail> tails = tails_of(trace, live, plan);
    if (tails.empty()) return {std::move(plan), {}};
    if (recompute) {
        const Recovery recovery(trace, live);
        for (Tail& tail : tails) tail.ops = ops_for(live, recovery, tail);
    }
    // Those stay first that it costs a copy to be rid of, and that need the least memory for the least time.
    std::stable_sort(tails.begin(), tails.end(), [](const Tail& a, const Tail& b) { return a.ops.empty() != b.ops.empty() ? a.ops.empty() : a.held < b.held; });
    std::size_t kept = 0;
    Nanoseconds least{0};
    const auto consider = [&](std::size_t keep) {
        const Outcome outcome = simulate(trace, machine, divided(plan, tails, keep));
        if (!outcome.valid) return false;
        const bool faster = !least.value || static_cast<double>(outcome.time.value) * no_slower < static_cast<double>(least.value);
        const bool no_worse = least.value && keep > kept && static_cast<double>(outcome.time.value) <= no_slower * static_cast<double>(least.value);
        if (faster || no_worse) kept = keep, least = least.value ? std::min(least, outcome.time) : outcome.time;
        return faster || no_worse;
    };
    for (int i = 0; i <= divisions; ++i) consider(tails.size() * static_cast<std::size_t>(i) / divisions);
    for (std::size_t step = tails.size() / divisions / 2; step > 0; step /= 2) consider(std::min(tails.size(), kept + step));
    SettledPlan out{divided(plan, tails, kept), {}};
    for (std::size_t i = kept; i < tails.size(); ++i)
        if (!tails[i].ops.empty()) out.dropped.push_back({tails[i].buffer, tails[i].freed, std::move(tails[i].ops)});
    return out;
}

}  // namespace udnnmem::policy
