// Executor: a plan that was measured, and what is made of that.
#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/simulator.hpp"
#include "shim/executor/executor.hpp"

namespace udnnmem::executor {
namespace {

constexpr double kChanged = 0.03;         // what is measured is news if it differs by so much from what was planned with
constexpr double kAsPromised = 1.02;      // a plan that takes no longer is as good as it said
constexpr double kLessThanPromised = 0.97;   // one that takes no longer was made for moves that cost more than they do
constexpr double kFitted = 0.005;         // costs are looked for until a plan takes what it took, to such a share
constexpr double kMostCosts = 2;          // that moves may be found to have, of what is assumed
constexpr double kSlowerLink = 0.93;

double ratio(Nanoseconds a, Nanoseconds b) { return static_cast<double>(a.value) / static_cast<double>(b.value); }
bool as_promised(Nanoseconds took, Nanoseconds promised) { return ratio(took, promised) <= kAsPromised && ratio(took, promised) > kLessThanPromised; }

}  // namespace

// What the simulator now says of a plan that was made for something else; 0: nothing.
Nanoseconds Executor::simulated(const Course& course, const profiler::Trace& trace, const Rows& rows) {
    if (!rows.plan) return Nanoseconds(0);
    policy::Machine m = machine(course);
    m.lookahead = rows.lookahead, m.memory = rows.memory, m.host = rows.host;
    const policy::Outcome outcome = policy::simulate(trace, m, *rows.plan);
    return outcome.valid ? outcome.time : Nanoseconds(0);
}

// Finds what moves cost, by the time that the simulator then gives a plan which was measured to take `took`: sets course.costs,
// between 0 and kMostCosts. Returns the simulator's time with that; 0: it cannot say.
Nanoseconds Executor::fit_costs(Course& course, const Rows& rows, Nanoseconds took) {
    const profiler::Trace trace = what_is_known(course);
    const auto with = [&](double costs) { return course.costs = costs, simulated(course, trace, rows); };
    const auto off = [took](Nanoseconds time) { return std::abs(ratio(took, time) - 1); };
    double nearest = course.costs, low = 0, high = kMostCosts;
    Nanoseconds best = with(nearest);
    for (int steps = 8; best.value && off(best) > kFitted && steps; --steps) {
        const Nanoseconds time = with((low + high) / 2);
        if (!time.value) break;
        if (off(time) < off(best)) nearest = course.costs, best = time;
        (time < took ? low : high) = course.costs;
    }
    course.costs = nearest;
    return best;
}

// What was measured of the plan in force goes into the next one, if the two differ by enough: how long ops take, what links
// carry, what moves cost. Where that does not say why it is slower than it promised, by slower links.
void Executor::improve(Course& course) {
    std::vector<Course::Actual> actual;
    std::shared_ptr<const Rows> now;
    Nanoseconds measured, promised;
    {
        std::lock_guard lock(mutex_);
        actual = course.actual();
        now = course.in_force();
        promised = course.promise();
        ++course.improved;
        measured = course.typical();
    }
    if (!now || !measured.value) return;   // it was changed meanwhile, and is new
    leave_out_too_large(course);   // of a stored one it was not said
    const std::vector<profiler::TraceOp> planned_with = course.seen.ops;
    using Longer = Course::Actual::Longer;
    const auto believe = [&](Longer longer) {
        std::int64_t changed = 0, ideal = 0;
        for (std::size_t k = 0; k < actual.size(); ++k) {
            const Nanoseconds planned = planned_with[k].duration, takes = actual[k].believed(planned, !course.sequence.steps[k].timed, longer);
            course.seen.ops[k].duration = takes;
            changed += std::abs(takes.value - planned.value), ideal += takes.value;
        }
        course.seen.header.ideal = Nanoseconds(ideal);
        return static_cast<double>(changed) / static_cast<double>(std::max<std::int64_t>(1, ideal));
    };
    double share = believe(Longer::least);
    const auto far = [](double a, double b) { return b > 0 && std::abs(a / b - 1) > kChanged; };
    std::string change;
    const auto add = [&change](const std::string& what) { change += (change.empty() ? "" : ", ") + what; };
    Nanoseconds again;
    const bool off = !as_promised(measured, promised);
    bool by_ops = false;
    const double costs = course.costs;
    if (off) {
        // The library's own kernels run beside the program's: ops take longer then than by themselves. Where their mean times say why
        // the plan is slower, that is why. Else moves cost more or less than was assumed; and where not even moves that cost nothing
        // make up for what ops took longer, that was no matter.
        if (measured > promised) {
            share = believe(Longer::average), again = simulated(course, what_is_known(course), *now);
            by_ops = again.value && as_promised(measured, again);
        }
        if (!by_ops) {
            share = believe(Longer::least), again = fit_costs(course, *now, measured);
            const auto longer = !again.value || as_promised(measured, again) ? Longer::least : measured < again ? Longer::no : Longer::average;
            if (longer != Longer::least) share = believe(longer), again = fit_costs(course, *now, measured);
            by_ops = longer == Longer::average;
        }
    }
    if (share > kChanged) add("op times differ by " + std::to_string(static_cast<int>(100 * share)) + " %");
    const bool moved = device_->room().in > 0;
    policy::Machine m = machine(course);
    if (moved && (far(m.link_in, now->link_in) || far(m.link_out, now->link_out)))
        add("links carry " + std::to_string(static_cast<long>(m.link_in / 1e6)) + " MB/s in, " + std::to_string(static_cast<long>(m.link_out / 1e6)) + " MB/s out");
    if (off) {
        if (course.costs != costs) add("moves cost " + std::to_string(static_cast<int>(100 * course.costs)) + " % of what is assumed");
        else if (change.empty() && measured > promised) course.links *= kSlowerLink, add("slower links reckoned with");
        if (again.value && (by_ops || again < promised)) {   // a promise stays, unless it can be a better one, or ops take longer
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

// What was promised by a plan that there is no memory for any more counts no longer.
void Executor::offer_better(Course& course, std::shared_ptr<const Rows> rows) {
    if (!rows) return;
    std::lock_guard lock(mutex_);
    const std::shared_ptr<const Rows> now = course.to_come();
    const bool holds = !now || now->peak.value <= static_cast<std::int64_t>(device_->room().movable);
    if (holds && course.promised.value && static_cast<double>(rows->promised.value) >= kFasterByPlan * static_cast<double>(course.promised.value)) return;
    course.promised = rows->promised;
    course.offer(std::move(rows));
}

}  // namespace udnnmem::executor
