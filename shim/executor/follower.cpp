#include "shim/executor/follower.hpp"

#include <algorithm>

namespace udnnmem::executor {
namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

std::uint64_t start(const char* name, std::uint64_t shape) { return mix(reinterpret_cast<std::uintptr_t>(name), shape); }

}  // namespace

Follower::Follower(const Sequence& sequence) : sequence_(sequence), bound_(sequence.persistent) {
    for (std::size_t i = 0; i < sequence.persistent.size(); ++i)
        if (sequence.persistent[i]) logical_[sequence.persistent[i]] = static_cast<std::int32_t>(i);
    const auto n = static_cast<std::int32_t>(sequence.steps.size());
    std::vector<std::uint64_t> marks;
    for (const Sequence::Step& step : sequence.steps) {
        std::uint64_t h = start(step.name, step.shape);
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) {
            const std::int32_t b = sequence.uses[i].buffer;
            h = mix(h, sequence.persistent[static_cast<std::size_t>(b)] ? static_cast<std::uint64_t>(b) + 1 : 0);
        }
        marks.push_back(h);
    }
    for (std::int32_t end = 0; end < n; ++end) {
        std::uint64_t h = 0;
        for (int i = window - 1; i >= 0; --i) h = mix(h, marks[static_cast<std::size_t>(((end - i) % n + n) % n)]);
        const auto [place, fresh] = places_.try_emplace(h, end);
        if (!fresh) place->second = nowhere;
    }
}

bool Follower::is(std::int32_t at, const char* name, std::uint64_t shape, std::span<pager::Buffer* const> named, bool bind) {
    const Sequence::Step& step = sequence_.steps[static_cast<std::size_t>(at)];
    if (step.name != name || step.shape != shape || step.count != named.size()) return false;
    for (std::uint32_t i = 0; i < step.count; ++i) {
        const auto b = static_cast<std::size_t>(sequence_.uses[step.first + i].buffer);
        if (sequence_.persistent[b] && sequence_.persistent[b] != named[i]) return false;
    }
    if (!bind) return true;
    for (std::uint32_t i = 0; i < step.count; ++i) bound_[static_cast<std::size_t>(sequence_.uses[step.first + i].buffer)] = named[i];
    return true;
}

std::int32_t Follower::arrive(std::int32_t step) {
    next_ = after(step);
    missed_ = 0;
    seen_ = 0;
    return step;
}

std::int32_t Follower::at(const char* name, std::uint64_t shape, std::span<pager::Buffer* const> named) {
    if (is(next_, name, shape, named, true)) return arrive(next_);
    return look_around(name, shape, named);
}

// Lost: the last ops say where.
std::int32_t Follower::look_around(const char* name, std::uint64_t shape, std::span<pager::Buffer* const> named) {
    missed_ = std::min(missed_ + 1, 1 << 20);
    std::uint64_t h = start(name, shape);
    for (pager::Buffer* b : named) {
        const auto known = logical_.find(b);
        h = mix(h, known != logical_.end() ? static_cast<std::uint64_t>(known->second) + 1 : 0);
    }
    recent_[seen_++ % window] = h;
    if (seen_ < window) return nowhere;
    std::uint64_t all = 0;
    for (int i = 0; i < window; ++i) all = mix(all, recent_[(seen_ + static_cast<std::uint64_t>(i)) % window]);
    const auto place = places_.find(all);
    if (place == places_.end() || place->second == nowhere || !is(place->second, name, shape, named, true)) return nowhere;
    return arrive(place->second);
}

}  // namespace udnnmem::executor
