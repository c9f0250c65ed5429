#include "policy/engine.hpp"

#include <algorithm>
#include <bit>

namespace udnnmem::policy {

namespace {
constexpr std::int64_t granule = 2 << 20, frame = 64 << 20;
}  // namespace

Engine::Engine(const CompiledTrace& trace, const Machine& machine)
    : trace_(trace), machine_(machine), state_(trace.buffers), host_valid_(trace.buffers), charged_(trace.buffers), copying_(trace.buffers),
      version_(trace.buffers), life_(trace.buffers), pending_(trace.buffers), out_queued_(trace.buffers) {
    for (std::int32_t b = 0; b < trace.buffers; ++b) {
        const std::int64_t map = frames(b) * machine.map.value;
        in_time_.push_back(machine.link_latency.value + time_at(machine.link_in, trace.bytes[b]) + map);
        out_time_.push_back(machine.link_latency.value + time_at(machine.link_out, trace.bytes[b]));
        evict_time_.push_back(out_time_.back() + time_at(machine.hash_rate, trace.bytes[b]) + map);
    }
}

// Frames of a buffer: 64 MiB extents, the rest as powers of two of the granule.
std::int64_t Engine::frames(std::int32_t buffer) const {
    const std::int64_t granules = (trace_.bytes[buffer] + granule - 1) / granule;
    return granules / (frame / granule) + std::popcount(static_cast<std::uint64_t>(granules % (frame / granule)));
}

void Engine::reset(const CompiledPlan& plan) {
    const auto n = static_cast<std::size_t>(trace_.buffers);
    std::fill(host_valid_.begin(), host_valid_.end(), 0);
    std::fill(charged_.begin(), charged_.end(), 0);
    std::fill(copying_.begin(), copying_.end(), 0);
    std::fill(version_.begin(), version_.end(), 0);
    std::fill(life_.begin(), life_.end(), 0);
    std::fill(pending_.begin(), pending_.end(), 0);
    std::fill(out_queued_.begin(), out_queued_.end(), 0);
    for (std::size_t b = 0; b < n; ++b) state_[b] = trace_.persistent[b] ? resident : absent;
    in_.reset();
    out_.reset();
    held_.clear();
    held_head_ = 0;
    now_ = used_ = host_used_ = 0;
    in_bytes_ = out_bytes_ = recompute_ = demand_ = 0;
    admitted_ = done_ = 0;
    asked_ = false;
    verdict_ = {};
    used_ = trace_.persistent_bytes;
    for (std::int32_t b : plan.start_evicted) {
        if (state_[b] == absent) continue;
        state_[b] = absent;
        used_ -= trace_.bytes[b];
        host_valid_[b] = charged_[b] = 1;
        host_used_ += trace_.bytes[b];
    }
    peak_ = used_;
    host_peak_ = host_used_;
}

void Engine::lay_out(const CompiledPlan& plan) {
    items_.clear();
    std::size_t chain = 0;
    for (std::int32_t k = 0; k < trace_.ops; ++k) {
        for (; chain < plan.chains.size() && plan.chains[chain].before_op == k; ++chain)
            for (std::int32_t s = plan.chains[chain].step_begin; s < plan.chains[chain].step_end; ++s)
                items_.push_back({k, s, static_cast<std::int32_t>(chain)});
        items_.push_back({k, -1, -1});
    }
}

// Bytes that become free now, or when a card's costs allow.
void Engine::give(std::int64_t bytes, std::int64_t extra) {
    const std::int64_t delay = machine_.turnaround.value + extra;
    if (delay == 0) {
        used_ -= bytes;
        return;
    }
    if (bytes == 0) return;
    Held held{now_ + delay, bytes};
    auto it = held_.end();
    while (it != held_.begin() + static_cast<std::ptrdiff_t>(held_head_) && (it - 1)->until > held.until) --it;
    held_.insert(it, held);
}

void Engine::stale(std::int32_t b) {
    ++version_[b];
    host_valid_[b] = 0;
    if (charged_[b]) {
        charged_[b] = 0;
        host_used_ -= trace_.bytes[b];
    }
}

void Engine::die(std::int32_t b) {
    ++life_[b];  // queued transfers of it are void
    pending_[b] = out_queued_[b] = 0;
    if (copying_[b] == 0 && state_[b] == resident) give(trace_.bytes[b], 0);
    if (copying_[b] == 0 && state_[b] == leaving) give(trace_.bytes[b], 0);
    // With a transfer under way the frames go at its end: end_in and end_out see the generation.
    state_[b] = absent;
    stale(b);
}

// Whether an item names the buffer; `made`: also what a replay recreates.
bool Engine::names(const CompiledPlan& plan, std::int64_t index, std::int32_t b, bool made) const {
    const Item& item = items_[static_cast<std::size_t>(index % static_cast<std::int64_t>(items_.size()))];
    if (item.step < 0) {
        for (const auto& a : trace_.access[item.op])
            if (a.buffer == b) return true;
        return false;
    }
    const auto& step = plan.steps[item.step];
    for (std::int32_t j = step.need_begin; j < step.need_end; ++j)
        if (plan.need[j] == b) return true;
    for (std::int32_t j = step.make_begin; made && j < step.make_end; ++j)
        if (plan.made[j] == b) return true;
    return false;
}

// With a lookahead the items that come next hold their buffers already.
bool Engine::held_ahead(const CompiledPlan& plan, std::int32_t b) const {
    for (std::int64_t i = done_; i < admitted_; ++i)
        if (names(plan, i, b, true)) return true;
    return false;
}

bool Engine::needed_soon(const CompiledPlan& plan, std::int32_t b) const {
    const auto n = static_cast<std::int64_t>(items_.size());
    // The one after them as well; only the first of an iteration looks across its end.
    return held_ahead(plan, b) || ((admitted_ % n != 0 || admitted_ == done_) && names(plan, admitted_, b, false));
}

bool Engine::act(const CompiledPlan& plan, std::int32_t op) {
    for (const auto& action : plan.actions[op + 1]) {
        const std::int32_t b = action.buffer;
        if (action.what == Do::prefetch) {
            if (pending_[b] || state_[b] == arriving || state_[b] == resident) continue;
            if (state_[b] == absent && !host_valid_[b]) return fail(Fault::prefetch_no_copy, op, b);
            ++pending_[b];
            in_.entries.push_back({b, life_[b], version_[b], false});
            continue;
        }
        if (state_[b] == leaving) return fail(Fault::action_leaving, op, b);
        if (state_[b] != resident) return fail(Fault::action_not_resident, op, b);
        switch (action.what) {
            case Do::evict:
                if (needed_soon(plan, b)) return fail(Fault::evict_needed, op, b);
                if (host_valid_[b]) {
                    state_[b] = absent;
                    give(trace_.bytes[b], time_at(machine_.hash_rate, trace_.bytes[b]));
                } else {
                    state_[b] = leaving;
                    ++out_queued_[b];
                    out_.entries.push_back({b, life_[b], version_[b], true});
                }
                break;
            case Do::clean:
                if (!host_valid_[b]) {
                    ++out_queued_[b];
                    out_.entries.push_back({b, life_[b], version_[b], false});
                }
                break;
            case Do::drop:
                if (out_queued_[b]) return fail(Fault::action_leaving, op, b);
                if (held_ahead(plan, b)) return fail(Fault::evict_needed, op, b);
                state_[b] = absent;
                give(trace_.bytes[b], time_at(machine_.hash_rate, trace_.bytes[b]));
                break;
            default: break;
        }
    }
    return true;
}

// What the item lacks joins the queue, once.
bool Engine::ask(const CompiledPlan& plan, const Item& item) {
    asked_ = true;
    const auto want = [&](std::int32_t b) {
        if (state_[b] == resident || state_[b] == arriving || pending_[b]) return true;
        if (state_[b] == absent && !host_valid_[b]) return fail(Fault::no_copy, item.op, b);
        ++pending_[b];
        ++demand_;
        in_.entries.push_back({b, life_[b], version_[b], false});
        return true;
    };
    if (item.step < 0) {
        for (const auto& a : trace_.access[item.op]) {
            const std::int32_t b = a.buffer;
            if (state_[b] == resident || (!trace_.persistent[b] && trace_.first[b] == item.op)) continue;
            if (!want(b)) return false;
        }
    } else {
        const auto& step = plan.steps[item.step];
        for (std::int32_t i = step.make_begin; i < step.make_end; ++i) {
            const std::int32_t b = plan.made[i];
            if (state_[b] == resident || state_[b] == arriving || pending_[b]) return fail(Fault::made_present, item.op, b);
        }
        // Demand fetches join in ascending id; a step needs few.
        std::int32_t previous = -1;
        for (std::int32_t done = step.need_begin; done < step.need_end; ++done) {
            std::int32_t next = INT32_MAX;
            for (std::int32_t j = step.need_begin; j < step.need_end; ++j)
                if (plan.need[j] > previous && plan.need[j] < next) next = plan.need[j];
            if (next == INT32_MAX) break;
            if (!want(next)) return false;
            previous = next;
        }
    }
    return true;
}

// Takes the frames of the item if all that it names is there and they fit.
bool Engine::admit(const CompiledPlan& plan, std::int64_t index) {
    const Item& item = items_[static_cast<std::size_t>(index % static_cast<std::int64_t>(items_.size()))];
    if (!asked_ && !ask(plan, item)) return false;
    const std::int32_t k = item.op;
    if (item.step < 0) {
        const std::int64_t bytes = trace_.alloc_bytes[k] + trace_.workspace[k];
        starved_ = true;
        for (const auto& a : trace_.access[k])
            if (state_[a.buffer] != resident && (trace_.persistent[a.buffer] || trace_.first[a.buffer] != k)) return false;
        starved_ = false;
        if (used_ + bytes > machine_.memory.value) return false;
        take(bytes);
        for (std::int32_t b : trace_.alloc[k]) state_[b] = resident;
    } else {
        const auto& step = plan.steps[item.step];
        starved_ = true;
        for (std::int32_t i = step.need_begin; i < step.need_end; ++i)
            if (state_[plan.need[i]] != resident) return false;
        for (std::int32_t i = step.make_begin; i < step.make_end; ++i)
            if (state_[plan.made[i]] != absent) return false;
        starved_ = false;
        if (used_ + step.take > machine_.memory.value) return false;
        take(step.take);
        for (std::int32_t i = step.make_begin; i < step.make_end; ++i) state_[plan.made[i]] = resident;
    }
    asked_ = false;
    ++admitted_;
    return true;
}

// From its start on the item writes: host copies of what it writes are stale.
void Engine::start(const CompiledPlan& plan, const Item& item) {
    if (item.step < 0) {
        for (const auto& a : trace_.access[item.op])
            if (a.dirties()) stale(a.buffer);
        return;
    }
    const auto& step = plan.steps[item.step];
    for (std::int32_t i = step.make_begin; i < step.make_end; ++i) stale(plan.made[i]);
}

void Engine::finish(const CompiledPlan& plan, const Item& item) {
    if (item.step >= 0) {
        give(plan.steps[item.step].give, 0);
        return;
    }
    if (trace_.workspace[item.op]) give(trace_.workspace[item.op], 0);
    for (std::int32_t b : trace_.free[item.op]) die(b);
}

void Engine::end_in() {
    in_.busy = false;
    const std::int32_t b = in_.current.buffer;
    --copying_[b];
    if (in_.current.life != life_[b]) {
        used_ -= trace_.bytes[b];
        return;
    }
    state_[b] = resident;
}

void Engine::end_out() {
    out_.busy = false;
    const std::int32_t b = out_.current.buffer;
    --copying_[b];
    if (out_.current.life != life_[b]) {  // it died under the copy
        used_ -= trace_.bytes[b];
        return;
    }
    --out_queued_[b];
    if (out_.current.version == version_[b]) host_valid_[b] = 1;
    if (out_.current.evict) {
        state_[b] = absent;
        used_ -= trace_.bytes[b];
    }
}

bool Engine::start_transfers() {
    bool moved = false;
    while (!out_.busy && !out_.empty()) {
        const Entry entry = out_.entries[out_.head];
        const std::int32_t b = entry.buffer;
        if (entry.life != life_[b]) {
            ++out_.head;
            continue;
        }
        if (host_valid_[b]) {  // a `clean` before it has done the work
            ++out_.head;
            --out_queued_[b];
            if (entry.evict) {
                state_[b] = absent;
                used_ -= trace_.bytes[b];
            }
            moved = true;
            continue;
        }
        if (!charged_[b] && host_used_ + trace_.bytes[b] > machine_.host.value) break;
        ++out_.head;
        if (entry.version == version_[b] && !charged_[b]) {
            charged_[b] = 1;
            host_used_ += trace_.bytes[b];
            host_peak_ = std::max(host_peak_, host_used_);
        }
        out_.current = entry;
        if (out_.end != now_) out_.since = now_;
        out_.busy = true;
        out_.end = now_ + (entry.evict ? evict_time_[b] : out_time_[b]);
        ++copying_[b];
        out_bytes_ += trace_.bytes[b];
        moved = true;
    }
    while (!in_.busy && !in_.empty()) {
        const Entry entry = in_.entries[in_.head];
        const std::int32_t b = entry.buffer;
        if (entry.life != life_[b]) {
            ++in_.head;
            continue;
        }
        if (state_[b] != absent || used_ + trace_.bytes[b] > machine_.memory.value) break;
        ++in_.head;
        --pending_[b];
        state_[b] = arriving;
        in_.current = entry;
        if (in_.end != now_) in_.since = now_;
        in_.busy = true;
        in_.end = now_ + in_time_[b];
        ++copying_[b];
        take(trace_.bytes[b]);
        in_bytes_ += trace_.bytes[b];
        moved = true;
    }
    return moved;
}

void Engine::signature(std::vector<std::int64_t>& out) const {
    out.clear();
    out.push_back(used_);
    out.push_back(host_used_);
    for (const Queue* q : {&in_, &out_}) {
        out.push_back(q->busy ? q->end - now_ : -1);
        if (q->busy) out.push_back(q->current.buffer);
        for (std::size_t i = q->head; i < q->entries.size(); ++i) out.push_back(q->entries[i].buffer * 2 + q->entries[i].evict);
        out.push_back(-2);
    }
    for (std::size_t i = held_head_; i < held_.size(); ++i) {
        out.push_back(held_[i].until - now_);
        out.push_back(held_[i].bytes);
    }
    for (std::int32_t b = 0; b < trace_.buffers; ++b)
        if (trace_.persistent[b]) out.push_back(state_[b] * 2 + host_valid_[b]);
}

Verdict Engine::run(const CompiledPlan& plan, int iterations, std::int64_t give_up_after, EngineTimeline* timeline) {
    reset(plan);
    if (used_ > machine_.memory.value) {
        fail(Fault::start_memory, -1, -1);
        return verdict_;
    }
    if (host_used_ > machine_.host.value) {
        fail(Fault::start_host, -1, -1);
        return verdict_;
    }
    lay_out(plan);
    const auto n = static_cast<std::int64_t>(items_.size());
    if (n == 0) return verdict_;
    const std::int64_t ahead = machine_.lookahead;
    if (timeline) {
        for (auto* v : {&timeline->ready, &timeline->start, &timeline->end, &timeline->in_since, &timeline->out_since}) v->assign(trace_.ops, 0);
    }
    signature(before_);
    std::int64_t third = 0, begin = 0;
    for (int iteration = 0; iteration < iterations; ++iteration) {
        begin = now_;
        in_bytes_ = out_bytes_ = recompute_ = demand_ = 0;
        if (iteration == 3) third = now_;
        if (timeline) {
            timeline->starved.assign(trace_.ops, 0);
            timeline->crowded.assign(trace_.ops, 0);
        }
        // The first iteration has no clean copies of an earlier one yet: it may take far longer than those that count.
        const std::int64_t allowed = iteration == 0 ? INT64_MAX : give_up_after;
        const std::int64_t deadline = allowed < INT64_MAX - begin ? begin + allowed : INT64_MAX;
        if (!act(plan, -1)) return verdict_;
        for (std::int64_t i = 0; i < n; ++i) {
            const Item& item = items_[static_cast<std::size_t>(i)];
            const std::int64_t index = iteration * n + i;
            // What must have its frames when this item starts: the lookahead ends with the iteration.
            const std::int64_t target = index + std::min(ahead, n - 1 - i);
            bool running = false, lacked_data = false;
            std::int64_t end = 0;
            const std::int64_t ready = now_;
            if (timeline && item.step < 0) timeline->ready[item.op] = now_ - begin;
            for (;;) {
                // Ends at this instant have been handled. The next op takes its frames, then the queues.
                if (!running) {
                    while (admitted_ <= target && admit(plan, admitted_)) {}
                    if (!verdict_.valid()) return verdict_;
                    if (admitted_ <= target) lacked_data = starved_;
                    if (admitted_ > target) {
                        if (timeline && now_ > ready) {
                            (lacked_data ? timeline->starved : timeline->crowded)[item.op] += now_ - ready;
                            timeline->in_since[item.op] = in_.since - begin;
                            timeline->out_since[item.op] = out_.since - begin;
                        }
                        running = true;
                        start(plan, item);
                        const std::int32_t op = item.step < 0 ? item.op : plan.steps[item.step].op;
                        std::int64_t duration = trace_.duration[op];
                        if (machine_.map.value && ahead == 0 && item.step < 0)
                            for (std::int32_t b : trace_.alloc[item.op]) duration += frames(b) * machine_.map.value;
                        if (item.step >= 0) {
                            duration += time_at(machine_.hash_rate, 2 * trace_.replay_workspace[op]);   // a copy reads and writes
                            if (machine_.hash_rate > 0 && item.step + 1 == plan.chains[item.chain].step_end)
                                duration += time_at(machine_.hash_rate, plan.chains[item.chain].made_bytes);
                            recompute_ += duration;
                        } else if (timeline) {
                            timeline->start[item.op] = now_ - begin;
                        }
                        end = now_ + duration;
                        if (duration == 0) break;
                    }
                }
                if (start_transfers() && !running) continue;  // a clean eviction may have freed frames
                std::int64_t next = INT64_MAX;
                if (running) next = end;
                if (in_.busy && in_.end < next) next = in_.end;
                if (out_.busy && out_.end < next) next = out_.end;
                if (held_head_ < held_.size() && held_[held_head_].until < next) next = held_[held_head_].until;
                if (next == INT64_MAX) {
                    fail(Fault::stuck, items_[static_cast<std::size_t>(admitted_ % n)].op, -1);
                    return verdict_;
                }
                now_ = next;
                if (now_ > deadline) {
                    fail(Fault::too_slow, item.op, -1);
                    return verdict_;
                }
                if (in_.busy && in_.end == now_) end_in();
                if (out_.busy && out_.end == now_) end_out();
                while (held_head_ < held_.size() && held_[held_head_].until <= now_) used_ -= held_[held_head_++].bytes;
                if (running && end == now_) break;
            }
            finish(plan, item);
            done_ = index + 1;
            if (item.step < 0) {
                if (timeline) timeline->end[item.op] = now_ - begin;
                if (!act(plan, item.op)) return verdict_;
            }
        }
        std::size_t off = 0;
        for (std::int32_t b : plan.start_evicted) off += state_[b] == resident || state_[b] == arriving || pending_[b];
        std::int64_t away = 0;
        for (std::int32_t b = 0; b < trace_.buffers; ++b)
            away += trace_.persistent[b] && !(state_[b] == resident || state_[b] == arriving || pending_[b]);
        if (off != 0 || away != static_cast<std::int64_t>(plan.start_evicted.size())) {
            fail(Fault::steady_state, trace_.ops - 1, -1);
            return verdict_;
        }
        verdict_.time = now_ - begin;
        verdict_.in = in_bytes_;
        verdict_.out = out_bytes_;
        verdict_.recompute = recompute_;
        verdict_.demand = demand_;
        verdict_.peak = peak_;
        verdict_.peak_host = host_peak_;
        // Queues: what is behind the head is history.
        for (Queue* q : {&in_, &out_}) {
            q->entries.erase(q->entries.begin(), q->entries.begin() + static_cast<std::ptrdiff_t>(q->head));
            q->head = 0;
        }
        held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(held_head_));
        held_head_ = 0;
        if (iteration + 1 == iterations) break;
        signature(after_);
        if (after_ == before_) return verdict_;
        std::swap(after_, before_);
    }
    if (iterations >= 8) verdict_.time = (now_ - third) / (iterations - 3);
    return verdict_;
}

std::string Engine::explain(const Verdict& v) {
    const std::string op = std::to_string(v.op), buffer = std::to_string(v.buffer);
    switch (v.fault) {
        case Fault::none: return {};
        case Fault::start_memory: return "the weights and optimiser state that start the iteration on the device exceed its memory";
        case Fault::start_host: return "the start_evicted buffers exceed the host budget";
        case Fault::no_copy: return "op " + op + " needs buffer " + buffer + ", which is neither on the device nor on the host";
        case Fault::action_not_resident: return "action after op " + op + ": buffer " + buffer + " is not resident";
        case Fault::action_leaving: return "action after op " + op + ": buffer " + buffer + " is on its way out";
        case Fault::evict_needed: return "action after op " + op + ": buffer " + buffer + " is used by the next op or replay";
        case Fault::prefetch_no_copy: return "prefetch after op " + op + ": buffer " + buffer + " has no copy on the host";
        case Fault::made_present: return "replay before op " + op + ": buffer " + buffer + " is there already";
        case Fault::stuck: return "op " + op + " waits for frames that nothing will free";
        case Fault::steady_state: return "after op " + op + ": the persistent buffers on the device are not those that start the iteration there";
        case Fault::too_slow: return "gave up at op " + op;
    }
    return "unknown";
}

}  // namespace udnnmem::policy
