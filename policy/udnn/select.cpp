#include "policy/udnn/select.hpp"

#include <algorithm>
#include <cmath>

namespace udnnmem::policy::udnn {

Selector::Selector(const Gaps& gaps, const Machine& machine, Drafter& drafter, std::uint64_t seed)
    : random(seed), gaps_(gaps), trace_(gaps.trace), machine_(machine), drafter_(drafter), running_(trace_.ops, 0) {
    const Engine engine(trace_, machine);
    for (std::int32_t b = 0; b < trace_.buffers; ++b) {
        in_time_.push_back(engine.in_time(b));
        out_time_.push_back(engine.out_time(b));
    }
    std::int64_t time = 0;
    for (std::int32_t k = 0; k < trace_.ops; ++k) {
        const double part = static_cast<double>(time) / static_cast<double>(std::max<std::int64_t>(1, trace_.ideal));
        stretch_.push_back(static_cast<std::uint8_t>(std::min(Prices::stretches - 1, static_cast<int>(part * Prices::stretches))));
        time += trace_.duration[k];
    }
    stretch_.push_back(Prices::stretches - 1);   // where the tails of the last op end
    while (leaves_ < trace_.ops) leaves_ *= 2;
    top_.resize(2 * static_cast<std::size_t>(leaves_));
    lazy_.resize(2 * static_cast<std::size_t>(leaves_));
    const auto n = gaps.all.size();
    std::vector<std::int32_t> count(n + 1, 0);
    for (std::int32_t h : gaps.inputs.data) ++count[h + 1];
    for (std::size_t g = 0; g < n; ++g) count[g + 1] += count[g];
    readers_.begin = count;
    readers_.data.resize(gaps.inputs.data.size());
    for (std::size_t g = 0; g < n; ++g)
        for (std::int32_t h : gaps.inputs[g]) readers_.data[count[h]++] = static_cast<std::int32_t>(g);
    parent_.resize(n);
    segment_.resize(n);
    dropped_.resize(n);
    seen_.assign(trace_.ops, 0);
    held_.assign(n, 0);
}

void Selector::load(const std::vector<std::int64_t>& usage) {
    for (std::int32_t i = 0; i < leaves_; ++i)
        top_[leaves_ + i] = i < trace_.ops ? usage[i] - machine_.memory.value : INT64_MIN / 4;
    for (std::int32_t i = leaves_; --i > 0;) top_[i] = std::max(top_[2 * i], top_[2 * i + 1]);
    std::fill(lazy_.begin(), lazy_.end(), 0);
}

void Selector::add(std::int32_t node, std::int32_t low, std::int32_t high, std::int32_t from, std::int32_t to, std::int64_t bytes) {
    if (from <= low && high <= to) {
        top_[node] += bytes;
        lazy_[node] += bytes;
        return;
    }
    const std::int32_t middle = (low + high) / 2;
    if (from < middle) add(2 * node, low, middle, from, to, bytes);
    if (to > middle) add(2 * node + 1, middle, high, from, to, bytes);
    top_[node] = std::max(top_[2 * node], top_[2 * node + 1]) + lazy_[node];
}

std::int64_t Selector::most(std::int32_t node, std::int32_t low, std::int32_t high, std::int32_t from, std::int32_t to) const {
    if (from <= low && high <= to) return top_[node];
    const std::int32_t middle = (low + high) / 2;
    std::int64_t value = INT64_MIN / 2;
    if (from < middle) value = std::max(value, most(2 * node, low, middle, from, to));
    if (to > middle) value = std::max(value, most(2 * node + 1, middle, high, from, to));
    return value + lazy_[node];
}

// A window that runs past the iteration's end continues at its start: `to` is then beyond the last op.
void Selector::add(std::int32_t from, std::int32_t to, std::int64_t bytes) {
    if (from < std::min(to, trace_.ops)) add(1, 0, leaves_, from, std::min(to, trace_.ops), bytes);
    if (to > trace_.ops) add(1, 0, leaves_, std::max(0, from - trace_.ops), to - trace_.ops, bytes);
}

std::int64_t Selector::most(std::int32_t from, std::int32_t to) {
    std::int64_t value = INT64_MIN / 2;
    if (from < std::min(to, trace_.ops)) value = most(1, 0, leaves_, from, std::min(to, trace_.ops));
    if (to > trace_.ops) value = std::max(value, most(1, 0, leaves_, std::max(0, from - trace_.ops), to - trace_.ops));
    return value;
}

double Selector::cost(std::int32_t g, std::uint8_t mode, const Prices& prices) const {
    const Gap& gap = gaps_.all[g];
    if (mode == swap) {
        // Whether the copy out is needed depends on the gaps before; a write since the last gap makes it certain.
        const bool dirty = gap.last_write == gap.from || !trace_.persistent[gap.buffer] || gap.last_write > gap.from ||
                           (gap.last_write >= 0 && g > gaps_.begin[gap.buffer] && gaps_.all[g - 1].from < gap.last_write);
        const std::int32_t copied = gap.last_write >= 0 ? gap.last_write : gap.from;
        return (gap.tail ? 0 : prices.in_at[stretch_[gap.to]] * static_cast<double>(in_time_[gap.buffer])) +
               prices.out_at[stretch_[copied]] * (dirty ? 1.0 : 0.05) * static_cast<double>(out_time_[gap.buffer]);
    }
    if (gap.tail) return 0;
    double time = 0;
    for (std::int32_t op : gaps_.replayed[g])
        if (!running_[op]) time += static_cast<double>(trace_.duration[op]);
    return prices.compute * prices.compute_at[stretch_[gap.to]] * time;
}

// What a replay of the gap's buffer costs once more: its own ops and those of dropped inputs. ns.
double Selector::replay_cost(std::int32_t gap, const Draft& draft) {
    ++now_;
    double time = 0;
    int left = 60;
    stack_.assign(1, gap);
    while (!stack_.empty() && left-- > 0) {
        const std::int32_t g = stack_.back();
        stack_.pop_back();
        bool fresh = false;
        for (std::int32_t op : gaps_.replayed[g])
            if (seen_[op] != now_) {
                seen_[op] = now_;
                time += static_cast<double>(trace_.duration[op]);
                fresh = true;
            }
        if (!fresh) continue;
        for (std::int32_t h : gaps_.inputs[g])
            if (draft.mode[h] == drop) stack_.push_back(h);
    }
    return time;
}

std::int32_t Selector::find(std::int32_t g) {
    while (parent_[g] != g) g = parent_[g] = parent_[parent_[g]];
    return g;
}

// Would the replay that recreates this gap's buffer, with the dropped ones that it hangs together with, stay within the limit?
bool Selector::may_drop(std::int32_t g, std::int64_t limit) {
    if (limit == INT64_MAX) return true;
    std::int64_t total = gaps_.all[g].bytes;
    std::int32_t seen[16];
    int n = 0;
    const auto count = [&](std::int32_t h) {
        if (!dropped_[h]) return;
        const std::int32_t root = find(h);
        for (int i = 0; i < n; ++i)
            if (seen[i] == root) return;
        if (n < 16) seen[n++] = root;
        total += segment_[root];
    };
    for (std::int32_t h : gaps_.inputs[g]) count(h);
    for (std::int32_t h : readers_[g]) count(h);
    return total <= limit;
}

void Selector::join(std::int32_t g) {
    dropped_[g] = 1;
    const auto merge = [&](std::int32_t h) {
        if (!dropped_[h]) return;
        const std::int32_t a = find(g), b = find(h);
        if (a == b) return;
        parent_[a] = b;
        segment_[b] += segment_[a];
    };
    for (std::int32_t h : gaps_.inputs[g]) merge(h);
    for (std::int32_t h : readers_[g]) merge(h);
    for (std::int32_t op : gaps_.replayed[g]) ++running_[op];
}

void Selector::gather(const Draft& draft) {
    std::fill(running_.begin(), running_.end(), 0);
    std::fill(dropped_.begin(), dropped_.end(), 0);
    for (std::size_t g = 0; g < parent_.size(); ++g) {
        parent_[g] = static_cast<std::int32_t>(g);
        segment_[g] = gaps_.all[g].bytes;
    }
    for (std::size_t g = 0; g < parent_.size(); ++g)
        if (draft.mode[g] == drop) join(static_cast<std::int32_t>(g));
}

bool Selector::fit(Draft& draft, const Prices& prices, int rounds) {
    std::normal_distribution<double> normal;
    std::int64_t limit = prices.segment, before = INT64_MAX;
    for (int round = 0;; ++round) {
        drafter_.build(draft, Drafter::Count::ends);
        if (drafter_.excess == 0) return true;
        if (round == rounds || (round > 2 && drafter_.excess == before)) return false;
        before = drafter_.excess;
        load(drafter_.usage);
        gather(draft);
        weight_.assign(2 * static_cast<std::size_t>(trace_.ops) + 1, 0);
        for (std::int32_t k = 0; k < 2 * trace_.ops; ++k) {
            const auto lack = static_cast<double>(drafter_.usage[k % trace_.ops] - machine_.memory.value);
            weight_[k + 1] = weight_[k] + (lack > 0 ? lack * 1e-9 * prices.memory_at[stretch_[k % trace_.ops]] : 0);
        }
        candidates_.clear();
        for (std::size_t i = 0; i < gaps_.all.size(); ++i) {
            const auto g = static_cast<std::int32_t>(i);
            const Gap& gap = gaps_.all[i];
            if (!gap.open || gap.bytes == 0 || held_[i] == holding_) continue;
            if (draft.mode[i] != keep) {
                const std::int32_t back = drafter_.restored[i];
                if (back < 0 || !draft.retain[i]) continue;
                const std::int32_t to = gap.to + (gap.wraps ? trace_.ops : 0);
                const double gain = (weight_[to] - weight_[back]) * static_cast<double>(gap.bytes);
                if (gain <= 0) continue;
                const double price = draft.mode[i] == swap ? prices.in_at[stretch_[gap.to]] * static_cast<double>(in_time_[gap.buffer])
                                                           : prices.compute * prices.compute_at[stretch_[gap.to]] * replay_cost(g, draft);
                double score = gain / (price + 1);
                if (prices.noise > 0) score *= std::exp(prices.noise * normal(random));
                candidates_.push_back({score, g, draft.mode[i], true});
                if (draft.mode[i] == drop) {
                    score = gain / (cost(g, swap, prices) + 1);
                    if (prices.noise > 0) score *= std::exp(prices.noise * normal(random));
                    candidates_.push_back({score, g, swap, true});
                }
                continue;
            }
            Candidate best{0, g, keep, false};
            for (std::uint8_t mode : {swap, drop}) {
                if (mode == drop && !(prices.drops && gap.droppable)) continue;
                const Window w = window(gap);
                if (w.from >= w.to) continue;
                const double gain = (weight_[w.to] - weight_[w.from]) * static_cast<double>(gap.bytes);
                if (gain <= 0) continue;
                double score = gain / (cost(g, mode, prices) + 1);
                if (prices.noise > 0) score *= std::exp(prices.noise * normal(random));
                if (score > best.score) best = {score, g, mode, false};
            }
            if (best.mode != keep) candidates_.push_back(best);
        }
        std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.score != b.score ? a.score > b.score : a.gap < b.gap; });
        // The host budget, on the safe side: as if all that is swapped were there at once.
        std::int64_t host = machine_.host.value;
        for (std::size_t g = 0; g < draft.mode.size(); ++g)
            if (draft.mode[g] == swap) host -= gaps_.all[g].bytes;
        std::size_t taken = 0;
        const auto take = [&](const Candidate& c, bool exceeding) {
            const Gap& gap = gaps_.all[c.gap];
            std::uint8_t mode = c.mode;
            if (c.again) {
                const std::int32_t back = drafter_.restored[c.gap], to = gap.to + (gap.wraps ? trace_.ops : 0);
                if (!draft.retain[c.gap] || most(back, to) <= 0) return;
                if (mode == draft.mode[c.gap]) draft.retain[c.gap] = 0;
                else if (draft.mode[c.gap] == drop && gap.bytes <= host) draft.mode[c.gap] = mode, host -= gap.bytes;
                else return;
                add(back, to, -gap.bytes);
                ++taken;
                return;
            }
            if (mode == drop && !may_drop(c.gap, limit)) mode = swap;
            if (mode == swap && gap.bytes > host) {
                if (!prices.drops || !gap.droppable || !may_drop(c.gap, limit)) return;
                mode = drop;
            }
            const Window w = window(gap);
            if (w.from >= w.to) return;
            const std::int64_t lack = most(w.from, w.to);
            if (lack <= 0 || (gap.bytes > lack && !exceeding)) return;
            draft.mode[c.gap] = mode;
            if (mode == drop) join(c.gap);
            else host -= gap.bytes;
            add(w.from, w.to, -gap.bytes);
            ++taken;
        };
        for (const Candidate& c : candidates_) {
            if (top_[1] <= 0) break;  // nothing lacks any more
            take(c, !prices.tight);
        }
        if (prices.tight) {
            std::stable_sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) { return gaps_.all[a.gap].bytes < gaps_.all[b.gap].bytes; });
            for (const Candidate& c : candidates_)
                if (draft.mode[c.gap] == keep) take(c, true);
        }
        if (taken == 0) return false;
    }
}

void Selector::prune(Draft& draft, const Prices& prices) {
    std::normal_distribution<double> normal;
    load(drafter_.usage);
    gather(draft);
    candidates_.clear();
    for (std::size_t g = 0; g < draft.mode.size(); ++g) {
        if (draft.mode[g] == keep || held_[g] == holding_) continue;
        if (draft.mode[g] == drop)
            for (std::int32_t op : gaps_.replayed[g]) --running_[op];
        double saved = cost(static_cast<std::int32_t>(g), draft.mode[g], prices);
        if (draft.mode[g] == drop)
            for (std::int32_t op : gaps_.replayed[g]) ++running_[op];
        if (prices.noise > 0) saved *= std::exp(prices.noise * normal(random));
        candidates_.push_back({saved / static_cast<double>(gaps_.all[g].bytes + 1), static_cast<std::int32_t>(g), draft.mode[g], false});
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.score != b.score ? a.score > b.score : a.gap < b.gap; });
    for (const Candidate& c : candidates_) {
        const Gap& gap = gaps_.all[c.gap];
        const std::int32_t from = gap.from + 1, to = gap.to + (gap.wraps ? trace_.ops : 0);
        if (most(from, to) + gap.bytes > 0) continue;
        add(from, to, gap.bytes);
        draft.mode[c.gap] = keep;
    }
}

}  // namespace udnnmem::policy::udnn
