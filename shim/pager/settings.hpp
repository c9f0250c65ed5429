// What the pager is told when it starts. Plain values: parsing and defaults are the options table's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace udnnmem::pager {

struct Settings {
    std::size_t device_budget = 0;   // bytes of device frames; 0: what is free when the device is first used, less a reserve
    double device_share = 0;         // if not 0: this share of the device's memory instead
    std::size_t host_budget = 0;     // bytes of pinned host frames
    std::vector<int> host_nodes;     // NUMA nodes that they may lie on, when the device's own is full
    std::size_t small_below = 0;     // allocations smaller than this live in slabs; 0: half a granule
    double verify = 0.01;            // share of moves whose bytes are hashed again once they have been checked `always_verify` times
    std::uint64_t always_verify = 256;
    std::int64_t deadline_ns = 500'000'000;  // a held-back launch without any progress for so long goes ahead from host frames
    bool measure_link = false;       // before anything has moved, ...
    std::int64_t link_patience_ns = 120'000'000;  // ... for about so long at most
    bool lazy_free = false;
    bool always_land = false;        // what a plan evicts is mapped to its host frames at once, too
    bool force_host = false;         // tests: serve every miss from host frames
    std::vector<std::size_t> budgets;        // tests: device budgets that take turns, ...
    std::int64_t budget_turn_ns = 0;         // ... each for so long

    // The budget of a device of `total` bytes; 0: as above.
    std::size_t device_budget_of(std::size_t total) const { return device_share > 0 ? static_cast<std::size_t>(device_share * static_cast<double>(total)) : device_budget; }
};

}  // namespace udnnmem::pager
