#include "shim/pager/slab.hpp"

#include <iterator>
#include <utility>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {

void SlabAllocator::add(Buffer* slab) {
    slabs_[slab->base] = {slab, slab->capacity};
    unused_.insert(slab->base);
    merge(slab->base, slab->capacity);
}

SlabAllocator::Slabs::iterator SlabAllocator::slab_of(CUdeviceptr at) { return std::prev(slabs_.upper_bound(at)); }

std::size_t SlabAllocator::live_in(const Buffer* slab) const {
    const auto it = slabs_.find(slab->base);
    return it == slabs_.end() ? 0 : it->second.live;
}

// Whether what was freed there has not completed.
bool SlabAllocator::awaited(const Slabs::value_type& slab) const {
    const auto it = pending_.lower_bound(slab.first);
    return it != pending_.end() && it->first < slab.first + slab.second.bytes;
}

void SlabAllocator::forget(const Buffer* given) {
    const auto slab = slabs_.find(given->base);
    const CUdeviceptr end = slab->first + slab->second.bytes;
    Buffer* const buffer = slab->second.buffer;
    for (auto it = pending_.lower_bound(slab->first); it != pending_.end() && it->first < end;) {
        const Pending& p = it->second;
        buffer->streams.fetch_or(p.streams);
        raise(buffer->last_use, p.number);
        erase_pending(it++);
    }
    for (auto it = free_.lower_bound(slab->first); it != free_.end() && it->first < end;) erase_free(it++);
    unused_.erase(slab->first);
    slabs_.erase(slab);
}

void SlabAllocator::insert_free(CUdeviceptr at, std::size_t bytes) {
    free_.emplace(at, bytes);
    free_by_size_.emplace(bytes, at);
}

void SlabAllocator::erase_free(Free::iterator it) {
    free_by_size_.erase({it->second, it->first});
    free_.erase(it);
}

// Neighbours merge only within one slab: a block never spans two.
void SlabAllocator::merge(CUdeviceptr at, std::size_t bytes) {
    const auto slab = slab_of(at);
    auto next = free_.lower_bound(at);
    if (next != free_.begin()) {
        const auto previous = std::prev(next);
        if (previous->first >= slab->first && previous->first + previous->second == at) {
            at = previous->first, bytes += previous->second;
            erase_free(previous);
        }
    }
    if (next != free_.end() && at + bytes == next->first && next->first < slab->first + slab->second.bytes) {
        bytes += next->second;
        erase_free(next);
    }
    insert_free(at, bytes);
}

void SlabAllocator::erase_pending(Waiting::iterator it) {
    const Pending& p = it->second;
    pending_in_order_.erase(p.nth);
    pending_of_.erase({p.stream, p.units, p.nth});
    pending_.erase(it);
}

void SlabAllocator::collect() {
    StreamTable& streams = device_.pager_.streams();
    while (!pending_in_order_.empty()) {
        const auto first = pending_.find(pending_in_order_.begin()->second);
        const Pending p = first->second;
        if (holds("free-small") && !streams.complete(p.streams, p.number)) return;
        const CUdeviceptr at = first->first;
        erase_pending(first);
        merge(at, p.units);
    }
}

CUdeviceptr SlabAllocator::take(std::size_t bytes, const StreamSlot* stream, CUmemoryPool pool, CUcontext context) {
    const std::size_t units = (bytes + kUnit) / kUnit * kUnit;   // the byte behind it is its own too: an end is no other's begin
    auto place = [&](CUdeviceptr at) {
        live_[at] = {bytes, units, pool, context, next_id_++};
        const auto slab = slab_of(at);
        if (!slab->second.blocks++) unused_.erase(slab->first);
        slab->second.live += bytes;
        return at;
    };
    if (!holds("free-small")) collect();
    if (stream) {
        const auto own = pending_of_.lower_bound({stream->life, units, 0});
        if (own != pending_of_.end() && std::get<0>(*own) == stream->life && std::get<1>(*own) == units) {
            const auto it = pending_.find(pending_in_order_.at(std::get<2>(*own)));
            if (device_.pager_.streams().goes_on(*stream, it->second.streams, it->second.number)) {
                const CUdeviceptr at = it->first;
                erase_pending(it);
                return place(at);
            }
        }
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
        if (const auto fits = free_by_size_.lower_bound({units, 0}); fits != free_by_size_.end()) {
            const auto [size, at] = *fits;
            erase_free(free_.find(at));
            if (size > units) insert_free(at + units, size - units);
            return place(at);
        }
        collect();
    }
    return 0;
}

bool SlabAllocator::free(CUdeviceptr at, std::uint64_t stream, std::uint64_t number, std::uint64_t streams) {
    auto it = live_.find(at);
    if (it == live_.end()) return false;
    const Pending p{it->second.units, stream, number, streams, frees_++};
    pending_.emplace(at, p);
    pending_in_order_.emplace(p.nth, at);
    pending_of_.insert({p.stream, p.units, p.nth});
    const auto slab = slab_of(at);
    if (!--slab->second.blocks) unused_.insert(slab->first);
    slab->second.live -= it->second.bytes;
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
    auto it = pending_.upper_bound(at);
    if (it == pending_.begin()) return false;
    const auto& [begin, p] = *--it;
    return at < begin + p.units && !device_.pager_.streams().complete(p.streams, p.number);
}

std::string SlabAllocator::is_valid() const {
    std::map<CUdeviceptr, std::size_t> all(free_);
    for (const auto& [at, block] : live_)
        if (!all.emplace(at, block.units).second) return "a small allocation is free as well";
    for (const auto& [at, p] : pending_)
        if (!all.emplace(at, p.units).second) return "a freed small allocation is in use as well";
    if (free_by_size_.size() != free_.size()) return "the free small blocks by size are not those by address";
    for (const auto& [bytes, at] : free_by_size_)
        if (const auto it = free_.find(at); it == free_.end() || it->second != bytes) return "a free small block has another size by address";
    if (pending_in_order_.size() != pending_.size() || pending_of_.size() != pending_.size()) return "freed small allocations are not as many in each order";
    std::uint64_t number = 0, streams = 0;
    for (const auto& [nth, at] : pending_in_order_) {
        const auto it = pending_.find(at);
        if (it == pending_.end() || it->second.nth != nth || !pending_of_.contains({it->second.stream, it->second.units, nth})) return "a freed small allocation is not found in each order";
        if (it->second.number < number || (streams & ~it->second.streams)) return "a freed small allocation waits for less than one that was freed before it";
        number = it->second.number, streams = it->second.streams;
    }
    std::size_t sum = 0, whole = 0;
    CUdeviceptr begin = 0, end = 0;
    for (const auto& [at, bytes] : all) {
        if (at < end) return "small allocations overlap";
        if (at == end && free_.contains(at) && !slabs_.contains(at) && free_.contains(begin)) return "free small blocks that are neighbours are two";
        begin = at;
        end = at + bytes;
        sum += bytes;
    }
    for (const auto& [at, slab] : slabs_) {
        whole += slab.bytes;
        std::size_t blocks = 0, live = 0;
        for (auto it = live_.lower_bound(at); it != live_.end() && it->first < at + slab.bytes; ++it) ++blocks, live += it->second.bytes;
        if (blocks != slab.blocks || live != slab.live || unused_.contains(at) != !blocks) return "what lives in a slab is miscounted";
        if (slab.buffer->base != at || slab.buffer->capacity != slab.bytes || !slab.buffer->slab) return "a slab is no slab's buffer";
    }
    if (unused_.size() > slabs_.size()) return "a slab that was given up is kept as unused";
    return sum == whole ? "" : "bytes of slabs are lost";
}

}  // namespace udnnmem::pager
