#include "shim/preload/learner.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>

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

Learner::Learner(bool keep_lines, bool event_timing, Found found) : timers(event_timing), recorder(settings(std::move(found))), keep_lines_(keep_lines) {}

Learner::~Learner() { stop(); }

profiler::Recorder::Settings Learner::settings(Found found) {
    profiler::Recorder::Settings s;
    s.read_timer = [this](std::int32_t timer, Nanoseconds& begin, Nanoseconds& duration) { return timers.read(timer, begin, duration); };
    s.found = std::move(found);
    s.ended = [this] {
        timers.close();
        profiler::nvtx::stop_listening();
        profiler::math::watch(false);
        if (marks_wanted_ && recorder.marks() == 0) log::warn("UDNNMEM_ITERATION_MARK: no NVTX range of that name began while the iteration was looked for");
    };
    s.rests = [this] { timers.leave_cupti(); };
    s.wake = [this] {
        std::lock_guard lock(mutex_);
        look_now_ = true;
        look_.notify_one();
    };
    return s;
}

void Learner::tell(const char* name, std::uint64_t shape, CUstream stream, const Touches& touches, std::int32_t timer) noexcept {
    profiler::ObservedOp op;
    op.name = name;
    op.range = profiler::nvtx::here();
    const profiler::math::Call call = profiler::math::current();
    op.call = call.name, op.call_number = call.number, op.call_flops = call.flops;
    op.shape = shape;
    op.stream = reinterpret_cast<std::uintptr_t>(stream);
    op.timer = timer;
    op.count = static_cast<std::uint32_t>(touches.size());
    const std::size_t within = std::min<std::size_t>(touches.size(), profiler::ObservedOp::inline_touches);
    std::copy_n(touches.begin(), within, op.touches);
    start();   // somebody has to take what is told, also of a program that only copies
    if (touches.size() > within) op.more = new (std::nothrow) Touches(touches.begin() + static_cast<std::ptrdiff_t>(within), touches.end());
    recorder.op(op);
}

void Learner::start_thread() noexcept try {
    std::lock_guard lock(mutex_);
    if (started_.exchange(true) || stopping_) return;
    thread_ = host::quiet_thread([this] { run(); });
} catch (...) {  // no thread: nothing is learned
}

void Learner::run() {
    // What the driver calls on this thread is nobody's, and another thread's capture is not to be disturbed.
    interpose::hold_guard_for_life();
    timers.enter_thread();
    pthread_setname_np(pthread_self(), "udnnmem-learn");
    while (recorder.on()) {
        {
            std::unique_lock lock(mutex_);
            look_.wait_for(lock, recorder.hears_ops() ? kLook : kGlance, [&] { return look_now_ || stopping_; });
            look_now_ = false;
            if (stopping_) return;
        }
        keep(recorder.drain(false));
    }
}

void Learner::keep(std::string lines) {
    if (!keep_lines_ || lines.empty()) return;
    std::lock_guard lock(mutex_);
    lines_ += lines;
}

std::string Learner::take_lines() {
    std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
}

void Learner::stop() noexcept try {
    {
        std::lock_guard lock(mutex_);
        if (std::exchange(stopping_, true)) return;
        look_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    keep(recorder.drain(true));
} catch (...) {  // no memory: the trace has no iteration
}

}  // namespace udnnmem::preload
