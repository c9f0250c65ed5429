// Learning a run's iteration: the recorder, the timers of its ops, the thread that looks for the iteration, and where all
// of it meets the launch path.
//
// The thread lives from start() until the recorder has ended, or stop(); what fails on it ends the learning, never the program. Lines for the trace wait in take_lines().
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "profiler/recorder/recorder.hpp"
#include "shim/preload/accesses.hpp"
#include "shim/preload/op_timers.hpp"

namespace udnnmem::preload {

// A stream for the recorder: those without a handle of their own are their context's, which is current.
std::uint64_t stream_number(CUstream stream) noexcept;

class Learner {
  public:
    using Found = std::function<void(const profiler::Iteration&)>;
    // `keep_lines`: somebody takes them. `spare`: as the recorder's.
    Learner(bool keep_lines, OpTimers::Settings timing, Found found, std::function<bool()> spare = {});
    ~Learner();   // stop()

    // From the first launch on, or the first op that is told. Later calls cost one load. Nothing throws.
    void start() noexcept {
        if (!started_.load(std::memory_order_relaxed)) [[unlikely]] start_thread();
    }
    // An op that was submitted. `touches` stays the caller's.
    // `blocking`: the call returned once it had completed.
    void tell(const char* name, std::uint64_t shape, CUstream stream, bool blocking, const Touches& touches, std::int32_t timer) noexcept;
    // The largest op so far, the last ones too if they are looked at within 100 ms. Of an allocation that is refused: no hurry.
    profiler::Recorder::LargestOp largest_op() noexcept;
    // What the trace file gets; empty as a rule.
    std::string take_lines();
    // A mark was asked for: whether one was seen is said when learning ends.
    void expect_marks() noexcept { marks_wanted_ = true; }
    // The program is ending: what was found is in take_lines(). Bounded by `patience`: where the thread hangs in the driver, as
    // the device does, nothing more is said, and the thread needs this for ever.
    void stop() noexcept;
    std::chrono::milliseconds patience{5000};

    OpTimers timers;
    profiler::Recorder recorder;

  private:
    profiler::Recorder::Settings settings(Found found, std::function<bool()> spare);
    void start_thread() noexcept;
    void run() noexcept;
    void keep(std::string lines);

    bool marks_wanted_ = false;
    const bool keep_lines_;
    std::atomic<bool> started_{false};
    std::mutex mutex_;
    std::condition_variable look_;
    bool look_now_ = false, stopping_ = false, finished_ = false;   // under mutex_, as lines_
    std::string lines_;
    std::thread thread_;
};

}  // namespace udnnmem::preload
