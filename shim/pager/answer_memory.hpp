// Pinned host memory that our own kernels on the program's streams write to: hashes, and what they found. It is given back to
// the driver once nothing that was submitted can write there any more.
//
// Invariants: memory is its taker's until it is given back or its context ends, and no second taker's ever. Nothing waits for
// the device but collect(). Thread-safe; throws std::bad_alloc.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "shim/pager/driver.hpp"
#include "shim/pager/streams.hpp"

namespace udnnmem::pager {

class AnswerMemory {
  public:
    AnswerMemory(const Driver& driver, StreamTable& streams) : driver_(driver), streams_(streams) {}

    // So many bytes, all 0, in the current context; null: not to be had.
    void* take(std::size_t bytes);
    // What was submitted so far may still write there. Null, or memory whose context has ended: nothing to be done.
    void give_back(void* memory) noexcept;
    // Frees what nothing writes to any more, now and then; on no thread that launches.
    void collect();
    void context_destroying(CUcontext context);
    std::size_t blocks();   // that are taken, or wait to be collected

  private:
    struct Block {
        void* memory;
        CUcontext context;
        bool given_back = false;
        std::uint64_t until = 0;   // ops up to this one may write there; 0: that is not known yet
    };
    const Driver& driver_;
    StreamTable& streams_;
    std::mutex mutex_;
    std::vector<Block> blocks_;
    int freeing_ = 0;          // of them, without the lock
    std::condition_variable freed_;
};

}  // namespace udnnmem::pager
