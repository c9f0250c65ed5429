// Event pairs around ops, for the recorder: how long each took on its stream. At work only while the run's iteration
// is being learned.
//
// start() and stop() are for launching threads, read() for the recorder's consumer; all are thread-safe. None fails
// for the program: an op that cannot be timed is not.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "profiler/recorder/recorder.hpp"
#include "profiler/trace/units.hpp"

namespace udnnmem::preload {

class OpTimers {
  public:
    static constexpr std::size_t most = 1 << 13;  // pairs at a time

    // The op's timer, its begin recorded on the stream; -1: not timed.
    std::int32_t start(CUstream);
    // Its end; `submitted` false: the op was refused, nothing is to be read.
    void stop(std::int32_t timer, CUstream, bool submitted);

    // `begin` is on the clock of pager::now_ns(), within some ten us; -1: nobody can say.
    profiler::Recorder::Reading read(std::int32_t timer, Nanoseconds& begin, Nanoseconds& duration);

    void enter_thread();  // once on the thread that calls read()
    void context_destroying(CUcontext);  // its events go with it
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
    Pair& pair(std::int32_t timer) { return pairs_[static_cast<std::size_t>(timer)]; }

    std::mutex mutex_;
    std::vector<Pair> pairs_;
    std::vector<std::int32_t> free_;  // pairs that nobody uses; those of a context that went are in none
    std::vector<Anchor> anchors_;     // of each context; event null: it cannot have one
    bool closed_ = false;
};

}  // namespace udnnmem::preload
