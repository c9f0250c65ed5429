// What the pager counts: for the summary, the trace and the reports. Bytes are whole frames.
#pragma once

#include <cstddef>
#include <cstdint>

namespace udnnmem::pager {

struct DeviceStats {
    std::size_t budget = 0, host_budget = 0;
    std::size_t peak_live = 0;          // bytes as the program asked
    std::size_t peak_resident = 0;      // device frames made
    std::size_t peak_host = 0;
    std::uint64_t bytes_in = 0, bytes_out = 0;
    std::uint64_t fetches = 0, evictions = 0, clean_evictions = 0;
    std::uint64_t drops = 0, bytes_dropped = 0;   // buffers given up, to be computed again
    std::uint64_t stalls = 0;           // launches held back
    std::int64_t stall_ns = 0;          // host time that they waited
    std::uint64_t served_from_host = 0; // launches that ran with a buffer on host frames
    std::uint64_t deadline_firings = 0;
    std::uint64_t verified_moves = 0, repaired_moves = 0;
    std::uint64_t over_budget = 0;      // launches for which the budget was exceeded
    std::uint64_t recreated_frames = 0; // stranded in another size class
};

}  // namespace udnnmem::pager
