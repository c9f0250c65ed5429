// DevicePager: what it holds, for questions about memory, plans and reports.
#include <algorithm>

#include "shim/pager/pager.hpp"

namespace udnnmem::pager {

bool DevicePager::has_movable() {
    Lock lock(mutex_);
    return std::any_of(buffers_.begin(), buffers_.end(), [](const Buffer* b) { return b->live && !b->slab; });
}

std::size_t DevicePager::live_bytes() const {
    std::size_t total = 0;
    for (const auto& [pool, use] : pools_) total += pool == own_pool ? 0 : use.current;
    return total;
}

DevicePager::Memory DevicePager::memory() {
    Lock lock(mutex_);
    return {live_bytes(), device_pool_->made(), device_pool_->budget(), host_pool_->budget(), host_pool_->made()};
}

std::vector<DevicePager::Held> DevicePager::held_buffers() {
    Lock lock(mutex_);
    std::vector<Held> all;
    for (const Buffer* b : buffers_)
        if (b->live) all.push_back({b->id, b->slab ? slabs_.live_in(b) : std::size_t{b->bytes}, b->capacity, b->residency == Residency::host || b->residency == Residency::evicting, b->slab});
    return all;
}

std::size_t DevicePager::movable_bytes() {
    Lock lock(mutex_);
    std::size_t bytes = 0;
    for (const Buffer* b : buffers_)
        if (b->live && !b->slab && !b->pinned) bytes += b->capacity;
    return bytes;
}

// Of the device's memory, what does not move. What was freed goes, though it was not to move.
std::size_t DevicePager::fixed_bytes() const {
    const auto freed = [this](const Buffer* b) {
        const auto [first, last] = parked_.equal_range(b->capacity);
        return std::any_of(first, last, [b](const auto& p) { return p.second == b; });
    };
    std::size_t fixed = unmovable_;
    for (const Buffer* b : buffers_)
        if (b->pinned && !b->slab && b != scratch_ && b->residency != Residency::host && (b->live || !freed(b))) fixed += b->capacity;
    return fixed;
}

std::size_t DevicePager::take_peak() {
    Lock lock(mutex_);
    const std::size_t peak = device_pool_->take_peak(), fixed = fixed_bytes();
    return peak > fixed ? peak - fixed : 0;
}

DevicePager::Room DevicePager::room() {
    Lock lock(mutex_);
    const std::size_t fixed = fixed_bytes();
    const std::size_t budget = device_pool_->budget();
    auto maps = first_maps_ns_;
    std::ranges::nth_element(maps, maps.begin() + maps.size() / 2);
    return {budget > fixed ? budget - fixed : 0, budget, host_pool_->budget(), rate_in(), rate_out(), first_maps_ < maps.size() ? 0 : maps[maps.size() / 2]};
}

LinkSpeeds DevicePager::link() {
    Lock lock(mutex_);
    return link_;
}

bool DevicePager::fits_on_device(const std::vector<Buffer*>& named) {
    Lock lock(mutex_);
    std::size_t bytes = 0;
    for (const Buffer* b : named)
        if (b->device == this && !b->slab && !b->pinned) bytes += b->capacity;
    return !bytes || or_without_slabs([&] { return fixed_bytes() + bytes <= device_pool_->budget(); });
}

void DevicePager::pool_usage(CUmemoryPool pool, std::size_t& current, std::size_t& high, bool reset_high) {
    Lock lock(mutex_);
    auto& use = pools_[pool];
    current = use.current;
    if (reset_high) use.high = use.current;
    high = use.high;
}

DeviceStats DevicePager::stats() {
    Lock lock(mutex_);
    DeviceStats s = stats_;
    s.peak_resident = device_pool_->peak_made();
    s.peak_host = host_pool_->peak_made();
    s.recreated_frames = device_pool_->recreated() + host_pool_->recreated();
    return s;
}

}  // namespace udnnmem::pager
