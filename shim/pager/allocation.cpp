// DevicePager: buffers made, freed, kept mapped for the next allocation of their size, and given up.
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "shim/host/quiet_thread.hpp"
#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {
namespace {

constexpr std::chrono::milliseconds kLetGo(2);   // between looks at what a context that ends still waits for

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

DevicePager::DevicePager(Pager& pager, CUdevice device, std::unique_ptr<Backing> backing, std::size_t free_bytes, std::size_t total)
    : pager_(pager), driver_(pager.driver()), device_(device), backing_(std::move(backing)), hasher_(driver_), slabs_(*this), meter_in_(driver_), meter_out_(driver_) {
    const Settings& s = pager.settings();
    std::size_t budget = s.device_budget_of(total);
    const auto instead = [&](std::size_t used, const std::string& why) {
        pager.sink().line(Sink::Level::warn, "device " + std::to_string(device) + ": a budget of " + std::to_string(budget) + " bytes is " + why + ": " + std::to_string(used) + " are used");
        budget = used;
    };
    if (budget > total) instead(total, "more than it has");
    else if (budget && budget < granule()) instead(granule(), "less than one granule");
    // By default this process' share of what is free, less what contexts, libraries and other processes may still take.
    if (!budget) {
        const std::size_t share = pager.sink().share_of(device, free_bytes);
        budget = share - std::min(share, std::max<std::size_t>(share / 20, granule() * 4));
    }
    budget = std::max(budget / granule(), std::size_t{1}) * granule();
    device_pool_ = std::make_unique<FramePool>(*backing_, Place::device, budget);
    host_pool_ = std::make_unique<FramePool>(*backing_, Place::host, s.host_budget / granule() * granule());
    for (FramePool* pool : {device_pool_.get(), host_pool_.get()})
        pool->before_drop = [this] {
            if (look_stream_) drain(look_stream_);
        };
    stats_.budget = budget;
    stats_.host_budget = host_pool_->budget();
}

DevicePager::~DevicePager() { stop(); }

// The mover's streams, the hasher and its scratch live in the program's context; they are made at the first allocation
// there, and again after that context has gone: in the caller's context, or where that is another device's (its op uses our memory
// too), in one that has memory here.
CUresult DevicePager::start_context(Lock&) {
    if (context_) return CUDA_SUCCESS;
    CUdevice device = -1;
    CUcontext context = nullptr;
    if (insist([&] { return driver_.cuCtxGetDevice(&device); }) == CUDA_SUCCESS && device == device_) {
        const CUresult result = insist([&] { return driver_.cuCtxGetCurrent(&context); });
        return result == CUDA_SUCCESS ? start_in(context) : result;
    }
    const auto owned = std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer* b) { return b->live && !b->slab && b->context; });
    if (owned == buffers_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    context = (*owned)->context;
    if (const CUresult result = insist([&] { return driver_.cuCtxPushCurrent_v2(context); }); result != CUDA_SUCCESS) return result;
    const CUresult result = start_in(context);
    insist([&] { return driver_.cuCtxPopCurrent_v2(&context); });
    return result;
}

// `context` is current.
CUresult DevicePager::start_in(CUcontext context) {
    CUresult result = CUDA_SUCCESS;
    if (!scratch_) {
        Buffer* b = new_buffer(Hasher::scratch_bytes(), round_up(Hasher::scratch_bytes(), granule()));
        if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
        std::vector<Frame*> frames;
        if (!device_pool_->take(b->capacity, frames, true)) {
            retire(b);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        result = map_now(b, std::move(frames));
        if (result != CUDA_SUCCESS) {
            retire(b);
            return result;
        }
        b->pinned = true;
        unmovable_ += b->capacity;
        scratch_ = b;
    }
    // The little that we run on the device goes ahead of the program's kernels: what it frees, they wait for.
    int least = 0, greatest = 0;
    const bool priorities = driver_.cuStreamCreateWithPriority && driver_.cuCtxGetStreamPriorityRange && driver_.cuCtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS;
    for (CUstream* stream : {&in_stream_, &out_stream_, &look_stream_})
        if (result == CUDA_SUCCESS)
            result = insist([&] {
                return priorities ? driver_.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, greatest) : driver_.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
            });
    if (result == CUDA_SUCCESS) result = hasher_.start(scratch_->base, pager_.arena().begin(), pager_.arena().bytes());
    if (result != CUDA_SUCCESS) {
        leave_context();
        return result;
    }
    context_ = context;
    mover_wake_.notify_one();
    if (!started_) {
        started_ = true;
        measure_link();
        mover_ = host::quiet_thread([this] { run(); });
    }
    return CUDA_SUCCESS;
}

// Before the first move, by the thread that makes the first allocation.
void DevicePager::measure_link() {
    if (!pager_.settings().measure_link || pager_.streams().capturing()) return;
    Relaxed relaxed(driver_);
    const LinkSpeeds before = pager_.sink().link_before(device_);
    const std::int64_t began = now_ns();
    link_ = probe_link(driver_, *backing_, *device_pool_, *host_pool_, in_stream_, out_stream_, before, pager_.settings().link_patience_ns);
    if (link_.known()) pager_.sink().link_measured(device_, link_, now_ns() - began);
}

DevicePager::Kernels DevicePager::kernels(CUcontext context) {
    Lock lock(mutex_);
    if (!context || context != context_) return {};
    return {hasher_.kernel(), hasher_.bytes_kernel(), hasher_.expect_kernel()};
}

CUresult DevicePager::take_scratch(std::size_t bytes, CUstream stream, CUdeviceptr& out) { return allocate(bytes, stream, true, own_pool, out); }

void DevicePager::restored(Buffer* b) {
    Lock lock(mutex_);
    b->dropped.store(false, std::memory_order_seq_cst);
    mover_wake_.notify_one();
}

bool DevicePager::has_movable() {
    Lock lock(mutex_);
    return std::any_of(buffers_.begin(), buffers_.end(), [](const Buffer* b) { return b->live && !b->slab; });
}

CUresult DevicePager::start() {
    Lock lock(mutex_);
    return start_context(lock);
}

// What start_context() made in the context, which is current, or about to go and take it along.
void DevicePager::leave_context() {
    for (CUevent e : spare_events_) driver_.cuEventDestroy_v2(e);
    spare_events_.clear();
    for (CUstream* stream : {&in_stream_, &out_stream_, &look_stream_}) {
        if (*stream) insist([&] { return driver_.cuStreamDestroy_v2(*stream); });
        *stream = nullptr;
    }
    hasher_.stop();
    meter_in_.forget_context();
    meter_out_.forget_context();
    context_ = nullptr;
}

Buffer* DevicePager::new_buffer(std::size_t bytes, std::size_t capacity) {
    Buffer* b;
    if (recycled_.empty()) {
        b = new Buffer;
    } else {
        b = recycled_.back();
        recycled_.pop_back();
    }
    b->id = next_id_++;
    b->bytes = bytes;
    b->capacity = capacity;
    b->device = this;
    b->residency = Residency::unbacked;
    b->table = b->opaque = b->escaped = b->touched = b->host_changed = b->dropped = false;
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
    const Residency r = b->residency.load();
    const bool mapped = r == Residency::device || (r == Residency::host && backing_->host_frames_can_be_mapped());
    if (mapped && backing_->unmap(b->base, b->capacity) != CUDA_SUCCESS) {
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
    return live + std::max(largest_, capacity) <= device_pool_->budget() + host_pool_->budget();
}

std::size_t DevicePager::small_below() const { return pager_.settings().small_below ? pager_.settings().small_below : granule() / 2; }

// A parked buffer of just that size: one freed in the same stream serves at once, others once their ops have completed.
Buffer* DevicePager::take_parked(std::size_t capacity, StreamSlot* slot) {
    auto [first, last] = parked_.equal_range(capacity);
    for (auto it = first; it != last; ++it) {
        Buffer* b = it->second;
        if (b->moving) continue;
        const bool same_stream = slot && b->parked_by == slot->life;
        if (!same_stream && holds("free") && !quiet(b)) continue;
        parked_.erase(it);
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
    Lock lock(mutex_);
    if (CUresult result = start_context(lock); result != CUDA_SUCCESS) return result;
    auto count = [&](Buffer* b) {
        live_capacity_ += b && pool != own_pool ? b->capacity : 0;
        if (b) largest_ = std::max(largest_, b->capacity);
        auto& use = pools_[pool];
        use.current += bytes;
        use.high = std::max(use.high, use.current);
        stats_.peak_live = std::max(stats_.peak_live, live_bytes());
    };
    if (bytes < small_below()) {
        out = slabs_.take(bytes, slot ? slot->life : 0, pool, context);
        if (!out) {
            const std::size_t capacity = round_up(std::max<std::size_t>(granule(), 2 * small_below()), granule());
            if (!fits(capacity)) return CUDA_ERROR_OUT_OF_MEMORY;
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
            out = slabs_.take(bytes, slot ? slot->life : 0, pool, context);
        }
        if (out) count(nullptr);
        return out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    const std::size_t capacity = round_up(bytes, granule());
    if (capacity < bytes || (pool != own_pool && !fits(capacity))) return CUDA_ERROR_OUT_OF_MEMORY;
    Buffer* b = take_parked(capacity, slot);
    if (!b) b = new_buffer(bytes, capacity);
    if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
    b->id = next_id_++;
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

CUresult DevicePager::free(CUdeviceptr at, CUstream stream, bool stream_ordered) {
    StreamTable& streams = pager_.streams();
    StreamSlot* slot = stream_ordered ? &streams.slot(stream) : nullptr;
    Lock lock(mutex_);
    Buffer* b = pager_.find(at);
    if (!b) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t number = streams.now();
    if (b->slab) {
        CUdeviceptr base;
        std::size_t bytes;
        CUmemoryPool pool;
        if (!slabs_.find(at, base, bytes, &pool) || base != at) return CUDA_ERROR_INVALID_VALUE;
        slabs_.free(at, slot ? slot->life : 0, number, streams.all_streams());
        small_freed(at, bytes, pool);
        return CUDA_SUCCESS;
    }
    if (!b->live || b->base != at) return CUDA_ERROR_INVALID_VALUE;
    b->live = b->dropped = false;
    if (b->pool != own_pool) live_capacity_ -= b->capacity;
    auto& use = pools_[b->pool];
    use.current -= std::min(use.current, b->bytes);
    b->parked_at = number;
    b->parked_by = slot ? slot->life : 0;
    if (slot) {
        // Ops that other streams were made to wait for are ordered by the program; its own stream's come before now.
        b->streams.fetch_or(slot->bit());
        std::uint64_t seen = b->last_use.load();
        while (seen < number && !b->last_use.compare_exchange_weak(seen, number)) {
        }
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

bool DevicePager::range_of(CUdeviceptr at, CUdeviceptr& base, std::size_t& bytes, CUmemoryPool* pool, CUcontext* context) {
    Lock lock(mutex_);
    Buffer* b = pager_.find(at);
    if (!b) return false;
    if (b->slab) return slabs_.find(at, base, bytes, pool, context);
    if (!b->live || at < b->base || at >= b->base + b->bytes) return false;
    base = b->base;
    bytes = b->bytes;
    if (pool) *pool = b->pool;
    if (context) *context = b->context;
    return true;
}

CUresult DevicePager::pin(Buffer* b) {
    Request request;
    request.need = {b};
    pager_.streams().mark_tails();
    CUresult result = acquire(request);
    while (request.dropped) {
        result = pager_.restore(b, nullptr, true);
        if (result != CUDA_SUCCESS) return result;
        request = Request();
        request.need = {b};
        result = acquire(request);
    }
    if (result != CUDA_SUCCESS) return result;
    if (request.need.empty()) return CUDA_ERROR_INVALID_VALUE;   // freed meanwhile
    Lock lock(mutex_);
    b->pinned = true;
    --b->holds, --b->granted;
    mover_wake_.notify_one();
    return CUDA_SUCCESS;
}

bool DevicePager::escape(Buffer* b, CUdeviceptr at) {
    Lock lock(mutex_);
    if (!b->slab) return !b->escaped.exchange(true);
    if (!slabs_.escape(at)) return false;
    b->escaped = true;
    return true;
}

bool DevicePager::escaped(Buffer* b, CUdeviceptr at) {
    if (!b->escaped.load(std::memory_order_acquire) || !b->slab) return b->escaped.load();
    Lock lock(mutex_);
    return slabs_.escaped(at);
}

CUresult DevicePager::share(Buffer* b, std::vector<Shared>& out) {
    if (const CUresult result = pin(b); result != CUDA_SUCCESS) return result;
    Lock lock(mutex_);
    CUresult result = b->device_frames.empty() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    for (const Frame* f : b->device_frames) {
        int descriptor = -1;
        if (result == CUDA_SUCCESS) result = backing_->share_frame(*f, descriptor);
        if (result == CUDA_SUCCESS) out.push_back({descriptor, f->bytes});
    }
    if (result != CUDA_SUCCESS) {
        for (const Shared& s : out) close(s.descriptor);
        out.clear();
    }
    if (!holds("shared")) b->pinned = false;
    return result;
}

CUresult DevicePager::peer_access(CUdevice reader, bool on) {
    Lock lock(mutex_);
    if (!holds("peers")) return CUDA_SUCCESS;
    backing_->share(reader, on);
    const bool landing = backing_->host_frames_can_be_mapped();
    CUresult result = CUDA_SUCCESS;
    for (const Buffer* b : buffers_) {
        // Between places it is still mapped where it was, or already where it goes: moves remap within one step.
        const bool mapped = !b->device_frames.empty() || (landing && !b->host_frames.empty());
        if (mapped && b->residency != Residency::unbacked && result == CUDA_SUCCESS) result = backing_->allow_again(b->base, b->capacity);
    }
    return result;
}

void DevicePager::wrote_pointers(Buffer* table, CUdeviceptr at, std::size_t bytes, const std::vector<Buffer::Drag>& targets) {
    Lock lock(mutex_);
    std::erase_if(table->drags, [&](const Buffer::Drag& d) { return d.at >= at && d.at < at + bytes; });
    table->drags.insert(table->drags.end(), targets.begin(), targets.end());
    table->table.store(table->opaque || !table->drags.empty(), std::memory_order_release);
    pager_.learned();
}

std::vector<Buffer::Drag> DevicePager::pointers_of(Buffer* table, CUdeviceptr at, std::size_t bytes) {
    Lock lock(mutex_);
    std::vector<Buffer::Drag> all;
    std::copy_if(table->drags.begin(), table->drags.end(), std::back_inserter(all),
                 [&](const Buffer::Drag& d) { return d.at >= at && d.at < at + bytes; });
    return all;
}

bool DevicePager::leads_to(Buffer* table, CUdeviceptr address, CUdeviceptr& base, std::vector<Buffer::Drag>& out) {
    Lock lock(mutex_);
    std::size_t bytes = table->capacity;
    base = table->base;
    if (table->slab && address && !slabs_.find(address, base, bytes)) return false;
    std::erase_if(table->drags, [](const Buffer::Drag& d) { return !d.target->live && !d.target->slab; });
    for (const Buffer::Drag& d : table->drags)
        if (d.at >= base && d.at < base + bytes) out.push_back(d);
    return true;
}

bool DevicePager::holds_addresses(Buffer* b, CUdeviceptr at) {
    if (!b->table.load(std::memory_order_acquire) || !b->slab || b->opaque.load()) return b->table.load() || b->opaque.load();
    CUdeviceptr base;
    std::vector<Buffer::Drag> found;
    return leads_to(b, at, base, found) && !found.empty();
}

// The program's memory ends with its context, as the driver's own would.
void DevicePager::end_memory_of(CUcontext context) {
    std::vector<Buffer*> gone;
    for (Buffer* b : buffers_)
        if (b->live && !b->slab && b->context == context) gone.push_back(b);
    for (Buffer* b : gone) {
        b->live = b->dropped = false;
        if (b->pool != own_pool) live_capacity_ -= b->capacity;
        auto& use = pools_[b->pool];
        use.current -= std::min(use.current, b->bytes);
        b->parked_at = pager_.streams().now();
        b->parked_by = 0;
        cancel(b);
        parked_.emplace(b->capacity, b);
    }
    slabs_.free_context(context, pager_.streams().now(), pager_.streams().all_streams(),
                        [&](CUdeviceptr at, std::size_t bytes, CUmemoryPool pool) { small_freed(at, bytes, pool); });
}

void DevicePager::context_destroying(CUcontext context, bool memory_too) {
    Lock lock(mutex_);
    if (memory_too) end_memory_of(context);
    if (context != context_) return;
    // The mover lets go of the context: its moves end first.
    // One that waits for ops may wait for such as nobody is going to look at any more.
    while (!granted_.wait_for(lock, kLetGo, [&] {
        for (Move& m : moves_)
            if (m.stage == Move::Stage::quiesce) m.cancelled = true;
        mover_wake_.notify_one();
        return moves_.empty() || stopping_;
    })) {
    }
    CUcontext popped;
    const bool pushed = insist([&] { return driver_.cuCtxPushCurrent_v2(context); }) == CUDA_SUCCESS;
    leave_context();
    if (pushed) insist([&] { return driver_.cuCtxPopCurrent_v2(&popped); });
}

void DevicePager::stop() {
    {
        Lock lock(mutex_);
        if (stopping_) return;
        stopping_ = true;
        mover_wake_.notify_all();
        granted_.notify_all();
    }
    if (mover_.joinable()) mover_.join();
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
        if (b->live) all.push_back({b->id, b->bytes, b->capacity, b->residency == Residency::host || b->residency == Residency::evicting, b->slab});
    return all;
}

// Of the device's memory, what does not move.
std::size_t DevicePager::fixed_bytes() const {
    std::size_t fixed = unmovable_;
    for (const Buffer* b : buffers_)
        if (b->pinned && !b->slab && b != scratch_) fixed += b->capacity;
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
    return {budget > fixed ? budget - fixed : 0, host_pool_->budget(), meter_in_.rate() > 0 ? meter_in_.rate() : link_.in, meter_out_.rate() > 0 ? meter_out_.rate() : link_.out};
}

LinkSpeeds DevicePager::link() {
    Lock lock(mutex_);
    return link_;
}

bool DevicePager::fits_on_device(std::size_t bytes) {
    Lock lock(mutex_);
    return unmovable_ + bytes <= device_pool_->budget();
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
