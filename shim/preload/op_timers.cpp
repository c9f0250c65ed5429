#include "shim/preload/op_timers.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "interpose/driver.hpp"
#include "shim/log/log.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::preload {
namespace {

struct Calls {
    decltype(&cuEventCreate) create = UDNNMEM_REAL(cuEventCreate);
    decltype(&cuEventRecord) record = UDNNMEM_REAL(cuEventRecord);
    decltype(&cuEventQuery) query = UDNNMEM_REAL(cuEventQuery);
    decltype(&cuEventElapsedTime) elapsed = UDNNMEM_REAL(cuEventElapsedTime);
    decltype(&cuEventDestroy) destroy = UDNNMEM_REAL(cuEventDestroy);
    decltype(&cuEventSynchronize) wait = UDNNMEM_REAL(cuEventSynchronize);
    decltype(&cuStreamCreate) create_stream = UDNNMEM_REAL(cuStreamCreate);
    decltype(&cuStreamDestroy) destroy_stream = UDNNMEM_REAL(cuStreamDestroy);
    decltype(&cuCtxGetCurrent) current = UDNNMEM_REAL(cuCtxGetCurrent);
    decltype(&cuCtxSetCurrent) set_current = UDNNMEM_REAL(cuCtxSetCurrent);
    bool anchors() const { return wait && create_stream && destroy_stream; }
    bool whole() const { return create && record && query && elapsed && destroy && current && set_current; }
};

const Calls& calls() {
    static const Calls c;
    return c;
}

}  // namespace

profiler::Activity* OpTimers::activity() {
    std::call_once(opened_, [this] {
        std::string why = "UDNNMEM_EVENT_TIMING is set";
        try {
            if (!only_events_) activity_ = profiler::Activity::open(why);
        } catch (...) {
            why = "no memory";
        }
        if (activity_) log::info("ops are timed by CUPTI until the iteration is learned");
        else log::info("ops are timed by event pairs until the iteration is learned: {}", why);
    });
    return activity_.get();
}

std::int32_t OpTimers::start(CUstream stream) {
    if (profiler::Activity* cupti = activity(); cupti && !over_.load()) {
        inside_.fetch_add(1);
        if (over_.load()) return inside_.fetch_sub(1), -1;
        const std::int32_t op = next_.fetch_add(1);
        cupti->push(static_cast<std::uint64_t>(op));
        return op | by_cupti;
    }
    const Calls& c = calls();
    CUcontext context = nullptr;
    if (!c.whole() || c.current(&context) != CUDA_SUCCESS || !context) return -1;
    std::lock_guard lock(mutex_);
    if (closed_) return -1;
    auto taken = std::find_if(free_.rbegin(), free_.rend(), [&](std::int32_t i) { return pair(i).context == context; });
    std::int32_t timer;
    if (taken != free_.rend()) {
        timer = *taken;
        *taken = free_.back();
        free_.pop_back();
    } else {
        if (pairs_.size() >= most) return -1;
        Pair made{.context = context};
        if (c.create(&made.begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return -1;
        if (c.create(&made.end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
            c.destroy(made.begin);
            return -1;
        }
        timer = static_cast<std::int32_t>(pairs_.size());
        pairs_.push_back(made);
    }
    pair(timer).good = false;
    if (c.record(pair(timer).begin, stream) == CUDA_SUCCESS) return timer;
    free_.push_back(timer);  // a stream of another context refuses the event
    return -1;
}

void OpTimers::stop(std::int32_t timer, CUstream stream, bool submitted) {
    if (timer < 0) return;
    if (timer & by_cupti) {
        activity_->pop();
        inside_.fetch_sub(1);
        return;
    }
    std::lock_guard lock(mutex_);
    if (closed_ || !pair(timer).context) return;
    if (submitted) pair(timer).good = calls().record(pair(timer).end, stream) == CUDA_SUCCESS;
    else free_.push_back(timer);
}

const OpTimers::Anchor* OpTimers::anchor(CUcontext context) const {
    const auto found = std::find_if(anchors_.begin(), anchors_.end(), [&](const Anchor& a) { return a.context == context; });
    return found == anchors_.end() ? nullptr : &*found;
}

// On a stream of its own, on which nothing can be ahead of it: recorded and reached at nearly the same time.
OpTimers::Anchor OpTimers::make_anchor(CUcontext context) const {
    const Calls& c = calls();
    Anchor made{context, nullptr, Nanoseconds(0)};
    CUstream stream = nullptr;
    if (!c.anchors() || c.set_current(context) != CUDA_SUCCESS || c.create_stream(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return made;
    if (c.create(&made.event, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
        const std::int64_t before = pager::now_ns();
        if (c.record(made.event, stream) == CUDA_SUCCESS && c.wait(made.event) == CUDA_SUCCESS) {
            made.at = Nanoseconds(before + (pager::now_ns() - before) / 2);
        } else {
            c.destroy(made.event);
            made.event = nullptr;
        }
    }
    c.destroy_stream(stream);
    return made;
}

profiler::Recorder::Reading OpTimers::read(std::int32_t timer, Nanoseconds& begin, Nanoseconds& duration) {
    using Reading = profiler::Recorder::Reading;
    if (timer & by_cupti) {
        if (over_.load()) return Reading::lost;
        const auto found = activity_->read(static_cast<std::uint64_t>(timer ^ by_cupti), begin, duration);
        return found == profiler::Activity::Found::done ? Reading::done : found == profiler::Activity::Found::lost ? Reading::lost : Reading::pending;
    }
    const Calls& c = calls();
    std::unique_lock lock(mutex_);
    if (closed_) return Reading::lost;
    if (CUcontext context = pair(timer).context; context && !anchor(context)) {
        lock.unlock();  // launches go on
        const Anchor made = make_anchor(context);
        lock.lock();
        if (pair(timer).context) anchors_.push_back(made);  // else it went meanwhile, the event with it
    }
    Pair& p = pair(timer);
    if (!p.context) return Reading::lost;
    Reading reading = Reading::lost;
    if (p.good) {
        float ms = 0;
        c.set_current(p.context);
        const CUresult state = c.query(p.end);
        if (state == CUDA_ERROR_NOT_READY) return Reading::pending;
        if (state == CUDA_SUCCESS && c.elapsed(&ms, p.begin, p.end) == CUDA_SUCCESS && ms >= 0) {
            duration = Nanoseconds(static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
            const Anchor* from = anchor(p.context);
            if (from->event && c.elapsed(&ms, from->event, p.begin) == CUDA_SUCCESS)
                begin = Nanoseconds(from->at.value + static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
            reading = Reading::done;
        }
    }
    free_.push_back(timer);
    return reading;
}

void OpTimers::enter_thread() {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (const auto exchange = UDNNMEM_REAL(cuThreadExchangeStreamCaptureMode)) exchange(&mode);
}

void OpTimers::context_destroying(CUcontext context) {
    std::lock_guard lock(mutex_);
    for (Pair& p : pairs_)
        if (p.context == context) p = Pair();
    std::erase_if(anchors_, [&](const Anchor& a) { return a.context == context; });
}

void OpTimers::leave_cupti() {
    std::call_once(opened_, [] {});   // if it was not opened it never is
    if (!activity_ || over_.exchange(true)) return;
    // Each is in the driver's submission of one op, which may wait for the device, or for ever.
    for (int ms = 0; inside_.load() > 0 && ms < 1000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    activity_->close(inside_.load() > 0 ? nullptr : +[] {
        CUcontext context;
        calls().current(&context);
    });
}

void OpTimers::close() {
    leave_cupti();
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (const Pair& pair : pairs_) {
        if (!pair.context) continue;
        calls().set_current(pair.context);
        calls().destroy(pair.begin);
        calls().destroy(pair.end);
    }
    for (const Anchor& a : anchors_) {
        if (!a.event) continue;
        calls().set_current(a.context);
        calls().destroy(a.event);
    }
    anchors_.clear();
    pairs_.clear();
    free_.clear();
}

}  // namespace udnnmem::preload
