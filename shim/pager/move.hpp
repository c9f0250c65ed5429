// One move of one buffer between device and host frames, as a state machine that the mover steps. A move can be
// cancelled until its buffer is unmapped.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "shim/pager/buffer.hpp"

namespace udnnmem::pager {

struct Move {
    enum class Kind : std::uint8_t { evict, fetch, clean };  // clean: copied out, stays where it is
    enum class Stage : std::uint8_t {
        quiesce,   // leases that name the buffer are waited out, then the ops submitted before
        compare,   // evict, clean: hashing, to see whether the host copy still holds
        copy,      // hash and copy out, or copy in
        check,     // remapped; the frames left behind are hashed once more (clean: the host copy is)
        recheck,   // they had changed: is the copy what was copied (evict), what they hold now (fetch)?
        recopy,    // evict: copied again
    };
    Kind kind = Kind::evict;
    Stage stage = Stage::quiesce;
    Buffer* buffer = nullptr;
    std::vector<Frame*> frames;   // fetch: the device frames it fills
    bool copy = true;             // fetch: contents are wanted
    std::size_t left = 0;         // bytes of its copy that the driver was not given yet
    bool clean = false;           // evict: nothing had to be copied
    bool ordered = false;         // evict: by a plan, which fetches what it needs again
    bool drop = false;            // evict: nothing is copied, the contents are given up
    std::uint64_t used = 0;       // clean: the buffer's last use shortly before it began. ordered: the last one that the order knows of
    std::uint64_t everything_used = 0;  // ... and that of ops which may touch anything
    bool still = false;           // clean: no op was at work on the buffer after that, until it began
    bool cancelled = false;
    CUevent event = nullptr;      // of the stage in progress
    bool recorded = false;
    int ticket = -1;              // hash in progress
    int search = -1;              // for addresses of the buffer, in progress ...
    std::vector<Buffer*> searched;// ... in these, as ops up to `seen` left them
    std::uint64_t seen = 0;
    std::uint64_t anywhere = 0;   // of DevicePager::found_anywhere_, when all ops so far had been waited out
    CUevent searched_event = nullptr;  // what the move's copies wait for
    std::int64_t start_ns = 0;
    std::int64_t copied_by_ns = 0; // its copy, which waits for no op, ends by itself: until then, long as it may be, it goes on
    std::uint64_t shown = 0;      // to the outside, as long as it lasts
    bool remaps = false;          // the buffer is being unmapped, or was
    bool cancellable() const { return stage <= Stage::copy && !remaps; }
};

}  // namespace udnnmem::pager
