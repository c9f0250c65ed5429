// Which ops have completed: marks (events recorded by launching threads on the ops' own streams) and the sequence
// number that each covers.
//
// Invariants
//   - An op's number is drawn after its submission and before its lease closes; a mark covers every number drawn
//     before its event was recorded. So "the mark's event is complete" means that every op of that stream with a number
//     up to the mark's value is complete.
//   - Events are recorded by launching threads only, never on a capturing stream, nor on a legacy stream while any stream
//     captures. The mover only queries them.
//   - A legacy stream is a barrier between its context's blocking streams, and so is an event there. One is recorded only
//     where an op of the same thread is one anyway: right behind it, or right before. At other times the driver is asked
//     whether the stream is idle, which is no barrier (but an answer about all blocking streams).
//   - An event on a stream whose queue is full waits for room. A thread records on another's stream only where there is.
//   - A slot's bit in a buffer's `streams` is its index modulo 63; bit 63 stands for ops that no mark can follow (the
//     context has to be idle).
//   - Slots are never deleted. A stream about to be destroyed leaves a last mark.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "shim/pager/driver.hpp"

namespace udnnmem::pager {

inline void raise(std::atomic<std::uint64_t>& at_least, std::uint64_t value) {
    std::uint64_t seen = at_least.load(std::memory_order_relaxed);
    while (seen < value && !at_least.compare_exchange_weak(seen, value)) {
    }
}

struct alignas(128) StreamSlot {   // what one thread writes is beside nothing of another's
    CUstream stream = nullptr;
    CUcontext context = nullptr;               // the stream's own; the marks' events are made in it
    CUdevice device = -1;                      // that one's; -1: the driver does not say
    int index = 0;
    std::uint64_t mask = 0;                    // bit()
    std::uint64_t life = 0;                    // from 1; of this stream alone, while the slot may serve others after it
    bool per_thread = false;                   // `stream` is the number of its thread
    bool blocking = true;                      // it waits for its context's legacy stream, and that for it
    std::weak_ptr<const void> thread;          // that one, while it lives
    std::atomic<bool> alive{true};
    std::atomic<std::uint64_t> last_op{0};     // newest op on this stream
    std::atomic<std::uint64_t> marked{0};      // covered by the newest mark
    std::atomic<std::uint64_t> completed{0};   // known complete up to here
    std::atomic<std::uint32_t> unmarked{0};    // ops since the newest mark
    std::mutex mutex;                          // what follows
    int captures = 0;                          // that began here and have not ended: no event is recorded meanwhile
    bool ending = false;                       // its context is being destroyed: its events may be named no more
    struct Mark {
        CUevent event;
        std::uint64_t value;
    };
    std::deque<Mark> marks;
    std::vector<CUevent> spare;                // of its context: the next marks', without asking the driver about the oldest one
    std::uint64_t bit() const { return mask; }
};

class StreamTable {
  public:
    static constexpr std::uint32_t kMarkEvery = 32;   // ops of a stream between marks
    static constexpr std::size_t kMostMarks = 1024;   // pending marks of a stream: about what a device lets be submitted ahead of it
    static constexpr std::size_t kRoomForMarks = 16;  // as few marks pending leave room in a stream's queue for one of another thread
    static constexpr int kTries = 64;                 // for the mutex of a stream that another thread may be recording on

    explicit StreamTable(const Driver& driver);

    std::uint64_t now() const { return sequence_.load(std::memory_order_seq_cst); }
    // Whether no number was drawn after that one by whoever had stored anything before the caller stored to the same places. It comes
    // after raise(), whose locked instruction keeps it behind those stores; that has none only where there is a later number already.
    bool is_newest(std::uint64_t number) const {
#if !defined(__x86_64__)
        std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
        return now() == number;
    }
    std::uint64_t next() { return sequence_.fetch_add(1, std::memory_order_seq_cst) + 1; }

    // The slot of a stream as the program names it (CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or a handle).
    StreamSlot& slot(CUstream stream);

    // After an op was submitted and numbered, and the slot's `last_op` raised: records a mark when one is due.
    void submitted(StreamSlot&);
    // Memory was freed on the stream, in its order: the number of the op that the free is, or comes right behind. No barrier where the
    // stream is a legacy one.
    std::uint64_t freed(StreamSlot&);
    // Some stream was made to wait for an event.
    void event_waited();
    // A mark now, by the thread that launched there last: it has to be known soon when that op completes.
    void mark(StreamSlot&);
    // Sees to it that the ops behind each stream's newest mark are known when they complete; a thread that is about to wait for
    // memory calls this. `next`: the slot of the op that it submits after that, if there is one.
    void mark_tails(const StreamSlot* next = nullptr);
    // The program has waited for everything of a context.
    void synchronised_context(CUcontext context, std::uint64_t up_to);
    void stream_destroying(CUstream stream);
    // A context that is about to go, and has gone (or not): in between the driver is told nothing of what is the context's.
    void context_destroying(CUcontext context);
    void context_destroyed(CUcontext context, bool gone = true);

    // Polls; true if every op up to `number` on the streams of `mask` has completed. Any thread.
    bool complete(std::uint64_t mask, std::uint64_t number);
    // Whether what was freed in order on `s`, and used up to `number` by the streams of `mask`, may be given to work in order there at
    // once. On a legacy stream it is the free itself that comes after other streams' work, and the allocation that goes before it:
    // with neither on the device, nothing holds back what they launch.
    bool goes_on(const StreamSlot& s, std::uint64_t mask, std::uint64_t number);
    // Every op up to this number has completed, whatever its stream. The caller has seen no lease open after it read
    // now() as `up_to`.
    std::uint64_t completed_everywhere(std::uint64_t up_to);
    // The bits of every stream that has had an op.
    std::uint64_t all_streams() const;

    // A capture that begins on the stream, before it does, and one that has ended or did not begin.
    void capture_beginning(CUstream stream);
    void capture_ended(CUstream stream);
    bool capturing() const { return capturing_.load(std::memory_order_acquire) > 0; }
    bool has_captured() const { return has_captured_.load(std::memory_order_acquire); }
    // Whether work on `stream` is being recorded instead of run.
    bool is_capturing(CUstream stream) const;
    // Does it while no stream captures and none begins to, or not at all.
    template <class Do>
    void unless_capturing(Do it) {
        const std::lock_guard none_begins(asking_);
        if (!capturing()) it();
    }

    // The streams that have had ops.
    struct Seen {
        CUstream stream;
        CUcontext context;            // null: the driver does not say
        CUdevice device;              // likewise -1
        bool per_thread, own;         // `own`: the calling thread's
        bool ended;                   // it, or its thread
        bool idle;                    // its ops are known to have completed: by its marks
    };
    std::vector<Seen> seen();
    // Whether another thread than the stream's own may record an event on it and go on at once. Of a stream without ops nobody knows.
    bool has_room(CUstream stream);

  private:
    StreamSlot* make_slot(CUstream stream, CUcontext context, bool per_thread);
    bool is_blocking(CUstream stream, bool per_thread) const;
    template <class Asked>
    bool complete_of(std::uint64_t number, Asked asked);
    std::vector<StreamSlot*> slots_of(CUcontext context);
    void retire_ended_threads();
    void record_mark(StreamSlot&, CUstream of, std::size_t most = kMostMarks);
    void poll(StreamSlot&);
    void poll_locked(StreamSlot&);
    void poll_dead();
    void ask(StreamSlot&);
    CUevent take_event(CUcontext context);
    CUevent take_told(StreamSlot&);
    void end_captures(StreamSlot&);

    const Driver& driver_;
    alignas(128) std::atomic<std::uint64_t> sequence_{0};   // written by every op: with nothing beside it that ops read
    std::atomic<std::uint64_t> event_waited_{0};            // now() as a stream was last made to wait
    alignas(128) std::atomic<int> capturing_{0};
    std::atomic<bool> has_captured_{false};
    std::mutex asking_;                          // held while a legacy stream is asked, which no capture survives: none begins
    std::atomic<std::uint64_t> generation_;      // changes when a handle may mean another stream; no other table has it
    mutable std::mutex mutex_;                   // slots_, lives_, spare_
    std::vector<std::unique_ptr<StreamSlot>> slots_;
    std::uint64_t lives_ = 0;                    // that slots have had
    std::atomic<int> slot_count_{0};
    struct Spare {
        CUcontext context;
        CUevent event;
    };
    std::vector<Spare> spare_;
};

}  // namespace udnnmem::pager
