#include "profiler/recorder/iteration_finder.hpp"

#include <algorithm>

namespace udnnmem::profiler {
namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h ^= h >> 31;
    return h * 0xff51afd7ed558ccdu;
}

}  // namespace

void IterationFinder::restart() {
    candidates_.clear();
    std::unordered_map<std::uint64_t, Position>().swap(last_);
    period_ = lost_ = 0;
}

// The same op on the same memory was last seen p ops ago: p may be the period.
void IterationFinder::propose(Position at) {
    const History::Op& op = history_.op(at);
    std::uint64_t argument = 0;
    for (const History::Use& use : history_.given(op)) {
        const std::uint64_t key = mix(mix(mix(op.shape, reinterpret_cast<std::uintptr_t>(op.name)), ++argument),
                                      mix(history_.allocations()[use.allocation].address, use.offset) ^ static_cast<std::uint64_t>(history_.allocations()[use.allocation].born));
        const auto [place, fresh] = last_.try_emplace(key, at);
        if (fresh) continue;
        const Position period = at - place->second;
        place->second = at;
        if (period == 0 || candidates_.size() >= most_candidates) continue;
        if (std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& c) { return c.period == period; })) continue;
        if (history_.corresponds(at, at - period)) candidates_.push_back({period, at});
    }
}

bool IterationFinder::nearly() const {
    return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& c) { return history_.end() - c.since >= std::max(under_way, c.period / 8); });
}

bool IterationFinder::advance() {
    const Position at = history_.end() - 1;
    std::erase_if(candidates_, [&](const Candidate& c) { return at - c.period < history_.begin() || !history_.corresponds(at, at - c.period); });
    propose(at);
    if (period_ && !history_.corresponds(at, at - period_)) {
        lost_ = std::max(lost_, period_);
        period_ = 0;
    }
    if (period_) return false;
    const Candidate* best = nullptr;
    for (const Candidate& c : candidates_) {
        const Position held = at + 1 - c.since;
        if (held < std::max(c.period, fewest) || (c.period <= lost_ && held < std::min(again * c.period, std::max(2 * c.period, longest_again_)))) continue;
        if (!best || c.period < best->period) best = &c;
    }
    if (!best) return false;
    period_ = best->period;
    since_ = best->since;
    return true;
}

}  // namespace udnnmem::profiler
