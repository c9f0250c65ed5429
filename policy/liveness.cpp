#include "policy/liveness.hpp"

#include <algorithm>

namespace udnnmem::policy {

using profiler::Trace;
using profiler::TraceBuffer;
using profiler::TraceOp;

Liveness::Liveness(const Trace& trace) {
    const std::size_t ops = trace.ops.size(), buffers = trace.buffers.size();
    named_begin_.assign(ops + 1, 0);
    uses_begin_.assign(buffers + 1, 0);
    for (std::size_t k = 0; k < ops; ++k) {
        const TraceOp& op = trace.ops[k];
        const std::size_t begin = named_.size();
        for (const BufferId b : op.reads) named_.push_back(b.value);
        for (const BufferId b : op.writes) named_.push_back(b.value);
        std::sort(named_.begin() + static_cast<std::ptrdiff_t>(begin), named_.end());
        named_.erase(std::unique(named_.begin() + static_cast<std::ptrdiff_t>(begin), named_.end()), named_.end());
        named_begin_[k + 1] = named_.size();
        for (std::size_t i = begin; i < named_.size(); ++i) ++uses_begin_[static_cast<std::size_t>(named_[i]) + 1];
        ideal_ += op.duration;
    }
    for (std::size_t b = 0; b < buffers; ++b) uses_begin_[b + 1] += uses_begin_[b];
    uses_.resize(named_.size());
    std::vector<std::size_t> next(uses_begin_.begin(), uses_begin_.end() - 1);
    for (std::size_t k = 0; k < ops; ++k) {
        const TraceOp& op = trace.ops[k];
        for (const std::int32_t b : buffers_of(k)) {
            const auto in = [b](const std::vector<BufferId>& set) { return std::binary_search(set.begin(), set.end(), BufferId(b)); };
            const bool writes = in(op.writes);
            uses_[next[static_cast<std::size_t>(b)]++] = {static_cast<std::int32_t>(k), in(op.reads), writes, writes && !in(op.intact)};
        }
    }

    first_.assign(buffers, -1);
    last_.assign(buffers, -1);
    std::vector<std::int64_t> change(ops + 1, 0);
    const auto end = static_cast<std::int32_t>(ops) - 1;
    for (std::size_t b = 0; b < buffers; ++b) {
        const TraceBuffer& buffer = trace.buffers[b];
        if (buffer.persistent) {
            persistent_ += buffer.bytes;
            if (ops) first_[b] = 0, last_[b] = end;
            continue;
        }
        const auto uses = uses_of(b);
        first_[b] = buffer.alloc_op.value >= 0 ? buffer.alloc_op.value : uses.empty() ? -1 : uses.front().op;
        if (first_[b] < 0) continue;
        last_[b] = buffer.free_op.value >= 0 ? buffer.free_op.value : uses.empty() ? end : uses.back().op;
        change[static_cast<std::size_t>(first_[b])] += buffer.bytes.value;
        change[static_cast<std::size_t>(last_[b]) + 1] -= buffer.bytes.value;
    }
    live_.resize(ops);
    working_.resize(ops);
    peak_ = persistent_;
    for (std::size_t b = 0; b < buffers; ++b) {
        // Frames are taken at the start of the op that begins a life, whether it names the buffer or not.
        const auto uses = uses_of(b);
        if (!trace.buffers[b].persistent && first_[b] >= 0 && (uses.empty() || uses.front().op != first_[b])) working_[static_cast<std::size_t>(first_[b])] += trace.buffers[b].bytes;
    }
    std::int64_t transient = 0;
    for (std::size_t k = 0; k < ops; ++k) {
        transient += change[k];
        live_[k] = persistent_ + Bytes(transient) + trace.ops[k].workspace;
        working_[k] += trace.ops[k].workspace;
        for (const std::int32_t b : buffers_of(k)) working_[k] += trace.buffers[static_cast<std::size_t>(b)].bytes;
        peak_ = std::max(peak_, live_[k]);
        largest_ = std::max(largest_, working_[k]);
    }
}

std::size_t Liveness::use_at_or_after(std::size_t buffer, std::int32_t op) const {
    const auto uses = uses_of(buffer);
    return static_cast<std::size_t>(std::lower_bound(uses.begin(), uses.end(), op, [](const Use& use, std::int32_t at) { return use.op < at; }) - uses.begin());
}

}  // namespace udnnmem::policy
