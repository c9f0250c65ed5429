// How long an iteration took, and how good that is: against all of it resident, and against a bound that holds for every plan.
#pragma once

#include <optional>

#include "profiler/trace/run_record.hpp"

namespace udnnmem::cli {

struct Speed {
    Nanoseconds time;                  // of an iteration
    const char* by;                    // "plan" or "demand": medians on the device; "learning": of the one that was recorded, with what a program does only once (loading, compiling): no measure of speed
    std::optional<double> eta_ideal;   // with everything resident / time; none: by learning, or streams overlap
    std::optional<double> eta_bound;   // the bound for the run's budget and links, without recompute / time; none: the links are not known, or another iteration was recorded
    profiler::Count ops = 0;           // of that iteration, where it is another one than was recorded; else 0
    bool overlaps = false;             // ops of several streams run at the same time: what they could take at best is not known
};

// Of the sequence that the run was followed through most, else of its recorded iteration. Nothing: no iteration was measured.
std::optional<Speed> speed_of(const profiler::RunRecord& run);

}  // namespace udnnmem::cli
