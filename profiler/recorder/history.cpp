#include "profiler/recorder/history.hpp"

#include <algorithm>
#include <utility>

namespace udnnmem::profiler {
namespace {
constexpr std::size_t kMostEvents = 1 << 16;   // whose last recording is known: programs make new ones for ever
}  // namespace

void History::allocated(std::uint64_t address, std::uint64_t bytes, std::int32_t tag) {
    released(address);  // its release was not seen: freed by a context that went
    ordinal_ = last_born_ == end() ? ordinal_ + 1 : 0;
    last_born_ = end();
    alive_[address] = static_cast<std::uint32_t>(allocations_.size());
    allocations_.push_back({address, bytes, end(), -1, ordinal_, tag});
}

void History::released(std::uint64_t address) {
    const auto found = alive_.find(address);
    if (found == alive_.end()) return;
    allocations_[found->second].died = end();
    alive_.erase(found);
}

Position History::add(const ObservedOp& seen) {
    Op op;
    op.name = seen.name;
    op.range = seen.range;
    op.call = seen.call, op.call_number = seen.call_number, op.call_flops = seen.call_flops;
    op.shape = seen.shape;
    op.stream = seen.stream;
    op.first_use = static_cast<std::uint32_t>(uses_.size());
    auto use = [&](const Touch& touch, bool led) {
        if (touch.led != led) return;
        auto found = alive_.upper_bound(touch.address);
        if (found == alive_.begin()) return;
        --found;
        const std::uint64_t offset = touch.address - found->first;
        const std::uint64_t bytes = allocations_[found->second].bytes;
        if (offset >= bytes) return;
        const bool part = touch.mode == Mode::write && (offset > 0 || touch.bytes < bytes);  // the rest is kept: as good as read
        uses_.push_back({found->second, part ? Mode::read_write : touch.mode, touch.word, offset});
    };
    const std::uint32_t within = seen.count < ObservedOp::inline_touches ? seen.count : ObservedOp::inline_touches;
    for (const bool led : {false, true}) {
        for (std::uint32_t i = 0; i < within; ++i) use(seen.touches[i], led);
        if (seen.more)
            for (const Touch& touch : *seen.more) use(touch, led);
        if (!led) op.given = static_cast<std::uint32_t>(uses_.size()) - op.first_use;
    }
    delete seen.more;
    op.use_count = static_cast<std::uint32_t>(uses_.size()) - op.first_use;
    if (!forgotten_.empty()) forget_words(op);
    op.first_wait = static_cast<std::uint32_t>(waits_.size());
    if (const auto waiting = waiting_.find(op.stream); waiting != waiting_.end()) {
        waits_.insert(waits_.end(), waiting->second.begin(), waiting->second.end());
        waiting_.erase(waiting);
    }
    op.wait_count = static_cast<std::uint32_t>(waits_.size()) - op.first_wait;
    if (host_knows_ > host_told_) op.host_waited = host_told_ = host_knows_;
    last_in_[op.stream] = end();
    if (seen.blocking) host_knows_ = end();
    ops_.push_back(op);
    return end() - 1;
}

// What comes before whatever is submitted to the stream next: its last op, and what it was made to wait for since.
std::vector<Position> History::before(std::uint64_t stream) const {
    std::vector<Position> all;
    if (const auto waiting = waiting_.find(stream); waiting != waiting_.end()) all = waiting->second;
    if (const auto last = last_in_.find(stream); last != last_in_.end()) all.push_back(last->second);
    return all;
}

void History::event_recorded(std::uint64_t event, std::uint64_t stream) {
    if (recorded_.size() >= kMostEvents) recorded_.clear();
    recorded_[event] = stream ? before(stream) : std::vector{end() - 1};
}

void History::stream_waits(std::uint64_t stream, std::uint64_t event) {
    const auto recorded = recorded_.find(event);
    if (recorded == recorded_.end()) return;
    auto& waiting = waiting_[stream];
    for (const Position at : recorded->second) {
        if (at < begin() || op(at).stream == stream) continue;
        const auto same = std::find_if(waiting.begin(), waiting.end(), [&](Position p) { return op(p).stream == op(at).stream; });
        if (same == waiting.end()) waiting.push_back(at);
        else *same = std::max(*same, at);
    }
}

void History::host_waited(std::uint64_t stream, std::uint64_t event) {
    std::vector<Position> for_these{end() - 1};
    if (event) {
        const auto recorded = recorded_.find(event);
        for_these = recorded == recorded_.end() ? std::vector<Position>() : recorded->second;
    } else if (stream) {
        for_these = before(stream);
    }
    for (const Position at : for_these) host_knows_ = std::max(host_knows_, at);
}

void History::set_time(Position at, Nanoseconds start, Nanoseconds duration) {
    if (at < begin_ || at >= end()) return;
    ops_[static_cast<std::size_t>(at - begin_)].start = start;
    ops_[static_cast<std::size_t>(at - begin_)].duration = duration;
}

std::uint64_t History::bytes_of(const Op& op) const {
    std::vector<std::uint32_t> used;
    for (const Use& use : uses(op)) used.push_back(use.allocation);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    std::uint64_t bytes = 0;
    for (const std::uint32_t a : used) bytes += allocations_[a].bytes;
    return bytes;
}

void History::forget_ops() {
    begin_ = end();
    ops_ = std::vector<Op>();
    uses_ = std::vector<Use>();
    waits_ = std::vector<Position>();
    last_in_.clear(), recorded_.clear(), waiting_.clear();
    host_knows_ = host_told_ = end() - 1;
    std::vector<Allocation> kept;
    for (auto& [address, index] : alive_) {
        kept.push_back(allocations_[index]);
        index = static_cast<std::uint32_t>(kept.size() - 1);
    }
    allocations_ = std::move(kept);
}

// Whether ops so far apart do the same by these two.
bool History::same(const Use& later, const Use& earlier, Position apart) const {
    if (later.offset != earlier.offset || later.mode != earlier.mode) return false;
    if (later.allocation == earlier.allocation) return true;
    const Allocation &p = allocations_[later.allocation], &q = allocations_[earlier.allocation];
    return p.bytes == q.bytes && p.born - q.born == apart && p.ordinal == q.ordinal;
}

bool History::corresponds(Position a, Position b) const {
    const Op &x = op(a), &y = op(b);
    if (x.shape != y.shape || x.name != y.name || x.given != y.given) return false;   // in other streams, perhaps: programs make some anew each time
    const auto later = given(x), earlier = given(y);
    for (std::size_t i = 0; i < later.size(); ++i)
        if (!same(later[i], earlier[i], a - b)) return false;
    return true;
}

std::vector<std::uint16_t> History::differing_words(Position a, Position b) const {
    const Op &x = op(a), &y = op(b);
    if (x.shape != y.shape || x.name != y.name) return {};
    const auto later = given(x), earlier = given(y);
    std::vector<std::uint16_t> words;
    std::size_t agree = 0;
    for (std::size_t i = 0, j = 0; i < later.size() || j < earlier.size();) {
        const bool both = i < later.size() && j < earlier.size();
        if (both && later[i].word == earlier[j].word) {
            if (same(later[i], earlier[j], a - b)) ++agree;
            else if (!later[i].word) return {};
            else words.push_back(later[i].word);
            ++i, ++j;
        } else if (i < later.size() && later[i].word && (j == earlier.size() || !earlier[j].word || later[i].word < earlier[j].word)) {   // in the order of the parameters
            words.push_back(later[i++].word);
        } else if (j < earlier.size() && earlier[j].word) {
            words.push_back(earlier[j++].word);
        } else {
            return {};
        }
    }
    if (words.size() > agree) words.clear();
    return words;
}

void History::forget_word(const char* kernel, std::uint16_t word) {
    if (!word || !forgotten_.insert({kernel, word}).second) return;
    for (Op& op : ops_)
        if (op.name == kernel) forget_words(op);
}

void History::forget_words(Op& op) {
    const auto given = uses_.begin() + op.first_use, led = given + op.given, end = given + op.use_count;
    const auto stay = std::remove_if(given, led, [&](const Use& u) { return u.word && forgotten_.contains({op.name, u.word}); });
    const auto gone = static_cast<std::uint32_t>(led - stay);
    if (!gone) return;
    std::move(led, end, stay);
    op.given -= gone, op.use_count -= gone;
}

}  // namespace udnnmem::profiler
