// DevicePager: what must hold between any two of its steps, and what the driver must know of.
#include "shim/pager/pager.hpp"

namespace udnnmem::pager {

std::string DevicePager::is_valid() {
    Lock lock(mutex_);
    return invariants();
}

std::string DevicePager::invariants() const {
    if (away_) return {};   // between two steps
    std::size_t device_bytes = 0, host_bytes = 0;
    const bool reaches = reaches_host();
    auto name = [](const Buffer* b) { return "buffer " + std::to_string(b->id); };
    for (const Buffer* b : buffers_) {
        std::size_t on_device = 0, on_host = 0;
        for (const Frame* f : b->device_frames) on_device += f->bytes;
        for (const Frame* f : b->host_frames) on_host += f->bytes;
        device_bytes += on_device;
        host_bytes += on_host;
        if (on_device && on_device != b->capacity) return name(b) + " has device frames for a part of it";
        if (on_host && on_host != b->capacity) return name(b) + " has host frames for a part of it";
        const Residency r = b->residency;
        if (r == Residency::device && !on_device) return name(b) + " is on the device without frames";
        if (r == Residency::host && !on_host) return name(b) + " is on the host without frames";
        if (r == Residency::unbacked && on_device) return name(b) + " is unbacked and has device frames";
        if ((r == Residency::evicting || r == Residency::fetching) && !b->moving && !b->unfilled) return name(b) + " is between places and nothing moves it";
        if (b->landed && (!on_host || r == Residency::unbacked || r == Residency::device || !reaches)) return name(b) + " has landed where no host frames can be mapped";
        if (b->host_valid && !on_host) return name(b) + " has a valid host copy without frames";
        if (b->granted > b->holds) return name(b) + " is granted to more than hold it";
        if (b->base < pager_.arena().begin()) return name(b) + " lies outside the arena";
        for (std::size_t at = 0; at < b->capacity; at += granule())
            if (pager_.find(b->base + at) != b) return name(b) + " is not what the arena's table says";
    }
    for (const Move& m : moves_)
        for (const Frame* f : m.frames) device_bytes += f->bytes;
    if (device_bytes != device_pool_->in_use()) return "device frames in use are not those that buffers hold";
    if (host_bytes != host_pool_->in_use()) return "host frames in use are not those that buffers hold";
    if (host_pool_->made() > host_pool_->budget()) return "host frames exceed the host budget";
    if (std::ranges::count_if(requests_, [](const Request* r) { return !r->done && r->holding; }) > 1) return "two requests have begun and neither is granted";
    for (const auto& [capacity, b] : parked_)
        if (b->live || b->capacity != capacity) return name(b) + " is parked and live, or under a wrong size";
    if (std::string wrong = device_pool_->is_valid(); !wrong.empty()) return "device: " + wrong;
    if (std::string wrong = host_pool_->is_valid(); !wrong.empty()) return "host: " + wrong;
    return slabs_.is_valid();
}

void DevicePager::held(std::size_t& frames, std::size_t& mappings) {
    Lock lock(mutex_);
    // What is between two places is in neither.
    granted_.wait_for(lock, std::chrono::seconds(2), [&] {
        mover_wake_.notify_one();
        return (moves_.empty() && !away_) || stopping_;
    });
    frames = device_pool_->frames() + (reaches_host() ? host_pool_->frames() : 0);
    mappings = frames;  // the aliases
    for (const Buffer* b : buffers_) {
        const Residency r = b->residency;
        if (r == Residency::device) mappings += b->device_frames.size();
        if (r == Residency::host && b->landed) mappings += b->host_frames.size();
    }
}

}  // namespace udnnmem::pager
