// When ops ran, for the recorder, at work only while the run's iteration is being learned: by CUPTI where it can be had, which
// is found out at the first op, else by event pairs around each op on its stream.
//
// start() and stop() are for launching threads, read() for the recorder's consumer; all are thread-safe. None fails
// for the program: an op that cannot be timed is not.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "profiler/cupti/activity.hpp"
#include "profiler/recorder/recorder.hpp"
#include "profiler/trace/units.hpp"

namespace udnnmem::preload {

class OpTimers {
  public:
    static constexpr std::size_t most = 1 << 13;  // pairs at a time

    explicit OpTimers(bool only_events) : only_events_(only_events) {}

    // The op's timer, its begin recorded on the stream; -1: not timed.
    std::int32_t start(CUstream);
    // Its end; `submitted` false: the op was refused, nothing is to be read.
    void stop(std::int32_t timer, CUstream, bool submitted);

    // `begin` is on the clock of pager::now_ns(), within some ten us; -1: nobody can say.
    profiler::Recorder::Reading read(std::int32_t timer, Nanoseconds& begin, Nanoseconds& duration);

    void enter_thread();  // once on the thread that calls read()
    void context_destroying(CUcontext);  // its events go with it
    void leave_cupti();                  // event pairs from now on; while a program runs on, CUPTI costs each of its calls
    void close();                        // no more is timed; all events are destroyed

  private:
    struct Pair {
        CUevent begin = nullptr, end = nullptr;
        CUcontext context = nullptr;
        bool good = false;  // both are recorded
    };
    // An event whose host time is known.
    struct Anchor {
        CUcontext context;
        CUevent event;
        Nanoseconds at;
    };
    const Anchor* anchor(CUcontext context) const;
    Anchor make_anchor(CUcontext context) const;
    static constexpr std::int32_t by_cupti = 1 << 30;   // in a timer's number
    Pair& pair(std::int32_t timer) { return pairs_[static_cast<std::size_t>(timer)]; }

    profiler::Activity* activity();

    const bool only_events_;
    std::once_flag opened_;
    std::unique_ptr<profiler::Activity> activity_;   // fixed once opened, closed by close()
    std::atomic<std::int32_t> next_{0};              // op that CUPTI is told of
    std::atomic<std::int32_t> inside_{0};            // threads between push and pop
    std::atomic<bool> over_{false};                  // CUPTI is called no more
    std::mutex mutex_;
    std::vector<Pair> pairs_;
    std::vector<std::int32_t> free_;  // pairs that nobody uses; those of a context that went are in none
    std::vector<Anchor> anchors_;     // of each context; event null: it cannot have one
    bool closed_ = false;
};

}  // namespace udnnmem::preload
