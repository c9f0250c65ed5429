#include "policy/planners/layers.hpp"

#include <algorithm>

#include "policy/planners/forward.hpp"

namespace udnnmem::policy {

Layers::Layers(const profiler::Trace& trace, const Liveness& live, const Recovery& recovery, std::size_t most) {
    const std::int32_t turn = std::min(turning_op(trace, live), static_cast<std::int32_t>(trace.ops.size()));
    if (turn < 2) return;
    std::vector<std::int64_t> crossing(static_cast<std::size_t>(turn) + 1, 0);  // bytes over the cut after op k, as differences first
    std::vector<Saved> all;
    for (std::size_t b = 0; b < trace.buffers.size(); ++b) {
        if (trace.buffers[b].persistent) continue;
        const auto uses = live.uses_of(b);
        const std::size_t back = live.use_at_or_after(b, turn);
        std::int32_t written = -1;
        for (std::size_t i = 0; i < back; ++i)
            if (uses[i].writes) written = uses[i].op;
        if (written < 0) continue;
        const std::int32_t read_until = uses[back - 1].op;
        crossing[static_cast<std::size_t>(written)] += trace.buffers[b].bytes.value;
        crossing[static_cast<std::size_t>(read_until)] -= trace.buffers[b].bytes.value;
        if (back < uses.size()) all.push_back({b, back - 1, written, read_until, recovery.droppable(b, back - 1)});
    }
    for (std::size_t k = 1; k < crossing.size(); ++k) crossing[k] += crossing[k - 1];

    // Cuts where less crosses than at the ops around; if there are too many, the least of each stretch.
    for (std::int32_t k = 0; k + 1 < turn; ++k) {
        const std::int64_t here = crossing[static_cast<std::size_t>(k)];
        if ((k == 0 || here < crossing[static_cast<std::size_t>(k) - 1]) && here <= crossing[static_cast<std::size_t>(k) + 1]) cuts_.push_back(k);
    }
    if (cuts_.size() + 1 > most) {
        std::vector<std::int32_t> fewer;
        for (std::size_t s = 0; s + 1 < most; ++s) {
            const auto begin = cuts_.begin() + static_cast<std::ptrdiff_t>(s * cuts_.size() / (most - 1)), end = cuts_.begin() + static_cast<std::ptrdiff_t>((s + 1) * cuts_.size() / (most - 1));
            fewer.push_back(*std::min_element(begin, end, [&](std::int32_t a, std::int32_t b) { return crossing[static_cast<std::size_t>(a)] < crossing[static_cast<std::size_t>(b)]; }));
        }
        cuts_ = std::move(fewer);
    }
    cuts_.push_back(turn - 1);

    saved_.resize(cuts_.size());
    saved_bytes_.assign(cuts_.size(), 0);
    times_.assign(cuts_.size(), Nanoseconds());
    for (const Saved& entry : all) {
        const auto layer = static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), entry.written) - cuts_.begin());
        saved_[layer].push_back(entry);
        saved_bytes_[layer] += trace.buffers[entry.buffer].bytes.value;
    }
    for (std::size_t layer = 0, k = 0; layer < cuts_.size(); ++layer) {
        for (; static_cast<std::int32_t>(k) <= cuts_[layer]; ++k) times_[layer] += trace.ops[k].duration;
        const std::int64_t output = crossing[static_cast<std::size_t>(cuts_[layer])];
        chain_.output.push_back(output);
        chain_.inner.push_back(std::max<std::int64_t>(0, saved_bytes_[layer] - output));
    }
}

}  // namespace udnnmem::policy
