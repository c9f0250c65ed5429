// Executor: what it is seen that ops write, and the proof that they may be run again.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/trace/writer/json_line.hpp"
#include "shim/executor/executor.hpp"
#include "shim/executor/recompute.hpp"

namespace udnnmem::executor {
namespace {

constexpr std::uint64_t kPatience = 32;   // iterations' worth of other ops, with a proof whose sequence is not followed

bool is_graph(const Sequence::Step& s) { return std::string_view(s.name) == Executor::graph_launch; }

}  // namespace

// With mutex_ held.
void Executor::make_replayer() {
    if (replayer_owner_) return;
    replayer_owner_ = std::make_unique<replay::Replayer>(pager_, *device_, settings_.verify_replay, settings_.flip);
    replayer_owner_->deny(denied_);
    replayer_.store(replayer_owner_.get());
}

// What is in graphs can be moved, or dropped and run again, node by node only where they are launched so: from here on they are.
void Executor::launch_node_by_node(const Course& course) {
    for (const CoursePointer& c : courses_)
        if (c.get() == &course) whole_graphs_ = c;
    settings_.say("sequence " + std::to_string(course.id) + " launches graphs: from here on node by node, so that memory can be moved" + (settings_.recompute ? ", and dropped," : "") + " between nodes");
    pieces_.store(true);
}

// Whether it is worth while to find out what can be run again, and possible. What to do next.
Course::Stage Executor::begin_proof(Course& course) {
    std::lock_guard lock(mutex_);
    if (course.unseen()) return Course::Stage::unproven;   // a stored one that does not come would keep all others waiting
    const bool gains = settings_.planner->needs_recompute || static_cast<double>(course.sequence.plan_trace.header.ideal.value) < kFasterByPlan * static_cast<double>(course.promised.value);
    if (!gains) return Course::Stage::planned;
    if (const auto& steps = course.sequence.steps; !whole_graphs_ && std::any_of(steps.begin(), steps.end(), is_graph)) {
        if (!course.judgeable()) return Course::Stage::unproven;   // what graphs take whole is to be compared with what their nodes take
        launch_node_by_node(course);
        return Course::Stage::planned;
    }
    if (!settings_.recompute) return Course::Stage::planned;
    std::lock_guard proof(proof_mutex_);
    make_replayer();
    for (const CoursePointer& c : courses_)
        if (c.get() == &course) proving_ = c;
    if (!proving_) return Course::Stage::planned;
    if (course.proof && !course.proof->failed()) {   // where it was left
        proves_.store(true);
        return Course::Stage::proving;
    }
    course.known = std::make_shared<replay::Known>();
    course.known->program = course.sequence.program;
    for (const profiler::TraceOp& op : course.sequence.plan_trace.ops) {
        course.known->ops.emplace_back();
        course.known->ops.back().takes = op.duration;
    }
    course.proof = std::make_unique<replay::Proof>(replayer_.load()->work(), *course.known);
    proves_.store(true);
    return Course::Stage::proving;
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
    bool proven = false;
    {
        std::lock_guard proof(proof_mutex_);
        if (course.proof->queued() && pager_.streams().complete(course.proof->streams(), course.proof->number())) course.proof->evaluate();
        if (!course.proof->over()) return false;
        proving_ = nullptr;
        proves_.store(false);
        proven = !course.proof->failed();
        if (proven) {
            replayer_.load()->refuse_denied(*course.known);
            find_versions(*course.known, course.sequence);
            // What an op reads may be another version than the order of telling says: a replay in its place would show that.
            const bool one_stream = std::all_of(course.sequence.steps.begin(), course.sequence.steps.end(), [](const Sequence::Step& s) { return s.stream == 0; });
            if (gates_.load() && !one_stream)
                for (replay::KnownOp& op : course.known->ops)
                    if (op.proven) op.trials = std::max(op.trials, 1);
            settings_.say("sequence " + std::to_string(course.id) + ": " + summary_of(*course.known));
        }
        course.proof = nullptr;
    }
    std::lock_guard lock(mutex_);
    course.proven = proven;
    return true;
}

// What trials said of replays whose code nobody has read. Where one was wrong, all that rests on it needs another plan.
void Executor::look_at_trials() {
    replay::Replayer* const replayer = replayer_.load();
    if (!replayer || !replayer->tries()) return;
    const std::vector<replay::Replayer::Trials> judged = replayer->judge_trials();   // may wait for a thread that waits for memory
    std::unique_lock lock(mutex_);
    bool denied = false;
    for (const replay::Replayer::Trials& found : judged)
        for (const CoursePointer& c : courses_) {
            if (c->known != found.known) continue;
            const std::string name = "sequence " + std::to_string(c->id) + ": ";
            if (found.right) settings_.say(name + std::to_string(found.right) + " ops whose code was not read gave the same bits in the place of a replay");
            for (const std::string& kernel : found.wrong) settings_.say(name + "kernel " + kernel + " " + replay::why_denied + ": never again");
            if (found.wrong.empty()) continue;
            denied = true;
            plan_without_denied(*c);
        }
    const std::vector<CoursePointer> others = denied ? courses_ : std::vector<CoursePointer>();
    lock.unlock();
    for (const CoursePointer& c : others)
        if (c->proven && replayer->refuse_denied(*c->known)) {
            std::lock_guard again(mutex_);
            plan_without_denied(*c);
        }
}

// With mutex_ held. The plan in force cannot be carried out.
void Executor::plan_without_denied(Course& course) {
    course.promised = Nanoseconds(0);
    if (course.stage == Course::Stage::planned || course.stage == Course::Stage::improving) course.stage = Course::Stage::proven;
}

// What can be kept in few iterations is no use to a plan.
void Executor::look_at_differing(Course& course) {
    std::unique_lock lock(mutex_);
    const std::vector<std::int32_t> steps = course.take_differing();
    if (steps.empty()) return;
    const std::shared_ptr<replay::Known> known = course.known;
    lock.unlock();
    replayer_.load()->refuse(*known, steps, replay::why_another);
    lock.lock();
    settings_.say("sequence " + std::to_string(course.id) + ": kernel " + course.sequence.steps[static_cast<std::size_t>(steps[0])].name + " " + replay::why_another + (steps.size() > 1 ? ", as are " + std::to_string(steps.size() - 1) + " other ops" : "") + ": not run again");
    plan_without_denied(course);
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
    const bool seen = !over && course.watch->queued() && course.watched && pager_.streams().complete(course.watch->streams(), course.watched);
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
