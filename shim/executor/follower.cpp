#include "shim/executor/follower.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "shim/pager/buffer.hpp"

namespace udnnmem::executor {
namespace {

constexpr std::size_t kWindows[] = {2, Recent::window};
constexpr std::size_t kHeadsPerStep = 16;   // so that few ops look like a step by chance

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

}  // namespace

void Recent::push(const Seen& seen) {
    Op& op = ops_[seen_++ % window];
    op.shape = seen.shape;
    op.count = static_cast<std::uint32_t>(std::min(seen.named.size(), most_named));
    std::copy_n(seen.named.begin(), op.count, op.named);
}

void Recent::push(const Follower& follower, std::uint64_t run, std::int32_t end) {
    const Sequence& sequence = follower.sequence();
    const std::size_t n = sequence.steps.size(), count = std::min({static_cast<std::size_t>(run), window, n});
    for (std::size_t i = count; i > 0; --i) {
        const Sequence::Step& step = sequence.steps[(static_cast<std::size_t>(end) + n - i) % n];
        Op& op = ops_[seen_++ % window];
        op.shape = step.shape;
        op.count = static_cast<std::uint32_t>(std::min<std::size_t>(step.count, most_named));
        for (std::uint32_t k = 0; k < op.count; ++k) op.named[k] = follower.last_bound(sequence.uses[step.first + k].buffer).buffer;
    }
}

Follower::Follower(const Sequence& sequence, bool restored) : sequence_(sequence), known_(sequence.persistent.size()) {
    settled_ = !restored;
    for (std::size_t i = 0; i < known_.size(); ++i) {
        known_[i].lasts = sequence.lasts(i);
        if (!known_[i].lasts) continue;
        known_[i].bound = {sequence.persistent[i], sequence.persistent[i] ? std::uint32_t{sequence.persistent[i]->id} : 0u};
    }
    if (settled_) settle();
}

void Follower::settle() {
    settled_ = true;
    for (std::size_t i = 0; i < known_.size(); ++i)
        if (known_[i].lasts) logical_[known_[i].bound.buffer] = static_cast<std::int32_t>(i);
    const auto used = [this](std::uint32_t i) {   // as as_persistent() has it
        const auto b = static_cast<std::size_t>(sequence_.uses[i].buffer);
        return sequence_.lasts(b) ? b + 1 : 0;
    };
    heads_.assign(std::bit_ceil(kHeadsPerStep * sequence_.steps.size()), false);
    std::vector<std::uint64_t> marks;
    for (const Sequence::Step& step : sequence_.steps) {
        std::uint64_t h = step.shape;
        for (std::uint32_t i = step.first; i < step.first + std::min<std::uint32_t>(step.count, Recent::most_named); ++i) h = mix(h, used(i));
        marks.push_back(h);
        heads_[head(step.shape, step.count, step.count ? used(step.first) : 0)] = true;
    }
    const std::size_t n = marks.size();
    for (std::size_t w = 0; w < std::size(kWindows); ++w)
        for (std::size_t end = 0; end < n; ++end) {
            std::uint64_t h = 0;
            for (std::size_t i = kWindows[w]; i-- > 0;) h = mix(h, marks[(end + n * kWindows[w] - i) % n]);
            const auto [place, fresh] = places_[w].try_emplace(h, static_cast<std::int32_t>(end));
            if (!fresh) place->second = nowhere;
        }
}

pager::Buffer* Follower::bound(std::int32_t i) const {
    const Bound& b = known_[static_cast<std::size_t>(i)].bound;
    return b.buffer && b.buffer->id == b.id ? b.buffer : nullptr;
}

// Between the iterations of a sequence that is not settled, nothing is known of it.
void Follower::forget() {
    next_ = before_ = 0;
    for (Known& k : known_) k.bound = Bound(), k.latest = nullptr;
}

bool Follower::is(std::int32_t at, const Seen& seen) const {
    const Sequence::Step& step = sequence_.steps[static_cast<std::size_t>(at)];
    if (step.shape != seen.shape || step.count != seen.named.size()) return false;
    const bool goes_on = run_ && at;
    const Known* const all = known_.data();
    const Sequence::Use* use = sequence_.uses.data() + step.first;
    for (const pager::Buffer* const named : seen.named) {
        const auto b = static_cast<std::size_t>((use++)->buffer);
        const Known& known = all[b];
        if (known.lasts ? known.bound.buffer != nullptr : known.stretch == stretch_ && goes_on) [[likely]] {
            if (known.bound.buffer != named || known.bound.id != named->id) return false;
        } else if (!could_be(b, named, at)) {
            return false;
        }
    }
    return true;
}

// Of logical buffer `b`, of which nobody knows what it is in this iteration.
bool Follower::could_be(std::size_t b, const pager::Buffer* named, std::int32_t at) const {
    if ((!known_[b].lasts || !settled_) && is_another(named, b, at)) return false;
    return settled_ || named->capacity == static_cast<std::size_t>(sequence_.plan_trace.buffers[b].bytes.value);
}

// Whether the buffer is known as another one than `b`, which has not come in this iteration: a program that writes there has
// strayed, though the op looks the same.
bool Follower::is_another(const pager::Buffer* named, std::size_t b, std::int32_t at) const {
    const auto it_is = static_cast<std::int32_t>(b);
    if (known_[b].bound.buffer == named && known_[b].latest && *known_[b].latest == it_is) return false;   // as in the iteration before, as a rule
    const auto known = logical_.find(named);
    if (known == logical_.end() || known->second == it_is) return false;
    const Known& other = known_[static_cast<std::size_t>(known->second)];
    if (other.bound.buffer != named || other.bound.id != named->id) return false;   // it was
    return other.lasts || (other.stretch == stretch_ && run_ && at);
}

std::int32_t Follower::arrive(std::int32_t step, const Seen& seen) {
    const Sequence::Step& known = sequence_.steps[static_cast<std::size_t>(step)];
    if (!step || !run_) ++stretch_;
    if (!(known.lasting && settled_)) bind(known, seen);   // else they are what they were
    ++run_;
    next_ = step + 1 == static_cast<std::int32_t>(sequence_.steps.size()) ? 0 : step + 1;
    if (!settled_ && run_ > sequence_.steps.size()) settle();
    return step;
}

void Follower::bind(const Sequence::Step& step, const Seen& seen) {
    for (std::uint32_t i = 0; i < step.count; ++i) {
        const auto b = static_cast<std::size_t>(sequence_.uses[step.first + i].buffer);
        Known& k = known_[b];
        if (k.lasts && settled_) continue;   // it is what it was, and nothing else is it
        pager::Buffer* const named = seen.named[i];
        if (k.bound.buffer != named || !k.latest) k.latest = &logical_[named];
        k.bound = {named, named->id};
        k.stretch = stretch_;
        *k.latest = static_cast<std::int32_t>(b);
    }
}

std::int32_t Follower::at(const Seen& seen) {
    if (is(next_, seen)) return arrive(next_, seen);
    const bool strays = run_ > 0;
    run_ = 0;
    if (!settled_) {
        if (strays) forget();
        return is(0, seen) ? arrive(0, seen) : nowhere;
    }
    if (before_ && is(before_, seen)) return arrive(std::exchange(before_, 0), seen);
    if (next_ == 0 || !is(0, seen)) return nowhere;
    before_ = next_;
    return arrive(0, seen);
}

// The number of a buffer that outlives the iteration, from 1; 0 of any other.
std::uint64_t Follower::as_persistent(const pager::Buffer* named) const {
    const auto known = logical_.find(named);
    return known != logical_.end() && known_[static_cast<std::size_t>(known->second)].lasts ? static_cast<std::uint64_t>(known->second) + 1 : 0;
}

std::size_t Follower::head(std::uint64_t shape, std::size_t count, std::uint64_t first) const {
    return mix(mix(shape, count), first) & (heads_.size() - 1);
}

bool Follower::begins_as_a_step(const Seen& seen) const {
    return heads_[head(seen.shape, seen.named.size(), seen.named.empty() ? 0 : as_persistent(seen.named.front()))];
}

std::uint64_t Follower::window_hash(const Recent& recent, std::size_t length) const {
    std::uint64_t all = 0;
    for (std::size_t i = length; i-- > 0;) {
        const Recent::Op& op = recent.ago(i);
        std::uint64_t h = op.shape;
        for (std::uint32_t k = 0; k < op.count; ++k) h = mix(h, as_persistent(op.named[k]));
        all = mix(all, h);
    }
    return all;
}

std::int32_t Follower::find(const Seen& seen, const Recent& recent) {
    if (!settled_ || !begins_as_a_step(seen)) return nowhere;
    for (std::size_t w = 0; w < std::size(kWindows); ++w) {
        if (recent.size() < kWindows[w]) return nowhere;
        const auto place = places_[w].find(window_hash(recent, kWindows[w]));
        if (place == places_[w].end()) return nowhere;   // and so no longer window
        if (place->second != nowhere) return is(place->second, seen) ? arrive(place->second, seen) : nowhere;
    }
    return nowhere;
}

}  // namespace udnnmem::executor
