// Ops and the engines that run them. An op waits for other ops (the one before it in its stream, the
// recorded op of an event, the legacy stream's rules, the nodes before it in a graph) and, when none is
// left, goes to its engine: per device one for compute, one for each copy direction, one for host
// functions, and one poller for waits on memory. On the virtual clock kernels of streams with a higher
// priority have an engine of their own: they take their time out of what computes meanwhile. Ops without work (joins, event records) end as soon as
// nothing holds them back. One mutex guards all of this; running an op holds no lock.
//
// A wrong access in an engine thread is caught (SIGSEGV), becomes the context's sticky error, and the
// ops after it end without running. SIGSEGV anywhere else goes to whoever handled it before.
#pragma once

#include <span>

#include "tests/softgpu/driver/core.hpp"

namespace softgpu {

enum class EngineKind { none, compute, to_device, to_host, host, poll, urgent };

// What an op does. Immutable once enqueued: graphs and launches share it.
struct Work {
    int device = 0;
    virtual ~Work() = default;
    virtual EngineKind engine() const = 0;
    virtual CUresult run() = 0;                // on the engine's thread; an error becomes sticky
    virtual std::string describe() const = 0;  // for the line about a fault
    virtual std::uint64_t identity() const = 0;  // for the shuffle: the same for the same program op in any run
    virtual bool always() const { return false; }  // runs even after a sticky error
    virtual bool step() { return true; }       // poller only: true when done
    virtual std::uint64_t link_bytes() const { return 0; }  // paced by the bandwidth of a copy engine
    virtual std::int64_t table_ns() const { return -1; }  // by the table of modelled time; -1: not in it
    virtual std::uint64_t memory_bytes() const { return 0; }  // read and written on the device, where no kernel counts them
};

struct Op {
    std::shared_ptr<Work> work;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    std::uint64_t sequence = 0, order = 0;
    int priority = 0;
    int pending = 0;
    std::int64_t finished_ns = 0;
    std::vector<std::shared_ptr<Op>> dependents;
    std::atomic<int> done{0};
};
using OpRef = std::shared_ptr<Op>;

std::mutex& schedule_mutex();
void engines_start();

// With schedule_mutex held. `after` may name finished ops and nulls. No work: a join.
OpRef submit_locked(CUcontext context, CUstream stream, std::shared_ptr<Work> work, std::span<const OpRef> after);
// Blocks until it is done. No lock may be held.
void wait(const OpRef& op);
inline bool is_done(const OpRef& op) { return !op || op->done.load(std::memory_order_acquire); }

// To whoever watches: a call is over.
void tell_leaving();

}  // namespace softgpu
