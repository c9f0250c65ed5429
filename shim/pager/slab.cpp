#include "shim/pager/slab.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

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

CUdeviceptr SlabAllocator::take(std::size_t bytes, std::uint64_t stream, CUmemoryPool pool, CUcontext context) {
    const std::size_t units = (bytes + kUnit) / kUnit * kUnit;   // the byte behind it is its own too: an end is no other's begin
    auto place = [&](CUdeviceptr at) {
        live_[at] = {bytes, units, pool, context, next_id_++};
        return at;
    };
    if (!holds("free-small")) collect();
    if (stream) {
        for (auto it = pending_.begin(); it != pending_.end(); ++it) {
            if (it->stream != stream || it->units != units) continue;
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

bool SlabAllocator::free(CUdeviceptr at, std::uint64_t stream, std::uint64_t number, std::uint64_t streams) {
    auto it = live_.find(at);
    if (it == live_.end()) return false;
    pending_.push_back({at, it->second.units, stream, number, streams});
    live_.erase(it);
    return true;
}

std::map<CUdeviceptr, SlabAllocator::Block>::const_iterator SlabAllocator::holding(CUdeviceptr at) const {
    auto it = live_.upper_bound(at);
    return it == live_.begin() || at >= std::prev(it)->first + std::prev(it)->second.bytes ? live_.end() : std::prev(it);
}

bool SlabAllocator::escape(CUdeviceptr at) {
    const auto it = holding(at);
    return it != live_.end() && !std::exchange(live_[it->first].escaped, true);
}

bool SlabAllocator::escaped(CUdeviceptr at) const {
    const auto it = holding(at);
    return it != live_.end() && it->second.escaped;
}

std::optional<Allocated> SlabAllocator::find(CUdeviceptr at) const {
    const auto it = holding(at);
    if (it == live_.end()) return std::nullopt;
    return Allocated{it->first, it->second.bytes, it->second.pool, it->second.context, it->second.id};
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
