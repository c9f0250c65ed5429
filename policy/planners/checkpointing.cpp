// The planners that keep checkpoints and compute everything else of the forward pass again, a segment at a
// time: Chen's square root of n (`chen`), and the optimal subsets of checkpoint.hpp (`checkpoint-n3`,
// `checkpoint-n2`). They are defined on chains; a trace is cut into layers (layers.hpp), and a segment's
// buffers are remade together before the first op of the backward pass that needs one of them.
//
// The papers drop every segment. With memory to spare that is waste, so the number of segments dropped,
// the first ones first because they are idle longest, is tried out on the simulator. Weights stay; what does
// not fit goes by demand, the farthest next use first.
#include "policy/planners/published.hpp"

#include <algorithm>

#include "policy/planners/checkpoint.hpp"
#include "policy/planners/forward.hpp"
#include "policy/planners/layers.hpp"
#include "policy/player.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

constexpr std::size_t shares = 10;  // of the segments dropped that are tried

// Drops the first `share` of `shares` of the segments.
std::vector<Gap> drop_segments(const Liveness& live, const Layers& layers, const Checkpoints& kept, std::size_t share) {
    std::vector<Gap> gaps = Player::keep_all(live);
    const std::size_t segments = kept.size() + 1;
    const std::size_t dropped = (segments - 1) * share / shares;  // the last is needed again at once
    std::size_t segment = 0;
    for (std::size_t layer = 0; layer < layers.count(); ++layer) {
        if (segment < dropped) {
            const auto end = static_cast<std::size_t>(kept[segment]) - 1;  // the layer whose output is the checkpoint
            for (const Saved& saved : layers.saved(layer)) {
                if (!saved.droppable || layers.crosses(saved, end)) continue;
                Gap& gap = gaps[live.use_offset(saved.buffer) + saved.use];
                gap.fate = Fate::drop;
                gap.group = static_cast<std::int32_t>(segment);
            }
        }
        if (segment < kept.size() && static_cast<std::size_t>(kept[segment]) == layer + 1) ++segment;
    }
    return gaps;
}

Plan plan_checkpoints(const char* name, const Trace& trace, const Machine& machine, const PlannerOptions& options, std::size_t most_layers,
                      const std::function<std::vector<Checkpoints>(const Chain&)>& choose) {
    Plan plan;
    if (!trace.ops.empty()) {
        const Liveness live(trace);
        const Player player(trace, live, machine);
        const Layers layers(trace, live, player.recovery(), most_layers);
        std::vector<Checkpoints> choices = options.recompute ? choose(layers.chain()) : std::vector<Checkpoints>{};
        choices.push_back({});
        plan = fastest(trace, machine, choices.size() * shares, [&](std::size_t i) {
            std::vector<Gap> gaps = drop_segments(live, layers, choices[i / shares], i % shares + 1);
            return player.play(gaps, {PlayOptions::Order::next_use});
        });
    }
    plan.policy = name;
    return plan;
}

}  // namespace

Plan plan_chen(const Trace& trace, const Machine& machine, const PlannerOptions& options) {
    return plan_checkpoints("chen", trace, machine, options, 2000, [](const Chain& chain) { return std::vector<Checkpoints>{chen(chain)}; });
}

Plan plan_checkpoint_n3(const Trace& trace, const Machine& machine, const PlannerOptions& options) {
    return plan_checkpoints("checkpoint-n3", trace, machine, options, 200, [](const Chain& chain) { return std::vector<Checkpoints>{best_all_held(chain)}; });
}

Plan plan_checkpoint_n2(const Trace& trace, const Machine& machine, const PlannerOptions& options) {
    return plan_checkpoints("checkpoint-n2", trace, machine, options, 2000, [](const Chain& chain) { return std::vector<Checkpoints>{best_freed_behind(chain)}; });
}

}  // namespace udnnmem::policy
