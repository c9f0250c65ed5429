// Executor: what it says of the run.
#include <algorithm>
#include <utility>

#include "shim/executor/executor.hpp"

namespace udnnmem::executor {

Executor::Figures Executor::figures() {
    Figures all;
    if (replay::Replayer* replayer = replayer_.load()) all.replayed = replayer->figures();
    std::lock_guard lock(mutex_);
    static_cast<Course::Figures&>(all) = retired_;
    all.strayed = strayed_;
    std::uint64_t most = 0;
    for (const CoursePointer& c : courses_) {
        const Course::Figures f = c->figures();
        all.iterations += f.iterations;
        all.planned_iterations += f.planned_iterations;
        all.given_up += f.given_up;
        if (f.iterations * c->sequence.steps.size() < most) continue;
        most = f.iterations * c->sequence.steps.size();
        all.promised = f.promised, all.demand = f.demand, all.planned = f.planned;
        all.by_plan = f.by_plan;
    }
    return all;
}

std::vector<profiler::RunSequence> Executor::sequences() {
    std::lock_guard lock(mutex_);
    std::vector<profiler::RunSequence> all;
    for (const CoursePointer& c : courses_) {
        const Course::Figures f = c->figures();
        auto count = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
        all.push_back({c->id, c->sequence.steps.front().name, count(c->sequence.steps.size()), count(c->turns), count(f.iterations), count(f.planned_iterations), count(f.given_up), f.peak_promised, f.peak,
                       c->ideal(), f.promised, f.planned, f.demand, c->sequence.first_op, c->no_plan});
    }
    return all;
}

std::vector<profiler::Misprediction> Executor::mispredictions() {
    std::lock_guard lock(mutex_);
    std::vector<profiler::Misprediction> all;
    for (const auto& [what, times] : mispredictions_) all.push_back({what.first, what.second, static_cast<std::int64_t>(times)});
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.times > b.times; });
    return all;
}

std::vector<profiler::NotReplayable> Executor::not_replayable() {
    std::map<std::pair<std::string, std::string>, std::int64_t> counted;
    {
        std::lock_guard lock(mutex_);
        for (const CoursePointer& c : courses_)
            for (std::size_t k = 0; c->proven && k < c->known->ops.size(); ++k)
                if (const char* why = c->known->ops[k].refused) ++counted[{c->sequence.steps[k].name, why}];
    }
    std::vector<profiler::NotReplayable> all;
    for (const auto& [what, ops] : counted) all.push_back({what.first, what.second, ops});
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.ops > b.ops; });
    return all;
}

std::vector<profiler::Adaptation> Executor::adaptations() {
    std::lock_guard lock(mutex_);
    std::vector<profiler::Adaptation> all;
    for (const CoursePointer& c : courses_) all.insert(all.end(), c->adaptations().begin(), c->adaptations().end());
    return all;
}

std::vector<profiler::RunTimes> Executor::shortest(bool all) {
    std::lock_guard lock(mutex_);
    std::vector<profiler::RunTimes> told;
    for (const CoursePointer& c : courses_) {
        if (c->sequence.first_op < 0 || (!all && c->iterations() < c->tells_times)) continue;
        c->tells_times = 4 * std::max(c->tells_times, c->iterations());
        told.push_back(c->shortest());
    }
    return told;
}

std::vector<profiler::RunStep> Executor::steps() {
    std::lock_guard lock(mutex_);
    std::vector<profiler::RunStep> all;
    for (const CoursePointer& c : courses_) c->tell_steps(all);
    return all;
}

}  // namespace udnnmem::executor
