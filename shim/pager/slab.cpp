#include "shim/pager/slab.hpp"

#include <algorithm>
#include <iterator>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {

void SlabAllocator::add(Buffer* slab) {
    slabs_[slab->base] = slab->capacity;
    merge(slab->base, slab->capacity);
}

// Neighbours merge only within one slab: a block never spans two.
void SlabAllocator::merge(CUdeviceptr at, std::size_t bytes) {
    const auto slab = std::prev(slabs_.upper_bound(at));
    auto it = free_.emplace(at, bytes).first;
    if (auto next = std::next(it); next != free_.end() && at + it->second == next->first &&
                                   next->first < slab->first + slab->second) {
        it->second += next->second;
        free_.erase(next);
    }
    if (it != free_.begin()) {
        auto previous = std::prev(it);
        if (previous->first >= slab->first && previous->first + previous->second == it->first) {
            previous->second += it->second;
            free_.erase(it);
        }
    }
}

void SlabAllocator::collect() {
    StreamTable& streams = device_.pager_.streams();
    std::erase_if(pending_, [&](const Pending& p) {
        if (holds("free-small") && !streams.complete(p.streams, p.number)) return false;
        merge(p.at, p.units);
        return true;
    });
}

CUdeviceptr SlabAllocator::take(std::size_t bytes, int slot, CUmemoryPool pool, CUcontext context) {
    const std::size_t units = (bytes + kUnit - 1) / kUnit * kUnit;
    auto place = [&](CUdeviceptr at) {
        live_[at] = {bytes, units, pool, context};
        return at;
    };
    if (!holds("free-small")) collect();
    if (slot >= 0) {
        for (auto it = pending_.begin(); it != pending_.end(); ++it) {
            if (it->slot != slot || it->units != units) continue;
            const CUdeviceptr at = it->at;
            pending_.erase(it);
            return place(at);
        }
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
        for (auto it = free_.begin(); it != free_.end(); ++it) {
            if (it->second < units) continue;
            const CUdeviceptr at = it->first;
            const std::size_t left = it->second - units;
            free_.erase(it);
            if (left) free_[at + units] = left;
            return place(at);
        }
        collect();
    }
    return 0;
}

bool SlabAllocator::free(CUdeviceptr at, int slot, std::uint64_t number, std::uint64_t streams) {
    auto it = live_.find(at);
    if (it == live_.end()) return false;
    pending_.push_back({at, it->second.units, slot, number, streams});
    live_.erase(it);
    return true;
}

bool SlabAllocator::find(CUdeviceptr at, CUdeviceptr& base, std::size_t& bytes, CUmemoryPool* pool, CUcontext* context) const {
    auto it = live_.upper_bound(at);
    if (it == live_.begin()) return false;
    --it;
    if (at >= it->first + it->second.bytes) return false;
    base = it->first;
    bytes = it->second.bytes;
    if (pool) *pool = it->second.pool;
    if (context) *context = it->second.context;
    return true;
}

bool SlabAllocator::used_until_freed(CUdeviceptr at) const {
    return std::ranges::any_of(pending_, [&](const Pending& p) { return at >= p.at && at < p.at + p.units && !device_.pager_.streams().complete(p.streams, p.number); });
}

std::string SlabAllocator::is_valid() const {
    std::map<CUdeviceptr, std::size_t> all(free_);
    for (const auto& [at, block] : live_)
        if (!all.emplace(at, block.units).second) return "a small allocation is free as well";
    for (const Pending& p : pending_)
        if (!all.emplace(p.at, p.units).second) return "a freed small allocation is in use as well";
    std::size_t sum = 0, whole = 0;
    CUdeviceptr end = 0;
    for (const auto& [at, bytes] : all) {
        if (at < end) return "small allocations overlap";
        end = at + bytes;
        sum += bytes;
    }
    for (const auto& [at, bytes] : slabs_) whole += bytes;
    return sum == whole ? "" : "bytes of slabs are lost";
}

}  // namespace udnnmem::pager
