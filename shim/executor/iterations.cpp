// What the executor does where an iteration begins: what was measured is taken in, and the plan in force is judged by it. All of it
// with mutex_ held.
#include <algorithm>

#include "shim/executor/executor.hpp"

namespace udnnmem::executor {
namespace {

constexpr double kSameMemory = 1.1;      // of two sequences that are the same but for how graphs are launched
constexpr double kMoreThanWhole = 1.02;  // an iteration of graphs node by node may take so much longer than of whole ones

}  // namespace

// Where step 0 is about to be submitted.
void Executor::begin_iteration() {
    timer_.poll([this](std::uint64_t tag, std::int64_t ns) {
        for (const CoursePointer& c : courses_)
            if (c->measured(tag, Nanoseconds(ns))) return;
    });
    clock_of_ops_.poll([this](const OpClock::Timed& t) {
        for (const CoursePointer& c : courses_) c->timed(t);
    });
    if (!settings_.lie)
        if (const Course::Judgement j = active_->judge(); j.instead.value) {
            settings_.say("plan given up: " + std::to_string(j.plan.value / 1000) + " us an iteration, no better than " + std::to_string(j.instead.value / 1000) + " us before");
            if (!active_->rows()) device_->forget_orders();
        }
    if (!settings_.plan_file.empty() && active_->newly_worth_storing()) wake(store_waits_);
    if (!settings_.lie && active_->to_be_improved()) {
        active_->stage = Course::Stage::improving;
        wake(advance_waits_);
    }
    if (strangers_until_ && ops_ >= strangers_until_) wake(advance_waits_);
    if (active_->stage == Course::Stage::unproven && !proves_.load()) wake(advance_waits_);   // it is its turn
    if (replayer_ && replayer_.load()->tries()) wake(advance_waits_);   // with trials to be judged
    const Bytes peak(static_cast<std::int64_t>(device_->take_peak()));
    if (whole_ && last_ == active_) active_->took(peak);
    judge_pieces();
    if (!settings_.lie) look_at_memory(*active_);
    if (active_->differs_often()) wake(advance_waits_);
    if (active_->needs_drops() && !active_->iterations()) look_beside(*active_);
    if (active_->planned_at_once && !stopping_.load()) plan_at_once(*active_);
    if (!settings_.lie && active_->compares_with_demand(last_tag_)) device_->forget_orders();
    active_->begin(last_tag_);
}

// Whether it is what `whole_graphs_` was, node by node: it names the same memory, or nearly so.
bool Executor::is_in_pieces(const Course& course) const {
    if (!pieces_.load() || !whole_graphs_ || &course == whole_graphs_.get()) return false;
    const auto [less, more] = std::minmax({static_cast<double>(course.bytes.value), static_cast<double>(whole_graphs_->bytes.value)});
    return more <= kSameMemory * less;
}

// What graphs do node by node is compared with what they did whole, once it runs by the best plan for it.
void Executor::judge_pieces() {
    if (!is_in_pieces(*active_) || active_->stage != Course::Stage::planned || !active_->judgeable()) return;
    const Nanoseconds pieces = active_->typical(), whole = whole_graphs_->typical();
    if (whole.value && static_cast<double>(pieces.value) > kMoreThanWhole * static_cast<double>(whole.value)) launch_whole_again(pieces, whole, "");
}

// A plan for more memory than there is now is late all the time; one for much less moves what could stay. What fitted, or could not be
// planned for, may be another case now.
void Executor::look_at_memory(Course& course) {
    const Rows* const rows = course.rows();
    if (course.stage != Course::Stage::planned || (!rows && !course.unplanned_at.value)) return;
    const auto room = device_->room();
    const Bytes then = rows ? rows->budget : course.unplanned_at, needs = rows ? rows->peak : course.fitted;
    const bool less = static_cast<std::int64_t>(room.budget) < then.value && static_cast<std::int64_t>(room.movable) < needs.value;
    const bool more = !course.fitted.value && static_cast<double>(room.budget) > kMore * static_cast<double>(then.value);
    if (!less && !more) course.elsewhere_for = 0;
    else if (++course.elsewhere_for >= course.elsewhere_after) {
        settings_.say("sequence " + std::to_string(course.id) + " is planned for anew: the budget is " + std::to_string(room.budget) + " bytes, it was planned for with " + std::to_string(then.value));
        course.plan_anew();
        device_->forget_orders();
        if (course.needs_drops()) course.stage = Course::Stage::planned, course.planned_at_once = true;
        else wake(advance_waits_);
    }
}

// Nodes whose best plan promises no less than whole graphs are given up, unless what is on its way between them may be dropped:
// what that is worth shows once it was proven.
void Executor::compare_with_whole(const Course& course, Nanoseconds whole, const char* how) {
    if (whole.value && !settings_.recompute && course.promised >= whole) launch_whole_again(course.promised, whole, how);
}

void Executor::launch_whole_again(Nanoseconds pieces, Nanoseconds whole, const char* how) {
    settings_.say("graphs are launched whole again: " + std::to_string(pieces.value / 1000) + " us an iteration node by node" + how + ", " + std::to_string(whole.value / 1000) + " us before");
    pieces_.store(false);
    if (settings_.recompute) whole_graphs_->stage = Course::Stage::unproven;   // its other ops may be worth it
}

}  // namespace udnnmem::executor
