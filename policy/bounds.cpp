#include "policy/bounds.hpp"

#include <algorithm>

#include "policy/liveness.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

constexpr std::size_t most_pairs = 30'000'000;  // of ends of windows and ops looked at

// At op k no more than M is on the device. What is alive there and used again must come back; what of it
// was written in this iteration must have gone out.
std::int64_t bound_by_bytes(const Trace& trace, const Machine& machine, const Liveness& live) {
    const std::size_t ops = trace.ops.size();
    std::vector<std::int64_t> back(ops + 1, 0), out(ops + 1, 0);  // differences
    for (std::size_t b = 0; b < trace.buffers.size(); ++b) {
        const auto uses = live.uses_of(b);
        const std::int64_t bytes = trace.buffers[b].bytes.value;
        if (uses.empty()) continue;
        const bool persistent = trace.buffers[b].persistent;
        const std::size_t from = persistent ? 0 : static_cast<std::size_t>(live.first(b)), to = persistent ? ops : static_cast<std::size_t>(uses.back().op) + 1;
        back[from] += bytes, back[to] -= bytes;
        const bool written = !persistent || std::any_of(uses.begin(), uses.end(), [](const Use& use) { return use.dirties; });
        if (written) out[from] += bytes, out[to] -= bytes;
    }
    std::int64_t bound = 0, back_now = 0, out_now = 0;
    for (std::size_t k = 0; k < ops; ++k) {
        back_now += back[k], out_now += out[k];
        const std::int64_t room = machine.memory.value - trace.ops[k].workspace.value;
        bound = std::max({bound, time_at(machine.link_in, back_now - room), time_at(machine.link_out, out_now - room)});
    }
    return bound;
}

// Windows of ops a..b. Q: bytes named in it that were alive before it; beyond M they are fetched within it,
// and b itself only runs when they are there. P: bytes written in it and alive after it; beyond M they are
// copied out within it. A chain of windows is at least as long as the sum of its windows.
std::int64_t bound_by_windows(const Trace& trace, const Machine& machine, const Liveness& live) {
    const auto ops = static_cast<std::int32_t>(trace.ops.size());
    const std::int64_t memory = machine.memory.value;
    const auto grid = static_cast<std::int32_t>(1 + static_cast<std::size_t>(ops) * static_cast<std::size_t>(ops) / most_pairs);
    std::vector<std::int64_t> until(static_cast<std::size_t>(ops) + 1, 0);  // bound for the ops before
    std::vector<std::int32_t> counted_in(trace.buffers.size(), -1), counted_out(trace.buffers.size(), -1);
    for (std::int32_t b = 0; b < ops; ++b) {
        auto& best = until[static_cast<std::size_t>(b) + 1];
        best = until[static_cast<std::size_t>(b)] + trace.ops[static_cast<std::size_t>(b)].duration.value;
        if ((b + 1) % grid && b + 1 != ops) continue;
        std::int64_t in = 0, out = 0;
        for (std::int32_t a = b; a >= 0; --a) {
            const auto& op = trace.ops[static_cast<std::size_t>(a)];
            for (const std::int32_t name : live.buffers_of(static_cast<std::size_t>(a))) {
                const auto buffer = static_cast<std::size_t>(name);
                const std::int64_t bytes = trace.buffers[buffer].bytes.value;
                const bool born = !trace.buffers[buffer].persistent && live.uses_of(buffer).front().op == a;
                if (born && counted_in[buffer] == b) {
                    in -= bytes;
                    counted_in[buffer] = -1;
                } else if (!born && counted_in[buffer] != b) {
                    in += bytes;
                    counted_in[buffer] = b;
                }
            }
            for (const BufferId id : op.writes) {
                const auto buffer = static_cast<std::size_t>(id.value);
                const bool lives_on = trace.buffers[buffer].persistent || live.uses_of(buffer).back().op > b;
                if (!lives_on || counted_out[buffer] == b || std::binary_search(op.intact.begin(), op.intact.end(), id)) continue;
                out += trace.buffers[buffer].bytes.value;
                counted_out[buffer] = b;
            }
            const std::int64_t before = until[static_cast<std::size_t>(a)];
            if (in > memory) best = std::max(best, before + time_at(machine.link_in, in - memory) + trace.ops[static_cast<std::size_t>(b)].duration.value);
            if (out > memory) best = std::max(best, before + time_at(machine.link_out, out - memory));
        }
    }
    return until.back();
}

}  // namespace

Nanoseconds Bounds::best() const { return std::max({compute, bytes, window}); }

const char* Bounds::best_name() const { return best() == compute ? "LB0" : best() == bytes ? "LB1" : "LB2"; }

Bounds bounds(const Trace& trace, const Machine& machine) {
    const Liveness live(trace);
    return {live.ideal(), Nanoseconds(bound_by_bytes(trace, machine, live)), Nanoseconds(bound_by_windows(trace, machine, live))};
}

Nanoseconds lower_bound(const Trace& trace, const Machine& machine) { return bounds(trace, machine).best(); }

}  // namespace udnnmem::policy
