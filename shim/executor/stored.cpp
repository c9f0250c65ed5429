// Executor: plans that outlive the run (plan_store).
#include <algorithm>

#include "shim/executor/executor.hpp"
#include "shim/executor/plan_store.hpp"

namespace udnnmem::executor {
namespace {

// Between these shares of the memory that a plan was made for, it is used as it is.
constexpr double kLess = 0.98, kMore = 1.25;

}  // namespace

void Executor::load() {
    bool missing = false;
    auto plans = read_plans(settings_.plan_file, missing);
    if (missing) return;
    if (!plans) return settings_.note("the stored plan is not used: " + plans.error().message);
    if (plans->policy != settings_.planner->name) return settings_.note("the stored plan is not used: it was made by " + plans->policy + ", not by " + settings_.planner->name);
    std::lock_guard lock(mutex_);
    stored_device_ = plans->device;
    stored_granule_ = plans->granule;
    for (StoredCourse& stored : plans->courses) {
        if (courses_.size() == kMostCourses) break;
        note_prices(stored.sequence);
        courses_.push_back(std::make_shared<Course>(learned_++, std::move(stored.sequence), std::move(stored.rows)));
    }
    if (courses_.empty()) return;
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
    const double movable = static_cast<double>(device.room().movable);
    bool other = false;
    for (const CoursePointer& c : courses_) {
        const double made_for = static_cast<double>(c->worth_storing()->memory.value);
        if (movable >= kLess * made_for && movable <= kMore * made_for) continue;
        c->drop_stored();   // the sequence is good: it is planned for anew
        other = true;
    }
    if (!other) return true;
    settings_.note("the stored plan is for another budget: it is made anew");
    std::lock_guard lock(job_mutex_);
    passages_wait_ = true;
    job_ready_.notify_all();
    return true;
}

// With mutex_ held: those that were not followed in this run.
void Executor::discard_stored(const std::string& why) {
    const auto gone = [](const CoursePointer& c) { return !c->follower.settled(); };
    if (std::none_of(courses_.begin(), courses_.end(), gone)) return;
    settings_.note("the stored plan is not used: " + why);
    following_ = false;
    active_ = last_ = nullptr;
    std::erase_if(courses_, gone);
}

// The run does something that is known by now: stored plans of which nothing was seen are another program's.
void Executor::discard_strangers() {
    std::lock_guard lock(mutex_);
    const bool any = std::any_of(courses_.begin(), courses_.end(), [](const CoursePointer& c) { return c->follower.settled(); });
    if (!any) discard_stored("it is of another program");
}

void Executor::store() noexcept try {
    {
        std::lock_guard lock(job_mutex_);
        if (!std::exchange(store_waits_, false)) return;
    }
    std::vector<std::pair<CoursePointer, std::shared_ptr<const Rows>>> worth;
    std::string lines;
    {
        std::lock_guard lock(mutex_);
        if (!device_) return;
        lines = plans_line(settings_.device_name(device_->device()), settings_.planner->name, Bytes(static_cast<std::int64_t>(device_->granule())));
        for (const CoursePointer& c : courses_)
            if (auto rows = c->worth_storing()) worth.emplace_back(c, std::move(rows));
    }
    for (const auto& [course, rows] : worth) lines += course_lines(course->sequence, course->seen.ops.empty() ? course->sequence.plan_trace : course->seen, *rows);
    if (const auto written = write_plans(settings_.plan_file, lines); !written) settings_.note("the plan cannot be stored: " + written.error().message);
} catch (const std::exception&) {  // no memory: it is not stored
}

}  // namespace udnnmem::executor
