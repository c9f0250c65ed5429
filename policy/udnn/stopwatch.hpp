// How much of a planner's time is used up: in processor time of the calling thread, for a search is worth the
// work it can do, but at least a quarter of the wall time that has passed, so that it ends on a crowded machine too.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

#include "profiler/trace/units.hpp"

namespace udnnmem::policy::udnn {

class Stopwatch {
public:
    explicit Stopwatch(Nanoseconds budget) : budget_(static_cast<double>(budget.value)), cpu_(cpu()), wall_(std::chrono::steady_clock::now()) {}

    // 0 at the start, 1 and beyond when the time is up. Only on the thread that made it.
    double used() const {
        if (budget_ <= 0) return 1;
        const double wall = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - wall_).count();
        return std::max(cpu() - cpu_, wall / 4) / budget_;
    }

private:
    static double cpu() {
        timespec t{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
    }
    double budget_, cpu_;
    std::chrono::steady_clock::time_point wall_;
};

}  // namespace udnnmem::policy::udnn
