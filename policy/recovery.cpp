#include "policy/recovery.hpp"

#include <algorithm>
#include <unordered_map>

namespace udnnmem::policy {

using profiler::Trace;

Recovery::Recovery(const Trace& trace, const Liveness& live) : trace_(trace), live_(live), until_(live.use_count(), -1), writer_(live.use_count(), -1) {
    const auto ops = static_cast<std::int32_t>(trace.ops.size());
    std::vector<std::int32_t> made(trace.buffers.size(), ops);  // until when the version at hand can be remade
    std::vector<char> written(trace.buffers.size(), 0);
    std::vector<std::size_t> position(trace.buffers.size(), 0); // of the use at the op being looked at
    // How long the version that was there before the use at position p lasts: up to and with its next writer, or its death.
    std::vector<std::int32_t> unchanged(live.use_count());
    for (std::size_t b = 0; b < trace.buffers.size(); ++b) {
        const auto uses = live.uses_of(b);
        for (std::size_t i = 0; i < uses.size(); ++i) writer_[live_.use_offset(b) + i] = uses[i].writes ? uses[i].op : i ? writer_[live_.use_offset(b) + i - 1] : -1;
        std::int32_t lasts = trace.buffers[b].persistent ? ops : live.last(b);
        for (std::size_t i = uses.size(); i-- > 0;) {
            if (uses[i].writes) lasts = uses[i].op;
            unchanged[live.use_offset(b) + i] = lasts;
        }
    }
    for (std::int32_t k = 0; k < ops; ++k) {
        const auto named = live.buffers_of(static_cast<std::size_t>(k));
        std::int32_t until = trace.ops[static_cast<std::size_t>(k)].replayable ? ops : -1;
        for (const std::int32_t name : named) {
            const auto b = static_cast<std::size_t>(name);
            const Use& use = live.uses_of(b)[position[b]];
            if (!use.reads) continue;
            const bool persistent = trace.buffers[b].persistent;
            if (persistent && use.writes) continue;
            const std::int32_t remade = persistent || !written[b] ? -1 : made[b];
            until = std::min(until, std::max(remade, unchanged[live.use_offset(b) + position[b]]));
        }
        for (const std::int32_t name : named) {
            const auto b = static_cast<std::size_t>(name);
            if (live.uses_of(b)[position[b]].writes) {
                written[b] = 1;
                made[b] = std::min(made[b], until);
            }
            if (!trace.buffers[b].persistent && written[b]) until_[live.use_offset(b) + position[b]] = made[b];
            ++position[b];
        }
    }
}

std::int32_t Recovery::last_writer(std::size_t buffer, std::int32_t before) const {
    const std::size_t next = live_.use_at_or_after(buffer, before);
    return next ? writer_[live_.use_offset(buffer) + next - 1] : -1;
}

bool Recovery::alive_as(std::size_t buffer, std::int32_t version, std::int32_t k) const {
    return live_.first(buffer) >= 0 && live_.first(buffer) < k + trace_.buffers[buffer].persistent && (trace_.buffers[buffer].persistent || k <= live_.last(buffer)) && last_writer(buffer, k) == version;
}

bool Recovery::chain(const std::vector<std::int32_t>& targets, std::int32_t k, const std::function<bool(std::int32_t)>& at_hand, ReplayChain& to) const {
    std::unordered_map<std::int32_t, std::int32_t> making;   // buffer -> the version it is made up to
    std::unordered_map<std::int32_t, std::int32_t> reading;  // buffer at hand -> the latest version that the chain reads of it
    std::vector<std::int32_t> todo, ops;
    const auto make = [&](std::int32_t b, std::int32_t version) {
        const auto found = making.find(b);
        const std::int32_t from = found == making.end() ? -1 : found->second;
        if (version <= from) return;
        making[b] = version;
        for (const Use& use : live_.uses_of(static_cast<std::size_t>(b)))
            if (use.writes && use.op > from && use.op <= version) todo.push_back(use.op);
    };
    for (const std::int32_t b : targets) {
        const std::int32_t version = last_writer(static_cast<std::size_t>(b), k);
        if (version < 0) return false;
        make(b, version);
    }
    std::vector<char> seen(static_cast<std::size_t>(k), 0);
    while (!todo.empty()) {
        const std::int32_t j = todo.back();
        todo.pop_back();
        if (seen[static_cast<std::size_t>(j)]) continue;
        seen[static_cast<std::size_t>(j)] = 1;
        ops.push_back(j);
        const profiler::TraceOp& op = trace_.ops[static_cast<std::size_t>(j)];
        if (!op.replayable) return false;
        for (const BufferId id : op.reads) {
            const auto b = static_cast<std::size_t>(id.value);
            if (trace_.buffers[b].persistent && std::binary_search(op.writes.begin(), op.writes.end(), id)) continue;
            const std::int32_t version = last_writer(b, j);
            if (making.count(id.value)) {
                make(id.value, version);
            } else if (alive_as(b, version, k) && at_hand(id.value)) {
                reading[id.value] = std::max(version, reading.count(id.value) ? reading[id.value] : -1);
            } else {
                if (trace_.buffers[b].persistent || version < 0) return false;
                make(id.value, version);
                // Who reads what the chain makes must find it made: readers of later versions need those made too.
                if (const auto later = reading.find(id.value); later != reading.end()) make(id.value, later->second);
            }
        }
    }
    std::sort(ops.begin(), ops.end());

    to = ReplayChain{};
    to.targets = targets;
    std::sort(to.targets.begin(), to.targets.end());
    to.targets.erase(std::unique(to.targets.begin(), to.targets.end()), to.targets.end());
    std::unordered_map<std::int32_t, std::int32_t> last_named;
    for (const std::int32_t j : ops)
        for (const std::int32_t b : live_.buffers_of(static_cast<std::size_t>(j))) last_named[b] = j;
    std::unordered_map<std::int32_t, bool> made;
    for (const std::int32_t j : ops) {
        const profiler::TraceOp& op = trace_.ops[static_cast<std::size_t>(j)];
        ReplayChain::Step step{j};
        step.workspace = op.workspace.value + op.replay_workspace.value;
        to.time += op.duration;
        std::vector<std::int32_t> state;
        for (const BufferId id : op.reads) {
            if (made.count(id.value)) continue;
            step.inputs.push_back(id.value);
            if (std::binary_search(op.writes.begin(), op.writes.end(), id)) state.push_back(id.value);
        }
        for (const BufferId id : op.writes) {
            if (made.count(id.value) || std::binary_search(state.begin(), state.end(), id.value)) continue;
            made[id.value] = true;
            step.fresh += trace_.buffers[static_cast<std::size_t>(id.value)].bytes.value;
            if (std::binary_search(to.targets.begin(), to.targets.end(), id.value)) step.targets.push_back(id.value);
        }
        for (const std::int32_t b : live_.buffers_of(static_cast<std::size_t>(j)))
            if (made.count(b) && last_named[b] == j && !std::binary_search(to.targets.begin(), to.targets.end(), b))
                step.released += trace_.buffers[static_cast<std::size_t>(b)].bytes.value;
        to.steps.push_back(std::move(step));
    }
    return true;
}

}  // namespace udnnmem::policy
