#include "profiler/recorder/iteration.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace udnnmem::profiler {
namespace {

// Per allocation that the ops of one iteration use: what stands in its place in the next one. `kept`: itself. `renewed`:
// another one, maybe though it lives through this one (a batch that is freed once the next one was made; what is freed late).
struct Successors {
    std::vector<bool> kept, renewed;
};

Successors successors(const History& history, Position begin, Position end) {
    const std::size_t count = history.allocations().size();
    Successors of{std::vector<bool>(count, false), std::vector<bool>(count, false)};
    const Position period = end - begin;
    for (Position at = begin; at < end && at + period < history.end(); ++at) {
        const auto here = history.given(history.op(at)), next = history.given(history.op(at + period));
        for (std::size_t i = 0; i < std::min(here.size(), next.size()); ++i)
            (here[i].allocation == next[i].allocation ? of.kept : of.renewed)[here[i].allocation] = true;
    }
    return of;
}

}  // namespace

Position iteration_begin(const History& history, Position period) {
    const Position first = std::max(history.begin(), history.end() - 2 * period), last = history.end() - period;
    // Transient bytes alive before the op at first + i, as differences.
    std::vector<std::int64_t> change(static_cast<std::size_t>(last - first) + 2, 0);
    const Successors of = successors(history, first, last);
    for (std::size_t i = 0; i < history.allocations().size(); ++i) {
        const History::Allocation& a = history.allocations()[i];
        if (a.died >= 0 ? a.died <= first : a.born <= first || (of.kept[i] && !of.renewed[i])) continue;  // gone, or persistent
        const Position from = std::max(a.born + 1, first), to = std::min(a.died < 0 ? last + 1 : a.died, last + 1);
        if (from >= to) continue;
        change[static_cast<std::size_t>(from - first)] += static_cast<std::int64_t>(a.bytes);
        change[static_cast<std::size_t>(to - first)] -= static_cast<std::int64_t>(a.bytes);
    }
    Position best = first;
    std::int64_t live = 0, fewest = INT64_MAX;
    bool best_is_input = false;
    for (Position at = first; at < last; ++at) {
        live += change[static_cast<std::size_t>(at - first)];
        const bool input = std::strstr(history.op(at).name, "HtoD") != nullptr;
        if (live > fewest || (live == fewest && (best_is_input || !input))) continue;
        best = at;
        fewest = live;
        best_is_input = input;
    }
    return best;
}

namespace {
// The FLOPs of a call are those of its ops, by the time that they take: a long one that computes, short ones around it that
// prepare and sum up.
void share_flops(const History& history, Position begin, Trace& trace) {
    struct Sum {
        double ns = 0, ops = 0;
    };
    std::map<std::uint64_t, Sum> calls;
    const auto seen = [&](const TraceOp& op) -> const History::Op& { return history.op(begin + op.index.value); };
    for (const TraceOp& op : trace.ops)
        if (seen(op).call_number) calls[seen(op).call_number].ns += static_cast<double>(op.duration.value), ++calls[seen(op).call_number].ops;
    // The iteration may begin in the middle of a call, and then ends in the middle of the next one: the ops of those that lie
    // outside correspond to ops inside.
    const auto period = static_cast<Position>(trace.ops.size());
    const auto outside = [&](Position at, Position inside, std::uint64_t call) {
        if (!call || at < history.begin() || at >= history.end() || history.op(at).call_number != call) return false;
        calls[call].ns += static_cast<double>(trace.ops[static_cast<std::size_t>(inside)].duration.value), ++calls[call].ops;
        return true;
    };
    for (Position k = 1; k <= period && outside(begin - k, period - k, seen(trace.ops.front()).call_number); ++k) {}
    for (Position k = 0; k < period && outside(begin + period + k, k, seen(trace.ops.back()).call_number); ++k) {}
    for (TraceOp& op : trace.ops) {
        const auto call = calls.find(seen(op).call_number);
        if (call == calls.end()) continue;
        op.flops = seen(op).call_flops * (call->second.ns > 0 ? static_cast<double>(op.duration.value) / call->second.ns : 1 / call->second.ops);
    }
}

}  // namespace

Iteration iteration_at(const History& history, Position begin, Position period) {
    const Position end = begin + period;
    Iteration iteration;
    iteration.begin = begin;
    Trace& trace = iteration.trace;
    std::vector<std::int32_t> id(history.allocations().size(), -1);
    const Successors of = successors(history, begin, end);
    for (const bool persistent : {true, false}) {
        for (std::size_t i = 0; i < id.size(); ++i) {
            const History::Allocation& a = history.allocations()[i];
            const bool whole = (a.born <= begin || of.kept[i]) && (a.died < 0 || a.died >= end) && !of.renewed[i];
            if (whole != persistent || a.born >= end || (a.died >= 0 && (a.died <= begin || a.died == a.born))) continue;
            id[i] = static_cast<std::int32_t>(trace.buffers.size());
            TraceBuffer& buffer = trace.buffers.emplace_back();
            buffer.id = BufferId(id[i]);
            buffer.bytes = Bytes(static_cast<std::int64_t>(a.bytes));
            iteration.address.push_back(a.address);
            buffer.persistent = persistent;
            buffer.run_id = a.tag;
            if (persistent) continue;
            buffer.alloc_op = OpIndex(static_cast<std::int32_t>(std::max<Position>(a.born - begin, 0)));
            buffer.free_op = OpIndex(static_cast<std::int32_t>((a.died < 0 ? end : std::min(a.died, end)) - begin - 1));
        }
    }
    std::vector<Nanoseconds> durations;
    std::int64_t measured = 0, sum = 0;
    for (Position at = begin; at < end; ++at) {
        Nanoseconds took = history.op(at).duration;
        const Nanoseconds again = at + period < history.end() ? history.op(at + period).duration : Nanoseconds(-1);
        if (again.value >= 0 && (took.value < 0 || again < took)) took = again;
        if (took.value >= 0) ++measured, sum += took.value;
        durations.push_back(took);
    }
    std::map<std::uint64_t, std::int32_t> streams;
    // Of an op before the one at `at`: what it is of the iteration, or of the one before; -1: of none, or long before.
    const auto place = [&](Position earlier, Position at) { return static_cast<std::int32_t>(earlier < at - period ? -1 : earlier < begin ? earlier - begin + period : earlier - begin); };
    for (Position at = begin; at < end; ++at) {
        const History::Op& seen = history.op(at);
        TraceOp& op = trace.ops.emplace_back();
        op.index = OpIndex(static_cast<std::int32_t>(at - begin));
        op.name = seen.name;
        op.range = seen.range;
        op.call = seen.call;
        op.stream = streams.try_emplace(seen.stream, static_cast<std::int32_t>(streams.size())).first->second;
        const Nanoseconds took = durations[static_cast<std::size_t>(at - begin)];
        op.start = seen.start;
        op.duration = took.value >= 0 ? took : Nanoseconds(measured ? sum / measured : 0);
        // As in the iteration after it, where that is known: this one may be the first, whose first ops come after something else.
        const Position later = at + period < history.end() ? period : 0;
        const History::Op& ordered = history.op(at + later);
        for (const Position waits : history.waits(ordered))
            if (const std::int32_t k = place(waits - later, at); k >= 0) op.waits.emplace_back(k);
        std::sort(op.waits.begin(), op.waits.end());
        op.host_waited = OpIndex(ordered.host_waited < 0 ? -1 : place(ordered.host_waited - later, at));
        Iteration::Step& step = iteration.steps.emplace_back();
        step = {seen.name, seen.shape, static_cast<std::uint32_t>(iteration.used.size()), 0, took.value >= 0};
        for (const History::Use& use : history.given(seen)) {
            const auto first = iteration.used.begin() + step.first;
            if (std::find(first, iteration.used.end(), id[use.allocation]) == iteration.used.end()) iteration.used.push_back(id[use.allocation]);
        }
        const auto name = [&](const History::Use& use) {
            if (use.mode != Mode::write) op.reads.push_back(BufferId(id[use.allocation]));
            if (use.mode != Mode::read) op.writes.push_back(BufferId(id[use.allocation]));
        };
        for (const History::Use& use : history.uses(seen)) name(use);
        // Where a table leads may have been found out since.
        if (at + period < history.end())
            for (const History::Use& use : history.led(history.op(at + period)))
                if (const std::int32_t b = id[use.allocation]; b >= 0 && trace.buffers[static_cast<std::size_t>(b)].persistent) name(use);
        step.count = static_cast<std::uint32_t>(iteration.used.size()) - step.first;
        for (auto* set : {&op.reads, &op.writes}) {
            std::sort(set->begin(), set->end());
            set->erase(std::unique(set->begin(), set->end()), set->end());
        }
        trace.header.ideal += op.duration;
    }
    share_flops(history, begin, trace);
    return iteration;
}

}  // namespace udnnmem::profiler
