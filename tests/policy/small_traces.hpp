// Hand-made traces and plans, said in a line: what the tests of the policy library share.
#pragma once

#include <initializer_list>
#include <vector>

#include "policy/machine.hpp"
#include "policy/plan.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::tests {

class Builder {
public:
    Builder& buffer(std::int64_t bytes) { return add(bytes, false); }
    Builder& persistent(std::int64_t bytes) { return add(bytes, true); }
    // Ids ascending in both lists.
    Builder& op(std::int64_t duration, std::vector<int> reads, std::vector<int> writes, std::int64_t workspace = 0) {
        profiler::TraceOp o;
        o.index = OpIndex(static_cast<std::int32_t>(trace_.ops.size()));
        o.name = "op" + std::to_string(o.index.value);
        o.duration = Nanoseconds(duration);
        o.workspace = Bytes(workspace);
        for (int b : reads) o.reads.push_back(BufferId(b));
        for (int b : writes) o.writes.push_back(BufferId(b));
        trace_.ops.push_back(o);
        return *this;
    }
    Builder& intact(int buffer) {  // which the last op writes
        trace_.ops.back().intact.push_back(BufferId(buffer));
        return *this;
    }
    Builder& replayable() {  // every op so far
        for (auto& o : trace_.ops) o.replayable = true;
        return *this;
    }
    profiler::Trace trace() const { return trace_; }

private:
    Builder& add(std::int64_t bytes, bool persistent) {
        profiler::TraceBuffer b;
        b.id = BufferId(static_cast<std::int32_t>(trace_.buffers.size()));
        b.bytes = Bytes(bytes);
        b.persistent = persistent;
        trace_.buffers.push_back(b);
        return *this;
    }
    profiler::Trace trace_;
};

// 1 byte a ns each way, latency 10 ns.
inline policy::Machine machine(std::int64_t memory) {
    policy::Machine m;
    m.memory = Bytes(memory);
    m.link_in = m.link_out = 1e9;
    m.link_latency = Nanoseconds(10);
    return m;
}

inline policy::Action act(policy::Do what, int op, int buffer) { return {what, OpIndex(op), BufferId(buffer), {}, {}}; }
inline policy::Action evict(int op, int buffer) { return act(policy::Do::evict, op, buffer); }
inline policy::Action clean(int op, int buffer) { return act(policy::Do::clean, op, buffer); }
inline policy::Action prefetch(int op, int buffer) { return act(policy::Do::prefetch, op, buffer); }
inline policy::Action drop(int op, int buffer) { return act(policy::Do::drop, op, buffer); }
inline policy::Action replay(int before, std::vector<int> ops, std::vector<int> buffers) {
    policy::Action a = act(policy::Do::replay, before, -1);
    for (int c : ops) a.ops.push_back(OpIndex(c));
    for (int b : buffers) a.buffers.push_back(BufferId(b));
    return a;
}

}  // namespace udnnmem::tests
