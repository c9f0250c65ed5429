// How fast the link is before anything has moved: copies of several sizes, each way alone and both at once, between the pager's own
// kinds of frames, timed by events.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shim/pager/backing.hpp"
#include "shim/pager/frames.hpp"

namespace udnnmem::pager {

// Bytes per second; 0: not measured.
struct LinkSpeeds {
    double in = 0, out = 0;             // of the largest copies, each way alone ...
    double both_in = 0, both_out = 0;   // ... and at the same time
    struct Size {
        std::size_t bytes;
        double in, out;
    };
    std::vector<Size> by_size;          // ascending
    bool hurried = false;               // the host's time was up first: the largest copies were not tried
    bool known() const { return in > 0 && out > 0; }
};

// Takes frames within the budgets and gives them back, or writes them off where no stream says that the copies have ended. Begins
// nothing more after 0.12 s of the device's time or `patience_ns` of the host's. Where `before` is known and the largest copies are
// within a quarter of it, it is the answer, after the copies of that size. What a driver refuses is not measured. The context is current; the
// streams are the caller's own. Blocks.
LinkSpeeds probe_link(const Driver& driver, Backing& backing, FramePool& device, FramePool& host, CUstream in, CUstream out, const LinkSpeeds& before, std::int64_t patience_ns);

}  // namespace udnnmem::pager
