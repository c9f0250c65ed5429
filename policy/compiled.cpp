// Flat forms of traces and plans: see compiled.hpp. The rules of replay chains are checked here, once a
// plan, for whether a chain is legal depends on the order of ops alone and never on time.
#include "policy/compiled.hpp"

#include <algorithm>

namespace udnnmem::policy {

CompiledTrace::CompiledTrace(const profiler::Trace& trace, int ahead)
    : ops(static_cast<std::int32_t>(trace.ops.size())), buffers(static_cast<std::int32_t>(trace.buffers.size())) {
    first.assign(buffers, -1);
    last.assign(buffers, -1);
    std::vector<std::int32_t> coming;
    for (const auto& op : trace.ops) {
        duration.push_back(op.duration.value);
        workspace.push_back(op.workspace.value);
        coming.clear();
        for (std::int32_t k = op.index.value + 1; k <= op.index.value + ahead && k < ops; ++k) {
            const auto& later = trace.ops[static_cast<std::size_t>(k)];
            workspace.back() += later.workspace.value;
            for (const auto* names : {&later.reads, &later.writes})
                for (const BufferId b : *names) coming.push_back(b.value);
        }
        const auto row = static_cast<std::ptrdiff_t>(access.data.size());
        replayable.push_back(op.replayable);
        replay_workspace.push_back(op.replay_workspace.value);
        ideal += op.duration.value;
        auto r = op.reads.begin();
        auto w = op.writes.begin();
        while (r != op.reads.end() || w != op.writes.end()) {
            const bool take_read = r != op.reads.end() && (w == op.writes.end() || *r <= *w);
            const bool take_write = w != op.writes.end() && (r == op.reads.end() || *w <= *r);
            const std::int32_t buffer = take_read ? r->value : w->value;
            const bool intact = std::binary_search(op.intact.begin(), op.intact.end(), BufferId(buffer));
            access.push({buffer, static_cast<std::uint8_t>((take_read ? Access::read : 0) | (take_write ? Access::write : 0) | (intact ? Access::intact : 0))});
            if (take_read) ++r;
            if (take_write) ++w;
            if (first[buffer] < 0) first[buffer] = std::max(0, op.index.value - ahead);
            last[buffer] = op.index.value;
        }
        const auto named = [](const Access& a, const Access& b) { return a.buffer < b.buffer; };
        const auto own = static_cast<std::ptrdiff_t>(access.data.size());
        for (const std::int32_t b : coming)
            if (!std::binary_search(access.data.begin() + row, access.data.begin() + own, Access{b, 0}, named)) access.push({b, 0});
        std::sort(access.data.begin() + row, access.data.end(), named);
        access.data.erase(std::unique(access.data.begin() + row, access.data.end(), [](const Access& a, const Access& b) { return a.buffer == b.buffer; }), access.data.end());
        access.end_row();
    }
    std::vector<std::int32_t> count(buffers + 1, 0);
    for (const auto& a : access.data) ++count[a.buffer + 1];
    for (std::int32_t b = 0; b < buffers; ++b) count[b + 1] += count[b];
    uses.begin = count;
    uses.data.resize(access.data.size());
    for (std::int32_t k = 0; k < ops; ++k)
        for (const auto& a : access[k]) {
            const std::int32_t i = count[a.buffer]++;
            const bool first_use = i == uses.begin[a.buffer];
            uses.data[i] = {k, a.writes() ? k : first_use ? -1 : uses.data[i - 1].writer, a.flags};
        }

    std::vector<std::vector<std::int32_t>> begins(ops), ends(ops);
    for (const auto& buffer : trace.buffers) {
        const std::int32_t b = buffer.id.value;
        bytes.push_back(buffer.bytes.value);
        persistent.push_back(buffer.persistent);
        if (buffer.persistent) {
            persistent_bytes += buffer.bytes.value;
            first[b] = 0;
            last[b] = ops - 1;
            continue;
        }
        if (buffer.alloc_op.value >= 0) first[b] = std::max(0, buffer.alloc_op.value - ahead);
        if (buffer.free_op.value >= 0) last[b] = buffer.free_op.value;
        if (first[b] >= 0 && last[b] < 0) last[b] = ops - 1;
        if (last[b] >= 0 && first[b] < 0) first[b] = 0;
        if (first[b] < 0) continue;
        begins[first[b]].push_back(b);
        ends[last[b]].push_back(b);
    }
    std::int64_t held = persistent_bytes;
    for (std::int32_t k = 0; k < ops; ++k) {
        std::int64_t taken = 0;
        for (std::int32_t b : begins[k]) {
            alloc.push(b);
            taken += bytes[b];
        }
        alloc.end_row();
        alloc_bytes.push_back(taken);
        held += taken;
        live.push_back(held + workspace[k]);
        peak_live = std::max(peak_live, live.back());
        for (std::int32_t b : ends[k]) {
            free.push(b);
            held -= bytes[b];
        }
        free.end_row();
    }
}

std::int32_t CompiledTrace::writer_before(std::int32_t buffer, std::int32_t op) const {
    const auto row = uses[buffer];
    const auto it = std::lower_bound(row.begin(), row.end(), op, [](const FlatUse& u, std::int32_t k) { return u.op < k; });
    return it == row.begin() ? -1 : std::prev(it)->writer;
}

void CompiledPlan::clear() {
    start_evicted.clear();
    actions.clear();
    chains.clear();
    steps.clear();
    need.clear();
    made.clear();
}

ReplayCompiler::ReplayCompiler(const CompiledTrace& trace)
    : trace_(trace), last_step_(trace.buffers), writer_(trace.buffers), stamp_(trace.buffers, 0), wanted_(trace.buffers, 0) {}

bool ReplayCompiler::add(CompiledPlan& plan, std::int32_t before_op, std::span<const std::int32_t> ops,
                         std::span<const std::int32_t> buffers, std::string* error) {
    const auto& t = trace_;
    const auto fail = [&](const std::string& what) {
        if (error) *error = "replay before op " + std::to_string(before_op) + ": " + what;
        return false;
    };
    if (ops.empty()) return fail("names no op");
    ++now_;
    for (std::int32_t b : buffers) {
        if (t.persistent[b] ? false : (t.first[b] >= before_op || t.last[b] < before_op))
            return fail("buffer " + std::to_string(b) + " is not live there");
        wanted_[b] = now_;
    }
    // Who names a buffer last, for intermediates.
    for (std::size_t s = 0; s < ops.size(); ++s) {
        const std::int32_t c = ops[s];
        if (c >= before_op) return fail("op " + std::to_string(c) + " has not run yet");
        if (!t.replayable[c]) return fail("op " + std::to_string(c) + " is not replayable");
        for (const auto& a : t.access[c])
            if (a.flags) last_step_[a.buffer] = static_cast<std::int32_t>(s);
    }
    FlatChain chain{before_op, static_cast<std::int32_t>(plan.steps.size()), 0, static_cast<std::int32_t>(plan.made.size()), 0, 0};
    for (std::size_t s = 0; s < ops.size(); ++s) {
        const std::int32_t c = ops[s];
        ReplayStep step{c, static_cast<std::int32_t>(plan.need.size()), 0, static_cast<std::int32_t>(plan.made.size()), 0,
                        t.workspace[c] + t.replay_workspace[c], t.workspace[c] + t.replay_workspace[c]};
        for (const auto& a : t.access[c]) {
            const std::int32_t b = a.buffer;
            if (!a.flags) continue;
            const bool produced = stamp_[b] == now_;
            const bool want = wanted_[b] == now_;
            if (a.reads() && produced && writer_[b] != t.writer_before(b, c))
                return fail("op " + std::to_string(c) + " reads another version of buffer " + std::to_string(b));
            if (a.reads() && !produced) {
                if (want) return fail("buffer " + std::to_string(b) + " is updated in place: every writer must be replayed");
                const bool state = a.writes() && t.persistent[b];
                if (!state && t.writer_before(b, c) != t.writer_before(b, before_op))
                    return fail("buffer " + std::to_string(b) + ", read by op " + std::to_string(c) + ", has been overwritten");
                plan.need.push_back(b);
                continue;
            }
            if (!a.writes()) {
                if (!want && last_step_[b] == static_cast<std::int32_t>(s)) step.give += t.bytes[b];
                continue;
            }
            if (!produced) {
                step.take += t.bytes[b];
                stamp_[b] = now_;
                if (want) {
                    plan.made.push_back(b);
                    chain.made_bytes += t.bytes[b];
                }
            }
            writer_[b] = c;
            if (!want && last_step_[b] == static_cast<std::int32_t>(s)) step.give += t.bytes[b];
        }
        step.need_end = static_cast<std::int32_t>(plan.need.size());
        step.make_end = static_cast<std::int32_t>(plan.made.size());
        plan.steps.push_back(step);
    }
    for (std::int32_t b : buffers) {
        if (stamp_[b] != now_) return fail("no op of it writes buffer " + std::to_string(b));
        if (writer_[b] != t.writer_before(b, before_op))
            return fail("buffer " + std::to_string(b) + " would get an old version");
    }
    chain.step_end = static_cast<std::int32_t>(plan.steps.size());
    chain.made_end = static_cast<std::int32_t>(plan.made.size());
    plan.chains.push_back(chain);
    return true;
}

bool compile_plan(const CompiledTrace& trace, const Plan& plan, ReplayCompiler& compiler, CompiledPlan& out, std::string& error) {
    out.clear();
    const auto known = [&](BufferId b) { return b.value >= 0 && b.value < trace.buffers; };
    for (BufferId b : plan.start_evicted) {
        if (!known(b) || !trace.persistent[b.value]) {
            error = "start_evicted names buffer " + std::to_string(b.value) + ", which is not a persistent buffer";
            return false;
        }
        out.start_evicted.push_back(b.value);
    }
    std::vector<std::int32_t> count(trace.ops + 2, 0);
    std::vector<const Action*> replays;
    for (const auto& action : plan.actions) {
        const std::int32_t k = action.op.value;
        const bool replay = action.what == Do::replay;
        if (k < (replay || action.what != Do::prefetch ? 0 : -1) || k >= trace.ops) {
            error = "an action names op " + std::to_string(k) + ", which does not exist";
            return false;
        }
        if (replay) {
            for (OpIndex c : action.ops)
                if (c.value < 0 || c.value >= trace.ops) {
                    error = "replay before op " + std::to_string(k) + ": op " + std::to_string(c.value) + " does not exist";
                    return false;
                }
            for (BufferId b : action.buffers)
                if (!known(b)) {
                    error = "replay before op " + std::to_string(k) + ": buffer " + std::to_string(b.value) + " does not exist";
                    return false;
                }
            replays.push_back(&action);
            continue;
        }
        if (!known(action.buffer)) {
            error = "action after op " + std::to_string(k) + ": buffer " + std::to_string(action.buffer.value) + " does not exist";
            return false;
        }
        ++count[k + 2];
    }
    for (std::int32_t k = 0; k <= trace.ops; ++k) count[k + 1] += count[k];
    out.actions.begin = count;
    out.actions.data.resize(count[trace.ops + 1]);
    for (const auto& action : plan.actions)
        if (action.what != Do::replay) out.actions.data[count[action.op.value + 1]++] = {action.what, action.buffer.value};
    std::stable_sort(replays.begin(), replays.end(), [](const Action* a, const Action* b) { return a->op < b->op; });
    std::vector<std::int32_t> ops, buffers;
    for (const Action* action : replays) {
        ops.clear();
        buffers.clear();
        for (OpIndex c : action->ops) ops.push_back(c.value);
        for (BufferId b : action->buffers) buffers.push_back(b.value);
        if (!compiler.add(out, action->op.value, ops, buffers, &error)) return false;
    }
    return true;
}

Plan decompile_plan(const CompiledPlan& plan, std::string policy) {
    Plan out;
    out.policy = std::move(policy);
    for (std::int32_t b : plan.start_evicted) out.start_evicted.push_back(BufferId(b));
    std::size_t next = 0;
    for (std::size_t row = 0; row < plan.actions.rows(); ++row) {
        const auto k = static_cast<std::int32_t>(row) - 1;
        for (; next < plan.chains.size() && plan.chains[next].before_op <= k; ++next) {
            const auto& chain = plan.chains[next];
            Action action{Do::replay, OpIndex(chain.before_op), BufferId(-1), {}, {}};
            for (std::int32_t s = chain.step_begin; s < chain.step_end; ++s) action.ops.push_back(OpIndex(plan.steps[s].op));
            for (std::int32_t i = chain.made_begin; i < chain.made_end; ++i) action.buffers.push_back(BufferId(plan.made[i]));
            out.actions.push_back(std::move(action));
        }
        for (const auto& a : plan.actions[row]) out.actions.push_back({a.what, OpIndex(k), BufferId(a.buffer), {}, {}});
    }
    return out;
}

}  // namespace udnnmem::policy
