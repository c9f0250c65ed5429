// DELTA (Y. Tang et al., "DELTA: Dynamically optimizing GPU memory beyond tensor recomputation",
// arXiv:2203.15980).
//
// Filter: when room is lacking, the buffer with the smallest 1 / (bytes x staleness) is released.
// Director: by the ratio of moving it both ways to computing it again, 2 (bytes / bandwidth) / compute
// time, it is dropped (above 1) or offloaded. Prefetch: during the backward pass the next released
// buffers in the order of their uses, up to five of them, are asked for ahead. The releases are found by
// a first play on demand, the prefetches are laid over a second one. Buffers dropped are remade when they
// are needed.
#include "policy/planners/published.hpp"

#include <algorithm>

#include "policy/planners/forward.hpp"
#include "policy/player.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

constexpr std::size_t prefetch_queue = 5;

}  // namespace

Plan plan_delta(const Trace& trace, const Machine& machine, const PlannerOptions& options) {
    Plan plan;
    plan.policy = "delta";
    if (trace.ops.empty()) return plan;
    const Liveness live(trace);
    const Player player(trace, live, machine);

    PlayOptions play{PlayOptions::Order::stale_bytes};
    const auto director = [&](std::int32_t b, std::size_t, Nanoseconds remake) {
        const double bytes = static_cast<double>(trace.buffers[static_cast<std::size_t>(b)].bytes.value);
        return (bytes / machine.link_in + bytes / machine.link_out) * 1e9 > static_cast<double>(remake.value);
    };
    if (options.recompute) play.drop_on_demand = director;

    std::vector<Gap> gaps = Player::keep_all(live), done;
    player.play(gaps, play, &done);

    struct Released {
        std::int32_t from, needed;
        std::size_t use;
    };
    std::vector<Released> released;
    const std::int32_t turn = turning_op(trace, live);
    for (std::size_t b = 0; b < trace.buffers.size(); ++b) {
        const auto uses = live.uses_of(b);
        for (std::size_t i = 0; i + 1 < uses.size(); ++i)
            if (done[live.use_offset(b) + i].fate == Fate::evict && uses[i + 1].op >= turn) released.push_back({uses[i].op, uses[i + 1].op, live.use_offset(b) + i});
    }
    std::sort(released.begin(), released.end(), [](const Released& a, const Released& b) { return a.needed < b.needed; });
    return fastest(trace, machine, prefetch_queue + 1, [&](std::size_t ahead) {
        std::vector<Gap> wishes = gaps;
        for (std::size_t i = 0; ahead && i < released.size(); ++i) {
            // Asked for when the buffer that many places before it in the queue is used.
            const std::int32_t at = i >= ahead ? released[i - ahead].needed : turn - 1;
            wishes[released[i].use].fate = Fate::evict;
            wishes[released[i].use].prefetch_after = std::clamp(at, released[i].from, released[i].needed - 1);
        }
        Plan next = player.play(wishes, play);
        next.policy = "delta";
        return next;
    });
}

}  // namespace udnnmem::policy
