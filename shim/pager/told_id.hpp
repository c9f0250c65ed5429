// How records of a run name a buffer.
#pragma once

#include <cstdint>

#include "profiler/trace/units.hpp"

namespace udnnmem::pager {

// The n-th allocation. Records hold 31 bits: a run of more than 2^31 allocations uses numbers again.
inline BufferId told_id(std::uint32_t n) { return BufferId(static_cast<std::int32_t>(n & INT32_MAX)); }

}  // namespace udnnmem::pager
