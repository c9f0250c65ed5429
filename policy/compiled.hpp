// Flat forms of a trace and of a plan, made once and walked many times: local search judges tens of
// thousands of plans for one trace, so the simulator allocates nothing and follows no pointer per op.
//
// Invariants: every list is ascending in op (or buffer); `Csr::begin` has one entry more than there are
// rows; a transient buffer that no op names and that states no alloc_op is left out (holds nothing).
// Nothing here is changed by a simulation, so one CompiledTrace may serve several threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policy/plan.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

// Rows of varying length in one array.
template <class T>
struct Csr {
    std::vector<std::int32_t> begin{0};
    std::vector<T> data;
    void clear() { begin.resize(1); data.clear(); }
    void push(const T& value) { data.push_back(value); }
    void end_row() { begin.push_back(static_cast<std::int32_t>(data.size())); }
    std::span<const T> operator[](std::size_t row) const {
        return {data.data() + begin[row], data.data() + begin[row + 1]};
    }
    std::size_t rows() const { return begin.size() - 1; }
};

// One op's use of one buffer. Neither flag: it has to be there for an op that comes up (CompiledTrace, `ahead`).
struct Access {
    static constexpr std::uint8_t read = 1, write = 2, intact = 4;
    std::int32_t buffer;
    std::uint8_t flags;
    bool reads() const { return flags & read; }
    bool writes() const { return flags & write; }
    bool dirties() const { return (flags & (write | intact)) == write; }   // copies of the buffer are stale after it
};

// One buffer's use by one op. (Named apart from the player's: one name, two layouts is what no linker warns of.)
struct FlatUse {
    std::int32_t op;
    std::int32_t writer;    // the last op up to this one that writes the buffer; -1: none
    std::uint8_t flags;
    bool reads() const { return flags & Access::read; }
    bool writes() const { return flags & Access::write; }
    bool dirties() const { return (flags & (Access::write | Access::intact)) == Access::write; }
};

struct CompiledTrace {
    // `ahead`: as a machine with such a lookahead holds memory, written as a trace for one without: what an op names has to be
    // there, and its transients and workspace are held, from the start of the op so many before it (none before the first).
    explicit CompiledTrace(const profiler::Trace& trace, int ahead = 0);

    std::int32_t ops = 0, buffers = 0;
    std::vector<std::int64_t> duration, workspace;  // per op: ns, bytes
    std::vector<std::uint8_t> replayable;           // per op
    std::vector<std::int64_t> replay_workspace;     // per op: bytes of inputs that are copied first when it is run again
    Csr<Access> access;                             // per op, ascending buffer
    Csr<std::int32_t> alloc, free;                  // per op: transients whose frames it takes first / gives back
    std::vector<std::int64_t> alloc_bytes;          // per op
    std::vector<std::int64_t> bytes;                // per buffer
    std::vector<std::uint8_t> persistent;           // per buffer
    Csr<FlatUse> uses;                                  // per buffer, ascending op
    std::vector<std::int32_t> first, last;          // per buffer: ops between which a transient is live; -1: never
    std::vector<std::int64_t> live;                 // per op: bytes held with everything resident, workspace included
    std::int64_t ideal = 0;                         // ns
    std::int64_t peak_live = 0;                     // bytes
    std::int64_t persistent_bytes = 0;

    // The last op before `op` that writes `buffer`; -1: none in this iteration.
    std::int32_t writer_before(std::int32_t buffer, std::int32_t op) const;
};

// One op of a replay chain, with what it needs and takes worked out.
struct ReplayStep {
    std::int32_t op;
    std::int32_t need_begin, need_end;    // buffers that must be resident (CompiledPlan::need)
    std::int32_t make_begin, make_end;    // recreated buffers that take frames here (CompiledPlan::made)
    std::int64_t take, give;              // bytes taken at its start, given back at its end; both count workspace
};

struct FlatChain {
    std::int32_t before_op;
    std::int32_t step_begin, step_end;
    std::int32_t made_begin, made_end;    // all recreated buffers, in order of their steps
    std::int64_t made_bytes;
};

struct PlannedAction {
    Do what;
    std::int32_t buffer;
};

struct CompiledPlan {
    std::vector<std::int32_t> start_evicted;
    Csr<PlannedAction> actions;           // row k + 1: after op k
    std::vector<FlatChain> chains;      // ascending before_op, then plan order
    std::vector<ReplayStep> steps;
    std::vector<std::int32_t> need, made;
    void clear();
};

// Works out the frames of replay chains; keeps scratch arrays between calls, so one a thread.
class ReplayCompiler {
public:
    explicit ReplayCompiler(const CompiledTrace& trace);
    // Appends the chain to `plan`. False with a one-line reason in `error` (if not null) where it breaks a rule.
    bool add(CompiledPlan& plan, std::int32_t before_op, std::span<const std::int32_t> ops,
             std::span<const std::int32_t> buffers, std::string* error);

private:
    const CompiledTrace& trace_;
    std::vector<std::int32_t> last_step_, writer_;   // per buffer, valid where stamp_ is current
    std::vector<std::int64_t> stamp_, wanted_;
    std::int64_t now_ = 0;
};

// False with a one-line reason where an action names something that does not exist or a chain breaks a rule.
bool compile_plan(const CompiledTrace& trace, const Plan& plan, ReplayCompiler& compiler, CompiledPlan& out, std::string& error);

// The plan as others read it: the inverse of compile_plan.
Plan decompile_plan(const CompiledPlan& plan, std::string policy);

}  // namespace udnnmem::policy
