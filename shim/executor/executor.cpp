#include "shim/executor/executor.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "shim/host/quiet_thread.hpp"

namespace udnnmem::executor {
namespace {

constexpr std::chrono::milliseconds kPatience(100);          // with a planner, when the program ends ...
constexpr std::chrono::milliseconds kPatienceToStore(3000);  // ... and has learned what is to be stored, on a crowded machine
constexpr std::uint64_t kLookedBack = 8;                     // ops, for one of the same stream that is done
constexpr std::size_t kMispredictions = 256;                 // kinds of them that are told apart

}  // namespace

Executor::Executor(pager::Pager& pager, Settings settings)
    : pager_(pager), settings_(std::move(settings)), timer_(pager.driver()), clock_of_ops_(pager.driver()),
      unknown_([this](const char* name, std::uint64_t shape, std::size_t bytes) { return price(name, shape, bytes); }) {
    if (settings_.plan_file.empty()) return;
    load();
    thread_ = host::quiet_thread([this] { run(); });   // after that: both are at the planning thread's own
}

Executor::~Executor() { end(true); }

void Executor::end(bool patiently) noexcept {
    {
        std::lock_guard lock(mutex_);
        drops_ = false;
        if (device_) lose();
    }
    replay::Replayer* const replayer = replayer_.load();
    // Else ops are told for as long as there are any: each may overwrite what dropped buffers are made of. Computed again here, it
    // might wait for a device that has nothing more to do but stand still.
    if (patiently || !replayer || !replayer->at_work()) on_.store(false);
    if (replayer) replayer->check();
    std::unique_lock lock(job_mutex_);
    if (stopping_.exchange(true)) return;
    store_waits_ |= !settings_.plan_file.empty() && replayer && replayer->denials() > denials_stored_;
    job_ready_.notify_all();
    if (thread_.joinable()) {
        auto gone = [this] { return has_ended_; };
        if (patiently) ended_.wait(lock, gone);
        else ended_.wait_for(lock, settings_.plan_file.empty() ? kPatience : kPatienceToStore, gone);
        const bool joins = has_ended_;
        lock.unlock();
        if (joins) thread_.join();
        else thread_.detach();
    } else {
        lock.unlock();
    }
    if (replayer) replayer->check();
    const Figures f = figures();
    if (f.iterations)
        settings_.say(std::to_string(f.iterations) + " iterations followed, " + std::to_string(f.planned_iterations) + " by plan; on the device " +
                      std::to_string(f.planned.value / 1000) + " us by plan (" + std::to_string(f.promised.value / 1000) + " promised), " +
                      std::to_string(f.demand.value / 1000) + " us on demand");
}

void Executor::learned(const profiler::Iteration& iteration) noexcept try {
    std::lock_guard lock(job_mutex_);
    if (stopping_.load()) return;
    if (jobs_.size() == kMostJobs) jobs_.erase(jobs_.begin());
    jobs_.push_back(iteration);
    if (!thread_.joinable()) thread_ = host::quiet_thread([this] { run(); });
    job_ready_.notify_all();
} catch (...) {  // no memory, no thread: the run stays on demand
}

// Gives the planning thread notice; `why`: one of those under job_mutex_.
void Executor::wake(bool& why) {
    std::lock_guard lock(job_mutex_);
    why = true;
    job_ready_.notify_all();
}

void Executor::reconsider() noexcept {
    std::lock_guard lock(job_mutex_);
    kept_back_.store(false);
    reconsider_ = true;
    job_ready_.notify_all();
    if (settings_.search_again) settings_.search_again();
}

// ---- the launch path -------------------------------------------------------------------------------------------------

// The course of which it is the step that is expected, or the first; null: none.
Course* Executor::follow(const Seen& seen, bool recalled) {
    if (recalled && courses_.size() == 1) [[likely]] {   // there is no other to be shown it
        active_->step = active_->follower.go_on(seen);
        return active_;
    }
    Course* best = nullptr;
    for (const CoursePointer& c : courses_) {
        c->step = recalled && c.get() == active_ ? c->follower.go_on(seen) : c->follower.at(seen);
        if (c->step != Follower::nowhere && (!best || c->follower.run() > best->follower.run())) best = c.get();
    }
    return active_ && active_->follower.run() > 1 ? active_ : best;
}

// The course of which it is any step, by the ops before it; null: none.
Course* Executor::find(const Seen& seen) {
    recent_ops_.push(seen);
    for (const bool others : {false, true})
        for (const CoursePointer& c : courses_)
            if ((c.get() != active_) == others && (c->step = c->follower.find(seen, recent_ops_)) != Follower::nowhere) {
                recent_ops_.take_back();   // it is a step
                return c.get();
            }
    return nullptr;
}

// The op as part of what ran since the last first step.
void Executor::pass(const char* name, const Seen& seen, const pager::Op& op) {
    if (!passage_whole_) return;
    passage_.add(name, seen, op);
    if (!passage_.is_piece()) return;
    passage_.ends = false;
    end_passage(false);
}

// Nothing was followed for long: the first steps that end passages may never come again. While a stored plan may be the program's, its
// sequences are waited for.
void Executor::open_passage() {
    unfollowed_ = 0;
    const bool ours = std::any_of(courses_.begin(), courses_.end(), [](const CoursePointer& c) { return c->restored && !c->unseen(); });
    if (!ours && std::any_of(courses_.begin(), courses_.end(), [](const CoursePointer& c) { return c->unseen(); })) return;
    passage_.restart(newest_before_);
    passage_whole_ = true;
    passage_known_ = false;
}

// A passage that is none of the courses goes to the planning thread.
void Executor::end_passage(bool known) {
    if (passage_whole_ && !known && !passage_.ops.empty() && passages_.size() < kWaiting) {
        passages_.push_back(std::move(passage_));
        wake(passages_wait_);
    }
    passage_.restart(newest_before_);
}

void Executor::strayed(const Course& from, std::int32_t expected, const char* name) {
    ++strayed_;
    const auto what = std::make_pair(std::string(from.sequence.steps[static_cast<std::size_t>(expected)].name), std::string(name));
    if (const auto known = mispredictions_.find(what); known != mispredictions_.end()) ++known->second;
    else if (mispredictions_.size() < kMispredictions) mispredictions_.emplace(what, 1);
}

// No order that was given counts any more.
void Executor::lose() {
    device_->forget_orders();
    whole_ = false;
    clock_of_ops_.lost();
    for (const CoursePointer& c : courses_)
        if (c->watch) c->watch->lost();
}

// The clock goes on; the places that the last steps had in it are kept apart from those of the steps to come.
void Executor::restart_clock(std::int32_t step) { first_clock_ = clock_ + kRecent - static_cast<std::uint64_t>(step); }

// Where the step has its place in the clock if it comes next.
std::uint64_t Executor::clock_of(std::int32_t step) {
    while (first_clock_ + static_cast<std::uint64_t>(step) <= clock_) first_clock_ += active_->sequence.steps.size();
    return first_clock_ + static_cast<std::uint64_t>(step);
}

// What the op names that can move, in its order.
std::span<pager::Buffer* const> Executor::movable(const pager::Op& op) {
    if (named_.size() < op.count + op.more.size()) named_.resize(op.count + op.more.size());
    pager::Buffer** end = named_.data();
    std::uint32_t newest = newest_before_ = newest_id_;
    const auto take = [&](pager::Buffer* b) {
        if (b->slab || !b->live) return;   // a stale word names what was freed: nothing the recorder knows
        *end++ = b;
        newest = std::max<std::uint32_t>(newest, b->id);
    };
    for (std::uint32_t i = 0; i < op.count; ++i) take(op.buffers[i]);
    for (pager::Buffer* b : op.more) take(b);
    newest_id_ = newest;
    return {named_.data(), end};
}

Executor::Place Executor::before(const char* name, std::uint64_t shape, pager::Op& op, const LaunchWords* launch) noexcept try {
    Place place;
    std::lock_guard lock(mutex_);
    if (courses_.empty() || (!device_ && !find_device())) {
        if (replayer_) place.breaks = true, place.epoch = ++epoch_, take_turn(place, op);
        return place;
    }
    tell(place, name, {shape, movable(op)}, op, false);
    if (!launch || !following_ || !active_->follower.settled()) return place;
    const Sequence& s = active_->sequence;
    if (const Sequence::Step& known = s.steps[static_cast<std::size_t>(place.step)]; known.lasting) active_->memos.note(place.step, *launch, op, s.uses.data() + known.first);
    return place;
} catch (...) {
    return Place();
}

[[gnu::hot]] bool Executor::recall_expected(const char* name, const LaunchWords& launch, pager::Op& op, Place& place) noexcept try {
    std::lock_guard lock(mutex_);
    if (!following_ || !active_) return false;
    const std::int32_t step = active_->follower.expected();
    if (!active_->memos.recall(step, launch, active_->rows() ? clock_of(step) : 0, op, place.missing)) return false;
    // No buffer of it is newer than all that came before.
    newest_before_ = newest_id_;
    const std::span<pager::Buffer* const> named = op.small_count ? movable(op) : std::span<pager::Buffer* const>(op.buffers, op.count);
    tell(place, name, {active_->sequence.steps[static_cast<std::size_t>(step)].shape, named}, op, true);
    return true;
} catch (...) {
    place = Place();
    return op.count;
}

// The op, which comes now, to the courses; `recalled`: it is the step that is expected.
[[gnu::hot]] void Executor::tell(Place& place, const char* name, const Seen& seen, pager::Op& op, bool recalled) {
    place.op = ++ops_;
    Course* const was = active_;
    const std::uint64_t run = was ? was->follower.run() : 0;
    const bool was_following = following_;
    const std::int32_t expected = was && following_ ? was->follower.expected() : 0;
    Course* now = follow(seen, recalled);
    const bool goes_on = now && now == was && was_following && was->follower.run() == run + 1;
    if (!goes_on) [[unlikely]] {
        if (was_following) recent_ops_.push(was->follower, run, expected);
        if (!now) now = find(seen);
    }
    following_ = now;
    if (now) active_ = now;
    const std::int32_t step = place.step = now ? now->step : Follower::nowhere;
    const bool ended = was && was_following && !expected && run >= was->sequence.steps.size();   // an iteration, with the op before
    if (!goes_on) {
        if (was_following) {
            if (expected) strayed(*was, expected, name);
            if (expected || step != 0) lose();       // else one course ended and another began
            else device_->forget_orders();
        }
        // What ran as expected was not written down.
        if (passage_whole_ && passage_known_ && was_following && step != 0) passage_.add(was->sequence, was->follower, was->streams, expected);
        if (following_ && active_ != was) ++active_->turns, restart_clock(step);
    }
    if (step == 0 || ended) {
        end_passage(ended || passage_known_);
        passage_whole_ = was && was->follower.settled();   // else nobody knows yet whether this is the program that was stored
        passage_known_ = step == 0;
    } else if (!goes_on) {
        passage_known_ = false;
    }
    unfollowed_ = following_ || passage_whole_ ? 0 : unfollowed_ + 1;
    if (unfollowed_ > kUnfollowed) open_passage();
    if (!passage_known_) pass(name, seen, op);
    const std::int32_t next = following_ ? active_->follower.expected() : Follower::nowhere;
    const bool recalls = following_ && active_->memos.has(next);
    recalls_.store(recalls, std::memory_order_relaxed);
    if (recalls) {
        active_->memos.fetch(next);
        __builtin_prefetch(&active_->sequence.steps[std::min(static_cast<std::size_t>(next) + LaunchMemos::ahead, active_->sequence.steps.size() - 1)]);
    }
    if (!following_) {
        if (!replayer_) return;
        note_epoch(place, op, false);
        return take_turn(place, op);
    }
    active_->followed_at = ops_;
    active_->streams.set(active_->sequence.steps[static_cast<std::size_t>(step)].stream, op.stream);
    if (step == 0) begin_iteration();
    clock_ = clock_of(step);
    if (replayer_) note_epoch(place, op, goes_on);
    if (active_->rows()) look_ahead(place, seen, op, recalled);
    if (place.epoch) take_turn(place, op);
}

// For an op of a plan: when its buffers are used next, which of them is missing, and how far ahead of the device it may be.
[[gnu::hot]] void Executor::look_ahead(Place& place, const Seen& seen, pager::Op& op, bool recalled) {
    if (!recalled) {   // else it is so already
        const Sequence::Use* use = active_->sequence.uses.data() + active_->sequence.steps[static_cast<std::size_t>(place.step)].first;
        for (pager::Buffer* const b : seen.named) {
            const std::uint32_t again = (use++)->again;
            b->next_use.store(again ? clock_ + again : pager::Buffer::never_again, std::memory_order_relaxed);
            if (b->residency.load(std::memory_order_relaxed) != pager::Residency::device && !place.missing) place.missing = b;
        }
    }
    if (place.missing) {
        place.found = place.missing->residency.load(std::memory_order_relaxed);
        if (place.found == pager::Residency::device) place.missing = nullptr;   // it has just come
        else place.missed_at = pager::now_ns();
    }
    place.timed = clock_of_ops_.wants(place.step, active_->timed_apart());
    device_->plan_step(clock_, active_->longest.value);
    const Rows& rows = *active_->rows();
    const std::size_t ahead = static_cast<std::size_t>(rows.lookahead) + 1;
    op.slot = &pager_.streams().slot(op.stream);
    place.clock = clock_;
    place.plain = place.step && !rows.acts[static_cast<std::size_t>(place.step)] && !active_->watch && !proves_.load(std::memory_order_relaxed) &&
                  op.slot->marked.load(std::memory_order_relaxed) >= active_->awaited;
    Passed& passing = recent_[clock_ % kRecent];
    passing.clock = clock_;
    passing.slot = op.slot;
    passing.number.store(0, std::memory_order_relaxed);   // not submitted: nothing waits for it
    // By an op of its own stream: what another one is at may last, and need not be waited for.
    const pager::StreamSlot* const slot = op.slot;
    for (std::uint64_t behind = clock_ - ahead, i = 0; i < kLookedBack && recent_[behind % kRecent].clock == behind; --behind, ++i) {
        const Passed& passed = recent_[behind % kRecent];
        if (passed.slot != slot) continue;
        op.paced_by = passed.slot;
        op.paced_number = passed.number.load(std::memory_order_relaxed);
        auto step = static_cast<std::int64_t>(place.step) - static_cast<std::int64_t>(ahead + i);   // that one's; as a rule of this iteration
        while (step < 0) step += static_cast<std::int64_t>(rows.marked.size());
        op.takes = rows.marked[static_cast<std::size_t>(step)];
        break;
    }
}

void Executor::tell_submitting(const Place& place, const pager::Op& op) noexcept try {
    std::lock_guard lock(mutex_);
    if (!still_at(place) || !active_->rows() || op.captured) return;
    if (place.missing) active_->held(place.step, *place.missing, place.found, Nanoseconds(pager::now_ns() - place.missed_at));
    if (place.timed) clock_of_ops_.begin(op.stream, active_->way(), place.step);
} catch (...) {
}

void Executor::tell_submitted(const Place& place, const pager::Op& op) noexcept try {
    std::lock_guard lock(mutex_);
    if (place.timed) clock_of_ops_.end(op.stream);
    if (watching_.load(std::memory_order_relaxed) && still_at(place) && active_->watch && !op.captured)
        active_->watch->submitted(place.step, op, active_->follower, *device_);
} catch (...) {
}

[[gnu::hot]] void Executor::after(const Place& place, const pager::Op& op) noexcept try {
    const std::int32_t step = place.step;
    if (step == Follower::nowhere) return;
    if (const Rows* const rows = place.rows.get(); rows && !rows->kept.empty() && rows->kept[static_cast<std::size_t>(step)] && place.course->known)
        place.course->known->ops[static_cast<std::size_t>(step)].note_submitted(place.epoch);
    bool tried = false;
    std::uint64_t queued = 0;
    if (proves_.load(std::memory_order_relaxed)) {
        std::lock_guard lock(proof_mutex_);
        tried = proving_ && proving_ == place.course;
        if (tried) proving_->proof->after(step, op.stream);
        if (tried && proving_->proof->queued()) queued = proving_->proof->number();
    }
    if (place.plain && !tried) [[likely]] {
        recent_[place.clock % kRecent].number.store(op.slot->last_op.load(std::memory_order_relaxed), std::memory_order_relaxed);
        return;
    }
    bool marks = false;
    {
        std::lock_guard lock(mutex_);
        if (still_at(place) && on()) marks = give_orders(place, op, queued, tried);
    }
    if (marks) pager_.streams().mark(*op.slot);   // which may wait for room in the stream: other threads go on meanwhile
} catch (...) {
}

// With mutex_ held. Whether the op's end has to be known.
bool Executor::give_orders(const Place& place, const pager::Op& op, std::uint64_t queued, bool tried) {
    const std::int32_t step = place.step;
    WriteWatch* const watch = active_->watch.get();
    if (watch && watch->queued() && !active_->watched) queued = active_->watched = pager_.streams().now();
    active_->awaited = std::max(active_->awaited, queued);
    const bool awaited = op.slot->marked.load(std::memory_order_relaxed) < active_->awaited;
    if ((watch && watch->at_work()) || tried) whole_ = false;   // that takes its time
    if (step == 0) {
        timer_.begin(op.stream, active_->tag(whole_ && last_ == active_), whole_);
        last_ = active_;
        whole_ = true;
    }
    const Rows* rows = active_->rows();
    if (!rows || static_cast<std::size_t>(step) + 1 >= rows->begin.size()) return awaited;
    const std::uint64_t number = op.slot->last_op.load(std::memory_order_acquire);
    recent_[clock_ % kRecent].number.store(number, std::memory_order_relaxed);
    const std::uint32_t from = rows->begin[static_cast<std::size_t>(step)], to = rows->begin[static_cast<std::size_t>(step) + 1];
    if (from == to) return awaited || rows->marked[static_cast<std::size_t>(step)];
    orders_.clear();
    for (std::uint32_t i = from; i < to; ++i) {
        const Rows::Entry& entry = rows->entries[i];
        if (static_cast<std::size_t>(entry.buffer) >= active_->sequence.persistent.size()) continue;   // of no size
        pager::Buffer* b = active_->follower.bound(entry.buffer);
        if (!b || b->device != device_) continue;
        const std::uint64_t used = b->last_use.load(std::memory_order_acquire);   // once: the order is void where the replayer's entry is
        if (entry.kind == pager::Order::Kind::drop && !may_drop(*rows, entry, step, b, used)) continue;
        if (entry.kind == pager::Order::Kind::fetch) orders_.push_back({entry.kind, b, b->id, number, op.slot});
        else orders_.push_back({entry.kind, b, b->id, used});
    }
    if (!orders_.empty()) device_->order(orders_.data(), orders_.size());
    return true;
}

bool Executor::acts_after(const Place& place) {
    std::lock_guard lock(mutex_);
    const Rows* rows = active_ && place.step != Follower::nowhere ? active_->rows() : nullptr;
    return rows && rows->acts[static_cast<std::size_t>(place.step)];
}

}  // namespace udnnmem::executor
