#include "shim/executor/sequence.hpp"

#include <algorithm>
#include <span>

#include "shim/pager/buffer.hpp"
#include "shim/pager/told_id.hpp"

namespace udnnmem::executor {

Sequence make_sequence(const profiler::Iteration& iteration, std::size_t small_below, std::size_t granule,
                       const std::function<pager::Buffer*(std::uint64_t)>& find) {
    Sequence s;
    const profiler::Trace& trace = iteration.trace;
    s.plan_trace.header = trace.header;
    s.first_op = iteration.begin;
    std::vector<std::int32_t> logical(trace.buffers.size(), -1);
    std::vector<bool> used(trace.buffers.size(), false);
    for (const std::int32_t b : iteration.used) used[static_cast<std::size_t>(b)] = true;
    for (const profiler::TraceOp& op : trace.ops)   // tables lead to more than ops are given
        for (const auto* ids : {&op.reads, &op.writes})
            for (const BufferId id : *ids) used[static_cast<std::size_t>(id.value)] = true;
    for (std::size_t i = 0; i < trace.buffers.size(); ++i) {
        const profiler::TraceBuffer& buffer = trace.buffers[i];
        const auto bytes = static_cast<std::size_t>(buffer.bytes.value);
        if (!used[i]) continue;   // it waits for its end, or for another part of the program: the first that has to go, no plan's concern
        if (bytes < small_below) {
            s.small.buffers.push_back(buffer);
            continue;
        }
        pager::Buffer* const known = buffer.persistent ? find(iteration.address[i]) : nullptr;
        const auto is_it = [&] { return known && known->live && (buffer.run_id < 0 || pager::told_id(known->id).value == buffer.run_id); };
        if (buffer.persistent && !is_it()) return {};   // freed, or freed and another's
        logical[i] = static_cast<std::int32_t>(s.persistent.size());
        s.persistent.push_back(known);
        profiler::TraceBuffer& planned = s.plan_trace.buffers.emplace_back(buffer);
        planned.id = BufferId(logical[i]);
        planned.bytes = Bytes(static_cast<std::int64_t>((bytes + granule - 1) / granule * granule));
    }
    const auto movable = static_cast<std::int32_t>(s.persistent.size());
    for (profiler::TraceBuffer& buffer : s.small.buffers) {
        const auto l = static_cast<std::int32_t>(movable + (&buffer - s.small.buffers.data()));
        logical[static_cast<std::size_t>(buffer.id.value)] = l;
        buffer.id = BufferId(l);
    }
    auto kept = [&](const std::vector<BufferId>& ids, bool small) {
        std::vector<BufferId> out;
        for (const BufferId id : ids)
            if (const std::int32_t l = logical[static_cast<std::size_t>(id.value)]; (l >= movable) == small) out.push_back(BufferId(l));
        return out;
    };
    for (std::size_t k = 0; k < iteration.steps.size(); ++k) {
        const profiler::Iteration::Step& from = iteration.steps[k];
        Sequence::Step step{from.name, from.shape, static_cast<std::uint32_t>(s.uses.size()), 0, trace.ops[k].stream, from.timed};
        for (std::uint32_t i = 0; i < from.count; ++i)
            if (const std::int32_t l = logical[static_cast<std::size_t>(iteration.used[from.first + i])]; l < movable) s.uses.push_back({l, 0});
        step.count = static_cast<std::uint32_t>(s.uses.size()) - step.first;
        s.steps.push_back(step);
        replay::Program::Step& all = s.program.steps.emplace_back();
        all.first = static_cast<std::uint32_t>(s.program.uses.size());
        for (const bool small : {false, true})
            for (std::uint32_t i = 0; i < from.count; ++i)
                if (const std::int32_t l = logical[static_cast<std::size_t>(iteration.used[from.first + i])]; (l >= movable) == small) {
                    s.program.uses.push_back(l);
                    ++(small ? all.small : all.movable);
                }
        s.small.reads.push_back(kept(trace.ops[k].reads, true));
        s.small.writes.push_back(kept(trace.ops[k].writes, true));
        profiler::TraceOp& op = s.plan_trace.ops.emplace_back(trace.ops[k]);
        op.reads = kept(op.reads, false);
        op.writes = kept(op.writes, false);
    }
    complete(s);
    return s;
}

void complete(Sequence& s) {
    for (const auto* buffers : {&s.plan_trace.buffers, &s.small.buffers})
        for (const profiler::TraceBuffer& b : *buffers) s.program.lasts.push_back(b.persistent);
    for (Sequence::Step& step : s.steps) {
        const auto uses = std::span(s.uses).subspan(step.first, step.count);
        step.lasting = std::all_of(uses.begin(), uses.end(), [&](const Sequence::Use& use) { return s.lasts(static_cast<std::size_t>(use.buffer)); });
    }
    // Backwards, twice around: the next use of a persistent buffer may be in the next iteration.
    const auto n = static_cast<std::int64_t>(s.steps.size());
    std::vector<std::int64_t> next(s.persistent.size(), -1);
    for (std::int64_t at = 2 * n - 1; at >= 0; --at) {
        const Sequence::Step& step = s.steps[static_cast<std::size_t>(at % n)];
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) {
            Sequence::Use& use = s.uses[i];
            std::int64_t& seen = next[static_cast<std::size_t>(use.buffer)];
            const bool stays = s.lasts(static_cast<std::size_t>(use.buffer));
            if (at < n) use.again = seen >= 0 && (stays || seen < n) ? static_cast<std::uint32_t>(seen - at) : 0;
            seen = at;
        }
    }
}

}  // namespace udnnmem::executor
