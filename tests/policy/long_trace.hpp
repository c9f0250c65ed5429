// A long training iteration of a plain shape: layers with a weight each, forward, then backward with the
// update at once. For benchmarks and tests of size, where the shape must not change with the length.
#pragma once

#include <algorithm>
#include <vector>

#include "profiler/trace/trace.hpp"

namespace udnnmem::tests {

inline profiler::Trace long_trace(int ops) {
    profiler::Trace trace;
    const int layers = ops / 3;
    const auto buffer = [&](std::int64_t bytes, bool persistent) {
        profiler::TraceBuffer b;
        b.id = BufferId(static_cast<std::int32_t>(trace.buffers.size()));
        b.bytes = Bytes(bytes);
        b.persistent = persistent;
        trace.buffers.push_back(b);
        return b.id;
    };
    const auto op = [&](std::vector<BufferId> reads, std::vector<BufferId> writes, std::int64_t duration, bool replayable) {
        profiler::TraceOp o;
        o.index = OpIndex(static_cast<std::int32_t>(trace.ops.size()));
        std::sort(reads.begin(), reads.end());
        std::sort(writes.begin(), writes.end());
        o.reads = std::move(reads);
        o.writes = std::move(writes);
        o.duration = Nanoseconds(duration);
        o.workspace = Bytes(1 << 20);
        o.replayable = replayable;
        trace.ops.push_back(std::move(o));
    };
    std::vector<BufferId> weight, value;
    for (int i = 0; i < layers; ++i) weight.push_back(buffer(4 << 20, true));
    for (int i = 0; i <= layers; ++i) value.push_back(buffer((16 + i % 7) << 20, false));
    op({}, {value[0]}, 1000, false);
    for (int i = 0; i < layers; ++i) op({value[i], weight[i]}, {value[i + 1]}, 200'000 + 1000 * (i % 11), true);
    BufferId gradient = buffer(16 << 20, false);
    op({value[layers]}, {gradient}, 1000, false);
    for (int i = layers; i-- > 0;) {
        const BufferId next = buffer(16 << 20, false);
        op({value[i], gradient, weight[i]}, {next}, 300'000, false);
        op({value[i], gradient, weight[i]}, {weight[i]}, 100'000, false);
        gradient = next;
    }
    return trace;
}

}  // namespace udnnmem::tests
