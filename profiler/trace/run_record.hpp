// Reading what a run recorded (run.hpp): its set-up, its figures, and its moves summed by buffer and by
// kind. A trace of an iteration in the same file (or alone) is read with it.
//
// A file that was cut short by a crash is read to its last whole line; its last figures are then those
// of at most a second before. One with a damaged line, or with a record that is not as it must be, is read up to it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "profiler/trace/error.hpp"
#include "profiler/trace/run.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::profiler {

// One buffer's moves.
struct BufferMoves {
    std::int32_t device = 0;
    BufferId buffer;
    Bytes bytes;                 // largest move, which is its size
    std::array<Count, std::size(event_kind_names)> events{};  // by EventKind
    Bytes in, out;
    Nanoseconds stall;
};

struct RunRecord {
    std::string path;
    RunHeader header;                 // name from the program; version "" where the file is a bare iteration trace
    std::vector<RunConfig> configs;   // by device, ascending; the last of each
    std::vector<RunLink> links;       // likewise
    std::vector<std::int32_t> remeasured;  // devices whose link was told more than once: the last by the run's own moves, as it ends
    RunSummary summary;
    bool has_summary = false;
    std::int64_t damaged = 0;         // line from which on the file could not be read; 0: all of it could
    bool cut_short = false;           // ... because the file ends within it
    std::string damage;               // ... because of this, where it is a record: "event.bytes: must be a whole number, is 1.5"
    bool ended = false;               // the program came to its end; false: killed, or still running
    Count events_dropped = 0;
    std::array<Count, std::size(event_kind_names)> events{};  // by EventKind, all buffers
    std::vector<RunEvent> moves;       // every event, in the order of the file
    std::vector<OutOfMemory> refusals;
    std::vector<RunSequence> sequences;           // that it was followed through, as they were learned
    std::vector<Adaptation> adaptations;          // in their order
    std::vector<RunStep> steps;                   // of a sequence one after the other
    std::vector<NotReplayable> not_replayable;               // most frequent first
    std::vector<Misprediction> mispredictions;    // most frequent first
    std::vector<BufferMoves> buffers;  // those that moved, most bytes moved first
    Trace iteration;                  // no ops: none was recorded
    Count searched = 0;               // ops among which no iteration was found; 0: one was, or none was looked for
};

// Error: one line that names file, line, field and rule, where nothing can be told but that: the header is wrong, or a record
// that comes before there is anything to report. Thread-safe.
Expected<RunRecord> read_run(const std::string& path);

// The same for text in memory; `name` stands for the file in errors.
Expected<RunRecord> parse_run(const std::string& name, std::string_view text);

// Largest sum over the ops of an iteration of persistent buffers, live transient ones and workspace.
Bytes peak_live(const Trace& iteration);

}  // namespace udnnmem::profiler
