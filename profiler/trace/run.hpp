// What a recorded run says beside its iteration: how it was set up, what was moved, and its figures. The
// preload writes these records (profiler/trace/writer), reports read them (run_record). Plain C++.
//
// Times are nanoseconds of CLOCK_MONOTONIC in the process that wrote them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/trace/units.hpp"

namespace udnnmem::profiler {

using Count = std::int64_t;

// What happened to one buffer, or to nobody's in particular (id -1). The names are those of the file.
#define UDNNMEM_EVENT_KINDS(KIND)                                                  \
    KIND(evict)            /* copied out, frames given back */                     \
    KIND(evict_clean)      /* frames given back, nothing to copy */                \
    KIND(clean)            /* copied out ahead of need, stays where it is */       \
    KIND(drop)             /* frames given back, contents to be computed again */  \
    KIND(replay)           /* computed again */                                    \
    KIND(fetch)            /* brought in */                                        \
    KIND(stall)            /* an op waited; the buffer it waited for */            \
    KIND(served_from_host) /* an op ran with the buffer in host memory */          \
    KIND(deadline)         /* a launch was held back too long and let go */        \
    KIND(over_budget)      /* the budget was exceeded for it */
enum class EventKind : std::uint8_t {
#define KIND(name) name,
    UDNNMEM_EVENT_KINDS(KIND)
#undef KIND
};
inline constexpr const char* event_kind_names[] = {
#define KIND(name) #name,
    UDNNMEM_EVENT_KINDS(KIND)
#undef KIND
};

struct RunEvent {
    EventKind kind = EventKind::evict;
    std::int32_t device = 0;
    BufferId buffer{-1};
    Bytes bytes;             // moved; for a stall the buffer's size
    Nanoseconds start, end;
};

// Who runs, written first.
struct RunHeader {
    std::string name;        // the program's
    std::string version;     // of the library
    std::string host;
    std::int64_t pid = 0;
    std::int64_t started_unix_ns = 0;  // CLOCK_REALTIME
    std::int32_t rank = -1, local_rank = -1, world_size = -1;  // as its launcher says (RANK, LOCAL_RANK, WORLD_SIZE); -1: it does not
};

// How one device is managed.
struct RunConfig {
    std::int32_t device = 0;
    std::string device_name;
    Bytes memory;            // of the device
    Bytes budget, host_budget;
    Bytes granule;
    std::string policy;
    double verify = 0;       // share of moves whose contents are compared
};

// Measured link of one device; 0: not measured.
struct RunLink {
    std::int32_t device = 0;
    double in_bytes_per_second = 0, out_bytes_per_second = 0;            // each alone
    double both_in_bytes_per_second = 0, both_out_bytes_per_second = 0;  // at the same time
    std::vector<std::int64_t> sizes, in_by_size, out_by_size;            // bytes of a copy, and the rates that it reached
};

// The program was told CUDA_ERROR_OUT_OF_MEMORY: who held what.
struct OutOfMemory {
    std::int32_t device = 0;
    Nanoseconds at;
    std::string what;                 // the call or the kernel
    Bytes wanted;                     // by the call that was refused
    Bytes live;                       // what the program had
    Bytes on_device, on_host;         // frames
    Bytes budget, host_budget;
    Bytes enough;                     // a device budget with which it would have fitted, beside that host budget
    std::string largest_op;           // of the ops that were looked at by then; "": none was
    Bytes largest_op_bytes;
    struct Holder {
        BufferId buffer;
        Bytes bytes;
        bool on_host = false;
    };
    std::vector<Holder> largest;      // of the buffers, descending
};

// A sequence of ops that the run was followed through: its iteration, or another one beside it (an evaluation, a last
// batch of another size).
struct RunSequence {
    std::int32_t id = 0;              // in the order in which they were learned
    std::string first;                // the name of its first op
    Count ops = 0;
    Count turns = 0;                  // times that the run came to it from elsewhere
    Count iterations = 0, planned_iterations = 0;   // followed from end to end; of those, by a plan
    Count given_up = 0;               // plans that measured worse than what came before them
    Bytes peak_promised, peak;        // of device memory for what can be moved, by the plan in force: as promised, and the most in an iteration
    Nanoseconds ideal, promised, planned, demand;   // of an iteration: with all memory; by the plan in force, promised and measured; on demand. 0: none
    std::int64_t first_op = -1;       // ops of the run before the iteration that it was learned from: its `learned` record. -1: it has none
    std::string no_plan;              // why none can be carried out; empty: one can, or it was not tried
};

// So many ops of one kernel (or copy) that may not be run again, and why.
struct NotReplayable {
    std::string kernel, why;
    Count ops = 0;
};

// So many times the run did `seen` where a sequence has `expected`.
struct Misprediction {
    std::string expected, seen;
    Count times = 0;
};

// A plan that was changed by what was measured of the one before it.
struct Adaptation {
    std::int32_t sequence = 0;
    std::string change;
    Nanoseconds before, promised, measured;   // of an iteration; measured 0: it was not yet
    bool kept = false;
};

// A step of a sequence, as it was planned and as it was, by the plan in force at the end.
struct RunStep {
    std::int32_t sequence = 0, index = 0;
    std::string name;
    Nanoseconds planned_start, start{-1};     // since the iteration's begin; -1: not known
    Nanoseconds planned, took{-1};
    Nanoseconds held;                         // the launching thread waited for memory, in all ...
    Count held_times = 0;                     // ... and so often
    std::int32_t cause = -1;                  // as a rule: index into held_causes; -1: none
    BufferId buffer{-1};                      // the last that was waited for, as the events have it
};
inline constexpr const char* held_causes[] = {"room for a new buffer", "a buffer that nobody had asked for", "a buffer on its way out", "a buffer on its way in"};

// The shortest that each op of a sequence was ever seen to take: as near as a run comes to its times with everything resident.
struct RunTimes {
    std::int64_t first_op = -1;               // RunSequence's
    std::vector<std::int64_t> ops;            // ns
};

// The figures of a run so far, all devices together.
struct RunSummary {
#define FIGURE(type, name) type name{};
#include "profiler/trace/run_record.def"
#undef FIGURE
    bool operator==(const RunSummary&) const = default;
};

}  // namespace udnnmem::profiler
