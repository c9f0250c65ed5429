#include "policy/tails.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "policy/liveness.hpp"
#include "policy/recovery.hpp"

namespace udnnmem::policy {
namespace {

constexpr std::size_t longest_chain = 1024;  // ops: each is looked at whenever the tail is dropped

// The ops that make `buffer` again until it ought to have been freed; none: it cannot be.
std::vector<OpIndex> ops_for(const Liveness& live, const Recovery& recovery, std::size_t buffer) {
    const std::size_t uses = live.uses_of(buffer).size();
    const std::int32_t until = live.last(buffer) + 1;   // the op before which it is made again if it was not freed
    if (!uses || recovery.until(buffer, uses - 1) < until) return {};
    // What is alive then outlives the tail; what is freed after the same op may be freed before it.
    ReplayChain chain;
    if (!recovery.chain({static_cast<std::int32_t>(buffer)}, until, [](std::int32_t) { return true; }, chain) || chain.steps.size() > longest_chain) return {};
    std::vector<OpIndex> ops;
    for (const ReplayChain::Step& step : chain.steps) ops.push_back(OpIndex(step.op));
    return ops;
}

}  // namespace

SettledPlan settle_tails(const profiler::Trace& trace, Plan plan, bool recompute) {
    std::unordered_map<std::int32_t, std::int32_t> remade;   // buffer -> the last replay that makes it
    for (const Action& a : plan.actions)
        if (a.what == Do::replay)
            for (const BufferId b : a.buffers) remade[b.value] = std::max(remade[b.value], a.op.value);
    SettledPlan out;
    std::optional<Liveness> live;      // made where there is a tail
    std::optional<Recovery> recovery;
    for (Action& a : plan.actions) {
        if (a.what != Do::drop) continue;
        if (const auto later = remade.find(a.buffer.value); later != remade.end() && later->second > a.op.value) continue;
        std::vector<OpIndex> ops;
        if (recompute) {
            if (!live) live.emplace(trace), recovery.emplace(trace, *live);
            ops = ops_for(*live, *recovery, static_cast<std::size_t>(a.buffer.value));
        }
        if (ops.empty()) a.what = Do::evict;
        else out.dropped.push_back({a.buffer, OpIndex(live->last(static_cast<std::size_t>(a.buffer.value))), std::move(ops)});
    }
    out.plan = std::move(plan);
    return out;
}

}  // namespace udnnmem::policy
