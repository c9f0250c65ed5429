#include "policy/udnn/search.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#ifdef UDNN_DEV
#define UDNN_TRACE getenv("UDEBUG")
#else
#define UDNN_TRACE false
#endif

namespace udnnmem::policy::udnn {

Search::Search(const CompiledTrace& trace, const Machine& machine, bool recompute)
    : trace_(trace), machine_(machine), recompute_(recompute), gaps_(trace, recompute), engine_(trace, machine),
      drafter_(gaps_, machine), selector_(gaps_, machine, drafter_, 1) {}

Draft Search::blank() const {
    Draft draft;
    draft.mode.assign(gaps_.all.size(), keep);
    draft.retain.assign(gaps_.all.size(), 1);
    draft.early.assign(gaps_.all.size(), 1);
    draft.lead = -1;
    return draft;
}

// The draft's time; INT64_MAX if it cannot be carried out or takes as long as `give_up`.
std::int64_t Search::judge(Draft& draft, std::int64_t give_up) {
    ++evaluations;
    const Verdict v = engine_.run(drafter_.plan, 4, give_up);
    (void)draft;
    return v.valid() ? v.time : INT64_MAX;
}

bool Search::offer(const Draft& draft, std::int64_t time) {
    if (time >= best_.time) return false;
    best_.draft = draft;
    best_.time = time;
    return true;
}

std::int64_t Search::attempt(const Prices& prices, double lead, EngineTimeline* timeline) {
    Draft draft = blank();
    draft.lead = lead;
    bool fits = selector_.fit(draft, prices);
    if (fits) {
        selector_.prune(draft, prices);
        drafter_.build(draft, Drafter::Count::ends);
        slack_.fill(1);
        for (std::int32_t k = 0; k < trace_.ops; ++k) {
            auto& slack = slack_[selector_.stretch(k)];
            slack = std::min(slack, static_cast<double>(machine_.memory.value - drafter_.usage[k]) / static_cast<double>(machine_.memory.value));
        }
        drafter_.build(draft);
    }
    ++evaluations;
    const Verdict v = engine_.run(drafter_.plan, 4, INT64_MAX, timeline);
    const auto t = v.valid() ? v.time : INT64_MAX;
    if (UDNN_TRACE) fprintf(stderr, "in %.2f c %.2f seg %.2f fits %d excess %ld time %.1f rec %.1f in %.1f %s\n", prices.in, prices.compute, prices.segment*1e-9, fits, drafter_.excess, t*1e-6, drafter_.recompute*1e-6, drafter_.in_bytes*1e-9, Engine::explain(v).c_str());
    if (offer(draft, t)) best_prices_ = prices;
    return t;
}

// A ns of link is worth what it delays: one where a stall follows before the link pauses, nothing where the
// link has time to spare. A ns of compute is worth one where the device does not wait anyway.
void Search::learn(Prices& prices, const EngineTimeline& timeline, double rate) const {
    std::array<double, Prices::stretches + 1> in{}, out{}, wait{}, busy{};
    const auto op_at = [&](std::int64_t time) {
        const auto it = std::lower_bound(timeline.start.begin(), timeline.start.end(), time);
        return static_cast<std::int32_t>(std::min<std::ptrdiff_t>(it - timeline.start.begin(), trace_.ops - 1));
    };
    for (std::int32_t k = 0; k < trace_.ops; ++k) {
        const int at = selector_.stretch(k);
        busy[at] += static_cast<double>(trace_.duration[k]);
        wait[at] += static_cast<double>(timeline.starved[k] + timeline.crowded[k]);
        const double threshold = 2e-4 * static_cast<double>(trace_.ideal) / Prices::stretches;
        for (int way = 0; way < 2; ++way) {
            const std::int64_t lost = way ? timeline.crowded[k] : timeline.starved[k];
            if (static_cast<double>(lost) < threshold) continue;
            const std::int64_t since = way ? timeline.out_since[k] : timeline.in_since[k];
            auto& mark = way ? out : in;
            const int first = since < 0 ? selector_.stretch(op_at(timeline.end[trace_.ops - 1] + since)) : selector_.stretch(op_at(since));
            if (since < 0) {
                for (int i = first; i < Prices::stretches; ++i) mark[i] = 1;
                for (int i = 0; i <= at; ++i) mark[i] = 1;
            } else {
                for (int i = std::min(first, at); i <= at; ++i) mark[i] = 1;
            }
        }
    }
    for (int i = 0; i < Prices::stretches; ++i) {
        const double idle = busy[i] > 0 ? std::min(1.0, wait[i] / busy[i]) : 0;
        prices.in_at[i] += rate * (in[i] + 0.02 - prices.in_at[i]);
        prices.out_at[i] += rate * (out[i] + 0.02 - prices.out_at[i]);
        prices.compute_at[i] += rate * (1 - 0.95 * idle - prices.compute_at[i]);
        prices.memory_at[i] = std::max(0.003, prices.memory_at[i] * std::exp(-10 * rate * std::max(0.0, slack_[i])));
    }
}

void Search::first() { attempt(Prices{}, -1); }

void Search::sweep(Clock::time_point until) {
    const double peak = static_cast<double>(trace_.peak_live);
    EngineTimeline timeline;
    Prices before;
    for (double segment : recompute_ ? std::vector<double>{1, 0.3, 0.1, 0.05, 0.025} : std::vector<double>{1}) {
        Prices prices;
        prices.drops = recompute_;
        prices.segment = static_cast<std::int64_t>(segment * peak);
        prices.in_at.fill(0.5);
        prices.out_at.fill(0.5);
        for (int step = 0; step < 24; ++step) {
            if (Clock::now() > until) return;
            if (attempt(prices, -1, &timeline) == INT64_MAX) {
                if (step == 0) break;
                for (int i = 0; i < Prices::stretches; ++i) {
                    prices.in_at[i] = 0.5 * (prices.in_at[i] + before.in_at[i]);
                    prices.out_at[i] = 0.5 * (prices.out_at[i] + before.out_at[i]);
                    prices.compute_at[i] = 0.5 * (prices.compute_at[i] + before.compute_at[i]);
                    prices.memory_at[i] = before.memory_at[i];
                }
                continue;
            }
            before = prices;
            learn(prices, timeline, step < 8 ? 0.4 : 0.15);
        }
    }
}

void Search::improve(Clock::time_point until, std::int64_t bound, const std::function<void()>& tick) {
    auto& random = selector_.random;
    if (!best_start_.empty()) drafter_.start = best_start_;
    const auto n = gaps_.all.size();
    int since = 0;
    while (Clock::now() < until && best_.time > bound) {
        if (++since % 64 == 0 && tick) tick();
        Draft draft = best_.draft;
        const int kind = static_cast<int>(random() % 4);
        if (kind == 0) {
            // A stretch of gaps kept again.
            const auto centre = static_cast<std::int32_t>(random() % trace_.ops);
            const auto width = 1 + static_cast<std::int32_t>(random() % 20);
            for (std::size_t g = 0; g < n; ++g)
                if (std::abs(gaps_.all[g].from - centre) <= width || std::abs(gaps_.all[g].to - centre) <= width) draft.mode[g] = keep;
        } else {
            const int count = 1 + static_cast<int>(random() % 6);
            for (int i = 0; i < count; ++i) {
                const auto g = random() % n;
                const Gap& gap = gaps_.all[g];
                if (!gap.open) continue;
                if (draft.mode[g] != keep) draft.mode[g] = keep;
                else if (kind == 2) draft.mode[g] = recompute_ && gap.droppable && random() % 2 ? drop : swap;
                if (kind == 3) draft.retain[g] ^= 1;
                if (kind == 1 && random() % 2) draft.early[g] ^= 1;
            }
        }
        if (random() % 16 == 0) draft.lead = random() % 2 ? -1 : static_cast<double>(random() % 64) * 1e6;
        Prices prices = best_prices_;
        prices.noise = 0.5;
        prices.in *= std::exp(0.5 * std::normal_distribution<double>()(random));
        prices.compute *= std::exp(0.5 * std::normal_distribution<double>()(random));
        if (!selector_.fit(draft, prices, 3)) continue;
        if (random() % 2) selector_.prune(draft, prices);
        if (drafter_.excess) continue;
        const auto t = judge(draft, best_.time);
        if (offer(draft, t) && UDNN_TRACE) fprintf(stderr, "  %ld evaluations: %.2f kind %d\n", evaluations, t * 1e-6, kind);
    }
}

CompiledPlan Search::best_plan() {
    drafter_.build(best_.draft);
    return drafter_.plan;
}

}  // namespace udnnmem::policy::udnn
