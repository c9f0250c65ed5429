// What the ops of a followed iteration write: the buffers that each names are hashed right after it, on its own stream, and
// one whose hash is that of its use before was not written. One iteration is watched whole, of the next one the first uses of
// buffers that outlive it.
//
// What it finds is an inference (an op may store equal values) and serves planning alone: evictions hash what they move.
// Not thread-safe: the executor's lock is around it. Nothing waits for the device.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "shim/executor/follower.hpp"
#include "shim/executor/sequence.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::executor {

class WriteWatch {
  public:
    // Keeps the references.
    WriteWatch(pager::Pager& pager, const Sequence& sequence);
    ~WriteWatch() { pager_.answer_memory().give_back(memory_); }
    WriteWatch(const WriteWatch&) = delete;
    WriteWatch& operator=(const WriteWatch&) = delete;

    // The op of `step` was handed to the driver, and the pager does not know it yet: what is queued here belongs to it.
    void submitted(std::int32_t step, const pager::Op& op, const Follower& follower, pager::DevicePager& device);
    // The program left the sequence.
    void lost() { if (round_ < kQueued) round_ = kWaits; }
    // The context that the answers belong to is going.
    void context_destroying(CUcontext context);

    bool at_work() const { return round_ == kWhole || round_ == kFirst; }
    bool queued() const { return round_ == kQueued; }    // once the ops submitted so far have completed, apply() may be called ...
    std::uint64_t streams() const { return streams_; }   // ... those on these streams (StreamSlot::bit())
    bool gave_up() const { return round_ == kGaveUp; }
    // `trace`: the sequence's plan_trace. Buffers that an op was not seen to change are read by it and no more.
    struct Seen {
        std::size_t all = 0, writes = 0;   // uses of buffers by ops; those that write
    };
    Seen apply(profiler::Trace& trace) const;

  private:
    enum Round { kWaits, kWhole, kFirst, kQueued, kGaveUp };
    static constexpr int kStreams = 64;
    static constexpr int kMostRounds = 16;   // that may fail: each launches a kernel for each use
    using Words = std::uint64_t[4];
    bool begin();
    bool hash(std::uint32_t answer, const pager::Buffer& b, const pager::Op& op, CUfunction kernel);
    bool same(std::uint32_t a, std::uint32_t b) const;

    pager::Pager& pager_;
    const pager::Driver& driver_;
    const Sequence& sequence_;
    std::vector<std::uint32_t> again_;   // per use: the answer of its repetition in the next iteration; 0: it has none
    std::uint32_t answers_ = 0;          // of the uses, then of the repetitions
    std::int32_t last_first_ = -1;       // the last step with a repetition
    std::int32_t next_ = 0;
    Round round_ = kWaits;
    int rounds_ = 0;                     // that were begun
    std::uint64_t streams_ = 0;
    CUcontext context_ = nullptr;        // memory_'s
    Words* memory_ = nullptr;            // pinned: kStreams slots of the kernel, then the answers
};

}  // namespace udnnmem::executor
