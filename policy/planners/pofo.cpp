// After POFO (O. Beaumont, L. Eyraud-Dubois, A. Shilova, "Efficient combination of rematerialization and
// offloading for training DNNs", NeurIPS 2021): a dynamic programme over the layers of a chain that decides
// for each whether what it leaves for the backward pass stays, is offloaded, or is computed again.
//
// The state after layer l is what is held (in steps of the memory) and how much of what was offloaded the
// link still has to carry, which occupies memory too. Keeping costs memory; offloading costs link, and time
// where the backlog does not fit beside the rest; computing again costs the layer's forward time and keeps
// its input. Memory that the backward pass itself takes is not in the programme: it is solved for several
// sizes, and the simulator chooses, plain paging among the choices. Prefetches are laid so that the transfers, taken back to back, end
// when they are needed.
#include "policy/planners/published.hpp"

#include <algorithm>
#include <limits>

#include "policy/planners/forward.hpp"
#include "policy/planners/layers.hpp"
#include "policy/player.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

constexpr std::size_t most_layers = 120;
constexpr int memory_steps = 64, backlog_steps = 16;
constexpr double never = std::numeric_limits<double>::infinity();
constexpr double sizes[] = {1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6};  // of the memory beside the weights

class Pofo {
public:
    Pofo(const Trace& trace, const Machine& machine) : trace_(trace), machine_(machine), live_(trace), player_(trace, live_, machine), layers_(trace, live_, player_.recovery(), most_layers) {}

    Plan plan(bool recompute) {
        const double room = static_cast<double>(machine_.memory.value - live_.persistent().value);
        const bool fits = live_.peak() <= machine_.memory;
        return fastest(trace_, machine_, room > 0 && !fits ? std::size(sizes) + 1 : 1, [&](std::size_t i) {
            std::vector<Gap> gaps = Player::keep_all(live_);
            if (room > 0 && !fits && i < std::size(sizes) && layers_.count()) apply(solve(room * sizes[i], recompute), gaps);
            return player_.play(gaps, {PlayOptions::Order::next_use});
        });
    }

private:
    // The fate of each layer.
    std::vector<Fate> solve(double room, bool recompute) const {
        const std::size_t n = layers_.count(), states = static_cast<std::size_t>((memory_steps + 1) * (backlog_steps + 1));
        const double step = room / memory_steps, rate = machine_.link_out * 1e-9;
        // A state stands for one exact course of events, the cheapest one that falls into it: rounding adds nothing up.
        struct Exact {
            double held = 0, backlog = 0;
        };
        std::vector<double> cost(states, never), next_cost(states);
        std::vector<Exact> exact(states), next_exact(states);
        struct Choice {
            std::int16_t from = -1;
            Fate fate = Fate::keep;
        };
        std::vector<std::vector<Choice>> choices(n, std::vector<Choice>(states));
        const auto state = [](int held, int backlog) { return static_cast<std::size_t>(held * (backlog_steps + 1) + backlog); };
        cost[state(0, 0)] = 0;
        const double backlog_step = room / 2 / backlog_steps;
        for (std::size_t l = 0; l < n; ++l) {
            std::fill(next_cost.begin(), next_cost.end(), never);
            const double bytes = static_cast<double>(layers_.saved_bytes(l)), time = static_cast<double>(layers_.forward_time(l).value);
            const double input = l ? static_cast<double>(layers_.chain().output[l - 1]) : 0;
            for (int held = 0; held <= memory_steps; ++held) {
                for (int backlog = 0; backlog <= backlog_steps; ++backlog) {
                    const double so_far = cost[state(held, backlog)];
                    if (so_far == never) continue;
                    for (const Fate fate : {Fate::keep, Fate::evict, Fate::drop}) {
                        if (fate == Fate::drop && (!recompute || l + 1 == n)) continue;
                        const double kept = fate == Fate::keep ? bytes : fate == Fate::drop ? std::min(input, bytes) : 0;
                        const double held_now = exact[state(held, backlog)].held + kept;
                        if (held_now > room) continue;
                        double queued = std::max(0.0, exact[state(held, backlog)].backlog + (fate == Fate::evict ? bytes : 0) - time * rate);
                        const double space = room - held_now - bytes;
                        double total = so_far + (fate == Fate::drop ? time : 0);
                        if (queued > std::max(0.0, space)) {  // the forward pass waits for the link
                            total += (queued - std::max(0.0, space)) / rate;
                            queued = std::max(0.0, space);
                        }
                        const int backlog_now = std::clamp(static_cast<int>(queued / backlog_step + 0.5), 0, backlog_steps);
                        const std::size_t to = state(std::min(memory_steps, static_cast<int>(held_now / step)), backlog_now);
                        if (total >= next_cost[to]) continue;
                        next_exact[to] = {held_now, queued};
                        next_cost[to] = total;
                        choices[l][to] = {static_cast<std::int16_t>(state(held, backlog)), fate};
                    }
                }
            }
            cost.swap(next_cost);
            exact.swap(next_exact);
        }
        std::vector<Fate> fates(n, Fate::evict);
        std::size_t at = static_cast<std::size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
        if (cost[at] == never) return fates;
        for (std::size_t l = n; l-- > 0;) {
            fates[l] = choices[l][at].fate;
            at = static_cast<std::size_t>(choices[l][at].from);
        }
        return fates;
    }

    void apply(const std::vector<Fate>& fates, std::vector<Gap>& gaps) const {
        struct Offloaded {
            std::int32_t needed;
            std::size_t buffer, use;
        };
        std::vector<Offloaded> offloaded;
        for (std::size_t l = 0; l < layers_.count(); ++l) {
            for (const Saved& saved : layers_.saved(l)) {
                Gap& gap = gaps[live_.use_offset(saved.buffer) + saved.use];
                const auto uses = live_.uses_of(saved.buffer);
                if (fates[l] == Fate::drop && saved.droppable && !kept_as_input(saved, l, fates)) {
                    gap.fate = Fate::drop;
                    gap.group = static_cast<std::int32_t>(l);
                } else if (fates[l] == Fate::evict && uses[saved.use + 1].op > uses[saved.use].op + 1) {
                    gap.fate = Fate::evict;
                    offloaded.push_back({uses[saved.use + 1].op, saved.buffer, saved.use});
                }
            }
        }
        // Backwards from the last one: each transfer ends when it is needed, or when the one after it starts.
        std::sort(offloaded.begin(), offloaded.end(), [](const Offloaded& a, const Offloaded& b) { return a.needed > b.needed; });
        std::vector<double> starts{0};
        for (const auto& op : trace_.ops) starts.push_back(starts.back() + static_cast<double>(op.duration.value));
        double link_free = never;
        for (const Offloaded& entry : offloaded) {
            const double end = std::min(link_free, starts[static_cast<std::size_t>(entry.needed)]);
            link_free = end - static_cast<double>(trace_.buffers[entry.buffer].bytes.value) / machine_.link_in * 1e9 - static_cast<double>(machine_.link_latency.value);
            auto at = static_cast<std::int32_t>(std::upper_bound(starts.begin(), starts.end(), link_free) - starts.begin()) - 2;
            gaps[live_.use_offset(entry.buffer) + entry.use].prefetch_after = std::clamp(at, live_.uses_of(entry.buffer)[entry.use].op, entry.needed - 1);
        }
    }

    // What a later layer that is computed again reads stays.
    bool kept_as_input(const Saved& saved, std::size_t layer, const std::vector<Fate>& fates) const {
        for (std::size_t l = layer; l + 1 < fates.size(); ++l)
            if (layers_.crosses(saved, l) && fates[l + 1] == Fate::drop) return true;
        return false;
    }

    const Trace& trace_;
    const Machine& machine_;
    const Liveness live_;
    const Player player_;
    const Layers layers_;
};

}  // namespace

Plan plan_pofo(const Trace& trace, const Machine& machine, const PlannerOptions& options) {
    Plan plan;
    if (!trace.ops.empty()) plan = Pofo(trace, machine).plan(options.recompute);
    plan.policy = "pofo";
    return plan;
}

}  // namespace udnnmem::policy
