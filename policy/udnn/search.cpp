#include "policy/udnn/search.hpp"

#include <algorithm>
#include <cmath>

namespace udnnmem::policy::udnn {
namespace {
constexpr int kOthers = 6;   // prices tried for a first draft that fits
}

Search::Search(const CompiledTrace& trace, const CompiledTrace& real, const Machine& machine, bool recompute, bool tails, std::int64_t negligible)
    : trace_(trace), machine_(machine), recompute_(recompute), gaps_(trace, recompute, tails, negligible), engine_(real, machine),
      drafter_(gaps_, machine), selector_(gaps_, machine, drafter_, 1) {}

Draft Search::blank() const {
    Draft draft;
    draft.mode.assign(gaps_.all.size(), keep);
    draft.retain.assign(gaps_.all.size(), 1);
    draft.early.assign(gaps_.all.size(), 1);
    draft.lead = -1;
    return draft;
}

bool Search::offer(const Draft& draft, std::int64_t time) {
    if (time >= best_.time) return false;
    best_.draft = draft;
    best_.start = drafter_.start;
    best_.time = time;
    return true;
}

// Fetches are placed by the times of a simulation from now on.
void Search::expect(const EngineTimeline& timeline) {
    for (std::int32_t k = 0; k < trace_.ops; ++k) drafter_.start[k] = timeline.start[k];
    drafter_.start[trace_.ops] = timeline.end[trace_.ops - 1];
}

// One draft from scratch at these prices: its time as fetched as early as fits, or just in time by the times
// that the former showed, whichever is better.
std::int64_t Search::attempt(const Prices& prices, EngineTimeline& timeline, int rounds, bool learns) {
    Draft draft = blank();
    drafter_.expect_ideal();
    const bool fits = selector_.fit(draft, prices, rounds);
    if (fits) selector_.prune(draft, prices);
    if (fits && learns) {
        drafter_.build(draft, Drafter::Count::ends);
        slack_.fill(1);
        for (std::int32_t k = 0; k < trace_.ops; ++k) {
            auto& slack = slack_[selector_.stretch(k)];
            slack = std::min(slack, static_cast<double>(machine_.memory.value - drafter_.usage[k]) / static_cast<double>(machine_.memory.value));
        }
    }
    std::int64_t best = INT64_MAX;
    for (int turn = 0; turn < 2; ++turn) {
        drafter_.build(draft);
        ++evaluations;
        const Verdict v = engine_.run(drafter_.plan, 4, INT64_MAX, &timeline);
        if (!v.valid()) return best;
        best = std::min(best, v.time);
        if (offer(draft, v.time)) best_prices_ = prices;
        if (v.time <= trace_.ideal) break;
        expect(timeline);
        draft.lead = 2e7;
    }
    return best;
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

// Does it fit at all, with every gap left that may be?
bool Search::may_fit() {
    Draft draft = blank();
    for (std::size_t g = 0; g < gaps_.all.size(); ++g)
        if (gaps_.all[g].open) draft.mode[g] = swap;
    drafter_.build(draft, Drafter::Count::ends);
    return drafter_.excess == 0;
}

void Search::first() {
    if (!may_fit()) return;
    EngineTimeline timeline;
    // Shorter replays need less memory; without any there is most room. Where ops are many and the memory is little, a long
    // replay fits seldom, and a small part of the peak holds many buffers as it is.
    const bool long_and_tight = trace_.ops > 8000 && machine_.memory.value < trace_.peak_live / 3;
    for (const auto& [segment, rounds] : {std::pair(1.0, 5), std::pair(0.03, 4), std::pair(0.0, 10)}) {
        if (segment == 1 && recompute_ && long_and_tight) continue;
        Prices prices;
        prices.drops = recompute_ && segment > 0;
        prices.segment = static_cast<std::int64_t>(segment * static_cast<double>(trace_.peak_live));
        if (attempt(prices, timeline, recompute_ ? rounds : 10, false) < INT64_MAX || !recompute_) return;
    }
}

void Search::sweep(const Stopwatch& watch, double part, std::int64_t bound, const std::function<void()>& tick) {
    const double peak = static_cast<double>(trace_.peak_live);
    EngineTimeline timeline;
    Prices before;
    for (double segment : recompute_ ? std::vector<double>{0, 1, 0.3, 0.1, 0.05, 0.025} : std::vector<double>{0}) {
        Prices prices;
        prices.drops = segment > 0;  // what can be had without any replay, too
        prices.segment = static_cast<std::int64_t>(segment * peak);
        prices.in_at.fill(0.5);
        prices.out_at.fill(0.5);
        std::int64_t here = INT64_MAX;
        for (int step = 0; step < 24; ++step) {
            if (step == 8 && here / 8 > best_.time / 7) break;  // not the way
            if (watch.used() > part || best_.time <= bound) return;
            if (tick) tick();
            std::int64_t time = attempt(prices, timeline);
            // Where memory is very short, a first draft fits by luck: at other prices, or with some noise on them.
            for (int other = 0; recompute_ && step == 0 && time == INT64_MAX && other < kOthers; ++other) {
                prices.in_at.fill(other % 2 ? 0.5 : 1);
                prices.out_at.fill(other % 2 ? 0.5 : 1);
                prices.tight = other / 2 % 2;
                prices.noise = other ? 0.2 : 0;
                time = attempt(prices, timeline);
            }
            prices.noise = 0;
            here = std::min(here, time);
            if (time == INT64_MAX) {
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

// Changes one gap for good as far as this draft goes.
void Search::leave(Draft& draft, std::size_t g, std::uint8_t mode) {
    const Gap& gap = gaps_.all[g];
    if (!gap.open) return;
    if (mode == drop && !gap.droppable) mode = swap;
    draft.mode[g] = mode;
    selector_.hold(static_cast<std::int32_t>(g));
}

// One random step away from a draft.
void Search::stir(Draft& draft, const EngineTimeline& timeline) {
    auto& random = selector_.random;
    const auto n = gaps_.all.size();
    const auto pick = [&](bool left) {
        std::size_t g = 0;
        for (int tries = 0; tries < 200; ++tries) {
            g = random() % n;
            if (gaps_.all[g].open && (draft.mode[g] != keep) == left) break;
        }
        return g;
    };
    const auto other = [&](std::size_t g) -> std::uint8_t {
        const auto roll = random() % 3;
        const Mode mode = roll == 0 ? keep : roll == 1 ? swap : drop;
        if (mode != draft.mode[g]) return mode;
        return mode == keep ? swap : keep;
    };
    switch (random() % 12) {
        case 0: case 1: case 2:
            for (auto i = random() % 3 + 1; i > 0; --i) leave(draft, pick(true), keep);
            break;
        case 3: case 4:
            leave(draft, pick(false), static_cast<std::uint8_t>(recompute_ && random() % 2 ? drop : swap));
            break;
        case 5:
            for (auto i = random() % 3 + 1; i > 0; --i) {
                const auto g = pick(true);
                const std::uint8_t away = static_cast<std::uint8_t>(recompute_ ? drop : keep);
                leave(draft, g, draft.mode[g] == swap ? away : static_cast<std::uint8_t>(swap));
            }
            break;
        case 6: {  // a stretch of gaps kept again
            const auto centre = static_cast<std::int32_t>(random() % trace_.ops), width = 1 + static_cast<std::int32_t>(random() % 12);
            for (std::size_t g = 0; g < n; ++g)
                if (std::abs(gaps_.all[g].from - centre) <= width || std::abs(gaps_.all[g].to - centre) <= width) draft.mode[g] = keep;
            break;
        }
        case 7: {  // gaps that look alike
            const auto like = pick(random() % 2);
            const std::uint8_t mode = other(like);
            const auto chance = random() % 4 + 1;
            for (std::size_t g = 0; g < n; ++g)
                if (gaps_.all[g].bytes == gaps_.all[like].bytes && gaps_.all[g].replay == gaps_.all[like].replay && draft.mode[g] == draft.mode[like] && random() % 4 < chance && g != like)
                    leave(draft, g, mode);
            leave(draft, like, mode);
            break;
        }
        case 8:
            for (auto i = random() % 4 + 1; i > 0; --i) draft.retain[pick(true)] ^= 1;
            break;
        case 9:
            if (random() % 2) draft.lead = random() % 4 ? 1e5 * std::exp2(static_cast<double>(random() % 12)) : -1;
            for (auto i = random() % 4 + 1; i > 0; --i) draft.early[pick(true)] ^= 1;
            break;
        default: {  // what a stall waits for
            std::int64_t total = 0;
            for (std::int32_t k = 0; k < trace_.ops; ++k) total += timeline.starved[k] + timeline.crowded[k];
            if (total <= 0) {
                leave(draft, pick(true), keep);
                break;
            }
            auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(total));
            std::int32_t k = 0;
            while (at >= timeline.starved[k] + timeline.crowded[k]) at -= timeline.starved[k] + timeline.crowded[k], ++k;
            const bool in = at < timeline.starved[k];
            const std::int64_t since = in ? timeline.in_since[k] : timeline.out_since[k];
            for (int tries = 0; tries < 100; ++tries) {
                const auto g = pick(true);
                const std::int32_t op = in ? gaps_.all[g].to : gaps_.all[g].from;
                if (draft.mode[g] != swap || op > k || timeline.start[op] < since) continue;
                leave(draft, g, recompute_ && random() % 2 ? drop : keep);
                break;
            }
        }
    }
}

void Search::improve(const Stopwatch& watch, double part, std::int64_t bound, const std::function<void()>& tick) {
    if (best_.time == INT64_MAX || gaps_.all.empty()) return;
    auto& random = selector_.random;
    drafter_.start = best_.start;
    Found current = best_;
    EngineTimeline timeline, other;
    std::vector<std::int64_t> former;
    drafter_.build(current.draft);
    engine_.run(drafter_.plan, 4, INT64_MAX, &timeline);
    // Late acceptance: a step is taken if it is no worse than where the search was so many steps ago.
    std::vector<std::int64_t> history(40, current.time);
    std::size_t step = 0;
    for (; watch.used() < part && best_.time > bound; ++step) {
        if (step % 64 == 0 && tick) tick();
        Draft draft = current.draft;
        selector_.release();
        stir(draft, timeline);
        Prices prices = best_prices_;
        prices.noise = 0.4;
        prices.segment = INT64_MAX;
        prices.tight = random() % 2;
        if (random() % 2) prices.compute *= std::exp(std::normal_distribution<double>()(random));
        if (!selector_.fit(draft, prices, 4)) continue;
        if (random() % 4) selector_.prune(draft, prices);
        drafter_.build(draft);
        if (drafter_.excess) continue;
        auto& late = history[step % history.size()];
        const std::int64_t limit = std::max(late, current.time);
        ++evaluations;
        const Verdict v = engine_.run(drafter_.plan, 3, limit + 1);
        if (v.valid() && v.time <= limit) {
            current.draft = draft;
            current.time = v.time;
            offer(draft, v.time);
            engine_.run(drafter_.plan, 3, INT64_MAX, &timeline);
            // The same draft by its own times.
            former = drafter_.start;
            expect(timeline);
            drafter_.build(draft);
            const Verdict again = engine_.run(drafter_.plan, 3, v.time + 1, &other);
            if (again.valid() && again.time <= v.time) {
                current.time = again.time;
                offer(draft, again.time);
                std::swap(timeline, other);
            } else {
                drafter_.start = former;
            }
        }
        late = current.time;
    }
}

CompiledPlan Search::best_plan() {
    drafter_.start = best_.start;
    drafter_.build(best_.draft);
    return drafter_.plan;
}

}  // namespace udnnmem::policy::udnn
