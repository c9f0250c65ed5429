// How long iterations last on the device: an event where each begins, on the stream of its first op.
//
// Not thread-safe. begin() is called by launching threads with their context current and never waits.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "shim/pager/driver.hpp"

namespace udnnmem::executor {

class IterationTimer {
  public:
    explicit IterationTimer(const pager::Driver& driver) : driver_(driver) {}

    // The op just submitted on `stream` began an iteration of kind `tag`; `whole`: the one before it ran from end to end.
    void begin(CUstream stream, std::uint64_t tag, bool whole);
    // Those that have ended since, oldest first: (tag, ns).
    void poll(const std::function<void(std::uint64_t tag, std::int64_t ns)>& ended);
    // The events of that context go with it.
    void context_destroying(CUcontext context);

  private:
    static constexpr std::size_t kPending = 16;
    struct Mark {
        CUevent event;
        CUcontext context;
        std::uint64_t tag;   // of the iteration that begins here
        bool whole;          // the one that ends here was whole
    };
    CUevent take(CUcontext context);
    void forget();

    const pager::Driver& driver_;
    std::deque<Mark> marks_;
    std::vector<Mark> spare_;
};

}  // namespace udnnmem::executor
