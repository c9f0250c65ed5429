#include "policy/planners/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace udnnmem::policy {
namespace {

constexpr std::int64_t unreachable = std::numeric_limits<std::int64_t>::max() / 4;

// S(i, j) and m_i from prefix sums, for 0 <= i < j <= n + 1.
class Segments {
public:
    explicit Segments(const Chain& chain) : n_(static_cast<std::int32_t>(chain.size())), outputs_(chain.size() + 2, 0), inner_(chain.size() + 2, 0) {
        for (std::size_t l = 1; l <= chain.size(); ++l) {
            outputs_[l] = outputs_[l - 1] + chain.output[l - 1];
            inner_[l] = inner_[l - 1] + (chain.inner.empty() ? 0 : chain.inner[l - 1]);
        }
        outputs_[chain.size() + 1] = outputs_[chain.size()];
        inner_[chain.size() + 1] = inner_[chain.size()];
    }

    std::int32_t n() const { return n_; }
    std::int64_t m(std::int32_t l) const { return l ? outputs_[at(l)] - outputs_[at(l - 1)] : 0; }
    std::int64_t S(std::int32_t i, std::int32_t j) const { return outputs_[at(j - 1)] - outputs_[at(i)] + inner_[at(j)] - inner_[at(i)]; }

private:
    static std::size_t at(std::int32_t l) { return static_cast<std::size_t>(l); }
    std::int32_t n_;
    std::vector<std::int64_t> outputs_, inner_;  // sums over layers 1 .. l
};

// The cheapest checkpoints with no segment above `limit`; their bytes, or unreachable. O(n): S(i, j) grows
// with j and falls with i, so the i that are allowed for j form a window that only moves up.
std::int64_t cheapest_within(const Segments& chain, std::int64_t limit, std::vector<std::int64_t>& cost, std::vector<std::int32_t>& from, std::vector<std::int32_t>& window) {
    const std::int32_t end = chain.n() + 1;
    cost[0] = 0;
    window.clear();
    std::size_t head = 0;
    for (std::int32_t j = 1; j <= end; ++j) {
        const std::int32_t entering = j - 1;
        while (window.size() > head && cost[static_cast<std::size_t>(window.back())] >= cost[static_cast<std::size_t>(entering)]) window.pop_back();
        window.push_back(entering);
        while (head < window.size() && chain.S(window[head], j) > limit) ++head;
        const bool found = head < window.size() && cost[static_cast<std::size_t>(window[head])] < unreachable;
        cost[static_cast<std::size_t>(j)] = found ? cost[static_cast<std::size_t>(window[head])] + (j < end ? chain.m(j) : 0) : unreachable;
        from[static_cast<std::size_t>(j)] = found ? window[head] : -1;
    }
    return cost[static_cast<std::size_t>(end)];
}

}  // namespace

std::int64_t peak_all_held(const Chain& chain, const Checkpoints& kept) {
    const Segments segments(chain);
    std::int64_t held = 0, largest = 0;
    std::int32_t last = 0;
    for (const std::int32_t c : kept) {
        held += segments.m(c);
        largest = std::max(largest, segments.S(last, c));
        last = c;
    }
    return held + std::max(largest, segments.S(last, segments.n() + 1));
}

std::int64_t peak_freed_behind(const Chain& chain, const Checkpoints& kept) {
    const Segments segments(chain);
    std::int64_t peak = 0;
    std::int32_t next = segments.n() + 1;
    for (std::size_t i = kept.size() + 1; i-- > 0;) {
        const std::int32_t c = i ? kept[i - 1] : 0;
        peak = segments.m(c) + std::max(segments.S(c, next), peak);
        next = c;
    }
    return peak;
}

Checkpoints chen(const Chain& chain, std::size_t segments) {
    const std::size_t n = chain.size();
    if (!segments) segments = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(n))));
    Checkpoints kept;
    for (std::size_t s = 1; s < segments; ++s) {
        const auto layer = static_cast<std::int32_t>(s * n / segments);
        if (layer > 0 && (kept.empty() || kept.back() < layer)) kept.push_back(layer);
    }
    return kept;
}

Checkpoints best_all_held(const Chain& chain) {
    const Segments segments(chain);
    const std::int32_t end = segments.n() + 1;
    std::vector<std::int64_t> limits;
    for (std::int32_t i = 0; i < end; ++i)
        for (std::int32_t j = i + 1; j <= end; ++j) limits.push_back(segments.S(i, j));
    std::sort(limits.begin(), limits.end());
    limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
    std::vector<std::int64_t> cost(static_cast<std::size_t>(end) + 1);
    std::vector<std::int32_t> from(cost.size()), window;
    std::int64_t best = unreachable, best_limit = limits.back();
    for (const std::int64_t limit : limits) {
        if (limit >= best) break;
        const std::int64_t held = cheapest_within(segments, limit, cost, from, window);
        if (held + limit < best) best = held + limit, best_limit = limit;
    }
    cheapest_within(segments, best_limit, cost, from, window);
    Checkpoints kept;
    for (std::int32_t j = from[static_cast<std::size_t>(end)]; j > 0; j = from[static_cast<std::size_t>(j)]) kept.push_back(j);
    std::reverse(kept.begin(), kept.end());
    return kept;
}

Checkpoints best_freed_behind(const Chain& chain) {
    const Segments segments(chain);
    const std::int32_t end = segments.n() + 1;
    std::vector<std::int64_t> peak(static_cast<std::size_t>(end) + 1, 0);
    std::vector<std::int32_t> next(peak.size(), end);
    for (std::int32_t i = end - 1; i >= 0; --i) {
        std::int64_t best = unreachable;
        for (std::int32_t j = i + 1; j <= end; ++j) {
            const std::int64_t segment = segments.S(i, j), value = std::max(segment, peak[static_cast<std::size_t>(j)]);
            if (value < best) best = value, next[static_cast<std::size_t>(i)] = j;
            if (segment >= best) break;  // S only grows with j
        }
        peak[static_cast<std::size_t>(i)] = segments.m(i) + best;
    }
    Checkpoints kept;
    for (std::int32_t j = next[0]; j < end; j = next[static_cast<std::size_t>(j)]) kept.push_back(j);
    return kept;
}

}  // namespace udnnmem::policy
