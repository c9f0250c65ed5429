#include "shim/executor/small_places.hpp"

#include <algorithm>

namespace udnnmem::executor {

SmallPlaces::SmallPlaces(const replay::Program& program)
    : program_(program), any_(std::any_of(program.steps.begin(), program.steps.end(), [](const auto& step) { return step.small > 0; })), allocation_(program.lasts.size()) {}

bool SmallPlaces::is(std::int32_t buffer, std::uint64_t allocation) {
    std::uint64_t& known = allocation_[static_cast<std::size_t>(buffer)];
    if (known) return known == allocation;
    if (!buffer_.try_emplace(allocation, buffer).second) return false;
    known = allocation;
    return true;
}

bool SmallPlaces::follow(std::int32_t k, const pager::Op& op, pager::DevicePager& device) {
    if (!any_) return true;
    const replay::Program::Step& step = program_.steps[static_cast<std::size_t>(k)];
    if (op.small_count > pager::Op::kFewSmall) return false;
    std::uint64_t named[pager::Op::kFewSmall];   // without repeats, as the sequence has them
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < op.small_count; ++i) {
        const auto there = op.is_stray(op.small[i]) ? std::nullopt : device.allocation_at(op.small[i]);
        if (!there || std::find(named, named + count, there->id) != named + count) continue;
        if (count == step.small || !is(program_.uses[step.first + step.movable + count], there->id)) return false;
        named[count++] = there->id;
    }
    return count == step.small;
}

void SmallPlaces::forget() {
    if (buffer_.empty()) return;
    std::fill(allocation_.begin(), allocation_.end(), 0);
    buffer_.clear();
}

}  // namespace udnnmem::executor
