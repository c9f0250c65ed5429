#include "shim/preload/learner.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "interpose/driver.hpp"
#include "interpose/handlers.hpp"
#include "profiler/math/calls.hpp"
#include "profiler/nvtx/ranges.hpp"
#include "shim/host/quiet_thread.hpp"
#include "shim/log/log.hpp"

namespace udnnmem::preload {
namespace {
constexpr std::chrono::milliseconds kLook(5);    // how long an iteration may go unnoticed
constexpr std::chrono::milliseconds kGlance(100);  // while no ops are told
}

std::uint64_t stream_number(CUstream stream) noexcept {
    const auto handle = reinterpret_cast<std::uintptr_t>(stream);
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) return handle;
    CUcontext context = nullptr;
    if (static const auto ask = UDNNMEM_REAL(cuCtxGetCurrent); ask) ask(&context);
    return reinterpret_cast<std::uintptr_t>(context) * 4 + handle;   // above all handles
}

Learner::Learner(bool keep_lines, OpTimers::Settings timing, Found found, std::function<bool()> spare) : timers(timing), recorder(settings(std::move(found), std::move(spare))), keep_lines_(keep_lines) {}

Learner::~Learner() { stop(); }

profiler::Recorder::Settings Learner::settings(Found found, std::function<bool()> spare) {
    profiler::Recorder::Settings s;
    s.spare = std::move(spare);
    s.chance = leads_by_chance;
    s.read_timer = [this](std::int32_t timer, Nanoseconds& begin, Nanoseconds& duration) { return timers.read(timer, begin, duration); };
    // Longer iterations are timed by events: what CUPTI costs is not for them to pay.
    s.found = [this, tell = std::move(found)](const profiler::Iteration& iteration) {
        if (tell) tell(iteration);
        timers.leave_cupti();
    };
    s.ended = [this] {
        timers.close();
        profiler::nvtx::stop_listening();
        profiler::math::watch(false);
        if (marks_wanted_ && recorder.marks() == 0) log::warn("UDNNMEM_ITERATION_MARK: no NVTX range of that name began while the iteration was looked for");
    };
    s.rests = [this] { timers.leave_cupti(); };
    s.timed_by = [this] { return timers.timed_by(); };
    s.wake = [this] {
        std::lock_guard lock(mutex_);
        look_now_ = true;
        look_.notify_one();
    };
    return s;
}

void Learner::tell(const char* name, std::uint64_t shape, CUstream stream, bool blocking, const Touches& touches, std::int32_t timer) noexcept {
    profiler::ObservedOp op;
    op.name = name;
    op.range = profiler::nvtx::here();
    const profiler::math::Call call = profiler::math::current();
    op.call = call.name, op.call_number = call.number, op.call_flops = call.flops;
    op.shape = shape;
    op.stream = stream_number(stream);
    op.blocking = blocking;
    op.timer = timer;
    op.count = static_cast<std::uint32_t>(touches.size());
    const std::size_t within = std::min<std::size_t>(touches.size(), profiler::ObservedOp::inline_touches);
    std::copy_n(touches.begin(), within, op.touches);
    start();   // somebody has to take what is told, also of a program that only copies
    try {
        if (touches.size() > within) op.more = new Touches(touches.begin() + static_cast<std::ptrdiff_t>(within), touches.end());
    } catch (const std::bad_alloc&) {
        recorder.missed();
        return timers.forget(timer);
    }
    if (!recorder.op(op)) timers.forget(timer);
}

void Learner::start_thread() noexcept try {
    std::lock_guard lock(mutex_);
    if (started_.exchange(true) || stopping_) return;
    thread_ = host::quiet_thread([this] { run(); });
} catch (...) {
    log::warn("no thread to learn the iteration: this run goes on demand");
    recorder.end();   // else lives are noted for nobody
}

void Learner::run() noexcept {
    // What the driver calls on this thread is nobody's, and another thread's capture is not to be disturbed.
    interpose::hold_guard_for_life();
    timers.enter_thread();
    pthread_setname_np(pthread_self(), "udnnmem-learn");
    try {
        while (recorder.on()) {
            {
                std::unique_lock lock(mutex_);
                look_.wait_for(lock, recorder.hears_ops() ? kLook : kGlance, [&] { return look_now_ || stopping_; });
                look_now_ = false;
                if (stopping_) break;
            }
            keep(recorder.drain(false));
            timers.look();
        }
    } catch (...) {
        log::warn("learning the iteration ends early, for want of memory");
        recorder.end();
    }
    if (!recorder.on()) recorder.end();   // it may have stopped for want of memory
    std::lock_guard lock(mutex_);
    finished_ = true;
    look_.notify_all();
}

void Learner::keep(std::string lines) {
    if (!keep_lines_ || lines.empty()) return;
    std::lock_guard lock(mutex_);
    lines_ += lines;
}

profiler::Recorder::LargestOp Learner::largest_op() noexcept try {
    for (int ms = 0; !recorder.caught_up() && ms < 100; ++ms) {
        {
            std::lock_guard lock(mutex_);
            if (!started_.load() || finished_) break;
            look_now_ = true;
            look_.notify_one();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return recorder.largest_op();
} catch (...) {
    return {};
}

std::string Learner::take_lines() {
    std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
}

void Learner::stop() noexcept try {
    {
        std::unique_lock lock(mutex_);
        if (std::exchange(stopping_, true)) return;
        look_.notify_all();
        if (thread_.joinable() && !look_.wait_for(lock, patience, [&] { return finished_; })) return thread_.detach();
    }
    if (thread_.joinable()) thread_.join();
    keep(recorder.drain(true));
} catch (...) {  // no memory: the trace has no iteration
    recorder.end();
}

}  // namespace udnnmem::preload
