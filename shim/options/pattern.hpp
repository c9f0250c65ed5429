// Names of output files that differ by process: %h is the host's name, %p the process id, %q{VAR} the
// value of an environment variable (nothing if it is unset), %% a percent sign.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/trace/error.hpp"

namespace udnnmem {

// Whether a pattern can be expanded. Error: what was expected, naming the sequence that is wrong.
Expected<void> check_pattern(std::string_view pattern);

// Names of the variables that a pattern takes (%q{VAR}), parts of `pattern`.
std::vector<std::string_view> variables_of(std::string_view pattern);

// Whether it has %p: what goes by that name is this process' alone, or a former one's.
bool names_process(std::string_view pattern);

// The file name that a pattern means in this process, now. A pattern that check_pattern() refuses is
// expanded with its wrong sequences as they stand. Thread-safe if nobody changes the environment.
std::string expand_pattern(std::string_view pattern);

}  // namespace udnnmem
