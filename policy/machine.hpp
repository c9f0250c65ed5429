// The machine that a plan is made for: how much device memory there is, how fast the links are, and
// the costs that the product adds on a real card. Rules: policy/README.md (the machine model).
#pragma once

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

}  // namespace udnnmem::policy
