// Quantities for people: "350.0 MiB", "1.25 s", "15.8 GB/s", "48,200".
#pragma once

#include <cstdint>
#include <string>

#include "profiler/trace/units.hpp"

namespace udnnmem::cli {

std::string human(Bytes bytes);
std::string human(Nanoseconds time);
std::string human_rate(double bytes_per_second);
std::string human_share(double share);  // "93.1 %"; "-" of an iteration that takes no time
std::string human_count(std::int64_t count);

}  // namespace udnnmem::cli
