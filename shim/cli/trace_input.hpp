// What commands that plan say of the trace that they were given: how much of it could be read.
#pragma once

#include <string>

#include "profiler/trace/trace.hpp"

namespace udnnmem::cli {

// "damaged or cut short from line 5 on: ..."; "": all of it could be read.
std::string damage_of(const profiler::Trace& trace);

// It as a warning, where there is something to say.
void warn_of_damage(const std::string& path, const profiler::Trace& trace);

}  // namespace udnnmem::cli
