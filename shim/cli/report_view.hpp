// One iteration of a run laid out in time, for the reports that draw: where each op and each buffer lies, what moved, who was
// away when, and how long buffers lay idle.
//
// Observed: the run's own times, so that its moves lie beside its ops. Otherwise the ops follow each other without a pause.
// Times are from the first op's start. Idle times are always those of the ops without pauses: what a planner has to work with.
#pragma once

#include <vector>

#include "profiler/trace/run_record.hpp"

namespace udnnmem::cli {

struct IterationView {
    bool observed = false;
    Nanoseconds origin;                       // observed: the run's clock at time 0
    Nanoseconds length;                       // to the end of the last op
    Nanoseconds ideal;                        // sum of the durations
    std::vector<Nanoseconds> start;           // of each op
    std::vector<Bytes> live;                  // at each op: persistent, live transient, workspace
    std::int32_t peak_op = -1;                // the first at which `live` is largest
    profiler::Count streams = 0, stream_waits = 0, host_waits = 0;   // and how often the program made one stream wait for another, or waited itself

    struct Life {
        std::int32_t first = -1, last = -1;   // ops between which it is live; -1: no op names it
        Bytes place;                          // lowest offset at which it overlaps no other in bytes and time
        std::int32_t accesses = 0;            // ops that name it
        Nanoseconds idle;                     // while it was live and no op used it; persistent ones around the iteration's end
        std::int32_t gap_after = -1, gap_before = -1;  // ops around the longest such stretch ...
        Nanoseconds gap;                      // ... and its length
        profiler::Count evictions = 0, fetches = 0;     // of the moves below
    };
    std::vector<Life> lives;                  // of each buffer
    Bytes placed;                             // the highest end of a place

    // What happened to the iteration's buffers while it ran. Observed only.
    struct Move {
        profiler::EventKind kind;
        std::int32_t buffer;                  // -1: no buffer of the iteration
        Bytes bytes;
        Nanoseconds start, end;               // cut to the iteration
    };
    std::vector<Move> moves;                  // by start
    struct Away {
        std::int32_t buffer;
        Nanoseconds from, to;                 // its frames were not on the device
        bool dropped = false;                 // nor anywhere else
    };
    std::vector<Away> away;                   // by buffer, then time

    // The first op that names the buffer and starts at or after `at`; -1: none does.
    std::int32_t next_use(std::int32_t buffer, Nanoseconds at) const;
    // The last one that starts before it.
    std::int32_t last_use(std::int32_t buffer, Nanoseconds at) const;
    std::vector<std::vector<std::int32_t>> uses;  // ops that name each buffer, ascending
};

// Of run.iteration; empty for a run without one. `run` is needed no longer.
IterationView view_of(const profiler::RunRecord& run);

}  // namespace udnnmem::cli
