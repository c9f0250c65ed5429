// Capuchin (X. Peng et al., "Capuchin: Tensor-based GPU memory management for deep learning", ASPLOS 2020).
//
// Candidates are the gaps that hold at the peak. Free time FT = SwapInStart - SwapOutEnd, both on the
// measured times of the first iteration. Candidates go by falling FT until the bytes above the memory at
// the peak are saved: those with FT >= 0 are swapped; for the others, the cheaper of the swap's exposed
// time and of recomputation is taken, the latter by MSPS = bytes saved / time to recompute, counting again
// after each choice, for what is dropped lengthens the chains of others. The in-trigger is the back-access
// less the transfer; feedback then moves the triggers of buffers that came late 5 % of the transfer
// earlier, a few iterations long. What is still missing is evicted by access, least recently used first
// (the paper's passive mode).
#include "policy/planners/published.hpp"

#include <algorithm>
#include <queue>

#include "policy/player.hpp"
#include "policy/simulator.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

constexpr int feedback_rounds = 12;

struct Candidate {
    std::size_t buffer, use;
    std::int32_t access, back;  // ops around the gap; back beyond the last op: in the next iteration
    double swap_in = 0;         // ns
    double free_time = 0;       // ns
    double lead = 0;            // ns before the back-access at which the fetch is asked for
};

class Capuchin {
public:
    Capuchin(const Trace& trace, const Machine& machine) : trace_(trace), machine_(machine), live_(trace), player_(trace, live_, machine) {
        starts_.push_back(0);
        for (int i = 0; i < 2; ++i)
            for (const auto& op : trace.ops) starts_.push_back(starts_.back() + static_cast<double>(op.duration.value));
    }

    Plan plan(bool recompute) {
        choose(recompute);
        Plan best = make();
        Timeline times;
        Outcome outcome = simulate(trace_, machine_, best, &times);
        Nanoseconds best_time = outcome.valid ? outcome.time : Nanoseconds::max();
        for (int round = 0; round < feedback_rounds && outcome.valid && outcome.stall.value > 0; ++round) {
            bool moved = false;
            for (Candidate& c : swapped_) {
                const auto back = static_cast<std::size_t>(c.back) % trace_.ops.size();
                const std::int64_t came = times.start[back].value, could = back ? times.end[back - 1].value : 0;
                if (came <= could) continue;
                c.lead += 0.05 * c.swap_in;
                moved = true;
            }
            if (!moved) break;
            Plan next = make();
            outcome = simulate(trace_, machine_, next, &times);
            if (!outcome.valid || outcome.time >= best_time) continue;
            best_time = outcome.time;
            best = std::move(next);
        }
        return best;
    }

private:
    double size(const Candidate& c) const { return static_cast<double>(trace_.buffers[c.buffer].bytes.value); }

    void choose(bool recompute) {
        const auto ops = static_cast<std::int32_t>(trace_.ops.size());
        std::int32_t peak = 0;
        for (std::int32_t k = 0; k < ops; ++k)
            if (live_.live(static_cast<std::size_t>(k)) > live_.live(static_cast<std::size_t>(peak))) peak = k;
        double required = static_cast<double>(live_.peak().value - machine_.memory.value);
        std::vector<Candidate> candidates;
        for (std::size_t b = 0; b < trace_.buffers.size(); ++b) {
            const auto uses = live_.uses_of(b);
            const std::size_t next = live_.use_at_or_after(b, peak);
            if (uses.empty() || (next < uses.size() && uses[next].op == peak) || trace_.buffers[b].bytes.value == 0) continue;
            const bool persistent = trace_.buffers[b].persistent;
            if (!persistent && (next == 0 || next == uses.size())) continue;
            Candidate c{b, next ? next - 1 : uses.size() - 1, 0, 0};
            c.access = next ? uses[next - 1].op : uses.back().op - ops;
            c.back = next < uses.size() ? uses[next].op : uses.front().op + ops;
            if (c.access < 0) c.access += ops, c.back += ops;
            const double latency = static_cast<double>(machine_.link_latency.value);
            c.swap_in = latency + size(c) / machine_.link_in * 1e9;
            const double swap_out = latency + size(c) / machine_.link_out * 1e9;
            c.free_time = (start(c.back) - c.swap_in) - (start(c.access + 1) + swap_out);
            c.lead = c.swap_in;
            candidates.push_back(c);
        }
        std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.free_time > b.free_time; });
        std::size_t i = 0;
        for (; i < candidates.size() && required > 0 && candidates[i].free_time >= 0; ++i) {
            swapped_.push_back(candidates[i]);
            required -= size(candidates[i]);
        }
        // Chains only grow as more is dropped, so MSPS only falls: whoever leads the queue up to date is the best.
        struct Entry {
            double msps;
            std::size_t candidate;
            std::size_t drops;  // so many were dropped when it was worked out
            bool operator<(const Entry& other) const { return msps < other.msps; }
        };
        std::priority_queue<Entry> queue;
        std::vector<char> taken(candidates.size(), 0);
        is_dropped_.assign(trace_.buffers.size(), 0);
        for (std::size_t c = i; recompute && c < candidates.size(); ++c)
            if (player_.recovery().droppable(candidates[c].buffer, candidates[c].use)) queue.push({1e300, c, candidates.size()});
        for (std::size_t swap = i; required > 0; ) {
            while (swap < candidates.size() && taken[swap]) ++swap;
            if (swap == candidates.size()) break;
            while (!queue.empty() && (taken[queue.top().candidate] || queue.top().drops != dropped_.size())) {
                const Entry entry = queue.top();
                queue.pop();
                if (taken[entry.candidate]) continue;
                const double time = time_to_remake(candidates[entry.candidate]);
                if (time < 1e300) queue.push({size(candidates[entry.candidate]) / std::max(1.0, time), entry.candidate, dropped_.size()});
            }
            const bool drop = !queue.empty() && 1 / queue.top().msps < -candidates[swap].free_time / size(candidates[swap]);
            const std::size_t chosen = drop ? queue.top().candidate : swap;
            taken[chosen] = 1;
            required -= size(candidates[chosen]);
            (drop ? dropped_ : swapped_).push_back(candidates[chosen]);
            if (drop) is_dropped_[candidates[chosen].buffer] = 1;
        }
    }

    double start(std::int32_t k) const { return starts_[std::min(static_cast<std::size_t>(k), starts_.size() - 1)]; }

    double time_to_remake(const Candidate& c) const {
        ReplayChain chain;
        const auto at_hand = [&](std::int32_t b) { return !is_dropped_[static_cast<std::size_t>(b)]; };
        if (!player_.recovery().chain({static_cast<std::int32_t>(c.buffer)}, c.back, at_hand, chain)) return 1e300;
        return static_cast<double>(chain.time.value);
    }

    Plan make() {
        std::vector<Gap> gaps = Player::keep_all(live_);
        const auto ops = static_cast<std::int32_t>(trace_.ops.size());
        for (const Candidate& c : swapped_) {
            Gap& gap = gaps[live_.use_offset(c.buffer) + c.use];
            gap.fate = Fate::evict;
            const double from = start(c.back) - c.lead;
            std::int32_t k = c.back - 1;
            while (k > c.access && start(k) > from) --k;
            gap.prefetch_after = (k == c.access ? k : k - 1) % ops;
        }
        for (const Candidate& c : dropped_) gaps[live_.use_offset(c.buffer) + c.use].fate = Fate::drop;
        return player_.play(gaps, {PlayOptions::Order::recency});
    }

    const Trace& trace_;
    const Machine& machine_;
    const Liveness live_;
    const Player player_;
    std::vector<double> starts_;  // of the ops of two iterations, ns
    std::vector<Candidate> swapped_, dropped_;
    std::vector<char> is_dropped_;
};

}  // namespace

Plan plan_capuchin(const Trace& trace, const Machine& machine, const PlannerOptions& options) {
    Plan plan;
    if (!trace.ops.empty()) plan = Capuchin(trace, machine).plan(options.recompute);
    plan.policy = "capuchin";
    return plan;
}

}  // namespace udnnmem::policy
