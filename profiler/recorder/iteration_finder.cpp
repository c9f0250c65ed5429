#include "profiler/recorder/iteration_finder.hpp"

#include <algorithm>

namespace udnnmem::profiler {
namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h ^= h >> 31;
    return h * 0xff51afd7ed558ccdu;
}

std::uint64_t kernel(const History::Op& op) { return mix(op.shape, reinterpret_cast<std::uintptr_t>(op.name)); }

}  // namespace

void SeenKernels::add(const History& history, Position begin, Position end) {
    for (Position at = begin; at < end; ++at) seen_.insert(kernel(history.op(at)));
}

bool SeenKernels::most_of(const History& history, Position begin, Position end) const {
    Position seen = 0;
    for (Position at = begin; at < end; ++at) seen += static_cast<Position>(seen_.count(kernel(history.op(at))));
    return 2 * seen >= end - begin;
}

void IterationFinder::restart() {
    candidates_.clear();
    std::unordered_map<std::uint64_t, Position>().swap(last_);
    period_ = lost_ = 0;
    lost_kernels_.clear();
}

// The same op on the same memory was last seen p ops ago: p may be the period.
void IterationFinder::propose(Position at) {
    const History::Op& op = history_.op(at);
    std::uint64_t argument = 0;
    for (const History::Use& use : history_.given(op)) {
        const std::uint64_t key = mix(mix(kernel(op), ++argument),
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

bool IterationFinder::lost_before(Candidate& c) const {
    if (c.period > lost_) return false;
    if (!c.kin) c.kin = lost_kernels_.most_of(history_, history_.end() - c.period, history_.end());
    return *c.kin;
}

// Whether the op is the one a period before, but for what leads somewhere by chance.
bool IterationFinder::goes_on(const Candidate& c, Position at) {
    if (history_.corresponds(at, at - c.period)) return true;
    if (!chance_ || at - c.since < std::clamp(c.period / 4, fewest, sure)) return false;
    const char* const kernel = history_.op(at).name;
    for (const std::uint16_t word : history_.differing_words(at, at - c.period))
        if (chance_(kernel, word)) history_.forget_word(kernel, word);
    return history_.corresponds(at, at - c.period);
}

bool IterationFinder::advance() {
    const Position at = history_.end() - 1;
    std::erase_if(candidates_, [&](const Candidate& c) { return at - c.period < history_.begin() || !goes_on(c, at); });
    propose(at);
    if (period_ && !history_.corresponds(at, at - period_)) {
        lost_ = std::max(lost_, period_);
        lost_kernels_.add(history_, std::max(history_.begin(), at - period_), at);
        for (Candidate& c : candidates_) c.kin.reset();
        period_ = 0;
    }
    if (period_) return false;
    const Candidate* best = nullptr;
    for (Candidate& c : candidates_) {
        const Position held = at + 1 - c.since;
        if (held < std::max(c.period, fewest) || (held < std::min(again * c.period, std::max(2 * c.period, longest_again_)) && lost_before(c))) continue;
        if (!best || c.period < best->period) best = &c;
    }
    if (!best) return false;
    period_ = best->period;
    since_ = best->since;
    return true;
}

}  // namespace udnnmem::profiler
