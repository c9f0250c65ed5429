// Executor: the planning thread. Makes courses of what was learned, and plans for them: at once a quick one, a better one when
// it is known what the ops write.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <utility>

#include "policy/compiled.hpp"
#include "policy/simulator.hpp"
#include "profiler/trace/writer/json_line.hpp"
#include "shim/executor/executor.hpp"
#include "shim/executor/recompute.hpp"

namespace udnnmem::executor {
namespace {

constexpr double kFasterByPlan = 0.98;    // a second plan is worth trying if it promises so much
// Costs of this executor on a card: frames are taken when an op is launched, some ops ahead of the device (so many that it
// has work meanwhile), and a move is noticed by a mover that looks every now and then. With none ahead, an op that takes memory
// is submitted only when the op before it has ended: the device waits for kSubmission.
constexpr int kLeastAhead = 2, kMostAhead = 8;
constexpr Nanoseconds kWorkAhead{400'000}, kSubmission{20'000};
constexpr Nanoseconds kTurnaround{100'000}, kLatency{50'000};
constexpr double kChanged = 0.03;         // what is measured is news if it differs by so much from what was planned with
constexpr double kAsPromised = 1.02;      // a plan that takes no longer is as good as it said
constexpr double kLessThanPromised = 0.97;   // one that takes no longer was made for moves that cost more than they do
constexpr double kMostCosts = 2;          // that moves may be found to have, of what is assumed
constexpr double kSlowerLink = 0.93;
constexpr double kAssumedLink = 12e9;     // bytes per second, until the first moves were timed
constexpr double kFewerAhead = 1.02;      // fewer ops ready ahead of the device have to promise so much
constexpr int kTimesBesideRecorder = 4;   // that a passage has to come while the recorder may still find it
constexpr std::uint64_t kPatience = 32;   // iterations' worth of other ops, with a proof whose sequence is not followed
constexpr double kSpare = 0.01;           // of the memory, for frames that are stranded in a size class
constexpr std::chrono::milliseconds kPoll(10);  // for what comes without a notice

struct Stopped {};

Nanoseconds scaled(Nanoseconds time, double by) { return Nanoseconds(static_cast<std::int64_t>(by * static_cast<double>(time.value))); }

double ratio(Nanoseconds a, Nanoseconds b) { return static_cast<double>(a.value) / static_cast<double>(b.value); }
bool as_promised(Nanoseconds took, Nanoseconds promised) { return ratio(took, promised) <= kAsPromised && ratio(took, promised) > kLessThanPromised; }

// Ops that take memory for what they make.
std::int64_t takers(const profiler::Trace& trace) {
    std::vector<bool> takes(trace.ops.size());
    for (const profiler::TraceBuffer& b : trace.buffers)
        if (!b.persistent && b.alloc_op.value >= 0) takes[static_cast<std::size_t>(b.alloc_op.value)] = true;
    return std::count(takes.begin(), takes.end(), true);
}

}  // namespace

policy::Machine Executor::machine(const Course& course) {
    const profiler::Trace& trace = course.seen;
    const auto room = device_->room();
    policy::Machine m;
    m.memory = Bytes(static_cast<std::int64_t>(static_cast<double>(room.movable) * (1 - kSpare)));
    m.memory -= std::min(m.memory, course.elsewhere);
    m.host = Bytes(static_cast<std::int64_t>(room.host));
    m.link_in = course.links * (room.in > 0 ? room.in : room.out > 0 ? room.out : kAssumedLink);
    m.link_out = room.out > 0 ? course.links * room.out : m.link_in;
    m.link_latency = scaled(kLatency, course.costs);
    const std::int64_t typical = trace.header.ideal.value / static_cast<std::int64_t>(std::max<std::size_t>(1, trace.ops.size()));
    m.lookahead = static_cast<int>(std::clamp<std::int64_t>(kWorkAhead.value / std::max<std::int64_t>(1, typical), kLeastAhead, kMostAhead));
    m.turnaround = scaled(kTurnaround, course.costs);
    if (replay::Replayer* const replayer = replayer_.load(); replayer && settings_.verify_replay > 0) m.hash_rate = replayer->work().hash_rate() / settings_.verify_replay;
    return m;
}

// Null: there is none that can be carried out.
std::shared_ptr<Rows> Executor::plan(const Course& course, const profiler::Trace& trace, const policy::Machine& machine, Nanoseconds look, bool recompute) {
    policy::PlannerOptions options;
    options.recompute = recompute;
    options.progress = [this](double) {
        if (stopping_.load(std::memory_order_relaxed)) throw Stopped();
    };
    policy::Machine at_work = machine;
    policy::Plan made;
    policy::Outcome outcome;
    Nanoseconds least;
    const Nanoseconds submissions(takers(trace) * kSubmission.value);
    const auto consider = [&](const policy::Machine& tried, Nanoseconds budget) {
        options.time_budget = budget;
        policy::Plan found = settings_.planner->make_plan(trace, tried, options);
        const policy::Outcome promised = policy::simulate(trace, tried, found);
        const Nanoseconds takes = promised.time + (tried.lookahead ? Nanoseconds(0) : submissions);
        const double handicap = tried.lookahead < at_work.lookahead ? kFewerAhead : 1;
        if (promised.valid && (!outcome.valid || handicap * static_cast<double>(takes.value) < static_cast<double>(least.value)))
            at_work = tried, made = std::move(found), outcome = promised, least = takes;
        if (!outcome.valid) outcome.error = promised.error;
    };
    // Where memory is tight, fewer ops ready ahead of the device may be worth more than the time that it may then have to wait
    // for a launch.
    policy::Machine fewer = machine;
    for (consider(fewer, Nanoseconds(0)); fewer.lookahead > 0;) {
        fewer.lookahead = fewer.lookahead > kLeastAhead ? fewer.lookahead / 2 : 0;
        consider(fewer, Nanoseconds(0));
    }
    if (look.value > 0 && outcome.valid) {
        const bool both = at_work.lookahead > 0;   // what none ahead is worth shows only in plans that were searched for
        consider(at_work, both ? Nanoseconds(look.value / 2) : look);
        if (both) consider(fewer, Nanoseconds(look.value / 2));
    }
    const std::string what = "sequence " + std::to_string(course.id) + " of " + std::to_string(trace.ops.size()) + " ops";
    if (!outcome.valid) {
        settings_.say("no plan for " + what + ": " + outcome.error);
        return nullptr;
    }
    auto rows = std::make_shared<Rows>(make_rows(made, trace.ops.size()));
    rows->promised = outcome.time;
    rows->peak = outcome.peak;
    rows->lookahead = at_work.lookahead;
    rows->plan = std::make_shared<const policy::Plan>(std::move(made));
    rows->memory = at_work.memory, rows->host = at_work.host;
    rows->link_in = machine.link_in, rows->link_out = machine.link_out;
    policy::Timeline timeline;
    policy::simulate(trace, at_work, *rows->plan, &timeline);
    for (const Nanoseconds start : timeline.start) rows->start.push_back(start - timeline.start.front());
    mark_steps(*rows, course.sequence);
    if (settings_.lie) *rows = distorted(*rows, trace.buffers.size(), *settings_.lie);
    auto us = [](Nanoseconds t) { return std::to_string(t.value / 1000) + " us"; };
    settings_.say("plan by " + std::string(settings_.planner->name) + " for " + what + ": " + us(outcome.time) + " promised, " + us(outcome.ideal) +
                  " with all memory; " + std::to_string(rows->entries.size()) + " orders, " + std::to_string(rows->replays.size()) + " replays, links " + std::to_string(static_cast<long>(machine.link_in / 1e6)) +
                  " MB/s in, " + std::to_string(static_cast<long>(machine.link_out / 1e6)) + " MB/s out" +
                  (machine.hash_rate > 0 ? ", hashes " + std::to_string(static_cast<long>(machine.hash_rate / 1e6)) + " MB/s" : ""));
    return rows;
}

void Executor::run() {
    if (settings_.thread_started) settings_.thread_started();
    try {
        work();
    } catch (const Stopped&) {
    }
    discard_strangers(true);
    store();
    std::lock_guard lock(job_mutex_);
    has_ended_ = true;
    ended_.notify_all();
}

// False: the end.
bool Executor::wait_for_work(bool polls) {
    std::unique_lock lock(job_mutex_);
    const auto due = [this] { return job_ || reconsider_ || passages_wait_ || store_waits_ || advance_waits_ || stopping_.load(); };
    if (polls) job_ready_.wait_for(lock, kPoll, due);
    else job_ready_.wait(lock, due);
    passages_wait_ = advance_waits_ = false;
    if (store_waits_ && !stopping_.load()) {
        lock.unlock();
        store();
    }
    return !stopping_.load();
}

// Ops are told until nothing is dropped any more: each may overwrite what dropped buffers are made of.
void Executor::go_on_demand() {
    {
        std::lock_guard lock(mutex_);
        drops_ = false;
        if (device_) lose();
    }
    if (replayer_.load()) restore_now();
    on_.store(false);
}

void Executor::work() {
    for (bool polls = false; wait_for_work(polls);) try {
            const auto devices = pager_.devices();
            if (devices.empty()) continue;
            if (devices.size() != 1) {
                polls = false;
                bool asked = false;
                {
                    std::lock_guard lock(job_mutex_);
                    asked = std::exchange(job_, nullptr) != nullptr;
                    reconsider_ = false;
                }
                if (on() || asked) settings_.say("more than one device: no plan, memory is paged on demand");
                if (on()) go_on_demand();
                continue;
            }
            pager::DevicePager& device = *devices[0];
            std::unique_ptr<profiler::Iteration> job;
            {
                std::lock_guard lock(job_mutex_);
                job = std::move(job_);
                if (std::exchange(reconsider_, false) && !job) job = std::move(kept_);
            }
            if (job) learn(*job, device);
            take_passages(device);
            discard_strangers(false);
            polls = false;
            std::vector<CoursePointer> all;
            {
                std::lock_guard lock(mutex_);
                if (device_) all = courses_;
            }
            for (const CoursePointer& c : all) polls |= advance(*c);
            pager_.answer_memory().collect();
        } catch (const std::exception& e) {
            settings_.say(std::string("planning failed: ") + e.what());
        }
}

// Whether a course has that fingerprint.
bool Executor::known(std::uint64_t fingerprint) {
    std::lock_guard lock(mutex_);
    return std::any_of(courses_.begin(), courses_.end(), [&](const CoursePointer& c) { return c->fingerprint() == fingerprint; });
}

// A course of its own from now on, followed so that demand paging is measured too.
void Executor::learn(const profiler::Iteration& iteration, pager::DevicePager& device) {
    Sequence sequence = make_sequence(iteration, device.small_below(), device.granule(), [this](std::uint64_t at) { return pager_.find(at); });
    if (sequence.steps.size() < static_cast<std::size_t>(profiler::IterationFinder::fewest)) return;
    auto made = std::make_shared<Course>(learned_, std::move(sequence), pager_);
    if (known(made->fingerprint())) return;
    {
        std::lock_guard lock(mutex_);
        note_stranger();
    }
    const Sequence& learned = made->sequence;
    const auto room = device.room();
    if (!on() && policy::CompiledTrace(learned.plan_trace).peak_live <= static_cast<std::int64_t>(static_cast<double>(room.movable) * (1 - kSpare)) &&
        device.memory().live <= room.movable) {
        kept_ = std::make_unique<profiler::Iteration>(iteration);   // nothing to plan, until something is moved
        kept_back_.store(true);
        return;
    }
    note_prices(learned);
    std::lock_guard lock(mutex_);
    if (courses_.size() == kMostCourses) {
        const auto oldest = std::min_element(courses_.begin(), courses_.end(), [&](const CoursePointer& a, const CoursePointer& b) {
            const auto worth = [&](const CoursePointer& c) { return std::tuple(c.get() == active_, c->followed_at, c->sequence.steps.size()); };
            return worth(a) < worth(b);
        });
        if (last_ == oldest->get()) last_ = nullptr;
        end_proof(**oldest, false);
        courses_.erase(oldest);
    }
    device_ = &device;
    courses_.push_back(std::move(made));
    ++learned_;
    settings_.say("sequence " + std::to_string(learned_ - 1) + " of " + std::to_string(learned.steps.size()) + " ops is known");
    watching_.store(true);
    on_.store(true);
}

void Executor::take_passages(pager::DevicePager& device) {
    std::vector<Passage> taken;
    {
        std::lock_guard lock(mutex_);
        taken.swap(passages_);
    }
    // The recorder sees more of a sequence: its times, and what lies in slabs.
    const int times = !taken.empty() && settings_.recorder_listens && settings_.recorder_listens() ? kTimesBesideRecorder : 2;
    for (Passage& passage : taken)
        if (const auto found = unknown_.take(std::move(passage), [this](std::uint64_t print) { return known(print); }, times)) learn(*found, device);
}

void Executor::note_prices(const Sequence& sequence) {
    double ns = 0, bytes = 0;
    for (std::size_t k = 0; k < sequence.steps.size(); ++k) {
        const Sequence::Step& step = sequence.steps[k];
        const Nanoseconds took = sequence.plan_trace.ops[k].duration;
        double named = 1;
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) named += static_cast<double>(sequence.plan_trace.buffers[static_cast<std::size_t>(sequence.uses[i].buffer)].bytes.value);
        prices_[step.shape] = took;
        price_per_byte_[step.name] = static_cast<double>(took.value) / named;
        ns += static_cast<double>(took.value), bytes += named;
    }
    price_per_byte_[""] = ns / bytes;
}

// Of an op that was not measured: what the same op took, or one of that name for each byte, or any.
Nanoseconds Executor::price(const char* name, std::uint64_t shape, std::size_t bytes) {
    if (const auto same = prices_.find(shape); same != prices_.end()) return same->second;
    const auto like = price_per_byte_.find(name);
    return Nanoseconds(static_cast<std::int64_t>((like != price_per_byte_.end() ? like->second : price_per_byte_[""]) * static_cast<double>(bytes)));
}

// The next thing to do for a course. True: there is more to come, which nobody gives notice of.
bool Executor::advance(Course& course) {
    const profiler::Trace& trace = course.sequence.plan_trace;
    const auto is = [&](Course::Stage stage) {
        std::lock_guard lock(mutex_);
        return course.stage == stage;
    };
    if (is(Course::Stage::fresh)) {
        set_stage(course, Course::Stage::planned);
        if (course.seen.ops.empty()) course.seen = trace;
        if (policy::CompiledTrace(trace).peak_live <= machine(course).memory.value) return false;
        if (settings_.planner->needs_recompute && !settings_.recompute) {
            settings_.note("policy " + std::string(settings_.planner->name) + " is all recompute: UDNNMEM_RECOMPUTE=off leaves it nothing to plan, memory is paged on demand");
            return false;
        }
        if (settings_.planner->needs_recompute && !course.proven) {
            set_stage(course, Course::Stage::watching);   // nothing to plan with so far
        } else {
            const auto first = plan(course, what_is_known(course), machine(course), settings_.first_look, course.proven);
            if (!first) return false;
            course.promised = first->promised;
            {
                std::lock_guard lock(mutex_);
                course.offer(first);
            }
            if (settings_.second_look.value > 0 && first->promised > trace.header.ideal) set_stage(course, course.proven ? Course::Stage::proven : Course::Stage::watching);
        }
    }
    if (is(Course::Stage::improving)) {
        improve(course);
        set_stage(course, Course::Stage::planned);
    }
    if (is(Course::Stage::watching)) {
        if (look_at_watch(course, course.seen) == Watched::pending) return true;
        if (!settings_.planner->needs_recompute) offer_better(course, plan(course, course.seen, machine(course), settings_.second_look));
        set_stage(course, Course::Stage::unproven);
    }
    if (is(Course::Stage::unproven)) {
        if (proves_.load()) return false;   // one at a time: this one is asked again where it begins (begin_iteration())
        set_stage(course, begin_proof(course) ? Course::Stage::proving : Course::Stage::planned);
    }
    if (is(Course::Stage::proving)) {
        if (!followed_of_late(course)) {
            end_proof(course, true);
            set_stage(course, Course::Stage::unproven);
            return false;
        }
        if (!look_at_proof(course)) return true;
        set_stage(course, course.proven ? Course::Stage::proven : Course::Stage::planned);
    }
    if (is(Course::Stage::proven)) {
        offer_better(course, plan(course, what_is_known(course), machine(course), settings_.second_look, true));
        set_stage(course, Course::Stage::planned);
    }
    return false;
}

// With what was seen, and what was proved.
profiler::Trace Executor::what_is_known(const Course& course) {
    return course.proven ? with_proofs(course.seen, course.sequence, *course.known) : course.seen;
}

void Executor::set_stage(Course& course, Course::Stage stage) {
    std::lock_guard lock(mutex_);
    course.stage = stage;
}

// Finds what moves cost, by the time that the simulator then gives a plan which was measured to take `took`: sets course.costs,
// between 0 and kMostCosts. Returns the simulator's time with that; 0: it cannot say.
Nanoseconds Executor::fit_costs(Course& course, const Rows& rows, Nanoseconds took) {
    if (!rows.plan) return Nanoseconds(0);
    const profiler::Trace trace = what_is_known(course);
    const auto simulated = [&](double costs) {
        course.costs = costs;
        policy::Machine m = machine(course);
        m.lookahead = rows.lookahead, m.memory = rows.memory, m.host = rows.host;
        const policy::Outcome outcome = policy::simulate(trace, m, *rows.plan);
        return outcome.valid ? outcome.time : Nanoseconds(0);
    };
    const double before = course.costs;
    Nanoseconds time = simulated(before);
    double low = 0, high = kMostCosts;
    for (int steps = 8; time.value && !as_promised(took, time) && steps; --steps) {
        time = simulated((low + high) / 2);
        (time < took ? low : high) = course.costs;
    }
    if (!time.value) course.costs = before;
    return time;
}

// What was measured of the plan in force goes into the next one, if the two differ by enough: how long ops take, what links
// carry, what moves cost. Where that does not say why it is slower than it promised, by slower links.
void Executor::improve(Course& course) {
    std::vector<Course::Actual> actual;
    std::shared_ptr<const Rows> now;
    Nanoseconds measured;
    {
        std::lock_guard lock(mutex_);
        actual = course.actual();
        now = course.in_force();
        ++course.improved;
        measured = course.typical();
    }
    if (!now) return;
    std::int64_t changed = 0, ideal = 0;
    for (std::size_t k = 0; k < actual.size(); ++k) {
        Nanoseconds& takes = course.seen.ops[k].duration;
        if (actual[k].took.value >= 0) {
            changed += std::abs(actual[k].took.value - takes.value);
            takes = actual[k].took;
        }
        ideal += takes.value;
    }
    course.seen.header.ideal = Nanoseconds(ideal);
    const auto far = [](double a, double b) { return b > 0 && std::abs(a / b - 1) > kChanged; };
    std::string change;
    const auto add = [&change](const std::string& what) { change += (change.empty() ? "" : ", ") + what; };
    const double share = static_cast<double>(changed) / static_cast<double>(std::max<std::int64_t>(1, ideal));
    if (share > kChanged) add("op times differ by " + std::to_string(static_cast<int>(100 * share)) + " %");
    const bool moved = device_->room().in > 0;
    policy::Machine m = machine(course);
    if (moved && (far(m.link_in, now->link_in) || far(m.link_out, now->link_out)))
        add("links carry " + std::to_string(static_cast<long>(m.link_in / 1e6)) + " MB/s in, " + std::to_string(static_cast<long>(m.link_out / 1e6)) + " MB/s out");
    if (!as_promised(measured, now->promised)) {
        const double before = course.costs;
        const Nanoseconds again = fit_costs(course, *now, measured);
        if (course.costs != before) add("moves cost " + std::to_string(static_cast<int>(100 * course.costs)) + " % of what is assumed");
        else if (change.empty() && measured > now->promised) course.links *= kSlowerLink, add("slower links reckoned with");
        if (again.value && again < now->promised) {   // a promise stays, unless it can be a better one
            std::lock_guard lock(mutex_);
            course.promise_again(*now, again);
        }
    }
    if (change.empty()) return;
    m = machine(course);
    if (!moved && now->link_in > 0) m.link_in = now->link_in, m.link_out = now->link_out;
    const auto better = plan(course, what_is_known(course), m, settings_.second_look, course.proven);
    if (!better) return;
    better->change = change;
    settings_.say("sequence " + std::to_string(course.id) + " takes " + std::to_string(measured.value / 1000) + " us by plan; another plan: " + change);
    std::lock_guard lock(mutex_);
    course.offer(better);
}

void Executor::offer_better(Course& course, std::shared_ptr<const Rows> rows) {
    if (!rows || (course.promised.value && static_cast<double>(rows->promised.value) >= kFasterByPlan * static_cast<double>(course.promised.value))) return;
    course.promised = rows->promised;
    std::lock_guard lock(mutex_);
    course.offer(std::move(rows));
}

// With mutex_ held.
void Executor::make_replayer() {
    if (replayer_owner_) return;
    replayer_owner_ = std::make_unique<replay::Replayer>(pager_, *device_, settings_.verify_replay, settings_.flip);
    replayer_.store(replayer_owner_.get());
}

// Whether it is worth while to find out what can be run again, and possible.
bool Executor::begin_proof(Course& course) {
    const bool gains = settings_.planner->needs_recompute || static_cast<double>(course.sequence.plan_trace.header.ideal.value) < kFasterByPlan * static_cast<double>(course.promised.value);
    if (!settings_.recompute || !gains) return false;
    for (const profiler::TraceOp& op : course.sequence.plan_trace.ops)
        if (op.stream != 0) {
            (settings_.planner->needs_recompute ? settings_.note : settings_.say)("sequence " + std::to_string(course.id) + " runs in several streams: nothing of it is dropped");
            return false;
        }
    std::lock_guard lock(mutex_);
    // What is in graphs is known node by node only where they are launched so; what outlives the iteration has no time to be dropped.
    const Sequence& sequence = course.sequence;
    const bool graphs = std::any_of(sequence.steps.begin(), sequence.steps.end(), [&](const Sequence::Step& s) {
        return std::string_view(s.name) == graph_launch && std::any_of(sequence.uses.begin() + s.first, sequence.uses.begin() + s.first + s.count, [&](const Sequence::Use& u) { return !sequence.lasts(static_cast<std::size_t>(u.buffer)); });
    });
    if (graphs && !whole_graphs_) {
        for (const CoursePointer& c : courses_)
            if (c.get() == &course) whole_graphs_ = c;
        settings_.say("sequence " + std::to_string(course.id) + " launches graphs: from here on node by node, so that what they make can be dropped");
        pieces_.store(true);
        return false;
    }
    std::lock_guard proof(proof_mutex_);
    make_replayer();
    for (const CoursePointer& c : courses_)
        if (c.get() == &course) proving_ = c;
    if (!proving_) return false;
    if (course.proof && !course.proof->failed()) {   // where it was left
        proves_.store(true);
        return true;
    }
    course.known = std::make_shared<replay::Known>();
    course.known->program = course.sequence.program;
    for (const profiler::TraceOp& op : course.sequence.plan_trace.ops) {
        course.known->ops.emplace_back();
        course.known->ops.back().takes = op.duration;
    }
    course.proof = std::make_unique<replay::Proof>(replayer_.load()->work(), *course.known);
    proves_.store(true);
    return true;
}

// Else its proof would keep all others waiting.
bool Executor::followed_of_late(const Course& course) {
    std::lock_guard lock(mutex_);
    return ops_ - course.followed_at <= kPatience * course.sequence.steps.size();
}

// `resumed`: some time later; a program may come to the sequence for a few iterations at a time.
void Executor::end_proof(Course& course, bool resumed) {
    std::lock_guard proof(proof_mutex_);
    if (!resumed) course.proof = nullptr;
    if (proving_.get() != &course) return;
    proving_ = nullptr;
    proves_.store(false);
}

// True: it is over.
bool Executor::look_at_proof(Course& course) {
    std::lock_guard proof(proof_mutex_);
    if (course.proof->queued() && pager_.streams().complete(pager_.streams().all_streams(), course.proof->number())) course.proof->evaluate();
    if (!course.proof->over()) return false;
    proving_ = nullptr;
    proves_.store(false);
    if (!course.proof->failed()) find_versions(*course.known, course.sequence);
    course.proven = !course.proof->failed();
    if (course.proven) settings_.say("sequence " + std::to_string(course.id) + ": " + summary_of(*course.known));
    course.proof = nullptr;
    return true;
}

// For the trace file (profiler/trace/README.md): what each op names and was not seen to write, by the run's numbers of buffers.
static std::string unchanged_lines(const profiler::Trace& may, const profiler::Trace& does) {
    std::string lines;
    for (std::size_t k = 0; k < may.ops.size() && k < does.ops.size(); ++k) {
        std::vector<std::int64_t> buffers;
        for (const BufferId id : may.ops[k].writes)
            if (const std::int32_t run_id = may.buffers[static_cast<std::size_t>(id.value)].run_id; run_id >= 0 && !std::binary_search(does.ops[k].writes.begin(), does.ops[k].writes.end(), id)) buffers.push_back(run_id);
        if (buffers.empty()) continue;
        profiler::JsonLine line("unchanged");
        line.add("ops", static_cast<std::int64_t>(may.ops.size())).add("op", static_cast<std::int64_t>(k)).add("name", may.ops[k].name).add("buffers", buffers);
        lines += line.finish();
    }
    return lines;
}

// Takes what the watch saw into the trace, once it has seen all of it.
Executor::Watched Executor::look_at_watch(Course& course, profiler::Trace& trace) {
    std::lock_guard lock(mutex_);
    const bool over = !course.watch || course.watch->gave_up();
    const bool seen = !over && course.watch->queued() && course.watched && pager_.streams().complete(pager_.streams().all_streams(), course.watched);
    if (!over && !seen) return Watched::pending;
    if (seen) {
        const WriteWatch::Seen uses = course.watch->apply(trace);
        if (settings_.record) settings_.record(unchanged_lines(course.sequence.plan_trace, trace));
        settings_.say(std::to_string(uses.writes) + " of " + std::to_string(uses.all) + " uses of buffers were seen to write");
    }
    course.watch = nullptr;
    watching_.store(std::any_of(courses_.begin(), courses_.end(), [](const CoursePointer& c) { return c->watch && !c->watch->gave_up() && !c->watch->queued(); }));
    return seen ? Watched::seen : Watched::over;
}

}  // namespace udnnmem::executor
