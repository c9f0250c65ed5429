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
    decltype(&cuCtxPushCurrent) push = UDNNMEM_REAL(cuCtxPushCurrent);
    decltype(&cuCtxPopCurrent) pop = UDNNMEM_REAL(cuCtxPopCurrent);
    bool anchors() const { return wait && create_stream && destroy_stream; }
    bool whole() const { return create && record && query && elapsed && destroy && current && push && pop; }
};

constexpr std::int64_t kAnchored = 10'000'000'000;   // ns; in float milliseconds still a microsecond apart

const Calls& calls() {
    static const Calls c;
    return c;
}

// The context is current while it lives, then what was: at exit the thread is the program's.
class Within {
  public:
    explicit Within(CUcontext context) {
        CUcontext current = nullptr;
        calls().current(&current);
        pushed_ = current != context && calls().push(context) == CUDA_SUCCESS;
    }
    ~Within() {
        CUcontext popped;
        if (pushed_) calls().pop(&popped);
    }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

  private:
    bool pushed_ = false;
};

}  // namespace

profiler::Activity* OpTimers::activity() {
    std::call_once(opened_, [this] {
        std::string why = "UDNNMEM_CUPTI is not set";
        try {
            if (!settings_.only_events) activity_ = profiler::Activity::open(why);
        } catch (...) {
            why = "no memory";
        }
        if (activity_ && settings_.cupti_opened) settings_.cupti_opened();
        if (activity_) attached_ns_.store(pager::now_ns());
        if (activity_) log::info("ops are timed by CUPTI until the iteration is learned");
        else if (settings_.only_events || settings_.quiet) log::info("ops are timed by event pairs until the iteration is learned: {}", why);
        else log::note("ops are timed by event pairs, not by CUPTI, until the iteration is learned: {}", why);
        why_events_ = activity_ ? "CUPTI was left after its time" : why;
        told_.store(true, std::memory_order_release);
    });
    return activity_.get();
}

std::string OpTimers::timed_by() const {
    if (!told_.load(std::memory_order_acquire)) return many_.load(std::memory_order_relaxed) ? "event pairs (nothing but graphs)" : "";
    if (!activity_ || over_.load()) return "event pairs (" + why_events_ + ")";
    return many_.load(std::memory_order_relaxed) ? "CUPTI, graphs by event pairs" : "CUPTI";
}

std::int32_t OpTimers::start(CUstream stream, bool many) {
    // Of records, nobody says which is the last.
    if (many) many_.store(true, std::memory_order_relaxed);
    if (profiler::Activity* cupti = many ? nullptr : activity(); cupti && !over_.load()) {
        inside_.fetch_add(1);
        if (over_.load()) return inside_.fetch_sub(1), -1;
        if (const std::uint32_t count = next_.fetch_add(1); count < 1u << profiler::Activity::number_bits) {
            const std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(stream) * 0x9e3779b97f4a7c15u;
            const std::uint32_t op = static_cast<std::uint32_t>(mixed >> (64 - stream_bits)) << profiler::Activity::number_bits | count;
            cupti->push(op);
            return static_cast<std::int32_t>(op) | by_cupti;
        }
        inside_.fetch_sub(1);
    }
    const Calls& c = calls();
    Pair mine;
    if (!c.whole() || c.current(&mine.context) != CUDA_SUCCESS || !mine.context) return -1;
    const std::int32_t timer = take(mine);
    if (timer < 0) return -1;
    // A stream of another context refuses the event.
    return give_back(timer, mine, mine.begin && c.record(mine.begin, stream) == CUDA_SUCCESS) ? timer : -1;
}

// A pair of events of `mine`'s context, this thread's own until give_back(); no events: there can be none. -1: too many are in use.
std::int32_t OpTimers::take(Pair& mine) {
    std::unique_lock lock(mutex_);
    if (closed_) return -1;
    const auto free_of = [&](CUcontext context) { return std::find_if(free_.rbegin(), free_.rend(), [&](std::int32_t i) { return pair(i).context == context; }); };
    auto taken = free_of(mine.context);
    if (taken == free_.rend()) taken = free_of(nullptr);
    std::int32_t timer;
    if (taken != free_.rend()) {
        timer = *taken;
        *taken = free_.back();
        free_.pop_back();
    } else {
        if (pairs_.size() >= most) return -1;
        pairs_.emplace_back();
        free_.reserve(pairs_.capacity());   // nothing that gives one back may fail
        timer = static_cast<std::int32_t>(pairs_.size() - 1);
    }
    Pair& p = pair(timer);
    p.held = true, p.good = false;
    if (p.context) return mine = p, timer;
    lock.unlock();
    const Calls& c = calls();
    if (c.create(&mine.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS && c.create(&mine.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
        lock.lock();
        if (!closed_) pair(timer).context = mine.context, pair(timer).begin = mine.begin, pair(timer).end = mine.end;
    } else {
        if (mine.begin) c.destroy(mine.begin);
        mine = Pair();
    }
    return timer;
}

// The driver is left. False: the pair is not this op's any more, as it was not `good` or all of them went meanwhile.
bool OpTimers::give_back(std::int32_t timer, const Pair& mine, bool good) {
    std::unique_lock lock(mutex_);
    if (closed_) {
        lock.unlock();
        destroy(mine);
        return false;
    }
    pair(timer).held = false;
    if (!good) free_.push_back(timer);
    return good;
}

void OpTimers::destroy(const Pair& pair) {
    if (!pair.context) return;
    const Within there(pair.context);
    calls().destroy(pair.begin);
    calls().destroy(pair.end);
}

void OpTimers::stop(std::int32_t timer, CUstream stream, bool submitted) {
    if (timer < 0) return;
    if (timer & by_cupti) {
        activity_->pop();
        inside_.fetch_sub(1);
        return;
    }
    if (!submitted) return forget(timer);
    Pair mine;
    {
        std::lock_guard lock(mutex_);
        if (closed_ || !pair(timer).context) return;
        pair(timer).held = true;
        mine = pair(timer);
    }
    const bool good = calls().record(mine.end, stream) == CUDA_SUCCESS;
    std::unique_lock lock(mutex_);
    if (closed_) {
        lock.unlock();
        return destroy(mine);
    }
    pair(timer).held = false;
    pair(timer).good = good;
}

void OpTimers::forget(std::int32_t timer) {
    if (timer < 0 || timer & by_cupti) return;
    std::lock_guard lock(mutex_);
    if (!closed_) free_.push_back(timer);
}

// Made anew now and then: the distance to it is told in milliseconds, as a float.
const OpTimers::Anchor& OpTimers::anchor(CUcontext context) {
    auto found = std::find_if(anchors_.begin(), anchors_.end(), [&](const Anchor& a) { return a.context == context; });
    if (found == anchors_.end()) return anchors_.emplace_back(make_anchor(context));
    if (!found->event || pager::now_ns() - found->at.value < kAnchored) return *found;
    if (const Anchor made = make_anchor(context); made.event) {
        calls().destroy(found->event);
        *found = made;
    }
    return *found;
}

// On a stream of its own, on which nothing can be ahead of it: recorded and reached at nearly the same time.
OpTimers::Anchor OpTimers::make_anchor(CUcontext context) const {
    const Calls& c = calls();
    Anchor made{context, nullptr, Nanoseconds(0)};
    CUstream stream = nullptr;
    if (!c.anchors() || c.create_stream(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return made;
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
        const auto found = activity_->read(static_cast<std::uint64_t>(timer ^ by_cupti), begin, duration);
        return found == profiler::Activity::Found::done ? Reading::done : found == profiler::Activity::Found::lost ? Reading::lost : Reading::pending;
    }
    const Calls& c = calls();
    std::lock_guard reading(reading_);
    Pair p;
    {
        std::lock_guard lock(mutex_);
        if (closed_) return Reading::lost;
        p = pair(timer);
    }
    Reading found = Reading::lost;
    if (p.good && p.context) {
        const Within there(p.context);
        const Anchor& from = anchor(p.context);
        float ms = 0;
        const CUresult state = c.query(p.end);
        if (state == CUDA_ERROR_NOT_READY) return Reading::pending;
        if (state == CUDA_SUCCESS && c.elapsed(&ms, p.begin, p.end) == CUDA_SUCCESS && ms >= 0) {
            duration = Nanoseconds(static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
            if (from.event && c.elapsed(&ms, from.event, p.begin) == CUDA_SUCCESS)
                begin = Nanoseconds(from.at.value + static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
            found = Reading::done;
        }
    }
    forget(timer);
    return found;
}

void OpTimers::enter_thread() {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (const auto exchange = UDNNMEM_REAL(cuThreadExchangeStreamCaptureMode)) exchange(&mode);
}

void OpTimers::context_destroying(CUcontext context) {
    std::lock_guard reading(reading_);
    std::erase_if(anchors_, [&](const Anchor& a) { return a.context == context; });
    std::lock_guard lock(mutex_);
    for (Pair& p : pairs_)
        if (p.context == context) p.context = nullptr, p.good = false;
}

void OpTimers::look() {
    const std::int64_t since = attached_ns_.load();
    if (since && pager::now_ns() - since > settings_.longest_cupti.value) leave_cupti();
}

void OpTimers::leave_cupti() {
    std::call_once(opened_, [] {});   // if it was not opened it never is
    if (!activity_ || over_.exchange(true)) return;
    attached_ns_.store(0);
    // Each is in the driver's submission of one op, which may wait for the device, or for ever.
    for (int ms = 0; inside_.load() > 0 && ms < 1000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    activity_->close(inside_.load() > 0 ? nullptr : +[] {
        CUcontext context;
        calls().current(&context);
    });
}

void OpTimers::close() {
    leave_cupti();
    if (activity_) activity_->forget();
    std::lock_guard reading(reading_);
    std::vector<Pair> pairs;
    {
        std::lock_guard lock(mutex_);
        closed_ = true;
        pairs.swap(pairs_);
        std::vector<std::int32_t>().swap(free_);
    }
    for (const Pair& pair : pairs)
        if (!pair.held) destroy(pair);   // else who holds it does
    for (const Anchor& a : anchors_) {
        if (!a.event) continue;
        const Within there(a.context);
        calls().destroy(a.event);
    }
    anchors_.clear();
}

}  // namespace udnnmem::preload
