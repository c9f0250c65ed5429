// Executor: plans that outlive the run (plan_store).
#include <algorithm>

#include "policy/compiled.hpp"
#include "shim/executor/executor.hpp"
#include "shim/executor/plan_store.hpp"

namespace udnnmem::executor {
namespace {

// Something else may repeat before what was stored comes (an evaluation, a warm-up): for so many times its ops.
constexpr std::uint64_t kBefore = 32;

// Nothing but what is known of the sequence.
Rows rows_made_anew(const Sequence& sequence) {
    Rows rows;
    rows.anew = true;
    rows.begin.assign(sequence.steps.size() + 1, 0);
    return rows;
}

bool all_proven(const Rows& rows, const replay::Known& known) {
    return std::all_of(rows.replays.begin(), rows.replays.end(), [&](const Rows::Replay& r) {
        return std::all_of(r.slice->ops.begin(), r.slice->ops.end(), [&](std::int32_t k) { return storable(known.ops[static_cast<std::size_t>(k)]); });
    });
}

}  // namespace

void Executor::not_used(const std::string& why) { settings_.note("the stored plan is not used: " + why + "; it is replaced once there is another"); }

void Executor::load() {
    PlanFile is = PlanFile::none;
    auto plans = read_plans(settings_.plan_file, is);
    if (is == PlanFile::none) return;
    leaves_file_ = is == PlanFile::other;
    if (leaves_file_) return settings_.note("the stored plan is not used: " + plans.error().message);
    if (!plans) return not_used(plans.error().message);
    denied_ = plans->denied;
    denials_stored_ = denied_.size();
    if (plans->policy != settings_.planner->name) return not_used("it was made by " + plans->policy + ", not by " + settings_.planner->name);
    std::lock_guard lock(mutex_);
    stored_device_ = plans->device;
    stored_granule_ = plans->granule;
    std::int64_t live = 0;
    for (StoredCourse& stored : plans->courses) {
        if (courses_.size() == kMostCourses) break;
        note_prices(stored.sequence);
        if (!settings_.recompute) stored.known = nullptr;
        if (stored.known) replay::deny(*stored.known, denied_);
        if (stored.known) live = std::max(live, policy::CompiledTrace(stored.sequence.plan_trace).peak_live);
        courses_.push_back(std::make_shared<Course>(learned_++, std::move(stored.sequence), std::move(stored.seen), std::move(stored.known), std::move(stored.rows)));
    }
    if (courses_.empty()) return;
    pieces_.store(plans->node_by_node);   // or what was stored would not come
    pager_.expect_live(static_cast<std::size_t>(live));   // what will be dropped may be allocated although there is room for it nowhere
    settings_.say(std::to_string(courses_.size()) + " stored plans, from " + settings_.plan_file);
    on_.store(true);
}

// With mutex_ held, before the first op is placed. False: there is none yet, or nothing is left to follow.
bool Executor::find_device() {
    const auto devices = pager_.devices();
    if (devices.size() != 1) return false;
    pager::DevicePager& device = *devices[0];
    if (settings_.device_name(device.device()) != stored_device_ || device.granule() != static_cast<std::size_t>(stored_granule_.value)) {
        discard_stored("it is for a device of another kind");
        return false;
    }
    device_ = &device;
    const auto room = device.room();
    bool other = false, another_budget = false;
    for (const CoursePointer& c : courses_) {
        if (c->known) make_replayer();
        const auto live = static_cast<std::size_t>(policy::CompiledTrace(c->sequence.plan_trace).peak_live);
        const auto serves = [&](const Rows& rows) {
            const bool evicts = std::any_of(rows.entries.begin(), rows.entries.end(), [](const Rows::Entry& e) { return e.kind == pager::Order::Kind::evict; });
            const bool host = !evicts || static_cast<std::int64_t>(room.host) >= rows.host.value || room.host + room.movable >= live;
            return host && !rows.anew && (rows.replays.empty() || (c->known && all_proven(rows, *c->known))) &&
                   static_cast<std::int64_t>(room.movable) >= rows.peak.value && static_cast<double>(room.budget) <= kMore * static_cast<double>(rows.budget.value);
        };
        if (c->known) c->known->needed = room.host + room.movable < live;
        const bool anew = c->stored_rows()->anew;
        if (serves(*c->stored_rows())) continue;
        c->drop_stored();   // the sequence is good: it is planned for anew
        if (c->needs_drops()) c->stage = Course::Stage::planned, c->planned_at_once = true;   // as the first iteration begins
        if (anew && !c->known) c->watch = std::make_unique<WriteWatch>(pager_, c->sequence), watching_.store(true);   // that run may not have come to it
        other = true;
        another_budget |= !anew;
    }
    if (!other) return true;
    // In another budget whole graphs may do, unless only what was proven of their nodes makes it run at all.
    if (another_budget && std::none_of(courses_.begin(), courses_.end(), [](const CoursePointer& c) { return c->planned_at_once || c->stored_rows(); })) pieces_.store(false);
    for_another_budget_ = another_budget;
    if (another_budget) settings_.note("the stored plan is for another budget: it is made anew");
    wake(passages_wait_);
    return true;
}

// With mutex_ held, where an iteration of it begins: bytes of what lives, could move and is no part of it.
std::size_t Executor::held_elsewhere(const profiler::Trace& trace) {
    std::size_t others = device_->movable_bytes();
    for (const profiler::TraceBuffer& b : trace.buffers)
        if (b.persistent || b.alloc_op.value <= 0) others -= std::min(others, static_cast<std::size_t>(b.bytes.value));
    return others;
}

// With mutex_ held, where its first iteration begins, of which some will be dropped: it comes beside what is no part of it, which has
// nowhere to go.
void Executor::look_beside(Course& course) {
    const profiler::Trace& trace = course.sequence.plan_trace;
    const std::size_t others = held_elsewhere(trace);
    pager_.expect_live(std::max(pager_.expected_live(), static_cast<std::size_t>(policy::CompiledTrace(trace).peak_live) + others));
    const Rows* const rows = course.stored_rows();
    course.planned_at_once |= rows && static_cast<std::size_t>(rows->peak.value) + others > device_->room().movable;
}

// With mutex_ held, where its first iteration begins. Host memory is too small for what does not fit on the device: only a plan
// that drops enough of it will do, and what was proven is known.
void Executor::plan_at_once(Course& course) {
    course.planned_at_once = false;
    course.elsewhere = Bytes(static_cast<std::int64_t>(held_elsewhere(course.seen)));
    leave_out_too_large(course);
    auto rows = plan(course, what_is_known(course), machine(course), settings_.first_look, true);
    if (!rows) return;
    course.drop_stored();
    course.promised = rows->promised;
    course.offer(std::move(rows));
    course.stage = Course::Stage::proven;   // a better one is due
    wake(passages_wait_);
}

// With mutex_ held: those that were not followed in this run.
void Executor::discard_stored(const std::string& why) {
    const auto gone = [](const CoursePointer& c) { return c->unseen(); };
    strangers_until_ = 0;
    if (std::none_of(courses_.begin(), courses_.end(), gone)) return;
    if (for_another_budget_) settings_.say("stored plans are not used: in this budget the program goes another way");   // that they are made anew was said
    else not_used(why);
    for (auto next = courses_.begin(); (next = std::find_if(courses_.begin(), courses_.end(), gone)) != courses_.end();) forget(next);
}

// With mutex_ held: a stored one that is of no use.
void Executor::forget(std::vector<CoursePointer>::iterator course) {
    if (active_ == course->get()) active_ = nullptr, following_ = false;
    if (last_ == course->get()) last_ = nullptr;
    courses_.erase(course);
    if (!whole_graphs_) pieces_.store(false);
    if (std::none_of(courses_.begin(), courses_.end(), [](const CoursePointer& c) { return c->known != nullptr; })) pager_.expect_live(0);
}

// Its kernels are others than those of which the plan knows what they do.
CUresult Executor::discard_changed(const CoursePointer& course, const char* kernel) {
    std::uint64_t turn, epoch;
    {
        std::lock_guard lock(mutex_);
        course->discarded = true;
        turn = turns_.take();     // what is dropped is computed again before another thread goes on
        epoch = ++epoch_;
    }
    const CUresult result = replayer_.load()->restore_all(false, epoch);
    turns_.over(turn);
    std::lock_guard lock(mutex_);
    const auto at = std::find(courses_.begin(), courses_.end(), course);
    if (at == courses_.end()) return result;
    not_used("kernel " + std::string(kernel) + " is another one by now");
    lose();
    forget(at);
    if (settings_.search_again) settings_.search_again();
    return result;
}

// With mutex_ held: what was stored was not seen so far, and something else repeats. It may be another program's.
bool Executor::strange() const {
    return strangers_until_ && std::none_of(courses_.begin(), courses_.end(), [](const CoursePointer& c) { return c->restored && !c->unseen(); });
}

// With mutex_ held. Something that was not stored repeats.
void Executor::note_stranger() {
    if (strangers_until_) return;
    std::size_t longest = 0;
    for (const CoursePointer& c : courses_)
        if (c->unseen()) longest = std::max(longest, c->sequence.steps.size());
    if (longest) strangers_until_ = ops_ + kBefore * longest;
}

// Stored plans of which nothing was seen in a long time are another program's; at the end all that were not seen, if they are
// in the way of others.
void Executor::discard_strangers(bool at_end) {
    std::lock_guard lock(mutex_);
    const bool begun = active_ && active_->unseen();   // one may be just coming
    bool due = ops_ >= strangers_until_;
    if (at_end) {
        std::lock_guard job_lock(job_mutex_);
        due = stores_later_ || store_waits_;
    }
    if (strange() && !begun && due) discard_stored("it is of another program");
    if (strange()) return;
    strangers_until_ = 0;
    if (std::exchange(stores_later_, false)) wake(store_waits_);
}

// What there is to store, if anything waits for that; at the end also what was learned since or has no plan worth it.
void Executor::store(bool at_end) noexcept try {
    if (settings_.plan_file.empty()) return;
    {
        std::lock_guard lock(job_mutex_);
        if (!std::exchange(store_waits_, false) && !at_end) return;
    }
    std::vector<std::pair<CoursePointer, std::shared_ptr<const Rows>>> known;   // and the plan that is worth it, or null
    bool plans = false, any = false, nodes = false;
    std::string lines;
    std::set<std::uint64_t> denied = denied_;
    if (replay::Replayer* const replayer = replayer_.load()) denied = replayer->denied();
    const bool denies = denied.size() > denials_stored_;
    {
        std::lock_guard lock(mutex_);
        if (!device_ || leaves_file_) return;
        if (strange()) {   // nothing is lost that may be of use yet
            stores_later_ = true;
            return;
        }
        nodes = pieces_.load() && !whole_graphs_;   // so says the file
        for (const CoursePointer& c : courses_) {
            auto rows = c->worth_storing();
            // What graphs do node by node is stored once it was compared with what they do whole; what never came again is not kept for ever.
            if (!rows && (is_in_pieces(*c) || !c->follower.settled())) continue;
            plans |= rows != nullptr;
            any |= c->had_plan();
            nodes |= is_in_pieces(*c);
            known.emplace_back(c, std::move(rows));
        }
        lines = plans_line(settings_.device_name(device_->device()), settings_.planner->name, Bytes(static_cast<std::int64_t>(device_->granule())), nodes);
    }
    if (!plans && !denies) {
        if (!any) return;
        PlanFile is = PlanFile::none;
        const auto there = read_plans(settings_.plan_file, is);   // it may be better: another process may have stored it
        if (is == PlanFile::other || (there && !there->courses.empty())) return;
    }
    for (const std::uint64_t code : denied) lines += denied_line(code);
    for (const auto& [course, rows] : known) {
        const bool good = rows && (rows->replays.empty() || all_proven(*rows, *course->known));
        lines += course_lines(course->sequence, course->seen.ops.empty() ? course->sequence.plan_trace : course->seen, course->proven ? course->known.get() : nullptr, good ? *rows : rows_made_anew(course->sequence));
    }
    const auto written = write_plans(settings_.plan_file, lines);
    if (written) {
        std::lock_guard lock(job_mutex_);
        denials_stored_ = denied.size();
    }
    if (!written && !std::exchange(told_not_stored_, true)) settings_.note("the plan cannot be stored: " + written.error().message + "; UDNNMEM_PLAN takes a file in a folder that can be written to");
} catch (const std::exception&) {  // no memory: it is not stored
}

}  // namespace udnnmem::executor
