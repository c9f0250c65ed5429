// DevicePager: where room comes from, on the device and in host memory.
#include <algorithm>
#include <iterator>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {

// Frames beyond the budget, said once. False: the device has none.
bool DevicePager::exceed_budget(const Request& r, const Buffer* b, std::vector<Frame*>& frames) {
    if (!device_pool_->take(b->capacity, frames, true)) return false;
    ++stats_.over_budget;
    tell(profiler::EventKind::over_budget, b, b->capacity, r.since_ns);
    if (!over_budget_warned_) {
        over_budget_warned_ = true;
        std::size_t wanted = unmovable_;
        for (const Buffer* each : r.need) wanted += each->slab ? 0 : std::size_t{each->capacity};
        const bool in_use = !r.everything && wanted <= device_pool_->budget();
        const std::string budget = std::to_string(device_pool_->budget());
        pager_.sink().line(Sink::Level::warn, "device " + std::to_string(device_) + ": " +
                                                  (b->slab ? "small allocations, which share memory that does not move, and what else cannot move need more than the budget of " + budget +
                                                                 " bytes: the budget is exceeded by them; raise UDNNMEM_BUDGET"
                                                   : in_use ? "all of the budget of " + budget + " bytes is in use by ops that do not end, and one waits for " + std::to_string(b->capacity) +
                                                                " bytes that host memory cannot stand in for: the budget is exceeded by them"
                                                          : "an op needs more device memory than the budget of " + budget +
                                                                " bytes and host memory cannot stand in: the budget is exceeded; raise UDNNMEM_BUDGET"));
    }
    return true;
}

// Whether freed memory comes once the ops that used it have completed.
bool DevicePager::freed_in_use() {
    return std::any_of(parked_.begin(), parked_.end(), [&](const auto& p) { return p.second->residency == Residency::device && (p.second->holds || !quiet(p.second)); });
}

// How much of it comes so, no launch that waits for memory holding it; no more is looked for than `most`.
std::size_t DevicePager::bytes_freed_in_use(std::size_t most) {
    std::size_t bytes = 0;
    for (auto p = parked_.begin(); p != parked_.end() && bytes < most; ++p)
        if (const Buffer* b = p->second; b->residency == Residency::device && !b->holds && !quiet(p->second)) bytes += b->capacity;
    return bytes;
}

// Whether something is brought or copied that nobody holds: it can go out once that has ended.
bool DevicePager::moves_that_end() const {
    return std::ranges::any_of(moves_, [](const Move& m) { return (m.kind == Move::Kind::fetch || m.kind == Move::Kind::clean) && m.buffer && !m.buffer->holds && !m.buffer->pinned; });
}

// How much only ops hold that were let through and are on their way to the driver.
std::size_t DevicePager::bytes_granted() const {
    std::size_t bytes = 0;
    for (const Buffer* b : buffers_)
        if (b->granted && b->granted == b->holds && !b->pinned && b->residency == Residency::device) bytes += b->capacity;
    return bytes;
}

// Sets moves off (or gives freed memory back) so that `bytes` of device frames become free; `freed` of them come by themselves.
// True: something changed.
bool DevicePager::make_room(std::size_t bytes, std::size_t for_all, std::size_t freed) {
    if (frozen_) return false;
    std::size_t coming = device_pool_->available(), stuck = freed;
    // What was freed is there at once; what is on its way out takes its time.
    if (coming < bytes && release_parked(bytes - coming)) return true;
    for (const Move& m : moves_) {
        if (m.kind != Move::Kind::evict || m.cancelled) continue;
        // What waits for an op may wait for long (the op may wait for this very launch): it gives way to what is idle.
        (m.stage == Move::Stage::quiesce && !quiet(m.buffer) ? stuck : coming) += m.buffer->capacity;
    }
    bool progress = false;
    while (coming < bytes) {
        const bool enough = coming + stuck + bytes_ordered_out() >= bytes;
        Buffer* victim = choose_victim(enough);
        // A plan's evictions that only wait for their ops are worth waiting for.
        if (victim && enough && follows_plan() && expected_use(victim) != UINT64_MAX) victim = nullptr;
        if (!victim) break;
        (quiet(victim) ? coming : stuck) += victim->capacity;
        progress = true;
        start_evict(victim);
    }
    // Only if what is idle is enough for the whole op: else what is called off for one of its buffers is set off again for the
    // next one, and so on, which looks like progress.
    if (coming >= for_all && stuck)
        for (Move& m : moves_)
            if (m.kind == Move::Kind::evict && m.stage == Move::Stage::quiesce && !quiet(m.buffer)) m.cancelled = true;
    return progress || (coming + stuck + bytes_ordered_out() < bytes && park_slabs(SIZE_MAX));
}

// The budget of this time; what is held beyond it goes out, one after the other. True: something changed.
bool DevicePager::turn_budget() {
    const Settings& s = pager_.settings();
    const auto turn = static_cast<std::size_t>(now_ns() / s.budget_turn_ns) % s.budgets.size();
    device_pool_->set_budget(s.budgets[turn] / granule() * granule());
    std::size_t leaving = 0;
    for (const Move& m : moves_)
        if (m.kind == Move::Kind::evict && !m.cancelled) leaving += m.buffer->capacity;
    if (halted() || device_pool_->in_use() <= device_pool_->budget() + leaving) return false;
    Buffer* victim = choose_victim(true);
    if (victim) start_evict(victim);
    return victim;
}

// Gives back what the program has freed and nothing uses any more.
bool DevicePager::release_parked(std::size_t bytes) {
    const auto idle = [&](const auto& p) { return !p.second->moving && !p.second->holds && quiet(p.second); };
    bool progress = false;
    for (std::size_t freed = 0; freed < bytes;) {
        // One that is enough by itself, the smallest of those; else the largest: what stays mapped serves the next of its size.
        const auto enough = parked_.lower_bound(bytes - freed);
        auto it = std::find_if(enough, parked_.end(), idle);
        if (it == parked_.end()) {
            const auto last = std::find_if(std::make_reverse_iterator(enough), parked_.rend(), idle);
            if (last == parked_.rend()) {
                if (park_slabs(bytes == SIZE_MAX ? SIZE_MAX : bytes - freed)) continue;
                break;
            }
            it = std::prev(last.base());
        }
        Buffer* b = it->second;
        if (b->residency == Residency::device) freed += b->capacity;
        parked_.erase(it);
        retire(b);
        progress = true;
    }
    if (progress) moved();
    return progress;
}

// Where frames would be made anew though there is room for `capacity` bytes, what the program has freed is given back first: the smallest
// that brings some as small as are lacking. One of many frames costs more to map again, for the next allocation of its size, than is
// saved. True: something changed.
bool DevicePager::release_for_frames(std::size_t capacity) {
    const std::size_t lacking = frozen_ || device_pool_->available() < capacity ? 0 : device_pool_->lacking(capacity);
    if (!lacking) return false;
    const auto it = std::ranges::find_if(parked_, [&](const auto& p) {
        Buffer* b = p.second;
        const bool helps = b->device_frames.size() <= FramePool::kFramesForOne && std::ranges::any_of(b->device_frames, [&](const Frame* f) { return f->bytes <= lacking; });
        return helps && !b->moving && !b->holds && quiet(b);
    });
    if (it == parked_.end()) return false;
    Buffer* b = it->second;
    parked_.erase(it);
    retire(b);
    moved();
    return true;
}

// The least recently used of those that may move (by a plan: the one that is used again last); one whose ops have completed rather than one that is still in use, or
// else (`idle_only`) none.
Buffer* DevicePager::choose_victim(bool idle_only) {
    std::vector<Buffer*> oldest;
    const std::size_t room = host_room();
    for (Buffer* b : buffers_)
        if (b->residency == Residency::device && !b->moving && !b->pinned && !b->slab && !b->holds && b->live && (!b->host_frames.empty() || room >= b->capacity)) oldest.push_back(b);
    if (oldest.empty()) return nullptr;
    constexpr std::size_t kLookedAt = 16;
    const auto end = oldest.begin() + static_cast<std::ptrdiff_t>(std::min(kLookedAt, oldest.size()));
    const bool planned = follows_plan();
    std::partial_sort(oldest.begin(), end, oldest.end(), [&](Buffer* a, Buffer* b) {
        if (planned && expected_use(a) != expected_use(b)) return needed_later(a, b);
        return a->last_use.load() < b->last_use.load();
    });
    const auto idle = std::find_if(oldest.begin(), end, [this](Buffer* b) { return quiet(b); });
    if (idle != end) return *idle;
    return idle_only ? nullptr : oldest.front();
}

// First touch from host frames.
bool DevicePager::land_on_host(Buffer* b) {
    if (b->residency != Residency::unbacked || !host_frames_for(b, b->host_frames)) return false;
    if (land(b) != CUDA_SUCCESS) {
        host_pool_->give_back(b->host_frames);
        return false;
    }
    b->host_valid = true;
    b->hash_known = false;
    b->residency = Residency::host;
    return true;
}

// Whether its host frames are no more than a copy.
bool DevicePager::gives_way(const Buffer* b) const {
    return !b->host_frames.empty() && b->residency == Residency::device && !b->moving;
}

// What evictions may still take of host memory, beside those that are under way.
std::size_t DevicePager::host_room() const {
    std::size_t room = host_pool_->available(), taken = 0;
    for (const Buffer* b : buffers_)
        if (gives_way(b)) room += b->capacity;
    for (const Move& m : moves_)
        if (m.kind == Move::Kind::evict && !m.drop && m.buffer && m.buffer->host_frames.empty()) taken += m.buffer->capacity;
    return room - std::min(room, taken);
}

// Host frames; copies kept of buffers that are on the device give way.
bool DevicePager::host_frames_for(Buffer* b, std::vector<Frame*>& out) {
    while (!host_pool_->take(b->capacity, out)) {
        Buffer* oldest = nullptr;
        for (Buffer* o : buffers_)
            if (gives_way(o) && (!oldest || o->last_use < oldest->last_use)) oldest = o;
        if (!oldest) return false;
        host_pool_->give_back(oldest->host_frames);
        oldest->host_valid = oldest->hash_known = false;
    }
    return true;
}

}  // namespace udnnmem::pager
