// What people read: quantities ("350.0 MiB", "1.25 s", "15.8 GB/s", "48,200"), and text that others wrote.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "profiler/trace/units.hpp"

namespace udnnmem::cli {

std::string human(Bytes bytes);
std::string human(Nanoseconds time);
std::string human_rate(double bytes_per_second);
std::string human_share(double share);  // "93.1 %"; "-" of an iteration that takes no time
std::string human_count(std::int64_t count);
std::string counted(std::int64_t count, std::string_view one, std::string_view many);  // "1 launch", "48,200 launches"

// Text from a file, a process or the command line as one line that does nothing to a terminal: control characters, those that
// turn the direction of writing, and what is no UTF-8 are spelled out ("\n", "\x1b", "\u202e"). Whole characters, the first
// `most` columns of them, or with Cut::front the last; what was cut is "...".
enum class Cut { back, front };
std::string shown(std::string_view text, std::size_t most = std::string::npos, Cut cut = Cut::back);

}  // namespace udnnmem::cli
