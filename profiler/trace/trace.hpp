// The data model of one training iteration: its buffers, its ops in execution order, their access
// sets and their times. What the recorder writes, what planners and reports read. Plain C++, no CUDA.
//
// Invariants (checked by validate(), guaranteed by read_trace()):
//   buffers[i].id == i; ops[k].index == k; every id that an op names exists;
//   waits and host_waited are ops that exist;
//   alloc_op <= every op that names the buffer <= free_op, for transient buffers that state them;
//   sizes and times are not negative.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/trace/units.hpp"

namespace udnnmem::profiler {

enum class Phase : std::uint8_t { unknown, forward, backward, update };

struct TraceBuffer {
    BufferId id;
    Bytes bytes;
    bool persistent = false;  // exists before and after the iteration: weights, optimiser state
    OpIndex alloc_op{-1};     // transient: frames are held from the start of this op ... (-1: the first op that names it)
    OpIndex free_op{-1};      // ... to the end of this one (-1: the last op that names it)
    std::string label;
    std::int32_t run_id = -1; // what the events of its run call it; a transient one's only in the iteration that was watched. -1: none
};

struct TraceOp {
    OpIndex index;
    std::string name;
    Phase phase = Phase::unknown;
    std::int32_t stream = 0;
    Nanoseconds duration;          // execution time with everything resident
    std::vector<BufferId> reads;   // ascending, without repeats; an in-place update is in both
    std::vector<BufferId> writes;
    std::vector<BufferId> intact;  // of `writes`: seen to be left as they were, which is not proven: copies of them stay good, versions end. Of a run's own plans, not in files
    Bytes workspace;               // scratch needed while the op runs
    bool replayable = false;       // the same inputs give the same bytes; costs `duration`
    Bytes replay_workspace;        // scratch beside that when it is run again: copies of inputs. Of a run's own plans, not in files
    double flops = 0;              // 0: unknown
    Nanoseconds start{-1};         // when it began in the run, on the clock of its events; -1: not known
    std::vector<OpIndex> waits;    // of other streams, that it was made to wait for: ascending. One that is not before it is of the iteration before
    OpIndex host_waited{-1};       // the host had waited for that op before it submitted this one, and not yet before the last; likewise. -1: for none
    std::string call;              // of a mathematics library that submitted it, "cublasSgemm_v2"; "": none
    std::string range;             // the program's NVTX ranges around its launch, outermost first, "step/forward"; "": none
};

struct TraceHeader {
    std::string name;
    std::string origin;
    std::string device;
    std::int64_t batch = 0;   // 0: unknown
    Bytes memory;             // of the device it was recorded on; 0: unknown
    Nanoseconds ideal;        // 0: take the sum of the durations
    std::string timed_by;     // what measured them, "CUPTI"; "": not said
};

struct Trace {
    TraceHeader header;
    std::vector<TraceBuffer> buffers;
    std::vector<TraceOp> ops;
    std::int64_t damaged = 0; // line from which on its file could not be read; 0: all of it could
    std::string damage;       // what is wrong in that line, where it is a record: "op.reads: must be a list, is 3"
};

}  // namespace udnnmem::profiler
