// The program's own streams, so that it can be waited for what the program has put into a context without waiting for our copies,
// which cuCtxSynchronize does: a program that frees memory as it goes, or waits at each step, would be held up by each copy under way.
//
// Invariants
//   - Every stream that the program has made is here, from its creation until it is destroyed; the last one that was destroyed while it
//     had work left stays as "ended", for all of its context, until somebody has waited for that as a whole.
//   - wait() says true only if all that was put into the context before has completed. Where that cannot be known stream by stream (a
//     capture, green contexts, per-thread streams of other threads, ended streams, any error) it says false, and the caller waits
//     for the whole context.
//   - What wait() puts into a stream is put there while no stream captures and none is destroyed, and where there is room for it: it
//     waits for nothing with its mutex held. It puts nothing into a legacy stream: that would be a barrier.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "shim/pager/streams.hpp"

namespace udnnmem::pager {

// Any thread. Made before there is a driver to call.
class ProgramStreams {
  public:
    // Of the context that is current on a device; null: of a green one.
    void made(CUstream stream, CUcontext context, CUdevice device);
    // About to be destroyed; `idle`: nothing is left in it.
    void ending(CUstream stream, bool idle);
    // They go with their context.
    void context_ended(CUcontext context);
    // Who has named a per-thread stream of its own so far: their work may be anywhere.
    struct PerThread {
        bool own, others;             // the calling thread; any other
    };
    // Waits for what the program has put into the streams of the context before. False: not for all of it, perhaps.
    bool wait(const Driver& driver, StreamTable& table, CUcontext context, PerThread per_thread);
    // What comes after it knows that ended streams have nothing left: those that had ended when `mark` was asked for.
    std::uint64_t mark() const;
    void waited_for_all(CUcontext context, std::uint64_t mark);

  private:
    struct Stream {
        CUstream handle;
        CUcontext context;            // null: a green one
        CUdevice device;
        std::uint64_t ended = 0;      // the how many-th with work left; 0: it lives
    };
    bool knows_all(StreamTable& table, CUcontext context, CUdevice device) const;
    bool record_tails(const Driver& driver, StreamTable& table, CUcontext context, std::vector<CUevent>& tails) const;

    mutable std::mutex mutex_;        // what follows; held while a stream must not go
    std::vector<Stream> streams_;
    std::uint64_t ended_ = 0;
};

}  // namespace udnnmem::pager
