// A draft is a plan before its details: for every gap of every buffer, whether it stays, goes to the host,
// or is dropped and replayed. The Drafter turns a draft into a plan in one walk over the ops: it places
// evictions and drops at the gaps' starts, works out the replay chains, and gives every fetch the earliest
// (or the latest sufficient) moment at which it fits.
//
// Invariants: gaps of a buffer are consecutive, in order of their first op, a persistent buffer's gap
// across the iteration's end last; `usage` counts what the plan holds at each op once copies have ended,
// so a plan whose usage nowhere exceeds the memory never gets stuck: it can only be slow.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/compiled.hpp"
#include "policy/engine.hpp"

namespace udnnmem::policy::udnn {

enum Mode : std::uint8_t { keep, swap, drop };

struct Gap {
    std::int32_t buffer;
    std::int32_t from, to;      // the uses at both ends; `to` is of the next iteration where `wraps`, and the op after which it is freed plus one where `tail`
    std::int32_t last_write;    // the last op at or before `from` that dirties the buffer; beyond `from`: of the previous iteration; -1: none
    bool wraps;
    bool open;                  // at least one op lies strictly inside: it may be left
    bool droppable;
    bool tail;                  // nothing comes after it: it costs a copy out at most
    std::int64_t bytes;
    std::int64_t replay;        // ns of replay alone, with every live input at hand
};

// All that planners ask of a trace beyond its flat form. Shared by drafts; never changed.
struct Gaps {
    // Gaps of the smallest buffers, as many as make up `negligible` bytes, are not open: they are not worth a thought.
    // `tails`: see PlannerOptions.
    Gaps(const CompiledTrace& trace, bool recompute, bool tails, std::int64_t negligible);
    const CompiledTrace& trace;
    std::vector<Gap> all;
    std::vector<std::int32_t> begin;    // per buffer: its first gap
    Csr<std::int32_t> inputs;           // per gap: the gaps of live buffers that its replay reads, if droppable
    Csr<std::int32_t> replayed;         // per gap: the ops that its replay runs
    std::vector<std::int32_t> slot;     // per access (as CompiledTrace::access.data): the gap that begins there; -1
    std::vector<std::int32_t> writer;   // per access: the last op before it that writes the buffer; -1
};

struct Draft {
    std::vector<std::uint8_t> mode;     // per gap
    std::vector<std::uint8_t> retain;   // per gap: a replay that recreates (or fetches) the buffer on its way keeps it for its next use
    std::vector<std::uint8_t> early;    // per gap: copied out after its last write already
    double lead = -1;                   // fetches start this many ns before they must; negative: as early as they fit
};

class Drafter {
public:
    Drafter(const Gaps& gaps, const Machine& machine);

    // What usage counts of a fetched buffer: from the op that wants it on, or from where the fetch is placed;
    // only with the latter is the plan written.
    enum class Count { ends, placed };

    // Fills usage, excess, and (placed) plan. Drafts whose chains break a rule are repaired: such gaps become `keep`.
    void build(Draft& draft, Count count = Count::placed);

    CompiledPlan plan;
    std::vector<std::int64_t> usage;    // per op: most bytes held between the end of the op before and its own
    std::int64_t excess = 0;            // sum over ops of usage beyond the memory
    std::int64_t in_bytes = 0, recompute = 0;
    std::vector<std::int32_t> restored; // per gap left: the op before whose replay its buffer came back already; -1
    std::vector<std::int64_t> start;    // per op: when it is expected to start (ns); set from a simulation
    void expect_ideal();

private:
    struct Fetch { std::int32_t buffer, from, to; bool wraps; };
    struct Event { std::int32_t op, buffer, gap; Do what; bool copies; };
    void chain_for(std::int32_t buffer, std::int32_t writer, std::int32_t op);
    bool replay_before(std::int32_t op, Draft& draft);
    void deadlines();
    void place(const Draft& draft);
    bool early_copy(const Draft& draft, std::int32_t gap) const;
    void emit(const Draft& draft);
    void fetch(std::int32_t buffer, std::int32_t op);

    const Gaps& gaps_;
    const CompiledTrace& trace_;
    Machine machine_;
    ReplayCompiler replays_;
    enum Where : std::uint8_t { nowhere, here, off, dropped };
    std::vector<std::uint8_t> where_;
    std::vector<std::int32_t> since_, event_, gap_now_;  // per buffer
    std::vector<std::int64_t> in_time_;
    std::vector<std::uint8_t> dirty_;
    std::vector<std::int64_t> op_stamp_;
    std::int64_t stamp_ = 0;
    std::vector<std::int32_t> chain_, stack_, made_, seeds_, passing_;
    std::vector<Fetch> fetches_;
    std::vector<std::int32_t> trigger_;
    std::vector<std::int64_t> latest_;
    std::vector<Event> events_;
    std::vector<std::int32_t> cursor_;
    std::int64_t held_ = 0;
    bool failed_ = false;
};

}  // namespace udnnmem::policy::udnn
