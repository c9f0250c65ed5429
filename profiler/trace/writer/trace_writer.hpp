// The preload's trace file: events and figures of a run, written by a background thread and never in the
// way of the program. JSON Lines, zstd if the name ends in ".zst".
//
// Invariants
//   - Nothing is written, and no thread exists, before start(); the file is made by the thread.
//   - An existing file is never touched. What cannot be written (folder missing, disk full, file limit)
//     costs the trace and one warning line, never the run.
//   - What was said at least a second ago is in the file, whole lines: a killed process loses no more.
//   - Time and space are bounded: a full queue or a full file drops events and counts them; further lines
//     (iterations, refusals, shortest times), what is told at the end, and the last summary, are written all the same.
//   - In a forked child every call does nothing. No method throws.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "profiler/trace/run.hpp"

namespace udnnmem::profiler {

class TraceWriter {
  public:
    struct Settings {
        std::string path;                                // expanded
        bool numbered = false;                           // where it exists when the writer is made, a number comes into its name
        RunHeader header;
        std::function<void(const char* message)> warn;   // called at most once, from the writer's thread
        std::function<RunSummary()> figures;             // called from the writer's thread about twice a second and at
                                                         // the end; written when more than their time changed. May be empty
        std::function<std::string(bool last)> more;      // likewise, each time that the thread looks: further whole lines. May be empty
        Bytes longest{std::int64_t{256} << 20};          // of the file; further lines have a quarter more, what is told at the end comes on top
        std::size_t queue = 1 << 14;                     // events; a power of two
        Nanoseconds patience{5'000'000'000};             // how long close() waits for a disk that hangs
    };

    // Takes memory for the queue (56 bytes an event), nothing else: make it when the program has made a context.
    explicit TraceWriter(Settings settings);
    ~TraceWriter();  // close()
    TraceWriter(const TraceWriter&) = delete;
    TraceWriter& operator=(const TraceWriter&) = delete;

    // Begins to write, once; later calls cost one load. Called at the first launch. Thread-safe.
    void start() noexcept;

    // Each may be called before start(), from any thread. event() takes no lock and makes no system call
    // (one wake-up each quarter of the queue).
    void event(const RunEvent& event) noexcept;
    void config(const RunConfig& config) noexcept;
    void link(const RunLink& link) noexcept;

    // The thread looks soon. Thread-safe.
    void wake() noexcept;

    // Writes what is queued and the last figures, ends the file, ends the thread. Then every call does nothing.
    // Bounded by `patience`. Not from two threads at once.
    void close() noexcept;

    // Whether it looked as if the file could be made when the writer was.
    bool promising() const noexcept;
    // After close(): whether a file was made and everything is in it.
    bool complete() const noexcept;
    const std::string& path() const noexcept;

  private:
    struct State;
    std::shared_ptr<State> state_;  // shared with the thread, which may outlive a close() that ran out of patience
};

}  // namespace udnnmem::profiler
