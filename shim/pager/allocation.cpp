// DevicePager: buffers made, freed, kept mapped for the next allocation of their size, and given up.
#include <algorithm>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {

CUresult DevicePager::take_scratch(std::size_t bytes, CUstream stream, CUdeviceptr& out) { return allocate(bytes, stream, true, own_pool, out); }

CUresult DevicePager::take_scratch(std::size_t bytes, CUdeviceptr& out) { return allocate(bytes, nullptr, false, own_pool, out); }

void DevicePager::restored(Buffer* b) {
    Lock lock(mutex_);
    b->dropped.store(false, std::memory_order_seq_cst);
    mover_wake_.notify_one();
}

Buffer* DevicePager::new_buffer(std::size_t bytes, std::size_t capacity) {
    Buffer* b;
    if (recycled_.empty()) {
        b = new Buffer;
        b->device = this;
    } else {
        b = recycled_.back();
        recycled_.pop_back();
    }
    out_of_place();
    b->id = pager_.next_id();
    b->bytes = bytes;
    b->capacity = capacity;
    b->residency = Residency::unbacked;
    b->table = b->opaque = b->escaped = b->touched = b->host_changed = b->dropped = false;
    b->through.clear();
    b->looked_through = 0;
    b->last_use = b->streams = b->next_use = 0;
    b->host_valid = b->hash_known = b->pinned = b->moving = b->unfilled = b->slab = b->live = false;
    b->holds = b->granted = 0;
    b->refused = CUDA_SUCCESS;
    b->parked_by = 0;
    b->pool = nullptr;
    b->base = pager_.arena_range(capacity, b);
    if (!b->base) {
        recycled_.push_back(b);
        return nullptr;
    }
    buffers_.push_back(b);
    return b;
}

// Gives everything of a buffer back: mapping, frames, range. Nobody may be using it.
void DevicePager::retire(Buffer* b) {
    const bool mapped = b->residency == Residency::device || b->landed;
    if (mapped && unmap(b) != CUDA_SUCCESS) {
        b->pinned = true;  // what the driver does not let go of is used for nothing else
        return;
    }
    b->residency = Residency::unbacked;
    device_pool_->give_back(b->device_frames);
    host_pool_->give_back(b->host_frames);
    for (Buffer* other : buffers_) std::erase_if(other->drags, [b](const Buffer::Drag& d) { return d.target == b; });
    b->drags.clear();
    pager_.arena_return(b->base, b->capacity);
    std::erase(buffers_, b);
    recycled_.push_back(b);
}

// Whether one more buffer of that capacity can ever be held: on the device or in host memory, with room to move.
bool DevicePager::fits(std::size_t capacity) const {
    const std::size_t live = live_capacity_ + unmovable_ + capacity;
    if (live <= device_pool_->budget() || live_capacity_ + capacity <= pager_.expected_live()) return true;
    const std::size_t both = device_pool_->budget() + host_pool_->budget();
    if (live + std::max(largest_ever_, capacity) <= both) return true;
    std::size_t largest = capacity;   // that lives
    for (const Buffer* b : buffers_)
        if (b->live && !b->slab) largest = std::max<std::size_t>(largest, b->capacity);
    return live + largest <= both;
}

// The same, also with what others have given back meanwhile.
bool DevicePager::will_fit(std::size_t capacity) {
    const auto now = [&] { return or_without_slabs([&] { return fits(capacity); }); };
    return now() || (regain_budget() && now());
}

// Slabs in which nothing lives (SlabAllocator::give_up) become freed buffers like any other, whose memory goes once nothing uses it
// any more. One that a waiting op names, be it by a word that is no address, stays: what is freed is no part of a wait.
// So does one of which others had a part: nobody says when they are done with it.
bool DevicePager::park_slabs(std::size_t bytes) {
    const std::vector<Buffer*> parked = slabs_.give_up(bytes, [&](Buffer* b) {
        return b->holds || b->escaped.load() || (bytes != SIZE_MAX && !quiet(b)) || std::ranges::any_of(requests_, [b](const Request* r) { return std::ranges::find(r->need, b) != r->need.end(); });
    });
    for (Buffer* b : parked) {
        b->live = b->slab = b->pinned = false;
        b->parked_by = 0;
        unmovable_ -= b->capacity;
        parked_.emplace(b->capacity, b);
    }
    return !parked.empty();
}

std::size_t DevicePager::small_below() const { return pager_.settings().small_below ? pager_.settings().small_below : granule() / 2; }

// A parked buffer of just that size: one freed in the same stream serves at once, others once their ops have completed.
Buffer* DevicePager::take_parked(std::size_t capacity, StreamSlot* slot) {
    auto [first, last] = parked_.equal_range(capacity);
    for (auto it = first; it != last; ++it) {
        Buffer* b = it->second;
        if (b->moving) continue;
        const bool unsure = slot && slot->stream == CU_STREAM_LEGACY && leased(b);   // of its last use
        const bool same_stream = slot && b->parked_by == slot->life && !unsure && pager_.streams().goes_on(*slot, b->streams.load(), b->last_use.load());
        if (!same_stream && holds("free") && !quiet(b)) continue;
        parked_.erase(it);
        out_of_place();
        b->host_valid = b->hash_known = false;
        b->table = b->opaque = b->escaped = b->touched = b->host_changed = false;
        b->drags.clear();
        b->through.clear();
        b->looked_through = 0;
        b->next_use = 0;
        b->pinned = false;
        if (b->residency == Residency::device) host_pool_->give_back(b->host_frames);
        return b;
    }
    return nullptr;
}

CUresult DevicePager::allocate(std::size_t bytes, CUstream stream, bool stream_ordered, CUmemoryPool pool, CUdeviceptr& out) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > pager_.arena().bytes()) return CUDA_ERROR_OUT_OF_MEMORY;   // sums of what is less do not overflow
    StreamSlot* slot = stream_ordered ? &pager_.streams().slot(stream) : nullptr;
    // A pool's memory belongs to no context. Our own goes with the context of the work that it is for.
    CUcontext context = nullptr;
    if (!stream_ordered || pool == own_pool) insist([&] { return driver_.cuCtxGetCurrent(&context); });
    BriefLock lock(*this);
    if (CUresult result = start_context(lock); result != CUDA_SUCCESS) return result;
    auto count = [&](Buffer* b) {
        live_capacity_ += b && pool != own_pool ? std::size_t{b->capacity} : 0;
        if (b) largest_ever_ = std::max<std::size_t>(largest_ever_, b->capacity);
        auto& use = pools_[pool];
        use.current += bytes;
        use.high = std::max(use.high, use.current);
        stats_.peak_live = std::max(stats_.peak_live, live_bytes());
    };
    if (bytes < small_below()) {
        out = slabs_.take(bytes, slot, pool, context);
        if (!out) {
            const std::size_t capacity = whole_granules(std::max<std::size_t>(granule(), 2 * small_below()));
            if (!will_fit(capacity)) return CUDA_ERROR_OUT_OF_MEMORY;
            Buffer* slab = new_buffer(capacity, capacity);
            if (!slab) return CUDA_ERROR_OUT_OF_MEMORY;
            slab->slab = true;
            lock.unlock();
            Request request;
            request.need = {slab};
            pager_.streams().mark_tails();
            const CUresult result = acquire(request);
            lock.lock();
            if (result != CUDA_SUCCESS || slab->residency != Residency::device) {
                if (result == CUDA_SUCCESS) --slab->holds, --slab->granted;
                retire(slab);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            slab->pinned = slab->live = true;
            slab->touched = true;
            --slab->holds, --slab->granted;
            unmovable_ += capacity;
            slabs_.add(slab);
            out = slabs_.take(bytes, slot, pool, context);
        }
        if (out) count(nullptr);
        return out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    const std::size_t capacity = whole_granules(bytes);
    if (capacity < bytes || (pool != own_pool && !will_fit(capacity))) return CUDA_ERROR_OUT_OF_MEMORY;
    Buffer* b = take_parked(capacity, slot);
    if (!b) b = new_buffer(bytes, capacity);
    if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
    b->id = pager_.next_id();
    b->bytes = bytes;
    b->live = true;
    b->context = context;
    b->pool = pool;
    count(b);
    check();
    out = b->base;
    return CUDA_SUCCESS;
}

void DevicePager::small_freed(CUdeviceptr at, std::size_t bytes, CUmemoryPool pool) {
    Buffer* slab = pager_.find(at);
    std::erase_if(slab->drags, [&](const Buffer::Drag& d) { return d.at >= at && d.at < at + bytes; });
    slab->table = slab->opaque || !slab->drags.empty();
    auto& use = pools_[pool];
    use.current -= std::min(use.current, bytes);
}

CUresult DevicePager::free(CUdeviceptr at, CUstream stream, bool stream_ordered, bool waited_for) {
    StreamTable& streams = pager_.streams();
    StreamSlot* slot = stream_ordered ? &streams.slot(stream) : nullptr;
    const std::uint64_t number = slot ? streams.freed(*slot) : streams.now();
    BriefLock lock(*this);
    Buffer* b = pager_.find(at);
    if (!b) return CUDA_ERROR_INVALID_VALUE;
    if (b->slab) {
        const auto small = slabs_.find(at);
        if (!small || small->base != at) return CUDA_ERROR_INVALID_VALUE;
        slabs_.free(at, slot ? slot->life : 0, number, streams.all_streams());
        small_freed(at, small->bytes, small->pool);
        return CUDA_SUCCESS;
    }
    if (!b->live || b->base != at) return CUDA_ERROR_INVALID_VALUE;
    b->live = b->dropped = false;
    if (b->pool != own_pool) live_capacity_ -= b->capacity;
    auto& use = pools_[b->pool];
    use.current -= std::min<std::size_t>(use.current, b->bytes);
    b->parked_by = slot ? slot->life : 0;
    if (slot || !waited_for) {
        // Ops that its stream was made to wait for are ordered by the program; without any order all may still use it, by whatever way.
        b->streams.fetch_or(slot ? slot->bit() : streams.all_streams());
        raise(b->last_use, number);
    }
    if (b->moving) {
        // The mover finishes or cancels the move first, then parks what is left.
        cancel(b);
        mover_wake_.notify_one();
    }
    parked_.emplace(b->capacity, b);
    check();
    return CUDA_SUCCESS;
}

std::optional<Allocated> DevicePager::allocation_at(CUdeviceptr at) {
    Lock lock(mutex_);
    Buffer* b = pager_.find(at);
    if (!b) return std::nullopt;
    std::optional<Allocated> found;
    if (b->slab) found = slabs_.find(at);
    else if (b->live && at >= b->base && at < b->base + b->bytes) found = Allocated{b->base, b->bytes, b->pool, b->context, b->id};
    // The driver counts its own from one: ours are far above them, those of each device and of the slabs in ranges of their own.
    if (found) found->id |= (static_cast<std::uint64_t>(device_) + 1) << 40 | (b->slab ? 1ull << 32 : 0);
    return found;
}

}  // namespace udnnmem::pager
