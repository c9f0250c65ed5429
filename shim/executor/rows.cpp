#include "shim/executor/rows.hpp"

#include <algorithm>
#include <random>

namespace udnnmem::executor {

namespace {

// The replays of a plan, and those for tails that the program does not free when it should.
void take_replays(const policy::Plan& plan, std::size_t steps, const std::vector<policy::DroppedTail>& tails, Rows& rows) {
    for (const policy::Action& a : plan.actions) {
        if (a.what != policy::Do::replay || a.op.value < 0 || static_cast<std::size_t>(a.op.value) >= steps) continue;
        auto slice = std::make_shared<replay::Slice>();
        for (const OpIndex k : a.ops) slice->ops.push_back(k.value);
        for (const BufferId b : a.buffers) slice->buffers.push_back(b.value);
        rows.replays.push_back({a.op.value, std::move(slice)});
    }
    for (const policy::DroppedTail& tail : tails) {
        auto slice = std::make_shared<replay::Slice>();
        for (const OpIndex k : tail.ops) slice->ops.push_back(k.value);
        slice->buffers = {tail.buffer.value};
        rows.replays.push_back({tail.freed.value + 1, std::move(slice)});
    }
    std::stable_sort(rows.replays.begin(), rows.replays.end(), [](const auto& a, const auto& b) { return a.before < b.before; });
    index_replays(rows, steps);
}

// Which one brings back what is dropped after `op`; -1: none before the iteration ends.
std::int32_t replay_of(const Rows& rows, std::int32_t buffer, std::int32_t op) {
    for (std::size_t i = 0; i < rows.replays.size(); ++i) {
        const auto& made = rows.replays[i].slice->buffers;
        if (rows.replays[i].before > op && std::find(made.begin(), made.end(), buffer) != made.end()) return static_cast<std::int32_t>(i);
    }
    return -1;
}

void note_acts(Rows& rows) {
    rows.acts = rows.marked;
    for (std::size_t k = 0; k < rows.acts.size(); ++k)
        if (rows.begin[k + 1] > rows.begin[k]) rows.acts[k] = true;
}

}  // namespace

void index_replays(Rows& rows, std::size_t steps) {
    if (rows.replays.empty()) return;
    rows.kept.assign(steps, false);
    std::uint32_t next = 0;
    for (std::size_t k = 0; k <= steps; ++k) {
        while (next < rows.replays.size() && static_cast<std::size_t>(rows.replays[next].before) < k) ++next;
        rows.first_replay.push_back(next);
    }
    for (const Rows::Replay& r : rows.replays)
        for (const std::int32_t k : r.slice->ops) rows.kept[static_cast<std::size_t>(k)] = true;
}

Rows make_rows(const policy::Plan& plan, std::size_t steps, const std::vector<policy::DroppedTail>& tails) {
    Rows rows;
    take_replays(plan, steps, tails, rows);
    std::vector<std::vector<Rows::Entry>> by_step(steps);
    for (const bool at_start : {false, true})
        for (const policy::Action& a : plan.actions) {
            if ((a.op.value < 0) != at_start) continue;
            // What begins with the iteration is ordered at the end of the one before.
            const std::size_t step = at_start ? steps - 1 : static_cast<std::size_t>(a.op.value);
            if (step >= steps) continue;
            switch (a.what) {
                case policy::Do::evict: by_step[step].push_back({pager::Order::Kind::evict, a.buffer.value}); break;
                case policy::Do::clean: by_step[step].push_back({pager::Order::Kind::clean, a.buffer.value}); break;
                case policy::Do::prefetch: by_step[step].push_back({pager::Order::Kind::fetch, a.buffer.value}); break;
                case policy::Do::drop:
                    if (const std::int32_t replay = replay_of(rows, a.buffer.value, a.op.value); replay >= 0) by_step[step].push_back({pager::Order::Kind::drop, a.buffer.value, replay});
                    break;
                case policy::Do::replay: break;
            }
        }
    rows.begin.push_back(0);
    for (const auto& row : by_step) {
        rows.entries.insert(rows.entries.end(), row.begin(), row.end());
        rows.begin.push_back(static_cast<std::uint32_t>(rows.entries.size()));
    }
    return rows;
}

void mark_steps(Rows& rows, const Sequence& sequence) {
    const std::size_t n = sequence.steps.size(), ahead = static_cast<std::size_t>(rows.lookahead) + 1;
    rows.marked.assign(n, false);
    const auto takes = [&](std::size_t k) { rows.marked[(k + n * ahead - ahead) % n] = true; };
    for (const Rows::Replay& replay : rows.replays) takes(static_cast<std::size_t>(replay.before));
    std::vector<bool> comes(sequence.persistent.size());
    for (std::size_t b = 0; b < comes.size(); ++b) comes[b] = !sequence.lasts(b);
    for (const bool again : {false, true}) {   // what is fetched at the end of an iteration comes in the next one
        for (std::size_t k = 0; k < n; ++k) {
            const Sequence::Step& step = sequence.steps[k];
            for (std::uint32_t i = step.first; i < step.first + step.count; ++i) {
                const auto b = static_cast<std::size_t>(sequence.uses[i].buffer);
                if (comes[b]) takes(k);
                comes[b] = again ? false : !sequence.uses[i].again && !sequence.lasts(b);
            }
            for (std::uint32_t i = rows.begin[k]; i < rows.begin[k + 1]; ++i)
                if (rows.entries[i].kind == pager::Order::Kind::fetch) comes[static_cast<std::size_t>(rows.entries[i].buffer)] = true;
        }
    }
    note_acts(rows);
}

Rows distorted(const Rows& rows, std::size_t buffers, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t steps = rows.begin.size() - 1;
    std::vector<std::vector<Rows::Entry>> by_step(steps);
    for (std::size_t k = 0; k < steps; ++k)
        for (std::uint32_t i = rows.begin[k]; i < rows.begin[k + 1]; ++i) {
            Rows::Entry entry = rows.entries[i];
            std::size_t at = k;
            switch (random() % 15) {
                case 0: entry.buffer = static_cast<std::int32_t>(random() % buffers); break;
                case 1: entry.kind = static_cast<pager::Order::Kind>(random() % (rows.replays.empty() ? 3 : 4)); break;
                case 2: at = random() % steps; break;
                case 3: by_step[random() % steps].push_back(entry); break;
                case 4: continue;
                default: break;
            }
            by_step[at].push_back(entry);
        }
    Rows out = rows;
    out.entries.clear();
    out.begin.clear();
    for (const auto& row : by_step) {
        out.begin.push_back(static_cast<std::uint32_t>(out.entries.size()));
        out.entries.insert(out.entries.end(), row.begin(), row.end());
    }
    out.begin.push_back(static_cast<std::uint32_t>(out.entries.size()));
    note_acts(out);
    return out;
}

}  // namespace udnnmem::executor
