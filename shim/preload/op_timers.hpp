// When ops ran, for the recorder, at work only while the run's iteration is being learned: by CUPTI where it can be had, which
// is found out at the first op, until one was told, else by event pairs around each op on its stream.
//
// start() and stop() are for launching threads, read() for the recorder's consumer; all are thread-safe. None fails
// for the program: an op that cannot be timed is not.
//
// Invariants
//   - No launching thread is in the driver with `mutex_`: recording an event waits for room on its stream, perhaps until another
//     thread has launched what makes some.
//   - A context stays while read() and close() are in the driver with what is of it: context_destroying() waits for them.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "profiler/cupti/activity.hpp"
#include "profiler/recorder/recorder.hpp"
#include "profiler/trace/units.hpp"

namespace udnnmem::preload {

class OpTimers {
  public:
    static constexpr std::size_t most = 1 << 13;  // pairs at a time

    struct Settings {
        bool only_events = false;
        bool quiet = false;                         // nobody is told that it is not CUPTI
        Nanoseconds longest_cupti{2'000'000'000};   // CUPTI costs each call of the program's, found or not found
        void (*cupti_opened)() = nullptr;           // its own end at exit comes before those of who was there earlier
    };
    explicit OpTimers(Settings settings) : settings_(settings) {}

    // The op's timer, its begin recorded on the stream; -1: not timed. `many`: it is many pieces of work on the device.
    std::int32_t start(CUstream, bool many = false);
    // Its end; `submitted` false: the op was refused, nothing is to be read.
    void stop(std::int32_t timer, CUstream, bool submitted);

    // `begin` is on the clock of pager::now_ns(), within some ten us; -1: nobody can say.
    profiler::Recorder::Reading read(std::int32_t timer, Nanoseconds& begin, Nanoseconds& duration);

    // What times ops: "CUPTI", or "event pairs (why)"; empty before the first.
    std::string timed_by() const;
    void enter_thread();  // once on the thread that calls read()
    void forget(std::int32_t timer);     // nobody will read it
    void context_destroying(CUcontext);  // its events go with it; to be called until close() too
    void look();                         // now and then from the thread that calls read(): leaves CUPTI when it is time
    void leave_cupti();                  // event pairs from now on
    void close();                        // no more is timed; all events are destroyed

  private:
    struct Pair {
        CUevent begin = nullptr, end = nullptr;
        CUcontext context = nullptr;
        bool good = false;  // both are recorded
        bool held = false;  // a launching thread is in the driver with it
    };
    // An event whose host time is known.
    struct Anchor {
        CUcontext context;
        CUevent event;
        Nanoseconds at;
    };
    const Anchor& anchor(CUcontext context);
    Anchor make_anchor(CUcontext context) const;
    static constexpr std::int32_t by_cupti = 1 << 30;   // in a timer's number, with the op's
    static constexpr int stream_bits = 30 - profiler::Activity::number_bits;
    Pair& pair(std::int32_t timer) { return pairs_[static_cast<std::size_t>(timer)]; }

    std::int32_t take(Pair& mine);
    bool give_back(std::int32_t timer, const Pair& mine, bool good);
    static void destroy(const Pair&);

    profiler::Activity* activity();

    const Settings settings_;
    std::once_flag opened_;
    std::string why_events_;                         // fixed once told_
    std::atomic<bool> told_{false}, many_{false};    // activity() was asked; something was timed that is many pieces of work
    std::unique_ptr<profiler::Activity> activity_;   // fixed once opened, closed by close()
    std::atomic<std::int64_t> attached_ns_{0};       // since when it is; 0: it is not, or not yet
    std::atomic<std::uint32_t> next_{0};             // op that CUPTI is told of
    std::atomic<std::int32_t> inside_{0};            // threads between push and pop
    std::atomic<bool> over_{false};                  // CUPTI is called no more
    std::mutex reading_;              // before mutex_
    std::vector<Anchor> anchors_;     // under it, of each context; event null: it cannot have one
    std::mutex mutex_;                // all that follows
    std::vector<Pair> pairs_;
    std::vector<std::int32_t> free_;  // pairs that nobody uses; of no context: one without events
    bool closed_ = false;
};

}  // namespace udnnmem::preload
