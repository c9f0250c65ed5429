#include "shim/executor/recompute.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

namespace udnnmem::executor {

void find_versions(replay::Known& known, const Sequence& sequence) {
    const std::size_t buffers = sequence.persistent.size() + sequence.small.buffers.size();
    std::vector<std::int32_t> made(buffers, -1), last(buffers, -1);
    const auto each_write = [&](std::size_t k, auto tell) {
        if (known.ops[k].proven) {
            for (const replay::KnownOp::Use& use : known.ops[k].uses)
                if (use.writes) tell(static_cast<std::size_t>(use.buffer), k);
            return;
        }
        for (const auto* set : {&sequence.plan_trace.ops[k].writes, &sequence.small.writes[k]})
            for (const BufferId b : *set) tell(static_cast<std::size_t>(b.value), k);
    };
    for (std::size_t k = 0; k < known.ops.size(); ++k) each_write(k, [&](std::size_t b, std::size_t op) { last[b] = static_cast<std::int32_t>(op); });
    for (std::size_t k = 0; k < known.ops.size(); ++k) {
        if (known.ops[k].proven)
            for (replay::KnownOp::Use& use : known.ops[k].uses) {
                const auto b = static_cast<std::size_t>(use.buffer);
                use.made_by = made[b];
                use.saved = !use.movable && use.reads && use.bytes <= replay::KnownOp::most_saved && last[b] >= static_cast<std::int32_t>(k);
            }
        each_write(k, [&](std::size_t b, std::size_t op) { made[b] = static_cast<std::int32_t>(op); });
    }
}

profiler::Trace with_proofs(const profiler::Trace& seen, const Sequence& sequence, const replay::Known& known) {
    profiler::Trace trace = seen;
    for (profiler::TraceBuffer buffer : sequence.small.buffers) {
        buffer.bytes = Bytes(0);
        trace.buffers.push_back(std::move(buffer));
    }
    std::vector<char> touched(trace.buffers.size(), false);
    for (std::size_t k = 0; k < trace.ops.size(); ++k) {
        profiler::TraceOp& op = trace.ops[k];
        const replay::KnownOp& proved = known.ops[k];
        if (!proved.proven) {
            for (const auto* set : {&sequence.plan_trace.ops[k].writes, &sequence.small.writes[k]})
                for (const BufferId b : *set) touched[static_cast<std::size_t>(b.value)] = true;
            const profiler::TraceOp& may = sequence.plan_trace.ops[k];   // what was not seen of it may still come
            std::set_difference(may.writes.begin(), may.writes.end(), op.writes.begin(), op.writes.end(), std::back_inserter(op.intact));
            op.reads = may.reads;
            op.writes = may.writes;
            op.reads.insert(op.reads.end(), sequence.small.reads[k].begin(), sequence.small.reads[k].end());
            op.writes.insert(op.writes.end(), sequence.small.writes[k].begin(), sequence.small.writes[k].end());
            continue;
        }
        // What it works on in place was there before: of a transient's first op, whatever its memory held; of a buffer that lasts,
        // what the iteration before has left.
        op.replayable = true;
        for (const replay::KnownOp::Use& use : proved.uses) {
            char& seen = touched[static_cast<std::size_t>(use.buffer)];
            const bool lasts = trace.buffers[static_cast<std::size_t>(use.buffer)].persistent;
            if (use.reads && !use.saved && (lasts ? use.writes : !seen)) op.replayable = false;
            seen = true;
        }
        op.reads.clear();
        op.writes.clear();
        for (const replay::KnownOp::Use& use : proved.uses) {
            if (use.reads && !use.saved) op.reads.push_back(BufferId(use.buffer));
            if (use.writes) op.writes.push_back(BufferId(use.buffer));
            if (proved.borrows(use) && use.movable) op.replay_workspace += trace.buffers[static_cast<std::size_t>(use.buffer)].bytes;
        }
        std::sort(op.reads.begin(), op.reads.end());
        std::sort(op.writes.begin(), op.writes.end());
    }
    return trace;
}

std::string summary_of(const replay::Known& known) {
    std::size_t proven = 0;
    std::map<std::string_view, std::size_t> refused;
    for (const replay::KnownOp& op : known.ops) {
        proven += op.proven;
        if (op.refused) ++refused[op.refused];
    }
    std::vector<std::pair<std::string_view, std::size_t>> order(refused.begin(), refused.end());
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text = std::to_string(proven) + " of " + std::to_string(known.ops.size()) + " ops may be run again";
    for (const auto& [why, count] : order) text += "; " + std::to_string(count) + ": " + std::string(why);
    return text;
}

}  // namespace udnnmem::executor
