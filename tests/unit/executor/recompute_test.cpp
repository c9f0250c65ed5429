// What plans are made with once ops were proved, or were not.
#include <catch2/catch.hpp>

#include "shim/executor/recompute.hpp"

using namespace udnnmem;

TEST_CASE("what an op was not seen to write is moved as it is; replays count on it only where that was proven") {
    // Two ops, each of which names three buffers and a small one, may write them all, and was seen to write the last of the three.
    executor::Sequence s;
    for (int i = 0; i < 3; ++i) s.plan_trace.buffers.push_back({BufferId(i), Bytes(4096), true});
    s.small.buffers.push_back({BufferId(3), Bytes(64), true});
    const std::vector<BufferId> all = {BufferId(0), BufferId(1), BufferId(2)}, last = {BufferId(2)}, small = {BufferId(3)};
    for (int k = 0; k < 2; ++k) {
        profiler::TraceOp op;
        op.index = OpIndex(k);
        op.reads = op.writes = all;
        s.plan_trace.ops.push_back(op);
        s.small.reads.push_back(small), s.small.writes.push_back(small);
    }
    profiler::Trace seen = s.plan_trace;
    for (profiler::TraceOp& op : seen.ops) op.writes = last;
    replay::Known known;
    known.ops.resize(2);
    known.ops[1].proven = true;
    for (int i = 0; i < 4; ++i) {
        replay::KnownOp::Use use;
        use.buffer = i, use.movable = i < 3, use.reads = true, use.writes = i == 2;
        known.ops[1].uses.push_back(use);
    }

    const profiler::Trace trace = executor::with_proofs(seen, s, known);
    const std::vector<BufferId> with_small = {BufferId(0), BufferId(1), BufferId(2), BufferId(3)}, others = {BufferId(0), BufferId(1)};
    CHECK(trace.ops[0].writes == with_small);
    CHECK(trace.ops[0].intact == others);
    CHECK_FALSE(trace.ops[0].replayable);
    CHECK(trace.ops[1].reads == with_small);
    CHECK(trace.ops[1].writes == last);
    CHECK(trace.ops[1].intact.empty());
}
