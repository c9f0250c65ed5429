// Executor: the planning thread. Makes courses of what was learned, and plans for them: at once a quick one, a better one when
// it is known what the ops write.
#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

#include "policy/compiled.hpp"
#include "policy/liveness.hpp"
#include "policy/simulator.hpp"
#include "policy/tails.hpp"
#include "shim/executor/executor.hpp"
#include "shim/executor/recompute.hpp"

namespace udnnmem::executor {
namespace {

// Costs of this executor on a card: frames are taken when an op is launched, some ops ahead of the device (so many that it
// has work meanwhile), and a move is noticed by a mover that looks every now and then. With none ahead, an op that takes memory
// is submitted only when the op before it has ended: the device waits for kSubmission, and where the driver is slow to map memory, for that.
constexpr int kLeastAhead = 2, kMostAhead = 8, kMostAheadOfMapping = 16;
constexpr Nanoseconds kWorkAhead{400'000}, kSubmission{20'000}, kSlowMapping{100'000};
constexpr Nanoseconds kTurnaround{100'000}, kLatency{50'000};
constexpr double kAssumedLink = 12e9;     // bytes per second, until the first moves were timed
constexpr double kFewerAhead = 1.02;      // fewer ops ready ahead of the device have to promise so much
constexpr double kMuchFaster = 0.85;      // of what whole graphs take: nodes with all memory
constexpr int kMostLeftOut = 256;         // buffers of ops that are too large
constexpr std::chrono::milliseconds kPoll(10);  // for what comes without a notice

struct Stopped {};

Nanoseconds scaled(Nanoseconds time, double by) { return Nanoseconds(static_cast<std::int64_t>(by * static_cast<double>(time.value))); }

// What an op takes on average, ns.
std::int64_t typical_op(const profiler::Trace& trace) { return trace.header.ideal.value / static_cast<std::int64_t>(std::max<std::size_t>(1, trace.ops.size())); }

// Ops that take memory for what they make.
std::int64_t takers(const profiler::Trace& trace) {
    std::vector<bool> takes(trace.ops.size());
    for (const profiler::TraceBuffer& b : trace.buffers)
        if (!b.persistent && b.alloc_op.value >= 0) takes[static_cast<std::size_t>(b.alloc_op.value)] = true;
    return std::count(takes.begin(), takes.end(), true);
}

// Without what it does with buffers that are left out, which is worth nothing to it.
policy::Plan without(const policy::Plan& plan, const std::vector<bool>& left_out) {
    policy::Plan rest = plan;
    const auto out = [&](BufferId b) { return static_cast<std::size_t>(b.value) < left_out.size() && left_out[static_cast<std::size_t>(b.value)]; };
    std::erase_if(rest.start_evicted, out);
    std::erase_if(rest.actions, [&](const policy::Action& a) { return a.what != policy::Do::replay && out(a.buffer); });
    return rest;
}

}  // namespace

// An op that needs more than can be on the device runs from host frames in part. For that not all of its iteration has to go without a
// plan: the largest of its buffers stay where they are, in host memory before long, until what is left of each op fits.
void Executor::leave_out_too_large(Course& course) {
    profiler::Trace& trace = course.seen;
    const std::vector<bool> before = std::exchange(course.left_out, {});
    for (std::size_t b = 0; b < before.size(); ++b)   // by another budget, maybe
        if (before[b]) trace.buffers[b].bytes = course.sequence.plan_trace.buffers[b].bytes;
    std::set<std::size_t> ops;
    std::string first;
    Bytes memory, left{0};
    for (int buffers = 0; buffers < kMostLeftOut; ++buffers) {
        const policy::Liveness live(trace);
        memory = machine(course).memory;
        if (live.largest_working_set() <= memory) break;
        std::size_t op = 0;
        while (live.working_set(op) < live.largest_working_set()) ++op;
        const auto named = live.buffers_of(op);
        const auto bytes = [&](std::int32_t b) -> Bytes& { return trace.buffers[static_cast<std::size_t>(b)].bytes; };
        const auto largest = std::max_element(named.begin(), named.end(), [&](std::int32_t a, std::int32_t b) { return bytes(a) < bytes(b); });
        if (largest == named.end() || !bytes(*largest).value) break;
        if (ops.empty()) first = "op " + std::to_string(op) + ", " + trace.ops[op].name + ", needs " + std::to_string(live.largest_working_set().value) + " bytes";
        ops.insert(op);
        left += std::exchange(bytes(*largest), Bytes(0));
        course.left_out.resize(trace.buffers.size());
        course.left_out[static_cast<std::size_t>(*largest)] = true;
    }
    if (ops.empty() || course.left_out == before) return;
    const std::string others = ops.size() > 1 ? ", and " + std::to_string(ops.size() - 1) + " others up to that" : "";
    settings_.say("sequence " + std::to_string(course.id) + ": " + first + others + ", more than the " + std::to_string(memory.value) + " that buffers can move in: " + std::to_string(left.value) +
                  " of them stay where they are, and " + (ops.size() > 1 ? "they run" : "it runs") + " from host frames");
}

// What the driver takes to map the memory of a new buffer, where that is much.
Nanoseconds Executor::slow_mapping() {
    const Nanoseconds mapping(device_->room().first_map_ns);
    return mapping > kSlowMapping ? mapping : Nanoseconds(0);
}

policy::Machine Executor::machine(const Course& course) {
    const profiler::Trace& trace = course.seen;
    const auto room = device_->room();
    policy::Machine m;
    m.memory = Bytes(static_cast<std::int64_t>(static_cast<double>(room.movable) * (1 - kSpare)));
    m.memory -= std::min(m.memory, course.elsewhere);
    // Where the largest op needs of what is spared, it has it: it would run, and graphs that just fit are launched whole.
    const Bytes least = policy::Liveness(trace).largest_working_set();
    if (m.memory < least && least + course.elsewhere <= Bytes(static_cast<std::int64_t>(room.movable))) m.memory = least;
    m.host = Bytes(static_cast<std::int64_t>(room.host));
    m.link_in = course.links * (room.in > 0 ? room.in : room.out > 0 ? room.out : kAssumedLink);
    m.link_out = room.out > 0 ? course.links * room.out : m.link_in;
    m.link_latency = scaled(kLatency, course.costs);
    const Nanoseconds mapping = slow_mapping();
    const std::int64_t ops = std::max(kWorkAhead, mapping).value / std::max<std::int64_t>(1, typical_op(trace));
    m.lookahead = static_cast<int>(std::clamp<std::int64_t>(ops, kLeastAhead, mapping > kWorkAhead ? kMostAheadOfMapping : kMostAhead));
    m.turnaround = scaled(kTurnaround, course.costs);
    if (replay::Replayer* const replayer = replayer_.load(); replayer && settings_.verify_replay > 0) m.hash_rate = replayer->work().hash_rate() / settings_.verify_replay;
    return m;
}

// Null: there is none that can be carried out, and why.
std::shared_ptr<Rows> Executor::plan(const Course& course, const profiler::Trace& trace, const policy::Machine& machine, Nanoseconds look, bool recompute, std::string* why_not) {
    policy::PlannerOptions options;
    options.recompute = recompute;
    options.tails = true;
    options.progress = [this](double) {
        if (stopping_.load(std::memory_order_relaxed)) throw Stopped();
    };
    policy::Machine at_work = machine;
    policy::SettledPlan made;
    policy::Outcome outcome;
    Nanoseconds least;
    const std::int64_t taking = takers(trace), mapping = slow_mapping().value, typical = typical_op(trace);
    const auto consider = [&](const policy::Machine& tried, Nanoseconds budget) {
        options.time_budget = budget;
        policy::SettledPlan found = policy::settle_tails(trace, settings_.planner->make_plan(trace, tried, options), recompute);
        const policy::Outcome promised = policy::simulate(trace, tried, found.plan);
        const Nanoseconds takes = promised.time + Nanoseconds(taking * (std::max<std::int64_t>(0, mapping - tried.lookahead * typical) + (tried.lookahead ? 0 : kSubmission.value)));
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
    if (outcome.valid && !course.left_out.empty()) {
        made.plan = without(made.plan, course.left_out);
        outcome = policy::simulate(trace, at_work, made.plan);
    }
    const std::string what = "sequence " + std::to_string(course.id) + " of " + std::to_string(trace.ops.size()) + " ops";
    if (!outcome.valid) {
        const Bytes least = policy::Liveness(trace).largest_working_set();
        const std::string why = least <= machine.memory ? outcome.error : "its largest op alone needs " + std::to_string(policy::Liveness(course.sequence.plan_trace).largest_working_set().value) + " bytes of the " + std::to_string(machine.memory.value) + " that buffers can move in: it runs from host frames";
        settings_.say("no plan for " + what + ": " + why);
        if (why_not) *why_not = why;
        return nullptr;
    }
    auto rows = std::make_shared<Rows>(make_rows(made.plan, trace.ops.size(), made.dropped));
    rows->promised = outcome.time;
    rows->peak = outcome.peak;
    rows->lookahead = at_work.lookahead;
    rows->plan = std::make_shared<const policy::Plan>(std::move(made.plan));
    rows->memory = at_work.memory, rows->host = at_work.host;
    rows->budget = Bytes(static_cast<std::int64_t>(device_->room().budget));
    rows->link_in = machine.link_in, rows->link_out = machine.link_out;
    policy::Timeline timeline;
    policy::simulate(trace, at_work, *rows->plan, &timeline);
    for (const Nanoseconds start : timeline.start) rows->start.push_back(start - timeline.start.front());
    mark_steps(*rows, course.sequence);
    if (settings_.lie) *rows = distorted(*rows, trace.buffers.size(), *settings_.lie);
    auto us = [](Nanoseconds t) { return std::to_string(t.value / 1000) + " us"; };
    settings_.say("plan by " + std::string(settings_.planner->name) + " for " + what + ": " + us(outcome.time) + " promised, " + us(outcome.ideal) +
                  " with all memory; " + std::to_string(rows->entries.size()) + " orders, " + std::to_string(rows->replays.size() - made.dropped.size()) + " replays, " + std::to_string(made.dropped.size()) + " dropped for good, " + std::to_string(outcome.in.value / 1024) + " KiB in, " + std::to_string(outcome.out.value / 1024) + " KiB out, links " + std::to_string(static_cast<long>(machine.link_in / 1e6)) +
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
    store(true);
    std::lock_guard lock(job_mutex_);
    has_ended_ = true;
    ended_.notify_all();
}

// False: the end.
bool Executor::wait_for_work(bool polls) {
    std::unique_lock lock(job_mutex_);
    const auto due = [this] { return !jobs_.empty() || reconsider_ || passages_wait_ || store_waits_ || advance_waits_ || stopping_.load(); };
    if (polls) job_ready_.wait_for(lock, kPoll, due);
    else job_ready_.wait(lock, due);
    passages_wait_ = advance_waits_ = false;
    if (store_waits_ && !stopping_.load()) {
        lock.unlock();
        store(false);
    }
    return !stopping_.load();
}

// Ops are told until nothing is dropped any more: each may overwrite what dropped buffers are made of. False: something still is.
bool Executor::go_on_demand() {
    {
        std::lock_guard lock(mutex_);
        drops_ = false;
        if (device_) lose();
    }
    if (replayer_.load() && restore_now() != CUDA_SUCCESS) return false;
    on_.store(false);
    return true;
}

void Executor::work() {
    for (bool polls = false; wait_for_work(polls);) try {
            const auto devices = pager_.devices();
            if (devices.empty()) continue;
            if (devices.size() != 1) {
                bool asked = false;
                {
                    std::lock_guard lock(job_mutex_);
                    asked = !std::exchange(jobs_, {}).empty();
                    reconsider_ = false;
                }
                if (asked || (on() && !polls)) settings_.say("more than one device: no plan, memory is paged on demand");
                polls = on() && !go_on_demand();
                continue;
            }
            pager::DevicePager& device = *devices[0];
            std::vector<profiler::Iteration> jobs;
            {
                std::lock_guard lock(job_mutex_);
                jobs.swap(jobs_);
                if (const auto kept = std::exchange(reconsider_, false) && jobs.empty() ? std::move(kept_) : nullptr) jobs.push_back(std::move(*kept));
            }
            for (const profiler::Iteration& job : jobs) learn(job, device);
            take_passages(device);
            discard_strangers(false);
            polls = false;
            std::vector<CoursePointer> all;
            {
                std::lock_guard lock(mutex_);
                if (device_) all = courses_;
            }
            look_at_trials();
            for (const CoursePointer& c : all) look_at_differing(*c);
            for (const CoursePointer& c : all) polls |= advance(*c);
            polls |= replayer_ && replayer_.load()->tries();
            pager_.answer_memory().collect();
        } catch (const std::exception& e) {
            settings_.say(std::string("planning failed: ") + e.what());
        }
}

// The next thing to do for a course. True: there is more to come, which nobody gives notice of.
bool Executor::advance(Course& course) {
    const profiler::Trace& trace = course.sequence.plan_trace;
    const auto is = [&](Course::Stage stage) {
        std::lock_guard lock(mutex_);
        return course.stage == stage;
    };
    const auto ideal = [&] { return course.promised.value && course.promised <= trace.header.ideal; };   // by the best plan
    if (is(Course::Stage::fresh)) {
        set_stage(course, Course::Stage::planned);
        if (course.seen.ops.empty()) course.seen = trace;
        leave_out_too_large(course);
        const Bytes budget(static_cast<std::int64_t>(device_->room().budget));
        if (const Bytes peak(policy::CompiledTrace(trace).peak_live); peak <= machine(course).memory) {
            std::lock_guard lock(mutex_);
            course.unplanned_at = budget, course.fitted = peak;
            return false;
        }
        if (settings_.planner->needs_recompute && !settings_.recompute) {
            settings_.note("policy " + std::string(settings_.planner->name) + " is all recompute: UDNNMEM_RECOMPUTE=off leaves it nothing to plan, memory is paged on demand");
            return false;
        }
        if (settings_.planner->needs_recompute && !course.proven) {
            set_stage(course, Course::Stage::watching);   // nothing to plan with so far
        } else {
            std::string why;
            const auto first = plan(course, what_is_known(course), machine(course), settings_.first_look, course.proven, &why);
            if (!first) {
                std::lock_guard lock(mutex_);
                course.no_plan = why;
                course.unplanned_at = budget;
                return false;
            }
            course.promised = course.first_promised = first->promised;
            {
                std::lock_guard lock(mutex_);
                course.offer(first);
                // What nodes write tells more of them than of whole graphs; where they could be much faster, that is waited for.
                const double hope = settings_.second_look.value > 0 ? kMuchFaster : 0;
                if (is_in_pieces(course) && static_cast<double>(trace.header.ideal.value) > hope * static_cast<double>(whole_graphs_->promised.value)) compare_with_whole(course, whole_graphs_->first_promised, " by the first plan");
            }
            if (settings_.second_look.value > 0) set_stage(course, course.proven && !ideal() ? Course::Stage::proven : Course::Stage::watching);
        }
    }
    if (is(Course::Stage::improving)) {
        improve(course);
        set_stage(course, Course::Stage::planned);
    }
    if (is(Course::Stage::watching)) {
        if (look_at_watch(course, course.seen) == Watched::pending) return true;
        leave_out_too_large(course);   // there may be less memory by now: what watches and proves takes some
        if (!settings_.planner->needs_recompute && !ideal()) offer_better(course, plan(course, course.seen, machine(course), settings_.second_look));
        {
            std::lock_guard lock(mutex_);
            if (is_in_pieces(course)) compare_with_whole(course, whole_graphs_->promised, " by plan");
        }
        set_stage(course, Course::Stage::unproven);
    }
    if (is(Course::Stage::unproven)) {
        if (proves_.load()) return false;   // one at a time: this one is asked again where it begins (begin_iteration())
        set_stage(course, begin_proof(course));
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
        leave_out_too_large(course);
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

}  // namespace udnnmem::executor
