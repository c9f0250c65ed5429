// The gaps of a trace: see draft.hpp. What a replay of each gap would run and read is worked out here,
// through inputs that are dead by then, as far as versions and replayable ops allow.
#include <algorithm>

#include "policy/udnn/draft.hpp"

namespace udnnmem::policy::udnn {

namespace {

constexpr std::size_t longest_replay = 96;  // ops of one gap's own replay; beyond that it is not worth looking
constexpr std::size_t longest_tail = 1024;  // of what could remake a tail, which as a rule nobody does

// Collects the ops and the live input buffers of a replay of `buffer` just before op `before`.
class ReplayScope {
public:
    explicit ReplayScope(const CompiledTrace& trace) : trace_(trace), op_stamp_(trace.ops, 0), buffer_stamp_(trace.buffers, 0) {}
    std::vector<std::int32_t> ops, inputs;

    bool find(std::int32_t buffer, std::int32_t writer, std::int32_t before, std::size_t longest) {
        ++now_;
        longest_ = longest;
        ops.clear();
        inputs.clear();
        return add(buffer, writer, before);
    }

private:
    bool add(std::int32_t buffer, std::int32_t writer, std::int32_t before) {
        for (std::int32_t w = writer;;) {
            if (w < 0 || ops.size() > longest_) return false;
            if (op_stamp_[w] == now_) return true;
            if (!trace_.replayable[w]) return false;
            op_stamp_[w] = now_;
            ops.push_back(w);
            bool in_place = false;
            for (const auto& a : trace_.access[w]) {
                const std::int32_t i = a.buffer;
                if (!a.reads()) continue;
                if (i == buffer) {
                    in_place = true;
                    continue;
                }
                const bool live = trace_.persistent[i] || trace_.last[i] >= before;
                const std::int32_t version = trace_.writer_before(i, w);
                if (live) {
                    const bool state = a.writes() && trace_.persistent[i];
                    if (!state && trace_.writer_before(i, before) != version) return false;
                    if (buffer_stamp_[i] != now_) {
                        buffer_stamp_[i] = now_;
                        inputs.push_back(i);
                    }
                } else if (!add(i, version, before)) {
                    return false;
                }
            }
            if (!in_place) return true;
            w = trace_.writer_before(buffer, w);
        }
    }

    const CompiledTrace& trace_;
    std::vector<std::int64_t> op_stamp_, buffer_stamp_;
    std::int64_t now_ = 0;
    std::size_t longest_ = 0;
};

}  // namespace

Gaps::Gaps(const CompiledTrace& t, bool recompute, bool tails, std::int64_t negligible) : trace(t) {
    std::vector<std::int64_t> sizes = t.bytes;
    std::sort(sizes.begin(), sizes.end());
    std::int64_t least = 0;
    for (const std::int64_t size : sizes) {
        negligible -= size;
        if (negligible < 0) break;
        least = size;
    }
    if (!sizes.empty() && least == sizes.back()) least = 0;
    slot.assign(t.access.data.size(), -1);
    writer.assign(t.access.data.size(), -1);
    std::vector<std::int32_t> latest(t.buffers, -1), position(t.buffers, 0);
    for (std::int32_t b = 0; b < t.buffers; ++b) {
        begin.push_back(static_cast<std::int32_t>(all.size()));
        const auto uses = t.uses[b];
        std::int32_t written = -1;
        if (t.persistent[b])
            for (const auto& u : uses)
                if (u.dirties()) written = u.op;
        for (std::size_t i = 0; i < uses.size(); ++i) {
            if (uses[i].dirties()) written = uses[i].op;
            const bool end = i + 1 == uses.size();
            const bool tail = end && !t.persistent[b];
            if (tail && tails && t.last[b] > uses[i].op) all.push_back({b, uses[i].op, t.last[b] + 1, written, false, t.bytes[b] > least, false, true, t.bytes[b], 0});
            if (tail) break;
            const std::int32_t to = end ? uses[0].op : uses[i + 1].op;
            const bool open = end ? !(uses[i].op == t.ops - 1 && to == 0) && t.ops > 1 : to > uses[i].op + 1;
            all.push_back({b, uses[i].op, to, written, end, open && t.bytes[b] > least, false, false, t.bytes[b], 0});
        }
    }
    begin.push_back(static_cast<std::int32_t>(all.size()));
    for (std::int32_t k = 0; k < t.ops; ++k)
        for (std::int32_t i = t.access.begin[k]; i < t.access.begin[k + 1]; ++i) {
            const auto& a = t.access.data[i];
            const std::int32_t g = begin[a.buffer] + position[a.buffer]++;
            slot[i] = g < begin[a.buffer + 1] ? g : -1;
            writer[i] = latest[a.buffer];
            if (a.writes()) latest[a.buffer] = k;
        }
    ReplayScope scope(t);
    for (std::size_t g = 0; g < all.size(); ++g) {
        Gap& gap = all[g];
        if (recompute && gap.open && !gap.wraps && scope.find(gap.buffer, t.writer_before(gap.buffer, gap.to), gap.to, gap.tail ? longest_tail : longest_replay)) {
            gap.droppable = true;
            if (gap.tail) scope.ops.clear(), scope.inputs.clear();   // it only could be
            for (std::int32_t op : scope.ops) {
                gap.replay += t.duration[op];
                replayed.push(op);
            }
            for (std::int32_t i : scope.inputs) {
                // The gap of i that holds op gap.to.
                const auto row = t.uses[i];
                const auto next = std::lower_bound(row.begin(), row.end(), gap.to, [](const FlatUse& u, std::int32_t k) { return u.op < k; });
                if (next != row.begin() && next != row.end()) inputs.push(begin[i] + static_cast<std::int32_t>(next - row.begin()) - 1);
            }
        }
        inputs.end_row();
        replayed.end_row();
    }
}

}  // namespace udnnmem::policy::udnn
