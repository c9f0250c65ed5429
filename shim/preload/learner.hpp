// Learning a run's iteration: the recorder, the timers of its ops, and where both meet the launch path.
#pragma once

#include <algorithm>

#include "interpose/handlers.hpp"
#include "profiler/recorder/recorder.hpp"
#include "shim/preload/accesses.hpp"
#include "shim/preload/op_timers.hpp"

namespace udnnmem::preload {

struct Learner {
    explicit Learner(std::function<void()> wake) : recorder(settings(std::move(wake))) {}

    // An op that was submitted. `touches` stays the caller's.
    void tell(const char* name, std::uint64_t shape, CUstream stream, const Touches& touches, std::int32_t timer) noexcept {
        profiler::ObservedOp op;
        op.name = name;
        op.shape = shape;
        op.stream = reinterpret_cast<std::uintptr_t>(stream);
        op.timer = timer;
        op.count = static_cast<std::uint32_t>(touches.size());
        const std::size_t within = std::min<std::size_t>(touches.size(), profiler::ObservedOp::inline_touches);
        std::copy_n(touches.begin(), within, op.touches);
        if (touches.size() > within) op.more = new (std::nothrow) Touches(touches.begin() + static_cast<std::ptrdiff_t>(within), touches.end());
        recorder.op(op);
    }

    // On the trace writer's thread: lines for the trace.
    std::string drain(bool last) {
        static thread_local bool ours = false;
        if (!ours) {  // what the driver calls on this thread is nobody's, and another thread's capture is not to be disturbed
            interpose::hold_guard_for_life();
            timers.enter_thread();
            ours = true;
        }
        return recorder.drain(last);
    }

    OpTimers timers;
    profiler::Recorder recorder;

  private:
    profiler::Recorder::Settings settings(std::function<void()> wake) {
        profiler::Recorder::Settings s;
        s.read_timer = [this](std::int32_t timer, Nanoseconds& duration) { return timers.read(timer, duration); };
        s.ended = [this] { timers.close(); };
        s.wake = std::move(wake);
        return s;
    }
};

}  // namespace udnnmem::preload
