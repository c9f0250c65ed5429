// The machine that a plan is made for: how much device memory there is, how fast the links are, and
// the costs that the product adds on a real card. Rules: policy/README.md (the machine model).
#pragma once

#include <algorithm>

#include "profiler/trace/units.hpp"

namespace udnnmem::policy {

struct Machine {
    Bytes memory;                    // M: frames resident or in flight plus workspace never exceed it
    double link_in = 0;              // host to device, bytes per second
    double link_out = 0;             // device to host, bytes per second
    Nanoseconds link_latency{10000}; // added to every transfer
    Bytes host = Bytes::max();       // host budget

    // Costs of a real card; all 0 in the published comparisons.
    int lookahead = 0;               // op k is mapped, and its frames are taken, when op k - lookahead starts
    Nanoseconds turnaround;          // from an op's end until frames that it frees can serve a queued op
    Nanoseconds map;                 // per frame mapped
    double hash_rate = 0;            // bytes per second at drops, after replays, at evictions; 0: free
};

// What so many bytes take at a rate in bytes per second, truncated to ns; none of either: no time. 52 days at most: sums of more
// would overflow, and a hopeless link look like a perfect one.
inline std::int64_t time_at(double rate, std::int64_t bytes) {
    constexpr double most = 0x1p52;
    return rate > 0 && bytes > 0 ? static_cast<std::int64_t>(std::min(most, static_cast<double>(bytes) * 1e9 / rate)) : 0;
}

}  // namespace udnnmem::policy
