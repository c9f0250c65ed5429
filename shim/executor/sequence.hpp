// A learned iteration in the form in which the launch path follows it: its steps with the buffers that can be moved, and
// the same as a trace for a planner. What lies in slabs never moves and is left out of both.
//
// Logical buffers are numbered as in `plan_trace.buffers`. Immutable once made.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "profiler/recorder/iteration.hpp"
#include "profiler/trace/trace.hpp"
#include "shim/replay/known.hpp"

namespace udnnmem::pager {
struct Buffer;
}

namespace udnnmem::executor {

struct Sequence {
    // Steps: a training step may be two copies and a few graphs. Ahead of one op alone there is nothing to move for.
    static constexpr std::size_t fewest = 2;

    struct Use {
        std::int32_t buffer;   // logical
        std::uint32_t again;   // steps until it is used next, in this iteration or the next one; 0: never (a transient's last use)
    };
    struct Step {
        const char* name;            // for people
        std::uint64_t shape;         // what makes two ops the same, besides the memory that they name
        std::uint32_t first, count;  // of `uses`, in the order in which the op names them
        std::int32_t stream = 0;     // as plan_trace numbers them
        bool timed = false;          // its duration there was measured in this run
        bool lasting = false;        // all that it names outlives the iteration
    };
    std::int64_t first_op = -1;              // ops of the run before it; -1: it was not learned in this run
    std::vector<Step> steps;
    std::vector<Use> uses;
    std::vector<pager::Buffer*> persistent;  // per logical buffer: which one it is; null for a transient, and where nobody knows yet
    profiler::Trace plan_trace;              // sizes in whole granules
    replay::Program program;                 // all buffers: those of plan_trace, then those of `small`
    struct Small {
        std::vector<profiler::TraceBuffer> buffers;
        std::vector<std::vector<BufferId>> reads, writes;   // by op
    } small;                                 // what lies in slabs, as far as it was seen

    // Whether buffer `i` outlives the iteration.
    bool lasts(std::size_t i) const { return plan_trace.buffers[i].persistent; }
};

// Of ops that come one after the other; lasting: the id of a buffer that outlives them, 0 for others.
class Fingerprint {
  public:
    void op(std::uint64_t shape, std::size_t named) { mix(shape), mix(named); }
    void use(std::uint64_t lasting) { mix(lasting); }
    std::uint64_t value() const { return hash_; }

  private:
    void mix(std::uint64_t v) { hash_ = (hash_ ^ v) * 0x9e3779b97f4a7c15u, hash_ ^= hash_ >> 29; }
    std::uint64_t hash_ = 1;
};

// `find` answers with the managed buffer at an address, null for none. Buffers below `small_below` bytes are in slabs.
// What no op uses is left out. No steps: a persistent buffer is gone already.
Sequence make_sequence(const profiler::Iteration& iteration, std::size_t small_below, std::size_t granule,
                       const std::function<pager::Buffer*(std::uint64_t)>& find);
// Sets what follows from the rest: `again` of every use, `lasting` of every step, and what of the program's lasts.
void complete(Sequence& sequence);

}  // namespace udnnmem::executor
