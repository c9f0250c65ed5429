// vDNN (M. Rhu, N. Gimelshein, J. Clemons, A. Zulfiqar, S. W. Keckler, "vDNN: Virtualized deep neural
// networks for scalable, memory-efficient neural network design", MICRO 2016).
//
// A feature map is offloaded after its last use of the forward pass and brought back while the backward
// op before the one that uses it runs (a search window of one layer, so that memory is not filled early).
// Its dynamic policy tries nothing, the inputs of convolutions only (`conv`) and everything (`all`), and
// keeps the fastest that fits; so does this. The paper blocks the forward pass at each layer until the
// offload has ended; here it does not. Weights stay, as there; what does not fit goes by demand.
#include "policy/planners/published.hpp"

#include <algorithm>
#include <cctype>

#include "policy/planners/forward.hpp"
#include "policy/player.hpp"
#include "policy/simulator.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

bool is_convolution(const std::string& name) {
    std::string lower;
    for (const char c : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("conv") != std::string::npos || lower.find("matmul") != std::string::npos || lower.find("gemm") != std::string::npos;
}

std::vector<Gap> offload(const Trace& trace, const Liveness& live, bool convolutions_only) {
    std::vector<Gap> gaps = Player::keep_all(live);
    const std::int32_t turn = turning_op(trace, live);
    struct Offloaded {
        std::int32_t needed;
        std::size_t use;
    };
    std::vector<Offloaded> offloaded;
    for (std::size_t b = 0; b < trace.buffers.size(); ++b) {
        if (trace.buffers[b].persistent) continue;
        const auto uses = live.uses_of(b);
        const std::size_t back = live.use_at_or_after(b, turn);
        if (back == 0 || back == uses.size() || uses[back].op - uses[back - 1].op < 2) continue;
        if (convolutions_only && std::none_of(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(back),
                                              [&](const Use& use) { return use.reads && is_convolution(trace.ops[static_cast<std::size_t>(use.op)].name); }))
            continue;
        offloaded.push_back({uses[back].op, live.use_offset(b) + back - 1});
    }
    std::sort(offloaded.begin(), offloaded.end(), [](const Offloaded& a, const Offloaded& b) { return a.needed < b.needed; });
    std::int32_t layer_before = turn, layer = turn;
    for (const Offloaded& entry : offloaded) {
        if (entry.needed != layer) {
            layer_before = layer;
            layer = entry.needed;
        }
        gaps[entry.use].fate = Fate::evict;
        gaps[entry.use].prefetch_after = std::max(0, layer_before - 1);
    }
    return gaps;
}

}  // namespace

Plan plan_vdnn(const Trace& trace, const Machine& machine, const PlannerOptions&) {
    const Liveness live(trace);
    const Player player(trace, live, machine);
    std::vector<std::vector<Gap>> policies;
    if (live.peak() <= machine.memory) policies.push_back(Player::keep_all(live));
    policies.push_back(offload(trace, live, true));
    policies.push_back(offload(trace, live, false));
    Plan plan = fastest(trace, machine, policies.size(), [&](std::size_t i) { return player.play(policies[i], {PlayOptions::Order::recency}); });
    plan.policy = "vdnn";
    return plan;
}

}  // namespace udnnmem::policy
