// DevicePager: its begin and end, and the program's contexts that its mover works in.
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "shim/host/quiet_thread.hpp"
#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::chrono::milliseconds kLetGo(2);   // between looks at what a context that ends still waits for
constexpr std::chrono::seconds kLastCall(2);     // for the mover's last call, which may wait for what will never end
}  // namespace

DevicePager::DevicePager(Pager& pager, CUdevice device, std::unique_ptr<Backing> backing, std::size_t free_bytes, std::size_t total)
    : pager_(pager), driver_(pager.driver()), device_(device), backing_(std::move(backing)), hasher_(driver_), slabs_(*this), meter_in_(driver_), meter_out_(driver_), copies_in_(driver_), copies_out_(driver_) {
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
        budget = share - std::min(share, left_to_others(share));
    }
    budget = std::max(budget / granule(), std::size_t{1}) * granule();
    device_pool_ = std::make_unique<FramePool>(*backing_, Place::device, budget);
    host_pool_ = std::make_unique<FramePool>(*backing_, Place::host, s.host_budget / granule() * granule());
    for (FramePool* pool : {device_pool_.get(), host_pool_.get()})
        pool->before_drop = [this] { return nothing_looks(); };
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
        Buffer* b = new_buffer(Hasher::scratch_bytes(), whole_granules(Hasher::scratch_bytes()));
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
    copies_in_.forget_context();
    copies_out_.forget_context();
    context_ = nullptr;
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
        use.current -= std::min<std::size_t>(use.current, b->bytes);
        b->parked_by = 0;
        cancel(b);
        parked_.emplace(b->capacity, b);
    }
    slabs_.free_context(context, pager_.streams().now(), pager_.streams().all_streams(),
                        [&](CUdeviceptr at, std::size_t bytes, CUmemoryPool pool) { small_freed(at, bytes, pool); });
}

CUcontext DevicePager::context() {
    Lock lock(mutex_);
    return context_;
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
        return (moves_.empty() && !away_) || stopping_;
    })) {
    }
    CUcontext popped;
    const bool pushed = insist([&] { return driver_.cuCtxPushCurrent_v2(context); }) == CUDA_SUCCESS;
    leave_context();
    if (pushed) insist([&] { return driver_.cuCtxPopCurrent_v2(&popped); });
}

// Nothing moves from now on, and whoever waits for it is told that the driver has ended.
void DevicePager::halt(Lock&) {
    stopping_ = true;
    mover_wake_.notify_all();
    granted_.notify_all();
}

void DevicePager::stop() {
    {
        Lock lock(mutex_);
        halt(lock);
    }
    if (mover_.joinable()) mover_.join();
}

void DevicePager::driver_ends() {
    {
        Lock lock(mutex_);
        halt(lock);
        if (!granted_.wait_for(lock, kLastCall, [this] { return !started_ || mover_left_; })) return;
    }
    if (mover_.joinable()) mover_.join();
}

}  // namespace udnnmem::pager
