#include "policy/udnn/draft.hpp"

#include <algorithm>

namespace udnnmem::policy::udnn {

Drafter::Drafter(const Gaps& gaps, const Machine& machine)
    : gaps_(gaps), trace_(gaps.trace), machine_(machine), replays_(gaps.trace), where_(trace_.buffers), since_(trace_.buffers),
      event_(trace_.buffers), gap_now_(trace_.buffers), dirty_(trace_.buffers), op_stamp_(trace_.ops, 0) {
    const Engine engine(trace_, machine);
    for (std::int32_t b = 0; b < trace_.buffers; ++b) in_time_.push_back(engine.in_time(b));
    expect_ideal();
}

void Drafter::expect_ideal() {
    start.assign(trace_.ops + 1, 0);
    for (std::int32_t k = 0; k < trace_.ops; ++k) start[k + 1] = start[k] + trace_.duration[k];
}

void Drafter::fetch(std::int32_t b, std::int32_t op) {
    held_ += trace_.bytes[b];
    where_[b] = here;
    dirty_[b] = 0;
    if (event_[b] >= 0 && since_[b] == op - 1) {  // it has only just left: it stays
        events_[event_[b]].buffer = -1;
        dirty_[b] = events_[event_[b]].copies;
        event_[b] = -1;
        return;
    }
    fetches_.push_back({b, since_[b], op, event_[b] < 0});
    in_bytes += trace_.bytes[b];
}

// Adds the ops that recreate the version of `buffer` that `writer` left, and what they lack in turn.
void Drafter::chain_for(std::int32_t buffer, std::int32_t writer, std::int32_t op) {
    stack_.clear();
    stack_.push_back(buffer);
    stack_.push_back(writer);
    while (!stack_.empty()) {
        std::int32_t w = stack_.back();
        stack_.pop_back();
        const std::int32_t b = stack_.back();
        stack_.pop_back();
        while (true) {
            if (w < 0 || !trace_.replayable[w]) {
                failed_ = true;
                return;
            }
            if (op_stamp_[w] == stamp_) break;
            op_stamp_[w] = stamp_;
            chain_.push_back(w);
            std::int32_t again = -2;
            for (std::int32_t i = trace_.access.begin[w]; i < trace_.access.begin[w + 1]; ++i) {
                const auto& a = trace_.access.data[i];
                if (!a.reads()) continue;
                const std::int32_t x = a.buffer;
                if (x == b) {
                    again = gaps_.writer[i];
                    continue;
                }
                if (where_[x] == here) continue;
                if (where_[x] == off) {
                    fetch(x, op);
                    passing_.push_back(x);
                    continue;
                }
                stack_.push_back(x);
                stack_.push_back(gaps_.writer[i]);
            }
            if (again == -2) break;
            w = again;
        }
    }
}

bool Drafter::replay_before(std::int32_t k, Draft& draft) {
    std::sort(chain_.begin(), chain_.end());
    made_.clear();
    for (std::int32_t c : chain_)
        for (const auto& a : trace_.access[c]) {
            const std::int32_t b = a.buffer;
            if (!a.writes() || where_[b] != dropped || since_[b] < 0) continue;
            const bool wanted = std::find(seeds_.begin(), seeds_.end(), b) != seeds_.end();
            if (!wanted && !draft.retain[gap_now_[b]]) continue;
            if (trace_.writer_before(b, k) != c) continue;
            since_[b] = -1;  // once
            made_.push_back(b);
        }
    const std::size_t steps = plan.steps.size();
    if (!replays_.add(plan, k, chain_, made_, nullptr)) return false;
    std::int64_t held = held_, most = 0;
    for (std::size_t s = steps; s < plan.steps.size(); ++s) {
        held += plan.steps[s].take;
        most = std::max(most, held);
        held -= plan.steps[s].give;
        recompute += trace_.duration[plan.steps[s].op];
    }
    usage[k] = std::max(usage[k], most);
    held_ += plan.chains.back().made_bytes;
    for (std::int32_t b : made_) {
        where_[b] = here;
        dirty_[b] = 1;
        restored[gap_now_[b]] = k;
    }
    return true;
}

void Drafter::build(Draft& draft, Count count) {
again:
    plan.clear();
    usage.assign(trace_.ops, 0);
    restored.assign(gaps_.all.size(), -1);
    fetches_.clear();
    events_.clear();
    in_bytes = recompute = 0;
    held_ = trace_.persistent_bytes;
    for (std::int32_t b = 0; b < trace_.buffers; ++b) {
        event_[b] = -1;
        if (!trace_.persistent[b]) {
            where_[b] = nowhere;
            continue;
        }
        where_[b] = here;
        const std::int32_t last = gaps_.begin[b + 1] - 1;
        const bool unused = last < gaps_.begin[b];
        dirty_[b] = !unused && gaps_.all[last].last_write >= 0;
        if (unused || draft.mode[last] == swap) {
            where_[b] = off;
            since_[b] = unused ? -1 : gaps_.all[last].from;
            held_ -= trace_.bytes[b];
            if (unused) plan.start_evicted.push_back(b);
        }
    }
    for (std::int32_t k = 0; k < trace_.ops; ++k) {
        chain_.clear();
        seeds_.clear();
        passing_.clear();
        const std::int32_t row = trace_.access.begin[k], end = trace_.access.begin[k + 1];
        for (std::int32_t i = row; i < end; ++i)
            if (where_[trace_.access.data[i].buffer] == dropped) seeds_.push_back(trace_.access.data[i].buffer);
        if (!seeds_.empty()) {
            ++stamp_;
            failed_ = false;
            for (std::int32_t i = row; i < end && !failed_; ++i)
                if (where_[trace_.access.data[i].buffer] == dropped) chain_for(trace_.access.data[i].buffer, gaps_.writer[i], k);
            if (failed_ || !replay_before(k, draft)) {
                bool changed = false;
                for (std::int32_t b : seeds_) {
                    changed |= draft.mode[gap_now_[b]] == drop;
                    draft.mode[gap_now_[b]] = keep;
                }
                for (std::size_t g = 0; !changed && g < draft.mode.size(); ++g)
                    if (draft.mode[g] == drop) {
                        for (auto& mode : draft.mode)
                            if (mode == drop) mode = keep;
                        changed = true;
                    }
                if (changed) goto again;
            }
        }
        for (std::int32_t i = row; i < end; ++i)
            if (where_[trace_.access.data[i].buffer] == off) fetch(trace_.access.data[i].buffer, k);
        held_ += trace_.alloc_bytes[k];
        for (std::int32_t b : trace_.alloc[k]) {
            where_[b] = here;
            dirty_[b] = 1;
        }
        usage[k] = std::max(usage[k], held_ + trace_.workspace[k]);
        for (std::int32_t b : trace_.free[k]) {
            if (where_[b] == here) held_ -= trace_.bytes[b];
            where_[b] = nowhere;
        }
        for (std::int32_t i = row; i < end; ++i) {
            const std::int32_t b = trace_.access.data[i].buffer, g = gaps_.slot[i];
            if (where_[b] != here) continue;
            if (trace_.access.data[i].dirties()) dirty_[b] = 1;
            if (g < 0 || (gaps_.all[g].tail && draft.mode[g] == drop)) {  // never used again, yet held: let it go
                where_[b] = nowhere;
                held_ -= trace_.bytes[b];
                events_.push_back({k, b, -1, Do::drop, false});
                continue;
            }
            gap_now_[b] = g;
            if (draft.mode[g] == keep) continue;
            where_[b] = static_cast<std::uint8_t>(draft.mode[g] == swap ? off : dropped);
            since_[b] = k;
            held_ -= trace_.bytes[b];
            event_[b] = static_cast<std::int32_t>(events_.size());
            events_.push_back({k, b, g, draft.mode[g] == swap ? Do::evict : Do::drop, dirty_[b] != 0});
            dirty_[b] = 0;
        }
        for (const std::int32_t b : passing_) {  // fetched for a replay, next used later
            const std::int32_t g = gap_now_[b];
            if (where_[b] != here || gaps_.all[g].from >= k || (!gaps_.all[g].wraps && gaps_.all[g].to <= k + 1)) continue;
            restored[g] = k;
            if (draft.retain[g] || draft.mode[g] != swap) continue;
            where_[b] = off;
            since_[b] = k;
            held_ -= trace_.bytes[b];
            event_[b] = static_cast<std::int32_t>(events_.size());
            events_.push_back({k, b, g, Do::evict, false});
        }
    }
    std::erase_if(events_, [](const Event& e) { return e.buffer < 0; });
    if (count == Count::placed) {
        deadlines();
        place(draft);
    }
    excess = 0;
    for (std::int64_t u : usage) excess += std::max<std::int64_t>(0, u - machine_.memory.value);
    if (count == Count::placed) emit(draft);
}

// The latest moment at which each fetch must start for all to be in time, by `start`.
void Drafter::deadlines() {
    const std::size_t n = fetches_.size();
    latest_.resize(n);
    std::int64_t link = INT64_MAX;
    // Twice round, for the iteration's first fetches press on the last of the one before.
    for (int round = 0; round < 2; ++round) {
        if (round && n) link += start[trace_.ops];
        for (std::size_t i = n; i-- > 0;) {
            link = std::min(link, start[fetches_[i].to]) - in_time_[fetches_[i].buffer];
            latest_[i] = link;
        }
    }
}

// Whether the copy out of an eviction is made right after the last write: only if the buffer stays from there on.
bool Drafter::early_copy(const Draft& draft, std::int32_t g) const {
    const Gap& gap = gaps_.all[g];
    if (!draft.early[g] || draft.mode[g] != swap || gap.last_write < 0 || gap.last_write == gap.from) return false;
    for (std::int32_t h = g;;) {
        h = h > gaps_.begin[gap.buffer] ? h - 1 : gaps_.begin[gap.buffer + 1] - 1;
        if (draft.mode[h] != keep) return false;
        if (gaps_.all[h].from == gap.last_write || h == g) return true;
    }
}

// Every fetch gets the op after which it is queued: as early as `lead` asks and the memory allows, earliest
// deadline first.
void Drafter::place(const Draft& draft) {
    const std::int64_t memory = machine_.memory.value, period = start[trace_.ops];
    const std::size_t n = fetches_.size();
    trigger_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        const Fetch& f = fetches_[i];
        const std::int64_t bytes = trace_.bytes[f.buffer];
        const std::int64_t want = draft.lead < 0 ? INT64_MIN : latest_[i] - static_cast<std::int64_t>(draft.lead);
        std::int32_t p = f.to - 1;  // queued after op p; -1: at the start
        const std::int32_t low = f.wraps ? -1 : f.from + 1;
        while (p > low && start[p + 1] > want && usage[p] + bytes <= memory) usage[p--] += bytes;
        if (f.wraps && p == -1 && 0 > want) {
            std::int32_t q = trace_.ops - 1;  // held at the last ops of the iteration before
            while (q > f.from + 1 && start[q + 1 < trace_.ops ? q + 1 : trace_.ops] - period > want && usage[q] + bytes <= memory) usage[q--] += bytes;
            if (q < trace_.ops - 1) p = q + trace_.ops;
        }
        trigger_[i] = p;
    }
}

void Drafter::emit(const Draft& draft) {
    const std::int32_t ops = trace_.ops;
    const std::size_t leaving = events_.size();
    for (std::size_t i = 0; i < leaving; ++i)
        if (events_[i].what == Do::evict && early_copy(draft, events_[i].gap))
            events_.push_back({gaps_.all[events_[i].gap].last_write, events_[i].buffer, -1, Do::clean, true});
    const std::size_t left = events_.size();
    for (std::size_t i = 0; i < fetches_.size(); ++i) {
        const Fetch& f = fetches_[i];
        std::int32_t p = trigger_[i];
        if (p >= ops) p -= ops;
        else if (f.wraps) plan.start_evicted.push_back(f.buffer);
        events_.push_back({p, f.buffer, -1, Do::prefetch, false});
    }
    cursor_.assign(ops + 2, 0);
    for (const Event& e : events_) ++cursor_[e.op + 2];
    for (std::int32_t i = 0; i <= ops; ++i) cursor_[i + 1] += cursor_[i];
    plan.actions.begin.assign(cursor_.begin(), cursor_.end());
    plan.actions.data.resize(events_.size());
    // Fetches of the next iteration's first ops come last among those of one op.
    for (std::size_t i = 0; i < left; ++i) plan.actions.data[cursor_[events_[i].op + 1]++] = {events_[i].what, events_[i].buffer};
    for (int late = 0; late < 2; ++late)
        for (std::size_t i = left; i < events_.size(); ++i)
            if ((trigger_[i - left] >= ops) == (late == 1))
                plan.actions.data[cursor_[events_[i].op + 1]++] = {events_[i].what, events_[i].buffer};
}

}  // namespace udnnmem::policy::udnn
