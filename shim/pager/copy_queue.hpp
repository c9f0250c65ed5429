// Copies of one direction that the driver was given and that have not ended. A copy of the program's own may come behind them, and
// what waits for a whole context waits for them: so they are pieces of buffers, and only as many as keep the link busy.
// For the mover alone, with the device's context current.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "shim/pager/driver.hpp"

namespace udnnmem::pager {

class CopyQueue {
  public:
    explicit CopyQueue(const Driver& driver) : driver_(driver) {}
    // A copy of so many bytes is the last on the stream. Without an event to see its end by it counts as ended.
    void added(CUstream, std::size_t bytes);
    // Bytes that wait for the link: all but those of the copy in progress.
    std::size_t waiting();
    // The events go with the context.
    void forget_context();

  private:
    struct Copy {
        CUevent end;
        std::size_t bytes;
    };
    const Driver& driver_;
    std::deque<Copy> copies_;       // in the order in which they end
    std::vector<CUevent> spare_;
    std::size_t bytes_ = 0;         // of copies_
};

}  // namespace udnnmem::pager
