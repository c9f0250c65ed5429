#include "policy/player.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "policy/booking.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

constexpr int longest_warm_up = 8;      // iterations until one begins as it ends
constexpr int most_attempts = 60;       // plays with fewer decisions each, before all of them are given up
constexpr std::size_t most_unplaced = 32;  // fetches without room looked at after one op

enum class Where : std::uint8_t { nowhere, device, host, dropped };

// One attempt. Decisions that turn out to be impossible are undone in `gaps`, and run() returns false.
class Attempt {
public:
    Attempt(const Trace& trace, const Liveness& live, const Machine& machine, const Recovery& recovery, std::vector<Gap>& gaps, const PlayOptions& options, std::vector<Gap>& done)
        : trace_(trace), live_(live), recovery_(recovery), gaps_(gaps), done_(done), options_(options), ops_(static_cast<std::int32_t>(trace.ops.size())), memory_(machine.memory.value),
          host_(machine.host.value), state_(trace.buffers.size()), born_(trace.ops.size()), dies_(trace.ops.size()), asked_(trace.ops.size()), booked_(trace.ops.size()),
          class_(trace.buffers.size(), 0), starts_(trace.ops.size() + 1, 0) {
        for (std::int32_t k = 0; k < ops_; ++k) {
            const auto op = static_cast<std::size_t>(k);
            booked_.set(k, live_.working_set(op).value);
            booked_.set(k + ops_, live_.working_set(op).value);
            starts_[op + 1] = starts_[op] + trace.ops[op].duration.value;
        }
        if (options_.order == PlayOptions::Order::stale_bytes) {
            std::map<std::int64_t, std::size_t> classes;
            for (std::size_t b = 0; b < class_.size(); ++b) class_[b] = classes.try_emplace(size(b), classes.size()).first->second;
            queues_.resize(classes.size());
        }
        for (std::size_t b = 0; b < trace.buffers.size(); ++b) {
            if (trace.buffers[b].persistent) {
                enter(b, -1);
            } else if (live_.first(b) >= 0) {
                born_[static_cast<std::size_t>(live_.first(b))].push_back(b);
                dies_[static_cast<std::size_t>(live_.last(b))].push_back(b);
            }
            const std::size_t offset = live_.use_offset(b);
            for (std::size_t i = 0; i < live_.uses_of(b).size(); ++i)
                if (gaps_[offset + i].fate == Fate::evict && gaps_[offset + i].prefetch_after >= 0)
                    asked_[static_cast<std::size_t>(gaps_[offset + i].prefetch_after % ops_)].push_back({b, i});
        }
    }

    bool run(Plan& plan) {
        if (!ready(0)) return false;
        execute(0);
        for (int i = 0;; ++i) {
            const std::vector<Where> start = places();
            const std::vector<char> start_coming = coming();
            actions_.clear();
            std::fill(done_.begin(), done_.end(), Gap{});
            finish(0);
            for (std::int32_t k = 1; k < ops_; ++k) {
                if (!ready(k)) return false;
                execute(k);
                finish(k);
            }
            origin_ += ops_;
            if (!ready(0)) return false;
            const std::vector<Where> end = places();
            execute(0);
            if (places() == start && coming() == start_coming) return close(plan, start, end);
            // It does not settle by itself. Whatever is not there at the end does not start there either: the
            // set of those that do only shrinks, so it settles; what is there beyond it leaves at the end.
            if (i >= longest_warm_up && (settle(start, end) || i == longest_warm_up + most_attempts)) return close(plan, start, end);
        }
    }

private:
    struct State {
        Where where = Where::nowhere;
        bool on_host = false;      // a valid copy there
        bool charged = false;      // host frames
        bool was_on_host = false;  // before its last eviction
        std::int32_t since = -1;   // the op that used it last
        std::int64_t origin = 0;   // of the iteration of that use
        std::int64_t fetched_for = -1;  // fetched ahead for this op (counted over iterations): stays until then
        std::size_t use = 0;       // of the gap that it is in
        std::int64_t key = 0;
        std::int64_t lacked = -1;  // room for its fetch lacked at this op (counted over iterations)
        bool queued = false;
    };
    struct Asked {
        std::size_t buffer, use;
    };

    std::int64_t size(std::size_t b) const { return trace_.buffers[b].bytes.value; }
    static BufferId id(std::size_t b) { return BufferId(static_cast<std::int32_t>(b)); }
    OpIndex before(std::int32_t k) const { return OpIndex(k ? k - 1 : ops_ - 1); }

    std::vector<Where> places() const {
        std::vector<Where> all(state_.size());
        for (std::size_t b = 0; b < all.size(); ++b) all[b] = state_[b].where;
        return all;
    }

    std::vector<char> coming() const {
        std::vector<char> all(state_.size());
        for (std::size_t b = 0; b < all.size(); ++b) all[b] = state_[b].fetched_for >= 0;
        return all;
    }

    // The op of the next use, counted from the start of the iteration of the last one; -1: none.
    std::int64_t next_op(std::size_t b, std::size_t use) const {
        const auto uses = live_.uses_of(b);
        if (use + 1 < uses.size()) return uses[use + 1].op;
        return trace_.buffers[b].persistent && !uses.empty() ? uses.front().op + ops_ : -1;
    }

    std::int64_t key_of(std::size_t b) const {
        if (options_.order == PlayOptions::Order::recency) return clock_;
        const State& s = state_[b];
        if (options_.order == PlayOptions::Order::stale_bytes) return s.since < 0 ? 0 : s.origin / ops_ * starts_.back() + starts_[static_cast<std::size_t>(s.since) + 1];
        const auto uses = live_.uses_of(b);
        if (uses.empty()) return -(std::int64_t{1} << 60);
        if (s.since < uses.front().op) return -(s.origin + uses.front().op);  // not used yet
        const std::int64_t next = next_op(b, s.use);
        return next < 0 ? -(std::int64_t{1} << 60) : -(s.origin + next);
    }

    void place_in_queue(std::size_t b) {
        State& s = state_[b];
        unqueue(b);
        s.key = key_of(b);
        s.queued = size(b) > 0 && s.fetched_for < 0;
        if (s.queued) queues_[class_[b]].insert({s.key, b});
    }

    void unqueue(std::size_t b) {
        if (state_[b].queued) queues_[class_[b]].erase({state_[b].key, b});
        state_[b].queued = false;
    }

    void enter(std::size_t b, std::int32_t op) {
        State& s = state_[b];
        if (s.where != Where::device) used_ += size(b);
        s.since = op;
        place_in_queue(b);
        s.where = Where::device;
    }

    void leave(std::size_t b, Where to) {
        State& s = state_[b];
        if (s.where == Where::device) {
            used_ -= size(b);
            unqueue(b);
        }
        s.where = to;
    }

    void stale(std::size_t b) {
        State& s = state_[b];
        s.on_host = false;
        if (s.charged) host_used_ -= size(b);
        s.charged = false;
    }

    // Out to the host, if there is room for it.
    bool evict(std::size_t b, std::int32_t k) {
        State& s = state_[b];
        if (!s.charged && size(b) > host_ - host_used_) return false;
        if (!s.charged) host_used_ += size(b);
        s.was_on_host = s.on_host;
        s.charged = s.on_host = true;
        if (!live_.uses_of(b).empty() && s.since >= live_.uses_of(b).front().op) done_[live_.use_offset(b) + s.use].fate = Fate::evict;
        leave(b, Where::host);
        actions_.push_back({Do::evict, before(k), id(b)});
        return true;
    }

    bool may_drop(std::size_t b) const { return gaps_[live_.use_offset(b) + state_[b].use].may_drop && recovery_.droppable(b, state_[b].use); }

    bool drop(std::size_t b, std::int32_t k) {
        done_[live_.use_offset(b) + state_[b].use].fate = Fate::drop;
        leave(b, Where::dropped);
        actions_.push_back({Do::drop, before(k), id(b)});
        return true;
    }

    void unpin(std::size_t b, std::int32_t k) {
        State& s = state_[b];
        booked_.add(origin_ + k, s.fetched_for, -size(b));  // used earlier than planned
        s.fetched_for = -1;
    }

    // Everything between op k-1 and op k: replays, room, fetches. False: a decision was given up, start again.
    bool ready(std::int32_t k) {
        const auto named = live_.buffers_of(static_cast<std::size_t>(k));
        ReplayChain chain;
        if (!plan_replay(k, chain)) return false;

        std::vector<std::int32_t> must(named.begin(), named.end());
        std::vector<std::int32_t> fetch;
        for (const auto& step : chain.steps)
            for (const std::int32_t b : step.inputs) take_back(static_cast<std::size_t>(b), k);
        const std::int64_t used_before = used_;
        std::int64_t now = used_, top = 0, fetched = 0;
        const auto want = [&](std::int32_t b) {
            if (state_[static_cast<std::size_t>(b)].where != Where::host || std::find(fetch.begin(), fetch.end(), b) != fetch.end()) return;
            fetch.push_back(b);
            now += size(static_cast<std::size_t>(b));
            fetched += size(static_cast<std::size_t>(b));
        };
        for (const auto& step : chain.steps) {
            for (const std::int32_t b : step.inputs) {
                must.push_back(b);
                want(b);
            }
            now += step.fresh;
            top = std::max(top, now + step.workspace);
            now -= step.released;
        }
        must.insert(must.end(), chain.targets.begin(), chain.targets.end());
        for (const std::int32_t b : named) want(b);
        for (const std::size_t b : born_[static_cast<std::size_t>(k)]) now += size(b);
        now += trace_.ops[static_cast<std::size_t>(k)].workspace.value;
        top = std::max(top, now);
        std::sort(must.begin(), must.end());

        if (!make_room(k, top - used_before, must) && give_up(k, chain)) return false;

        // Inputs of the replays that would be there too early, all at once, come when they are needed.
        std::int64_t at_once = used_before + fetched, top_at_once = top;
        for (const auto& step : chain.steps) {
            at_once += step.fresh;
            top_at_once = std::max(top_at_once, at_once + step.workspace);
            at_once -= step.released;
        }
        const bool too_much = used_ + top_at_once - used_before > memory_;
        const std::size_t first_action = actions_.size();
        for (const std::int32_t b : fetch) {
            actions_.push_back({Do::prefetch, before(k), BufferId(b)});
            enter(static_cast<std::size_t>(b), state_[static_cast<std::size_t>(b)].since);
        }
        const bool ahead = fetch_ahead(k, (too_much ? top : top_at_once) - used_before - fetched);
        // Without a fetch ahead to get in front of, an op's own are left to demand.
        if (too_much || (!ahead && k && chain.steps.empty())) {
            const auto first = actions_.begin() + static_cast<std::ptrdiff_t>(first_action);
            actions_.erase(first, first + static_cast<std::ptrdiff_t>(fetch.size()));
        }
        if (!chain.targets.empty()) {
            Action replay{Do::replay, OpIndex(k)};
            for (const auto& step : chain.steps) replay.ops.push_back(OpIndex(step.op));
            for (const std::int32_t b : chain.targets) replay.buffers.push_back(BufferId(b));
            actions_.push_back(std::move(replay));
            for (const std::int32_t b : chain.targets) {
                stale(static_cast<std::size_t>(b));
                enter(static_cast<std::size_t>(b), state_[static_cast<std::size_t>(b)].since);
            }
        }
        return true;
    }

    bool plan_replay(std::int32_t k, ReplayChain& chain) {
        std::vector<std::int32_t> targets;
        std::vector<std::int32_t> groups;
        for (const std::int32_t b : live_.buffers_of(static_cast<std::size_t>(k))) {
            const State& s = state_[static_cast<std::size_t>(b)];
            if (s.where != Where::dropped) continue;
            targets.push_back(b);
            const std::int32_t group = gaps_[live_.use_offset(static_cast<std::size_t>(b)) + s.use].group;
            if (group >= 0) groups.push_back(group);
        }
        if (targets.empty()) return true;
        std::sort(groups.begin(), groups.end());
        for (std::size_t i = 0; !groups.empty() && i < dropped_.size(); ++i)
            if (const std::size_t b = dropped_[i]; state_[b].where == Where::dropped && std::binary_search(groups.begin(), groups.end(), gaps_[live_.use_offset(b) + state_[b].use].group))
                targets.push_back(static_cast<std::int32_t>(b));
        if (recovery_.chain(targets, k, [&](std::int32_t b) { return at_hand(b); }, chain)) {
            dropped_.erase(std::remove_if(dropped_.begin(), dropped_.end(), [&](std::size_t b) { return std::binary_search(chain.targets.begin(), chain.targets.end(), static_cast<std::int32_t>(b)); }),
                           dropped_.end());
            return true;
        }
        chain.targets = targets;
        give_up(k, chain);
        return false;
    }

    bool at_hand(std::int32_t b) const { return state_[static_cast<std::size_t>(b)].where == Where::device || state_[static_cast<std::size_t>(b)].where == Where::host; }

    Nanoseconds remake_time(std::size_t b) const {
        ReplayChain chain;
        const auto target = static_cast<std::int32_t>(b);
        const auto needed = static_cast<std::int32_t>(next_op(b, state_[b].use));
        return recovery_.chain({target}, needed, [&](std::int32_t other) { return other != target && at_hand(other); }, chain) ? chain.time : Nanoseconds::max();
    }

    bool make_room(std::int32_t k, std::int64_t need, const std::vector<std::int32_t>& must) {
        const auto may_leave = [&](std::size_t b) { return !std::binary_search(must.begin(), must.end(), static_cast<std::int32_t>(b)); };
        const auto release = [&](std::size_t b) {
            State& s = state_[b];
            const bool used_before = !live_.uses_of(b).empty() && s.since >= live_.uses_of(b).front().op;
            if (used_before && options_.drop_on_demand && may_drop(b) && options_.drop_on_demand(static_cast<std::int32_t>(b), s.use, remake_time(b))) {
                dropped_.push_back(b);
                return drop(b, k);
            }
            return evict(b, k);
        };
        if (used_ + need <= memory_) return true;
        // Within a class the first of its queue leaves first. Of several classes the one with most bytes x time since the use.
        struct Head {
            double score;
            std::size_t buffer;
            std::set<std::pair<std::int64_t, std::size_t>>::iterator at;
            bool operator<(const Head& other) const { return score != other.score ? score < other.score : buffer > other.buffer; }
        };
        const std::int64_t now = origin_ / ops_ * starts_.back() + starts_[static_cast<std::size_t>(k)];
        std::vector<Head> heads;
        const auto look_at = [&](auto at, std::size_t of) {
            while (at != queues_[of].end() && !may_leave(at->second)) ++at;
            if (at == queues_[of].end()) return;
            const std::size_t b = at->second;
            heads.push_back({static_cast<double>(size(b)) * static_cast<double>(now - at->first + 1), b, at});
            std::push_heap(heads.begin(), heads.end());
        };
        for (std::size_t of = 0; of < queues_.size(); ++of) look_at(queues_[of].begin(), of);
        while (used_ + need > memory_ && !heads.empty()) {
            std::pop_heap(heads.begin(), heads.end());
            const Head head = heads.back();
            heads.pop_back();
            look_at(std::next(head.at), class_[head.buffer]);
            release(head.buffer);
        }
        return used_ + need <= memory_;
    }

    // Op k does not find room: undoes what keeps it from it. False: nothing is left to undo.
    bool give_up(std::int32_t k, const ReplayChain& chain) {
        bool undone = false;
        for (const std::int32_t target : chain.targets) {
            const auto b = static_cast<std::size_t>(target);
            Gap& gap = gaps_[live_.use_offset(b) + state_[b].use];
            undone = undone || gap.may_drop;
            if (gap.fate == Fate::drop) gap.fate = Fate::keep;
            gap.may_drop = false;
        }
        if (undone) return true;
        for (std::size_t b = 0; b < state_.size(); ++b) {
            if (state_[b].fetched_for < origin_ + k) continue;
            gaps_[live_.use_offset(b) + state_[b].use].prefetch_after = Gap::on_demand;
            undone = true;
        }
        return undone;
    }

    // An eviction planned just now, of a buffer that a replay before op k reads: does not happen.
    void take_back(std::size_t b, std::int32_t k) {
        State& s = state_[b];
        if (s.where != Where::host) return;
        for (std::size_t i = actions_.size(); i-- > 0 && actions_[i].op == before(k) && actions_[i].what != Do::replay;) {
            if (actions_[i].what != Do::evict || actions_[i].buffer != id(b)) continue;
            actions_.erase(actions_.begin() + static_cast<std::ptrdiff_t>(i));
            if (!s.was_on_host) stale(b);
            enter(b, s.since);
            return;
        }
    }

    // Fetches that were asked for, as far as nothing up to their use lacks the room. `need`: bytes that the
    // replays before op k and the op itself still take.
    bool fetch_ahead(std::int32_t k, std::int64_t need) {
        bool any = false;
        std::size_t kept = 0, i = 0;
        for (; i < waiting_.size() && kept < most_unplaced; ++i) {
            const Asked asked = waiting_[i];
            State& s = state_[asked.buffer];
            if (s.where != Where::host || s.use != asked.use) continue;
            const std::int64_t bytes = size(asked.buffer);
            const std::int64_t target = s.origin + next_op(asked.buffer, asked.use);
            if (target < origin_ + k) continue;
            bool fits = used_ + need + bytes <= memory_ && (s.lacked < origin_ + k || s.lacked >= target || booked_.above(s.lacked, s.lacked + 1, memory_ - bytes) < 0);
            if (fits) {
                s.lacked = booked_.above(origin_ + k, target, memory_ - bytes);
                fits = s.lacked < 0;
            }
            if (!fits) {
                waiting_[kept++] = asked;
                continue;
            }
            booked_.add(origin_ + k, target, bytes);
            s.fetched_for = target;
            enter(asked.buffer, s.since);
            actions_.push_back({Do::prefetch, before(k), id(asked.buffer)});
            any = true;
        }
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(kept), waiting_.begin() + static_cast<std::ptrdiff_t>(i));
        return any;
    }

    void execute(std::int32_t k) {
        ++clock_;
        booked_.set(origin_ + k, live_.working_set(static_cast<std::size_t>(k)).value);
        const auto op = static_cast<std::size_t>(k);
        for (const std::size_t b : born_[op]) {
            state_[b].use = 0;
            state_[b].origin = origin_;
            enter(b, k);
        }
        for (const std::int32_t name : live_.buffers_of(op)) {
            const auto b = static_cast<std::size_t>(name);
            State& s = state_[b];
            if (s.fetched_for >= 0) unpin(b, k);
            s.use = live_.use_at_or_after(b, k);
            s.origin = origin_;
            enter(b, k);
            if (live_.uses_of(b)[s.use].dirties) stale(b);
        }
    }

    void finish(std::int32_t k) {
        const auto op = static_cast<std::size_t>(k);
        const std::int32_t next = k + 1 == ops_ ? 0 : k + 1;
        for (const std::size_t b : dies_[op]) {
            stale(b);
            leave(b, Where::nowhere);
        }
        for (const std::int32_t name : live_.buffers_of(op)) {
            const auto b = static_cast<std::size_t>(name);
            State& s = state_[b];
            if (s.where != Where::device) continue;
            const Gap& gap = gaps_[live_.use_offset(b) + s.use];
            const std::int64_t again = next_op(b, s.use);
            if (gap.fate == Fate::keep || again == k + 1 || size(b) == 0) continue;
            if (k + 1 == ops_ && again == ops_) continue;
            if (gap.fate == Fate::drop && may_drop(b)) {
                dropped_.push_back(b);
                drop(b, next);
            } else if (gap.fate == Fate::evict) {
                evict(b, next);
            }
        }
        waiting_.insert(waiting_.end(), asked_[op].begin(), asked_[op].end());
    }

    // Does all that starts on the device end there? If not, the next iteration starts with less.
    bool settle(const std::vector<Where>& start, const std::vector<Where>& end) {
        bool settled = true;
        for (std::size_t b = 0; b < start.size(); ++b) settled = settled && !(trace_.buffers[b].persistent && start[b] == Where::device && end[b] != Where::device);
        if (settled) return true;
        for (std::size_t b = 0; b < start.size(); ++b) {
            State& s = state_[b];
            if (!trace_.buffers[b].persistent || end[b] != Where::device || start[b] == Where::device) continue;
            if (s.fetched_for >= 0) unpin(b, 0);
            if (!s.charged) host_used_ += size(b);
            s.charged = s.on_host = true;
            leave(b, Where::host);
        }
        return false;
    }

    // What the end of the iteration must do so that the next begins with `start`.
    bool close(Plan& plan, const std::vector<Where>& start, const std::vector<Where>& end) {
        const OpIndex last(ops_ - 1);
        plan.actions = std::move(actions_);
        for (std::size_t b = 0; b < start.size(); ++b) {
            if (!trace_.buffers[b].persistent) continue;
            const bool starts_here = start[b] == Where::device;
            if (!starts_here) plan.start_evicted.push_back(id(b));
            if (starts_here && end[b] != Where::device) plan.actions.push_back({Do::prefetch, last, id(b)});
            if (starts_here || end[b] != Where::device) continue;
            const auto fetch = std::find_if(plan.actions.rbegin(), plan.actions.rend(), [&](const Action& action) { return action.op != last || (action.what == Do::prefetch && action.buffer == id(b)); });
            if (fetch != plan.actions.rend() && fetch->op == last) plan.actions.erase(std::next(fetch).base());  // just asked for: is not
            else plan.actions.push_back({Do::evict, last, id(b)});
        }
        std::stable_sort(plan.actions.begin(), plan.actions.end(), [](const Action& a, const Action& b) { return a.op < b.op; });
        return true;
    }

    const Trace& trace_;
    const Liveness& live_;
    const Recovery& recovery_;
    std::vector<Gap>& gaps_;
    std::vector<Gap>& done_;
    const PlayOptions& options_;
    const std::int32_t ops_;
    const std::int64_t memory_, host_;
    std::vector<State> state_;
    std::vector<std::vector<std::size_t>> born_, dies_;
    std::vector<std::vector<Asked>> asked_;  // by the op after which a fetch is asked for
    std::vector<Asked> waiting_;             // asked for, not queued for want of room
    std::vector<std::size_t> dropped_;
    Booking booked_;                         // the op's working set and what is fetched ahead for later ones
    // On the device and not fetched ahead, first out first: one queue, or one for each size.
    std::vector<std::set<std::pair<std::int64_t, std::size_t>>> queues_{1};
    std::vector<std::size_t> class_;         // of each buffer: its queue
    std::vector<std::int64_t> starts_;       // of the ops, with everything resident, ns
    std::vector<Action> actions_;
    std::int64_t used_ = 0, host_used_ = 0, clock_ = 0, origin_ = 0;
};

}  // namespace

Player::Player(const Trace& trace, const Liveness& live, const Machine& machine) : trace_(trace), live_(live), machine_(machine), recovery_(trace, live) {}

Plan Player::play(std::vector<Gap>& gaps, const PlayOptions& options, std::vector<Gap>* done) const {
    Plan plan;
    if (trace_.ops.empty()) return plan;
    std::vector<Gap> fates(live_.use_count());
    bool found = false;
    for (int i = 0; i < most_attempts && !found; ++i) {
        plan = Plan{};
        found = Attempt(trace_, live_, machine_, recovery_, gaps, options, fates).run(plan);
    }
    if (!found) {
        gaps = keep_all(live_);
        PlayOptions plain = options;
        plain.drop_on_demand = nullptr;
        plan = Plan{};
        Attempt(trace_, live_, machine_, recovery_, gaps, plain, fates).run(plan);
    }
    if (done) *done = std::move(fates);
    return plan;
}

}  // namespace udnnmem::policy
