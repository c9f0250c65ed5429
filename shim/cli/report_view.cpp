#include "shim/cli/report_view.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace udnnmem::cli {
namespace {

using namespace profiler;
using Life = IterationView::Life;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

void lay_out_ops(const Trace& trace, IterationView& view) {
    const auto known = std::find_if(trace.ops.begin(), trace.ops.end(), [](const TraceOp& op) { return op.start.value >= 0; });
    view.observed = known != trace.ops.end();
    if (view.observed) {
        view.origin = known->start;
        for (const TraceOp& op : trace.ops)
            if (op.start.value >= 0) view.origin = std::min(view.origin, op.start);
    }
    Nanoseconds end;
    std::set<std::int32_t> streams;
    for (const TraceOp& op : trace.ops) {
        view.start.push_back(view.observed && op.start.value >= 0 ? op.start - view.origin : end);
        end = std::max(end, view.start.back() + op.duration);
        view.ideal += op.duration;
        streams.insert(op.stream);
        view.stream_waits += static_cast<Count>(op.waits.size());
        view.host_waits += op.host_waited.value >= 0;
    }
    view.streams = static_cast<Count>(streams.size());
    view.length = end;
}

void lay_out_lives(const Trace& trace, IterationView& view) {
    view.lives.resize(trace.buffers.size());
    view.uses.resize(trace.buffers.size());
    for (const TraceOp& op : trace.ops)
        for (const auto* set : {&op.reads, &op.writes})
            for (const BufferId id : *set) {
                auto& uses = view.uses[at(id.value)];
                if (uses.empty() || uses.back() != op.index.value) uses.push_back(op.index.value);
            }
    const auto count = static_cast<std::int32_t>(trace.ops.size());
    std::vector<std::int64_t> change(at(count) + 1, 0);
    for (const TraceBuffer& buffer : trace.buffers) {
        Life& life = view.lives[at(buffer.id.value)];
        const auto& uses = view.uses[at(buffer.id.value)];
        life.accesses = static_cast<std::int32_t>(uses.size());
        if (buffer.persistent) {
            life.first = 0;
            life.last = count - 1;
        } else {
            life.first = buffer.alloc_op.value >= 0 ? buffer.alloc_op.value : uses.empty() ? -1 : uses.front();
            life.last = buffer.free_op.value >= 0 ? buffer.free_op.value : uses.empty() ? -1 : uses.back();
        }
        if (life.first < 0 || life.last < life.first || life.last >= count) {
            life.first = life.last = -1;
            continue;
        }
        change[at(life.first)] += buffer.bytes.value;
        change[at(life.last) + 1] -= buffer.bytes.value;
    }
    std::int64_t live = 0;
    for (const TraceOp& op : trace.ops) {
        live += change[at(op.index.value)];
        view.live.push_back(Bytes(live) + op.workspace);
        if (view.peak_op < 0 || view.live.back() > view.live[at(view.peak_op)]) view.peak_op = op.index.value;
    }
}

// First fit in order of birth; what is given back may be taken again from the next op on.
void place(const Trace& trace, IterationView& view) {
    std::vector<std::vector<std::int32_t>> born(trace.ops.size()), dies(trace.ops.size());
    for (const TraceBuffer& buffer : trace.buffers) {
        const Life& life = view.lives[at(buffer.id.value)];
        if (life.first < 0 || buffer.bytes.value == 0) continue;
        born[at(life.first)].push_back(buffer.id.value);
        dies[at(life.last)].push_back(buffer.id.value);
    }
    std::map<std::int64_t, std::int64_t> holes{{0, INT64_MAX}};  // begin -> end
    for (std::size_t k = 0; k < trace.ops.size(); ++k) {
        std::stable_sort(born[k].begin(), born[k].end(), [&](std::int32_t a, std::int32_t b) { return trace.buffers[at(a)].persistent > trace.buffers[at(b)].persistent; });
        for (const std::int32_t id : born[k]) {
            const std::int64_t bytes = trace.buffers[at(id)].bytes.value;
            const auto hole = std::find_if(holes.begin(), holes.end(), [&](const auto& h) { return h.second - h.first >= bytes; });
            const auto [begin, end] = *hole;
            holes.erase(hole);
            if (begin + bytes < end) holes[begin + bytes] = end;
            view.lives[at(id)].place = Bytes(begin);
            view.placed = std::max(view.placed, Bytes(begin + bytes));
        }
        for (const std::int32_t id : dies[k]) {
            std::int64_t begin = view.lives[at(id)].place.value, end = begin + trace.buffers[at(id)].bytes.value;
            auto next = holes.lower_bound(begin);
            if (next != holes.end() && next->first == end) end = next->second, next = holes.erase(next);
            if (next != holes.begin() && std::prev(next)->second == begin) begin = std::prev(next)->first, holes.erase(std::prev(next));
            holes[begin] = end;
        }
    }
}

void find_idle(const Trace& trace, IterationView& view) {
    std::vector<std::int64_t> before{0};  // time of all ops before one
    for (const TraceOp& op : trace.ops) before.push_back(before.back() + op.duration.value);
    for (const TraceBuffer& buffer : trace.buffers) {
        Life& life = view.lives[at(buffer.id.value)];
        const auto& uses = view.uses[at(buffer.id.value)];
        const auto gap = [&](std::int32_t after, std::int32_t until, std::int64_t ns) {
            life.idle += Nanoseconds(ns);
            if (ns > life.gap.value) life.gap = Nanoseconds(ns), life.gap_after = after, life.gap_before = until;
        };
        for (std::size_t i = 1; i < uses.size(); ++i) gap(uses[i - 1], uses[i], before[at(uses[i])] - before[at(uses[i - 1]) + 1]);
        if (uses.empty()) {
            if (life.first >= 0) life.idle = life.gap = Nanoseconds(before[at(life.last) + 1] - before[at(life.first)]);
        } else if (buffer.persistent) {
            gap(uses.back(), uses.front(), before.back() - before[at(uses.back()) + 1] + before[at(uses.front())]);
        } else {
            gap(-1, uses.front(), before[at(uses.front())] - before[at(life.first)]);
            gap(uses.back(), -1, before[at(life.last) + 1] - before[at(uses.back()) + 1]);
        }
    }
}

void take_moves(const RunRecord& run, IterationView& view) {
    std::map<std::int32_t, std::int32_t> ours;  // run's number -> buffer
    for (const TraceBuffer& buffer : run.iteration.buffers)
        if (buffer.run_id >= 0) ours.emplace(buffer.run_id, buffer.id.value);
    std::map<std::int32_t, std::vector<IterationView::Away>> away;
    const Nanoseconds zero(0);
    std::vector<const RunEvent*> events;
    for (const RunEvent& event : run.moves) events.push_back(&event);
    std::stable_sort(events.begin(), events.end(), [](const RunEvent* a, const RunEvent* b) { return a->start < b->start; });
    for (const RunEvent* event : events) {
        const auto found = ours.find(event->buffer.value);
        const std::int32_t buffer = found == ours.end() ? -1 : found->second;
        const Nanoseconds start = event->start - view.origin, end = event->end - view.origin;
        if (buffer >= 0 && start <= view.length) {
            auto& list = away[buffer];
            const bool drops = event->kind == EventKind::drop, replays = event->kind == EventKind::replay;
            const bool out = drops || event->kind == EventKind::evict || event->kind == EventKind::evict_clean;
            const bool in = replays || event->kind == EventKind::fetch;
            const bool gone = !list.empty() && list.back().to == Nanoseconds::max();
            if (out && !gone) list.push_back({buffer, end, Nanoseconds::max(), drops});
            if (in && gone) list.back().to = start;
            if (in && list.empty()) list.push_back({buffer, Nanoseconds(INT64_MIN / 2), start, replays});
        }
        if (end < zero || start > view.length) continue;
        if (buffer >= 0) {
            const bool out = event->kind == EventKind::evict || event->kind == EventKind::evict_clean;
            view.lives[at(buffer)].evictions += out;
            view.lives[at(buffer)].fetches += event->kind == EventKind::fetch;
        }
        view.moves.push_back({event->kind, buffer, event->bytes, std::max(start, zero), std::min(end, view.length)});
    }
    for (auto& [buffer, list] : away)
        for (IterationView::Away& a : list) {
            const Life& life = view.lives[at(buffer)];
            if (life.first < 0) continue;
            const TraceOp& last = run.iteration.ops[at(life.last)];
            a.from = std::max(a.from, view.start[at(life.first)]);
            a.to = std::min(a.to, run.iteration.buffers[at(buffer)].persistent ? view.length : view.start[at(life.last)] + last.duration);
            if (a.from < a.to) view.away.push_back(a);
        }
}

}  // namespace

std::int32_t IterationView::next_use(std::int32_t buffer, Nanoseconds when) const {
    const auto& list = uses[at(buffer)];
    const auto next = std::find_if(list.begin(), list.end(), [&](std::int32_t k) { return start[at(k)] >= when; });
    return next == list.end() ? -1 : *next;
}

std::int32_t IterationView::last_use(std::int32_t buffer, Nanoseconds when) const {
    const auto& list = uses[at(buffer)];
    const auto last = std::find_if(list.rbegin(), list.rend(), [&](std::int32_t k) { return start[at(k)] < when; });
    return last == list.rend() ? -1 : *last;
}

IterationView view_of(const RunRecord& run) {
    IterationView view;
    if (run.iteration.ops.empty()) return view;
    lay_out_ops(run.iteration, view);
    lay_out_lives(run.iteration, view);
    place(run.iteration, view);
    find_idle(run.iteration, view);
    if (view.observed) take_moves(run, view);
    return view;
}

}  // namespace udnnmem::cli
