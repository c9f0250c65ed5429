// Lines of a run's trace that are written at its end (`times` also on the way): what it was followed through.
#pragma once

#include <string>

#include "profiler/trace/run.hpp"

namespace udnnmem::profiler {

std::string line_of(const RunSequence& sequence);
std::string line_of(const Misprediction& misprediction);
std::string line_of(const NotReplayable& ops);
std::string line_of(const Adaptation& adaptation);
std::string line_of(const RunStep& step);
std::string line_of(const RunTimes& times);

}  // namespace udnnmem::profiler
