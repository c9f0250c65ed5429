// What the handlers of work and of graphs share: an op's way from naming to recording, and addresses that escape.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <utility>

#include "interpose/handlers.hpp"
#include "shim/preload/accesses.hpp"
#include "shim/preload/session.hpp"

namespace udnnmem::preload {

// One op for the recorder: what it touches, how long it takes. `touches()` is null while nobody learns.
class Observation {
  public:
    Observation(Session& s, CUstream stream) : learner_(s.listening()), stream_(stream) {
        if (learner_ && s.pager().streams().capturing()) learner_ = nullptr;  // recorded into a graph, perhaps: not run now
        if (learner_ && !(touches_ = of_thread())) learner_ = nullptr;
        if (learner_) touches_->clear();
    }
    ~Observation() {
        if (timer_ >= 0) learner_->timers.stop(timer_, stream_, false);  // something threw: nothing was submitted
    }
    Observation(const Observation&) = delete;
    Observation& operator=(const Observation&) = delete;
    Touches* touches() { return learner_ ? touches_ : nullptr; }
    void submitting(bool many = false) {
        if (learner_ && !touches_->empty() && learner_->recorder.timing()) timer_ = learner_->timers.start(stream_, many);
    }
    void submitted(const char* name, std::uint64_t shape, bool blocking, CUresult result) noexcept {
        if (!learner_ || touches_->empty()) return;
        const std::int32_t timer = std::exchange(timer_, -1);
        learner_->timers.stop(timer, stream_, result == CUDA_SUCCESS);
        if (result == CUDA_SUCCESS) learner_->tell(name, shape, stream_, blocking, *touches_, timer);
    }

  private:
    Learner* learner_;
    CUstream stream_;
    std::int32_t timer_ = -1;
    Touches* touches_ = nullptr;

    // One for all of a thread's ops. Null in the thread's last destructors, which may submit work when it is gone.
    static Touches* of_thread() noexcept {
        static thread_local bool gone __attribute__((tls_model("initial-exec"))) = false;
        struct Kept : Touches {
            ~Kept() { gone = true; }
        };
        if (gone) return nullptr;
        static thread_local Kept kept __attribute__((tls_model("initial-exec")));
        return &kept;
    }
};

// Leaves what was entered, also when something throws before the work is submitted.
class Entered {
  public:
    Entered(pager::Pager& p, pager::Op& op) : pager_(p), op_(op) {}
    ~Entered() {
        if (entered_) pager_.leave(op_, CUDA_ERROR_OUT_OF_MEMORY);
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    CUresult enter() {
        const CUresult result = pager_.enter(op_);
        entered_ = result == CUDA_SUCCESS;
        return result;
    }
    void leave(CUresult result) {
        entered_ = false;
        pager_.leave(op_, result);
    }

  private:
    pager::Pager& pager_;
    pager::Op& op_;
    bool entered_ = false;
};

// What makes two pieces of work the same, besides the memory that they name; the same in every run of a program.
std::uint64_t shape_of(const interpose::Work&);

// The plan that the program runs by; null: none, or this may be recorded into a graph and not run now. While any stream captures
// nothing is told, for the executor asks the driver what may invalidate a capture. Not CUDA_SUCCESS: an op must not run untold now.
CUresult plan_of(Session&, CUstream, executor::Executor*& plan);

// Whether its stream may wait for a value there, or for the host.
inline bool gates(const interpose::Work& w) { return w.kind == interpose::WorkKind::memop || w.kind == interpose::WorkKind::host; }

// With the lease open: the op, told or not, comes after what replays do with what it names.
CUresult follow_replays(Session&, const pager::Op&);

// An op that is refused: `result`, and where that is out of memory, why.
CUresult explained(Session&, const pager::Op&, const char* name, CUresult result);

// Others may write to the allocation at `at` from now on, unseen: what is made of it is there before they can, and is not dropped. Not
// CUDA_SUCCESS: it is not there.
CUresult note_escaped(Session&, CUdeviceptr at);

// Where accesses cannot be followed: the memory stays where it is for life. CUDA_ERROR_INVALID_VALUE: none is there. The caller
// holds no lease.
CUresult let_escape(Session&, CUdeviceptr at);

// Of what is copied there; the address of freed memory may be among it.
CUresult let_pointers_escape(Session&, const interpose::Work&);

}  // namespace udnnmem::preload
