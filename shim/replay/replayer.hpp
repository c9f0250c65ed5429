// Computes dropped buffers again: runs the slice that a plan gave with the drop, compares what came out with what was dropped,
// and stops the context where it differs, before anything can read it.
//
// Invariants
//   - A buffer is dropped only while the program follows the iteration that the slice was proven in, and every op of the slice
//     was submitted in this very iteration, which keeps its launch, and nothing that it read was freed since, or may have been
//     written by an op of which that is not known (Led). Before the program leaves the iteration, or does what nobody can
//     follow, or frees what a slice reads, or may write there so, everything that depends on it is computed again (restore_all(),
//     freed(), restore_readers()).
//   - A slice writes the dropped buffers and scratch memory, nothing else of the program's.
//   - Replays go to the stream of the op that needs them; where none does, to a stream of our own. The
//     program's own events know nothing of them: what is done on another stream with a buffer that a replay reads or writes
//     comes after it (follow_replays(), freed()), and nothing else does: the stream may be waiting for that.
//   - What was computed again counts as there only once there is an event behind it.
//   - A slice with an op whose code nobody has read is tried first (KnownOp::trials): nothing is dropped for it, it is run where a
//     replay would be, on scratch memory, and what comes out is compared with what is there. A difference costs the program nothing,
//     and the op is denied: never run again, by this run or those that have its plan.
// Thread-safe. A lock is held while kernels are submitted, which may wait for the pager, never for a launching thread; so with a
// lease open nothing here is called but follow_replays().
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/pager/pager.hpp"
#include "shim/replay/known.hpp"
#include "shim/replay/own_work.hpp"

namespace udnnmem::replay {

// For tests: one bit is wrong of what the n-th replay makes, of the first word of what is saved for the n-th time for replays; 0: of none.
struct Flip {
    std::uint64_t result = 0, saved = 0;
};

class Replayer final : public pager::Restorer {
  public:
    // `verify`: share of replays whose result is compared.
    Replayer(pager::Pager& pager, pager::DevicePager& device, double verify, Flip flip = {});
    ~Replayer();

    OwnWork& work() { return work_; }

    // The op of step `k`, the `number`-th of all, is about to be submitted to `stream`: its launch is kept if it is `wanted`, with what
    // it reads that may change. `another`: it is not the op that was proven, and may write to whatever it names.
    enum class Kept { no, yes, another };
    Kept keep(const std::shared_ptr<Known>& known, std::int32_t k, std::uint64_t iteration, std::uint64_t number, bool wanted, const LaunchSource* source, CUstream stream);

    // Of what an earlier run knew: whether the kernel of step `k` is the one that ran then. Where one is not, what was seen of those
    // before says nothing for now: it may overwrite what they work on. In the first iteration it may be the same still: not all images
    // with kernels of its name are loaded. `changed`: it was another one before. Asks until it is the same.
    enum class Stored { same, other, changed };
    Stored is_as_stored(Known& known, std::int32_t k, const LaunchSource* source);

    // Whether `b`, in the place of logical buffer `logical` and last used by op `used`, may be dropped: then the slice is remembered until
    // it was replayed, or another op has used it. `tries`: no, but the slice is tried where it would be replayed. Waits for no replay.
    enum class Drop { no, yes, tries };
    Drop may_drop(std::shared_ptr<Known> known, std::shared_ptr<const Slice> slice, std::int32_t logical, pager::Buffer* b, std::uint64_t used, std::uint64_t iteration, const Led& led);
    // Replays the slice if any of its buffers is dropped, and tries it if any was to be.
    CUresult replay(const Slice& slice, CUstream stream);
    // What came out of the trials so far, once the device is done with them; what was wrong is denied. By the thread that plans.
    struct Trials {
        std::shared_ptr<Known> known;
        std::size_t right = 0;                // ops that gave the same bits
        std::vector<std::string> wrong;       // kernels that were denied, each once
    };
    std::vector<Trials> judge_trials();
    // What was denied is proven no more. True: something was. By the thread that plans.
    bool refuse_denied(Known& known);
    // Whether there is anything to judge. One load.
    bool tries() const { return tries_.load(std::memory_order_relaxed); }
    // By KnownOp::code: what is never run again, since what it gave once was wrong.
    std::set<std::uint64_t> denied();
    std::size_t denials();
    void deny(const std::set<std::uint64_t>& codes);   // by an earlier run

    // An op that is about to be submitted to `stream` may write to the allocations at these addresses: what reads them is neither dropped
    // nor will be.
    CUresult restore_readers(const std::vector<CUdeviceptr>& addresses, CUstream stream);
    // Too many launches of these steps are none that can be kept: proven no more. By the thread that plans.
    void refuse(Known& known, const std::vector<std::int32_t>& steps, const char* why);

    CUresult restore(pager::Buffer* b, CUstream stream, bool waits) override;
    std::string why_stopped() override;
    // Everything that was dropped in iterations before `iteration` (may_drop()), on a stream of our own; `waits`: it is there then. By a
    // thread of any context or of none. What is ordered to be dropped in those from here on would be forgotten: the caller sees to it
    // that nothing is.
    CUresult restore_all(bool waits, std::uint64_t iteration);
    // The last restore_all() failed: until one does not, nothing that is dropped may be left behind. One load.
    bool owes() const { return owes_.load(std::memory_order_relaxed); }
    // The allocation at `address` is about to be freed: neither it nor what reads it is dropped from now on. True: something that is
    // dropped, or was to be, does read it, and has to be computed again first. If it is dropped itself, that is all it comes to.
    bool freed(CUdeviceptr address);
    // ... which could not be done. What reads it is lost: an op that names it is refused, and it is not computed again from what is there then.
    void lose_readers(CUdeviceptr address);
    // What the op does comes after the replays of what it names: with the lease open, all of them. Not CUDA_SUCCESS: that could not
    // be done.
    CUresult follow_replays(const pager::Op& op) {
        std::uint32_t lanes = pending_.load(std::memory_order_acquire);
        if (!lanes) return CUDA_SUCCESS;
        if (!op.everything) lanes &= lanes_using(op);
        return lanes ? wait_for(lanes, op.stream) : CUDA_SUCCESS;
    }
    // Likewise what comes next on `stream`, of the memory at `address`.
    CUresult follow_users(CUdeviceptr address, CUstream stream);
    // Anything remembered? Are launches kept, so that freed() has to be told? One load each.
    bool any() const { return any_.load(std::memory_order_acquire); }
    // Whether ops have to be told: some replays are not known to have completed.
    bool at_work() const { return any() || pending_.load(std::memory_order_acquire) != 0; }
    // From here on each kernel has to show again that its code is that which was proven.
    void forget_functions(Known& known);
    bool keeps() const { return keeps_.load(std::memory_order_relaxed); }
    // Says so, once, if a result that was compared was wrong. One load as a rule.
    void check() {
        if (const volatile std::uint64_t* said = stopped_.load(std::memory_order_relaxed); said && *said) [[unlikely]] pager_.fail(why_stopped());
    }

    void context_destroying(CUcontext context);

    struct Figures {
        std::uint64_t replays = 0, ops = 0;   // buffers computed again; kernels and copies run for that ...
        Nanoseconds time{0};                  // ... and how long they take, by KnownOp::takes
    };
    Figures figures();

  private:
    struct Entry {
        std::shared_ptr<Known> known;
        std::shared_ptr<const Slice> slice;
        std::int32_t logical = -1;
        std::uint32_t id = 0;                 // Buffer::id ...
        std::uint64_t after = 0;              // ... and Buffer::last_use when it was ordered: later uses void the order
        std::uint64_t iteration = 0;          // may_drop()'s
        std::vector<CUdeviceptr> inputs;      // allocations that the slice reads
    };
    using Entries = std::unordered_map<pager::Buffer*, Entry>;
    struct Target {
        pager::Buffer* buffer;
        CUdeviceptr at;                       // where it is computed: its own place, or scratch memory
        const char* kernel = "";              // that wrote it last ...
        std::int32_t op = -1;                 // ... in this step
    };
    using Targets = std::unordered_map<std::int32_t, Target>;   // by logical buffer
    struct Trial {                            // of one buffer that would have been dropped
        std::shared_ptr<Known> known;
        std::shared_ptr<const Slice> slice;
        std::int32_t logical = -1;
        bool compared = false;                // trial_answers_ say in its place what came out, and what is there
        std::size_t lane = 0;
    };
    class Submits {                           // the lock is held, and kernels are submitted
      public:
        explicit Submits(Replayer& r) : flag_(r.submits_), was_(flag_.exchange(true)) {}
        ~Submits() { flag_.store(was_); }
        Submits(const Submits&) = delete;
        Submits& operator=(const Submits&) = delete;

      private:
        std::atomic<bool>& flag_;
        const bool was_;
    };
    class InLane {                            // a replay that is being submitted: nothing that it uses is forgotten
      public:
        InLane(Replayer& r, std::size_t lane) : r_(r), lane_(lane) { count(1); }
        ~InLane() { count(-1); }
        InLane(const InLane&) = delete;
        InLane& operator=(const InLane&) = delete;

      private:
        void count(int by) {
            std::lock_guard done(r_.done_mutex_);
            r_.lanes_[lane_].submitting += by;
        }
        Replayer& r_;
        const std::size_t lane_;
    };
    static bool reads(const Entry& e, CUdeviceptr at) { return std::find(e.inputs.begin(), e.inputs.end(), at) != e.inputs.end(); }
    void call_off(Entries::iterator& at);
    bool current(Entries::iterator at) const { return at->first->dropped.load() && at->first->id == at->second.id; }
    bool takes_replays(CUstream stream) const;
    template <class Work>
    CUresult on_a_stream(CUstream stream, Work work);
    template <class Work>
    CUresult on_our_own(bool waits, Work work);
    CUresult compute(pager::Buffer* b, CUstream stream);
    CUresult run(const Known& known, const Slice& slice, CUstream stream);
    CUresult run_ops(const Known& known, const std::vector<std::int32_t>& ops, Targets& targets, std::size_t lane, CUstream stream);
    void try_out(const Slice& slice, CUstream stream);
    void not_tried(const Entry& entry);
    template <class If>
    void erase_untried(If gone) {
        std::erase_if(untried_, [&](const auto& e) { return gone(e) && (not_tried(e.second), true); });
    }
    Trials judge(const std::shared_ptr<Known>& known, const std::set<std::int32_t>& right, const std::set<std::int32_t>& wrong, const std::set<std::int32_t>& untested);
    void note_any() {
        any_.store(!entries_.empty() || !untried_.empty());
        if (entries_.empty()) owes_.store(false);
    }
    std::uint32_t lanes_using(const pager::Op& op);
    std::uint32_t lanes_of_small(CUdeviceptr at, bool writes_only) const;
    void done_with(std::size_t lane);
    std::size_t lane_of(CUstream stream);
    CUresult use(CUdeviceptr at, bool writes, std::size_t lane, CUstream stream);
    CUresult note_replayed(std::size_t lane, CUstream stream);
    CUresult wait_for(std::uint32_t lanes, CUstream stream);
    bool verify_now();
    bool is_whole(CUdeviceptr at, std::uint64_t bytes);
    Kept compare(KnownOp& op, bool wanted, const LaunchSource& source);
    void purge();
    bool save(const std::shared_ptr<Known>& known, KnownOp& op, CUstream stream);
    CUresult flip_one(CUdeviceptr at, std::size_t bytes, std::uint64_t nth, CUstream stream);

    pager::Pager& pager_;
    pager::DevicePager& device_;
    const double verify_;
    const Flip flip_;
    std::atomic<bool> any_{false}, keeps_{false}, owes_{false};
    std::mutex mutex_;
    std::atomic<bool> submits_{false};        // who holds it hands kernels over, and may be waiting for memory
    OwnWork work_;
    Entries entries_;
    Entries untried_;                         // what would have been dropped
    std::vector<Trial> trials_;               // not judged so far
    std::uint64_t* trial_answers_ = nullptr;  // OwnWork::answers(2 * kMostTried)
    static constexpr std::size_t kMostTried = 128;
    std::atomic<bool> tries_{false};
    CUstream own_ = nullptr;                  // in work_'s context
    std::mutex done_mutex_;                   // taken last, what follows: nothing is waited for with it held
    struct Lane {                             // the replays of a stream
        std::uint64_t life = 0;               // of its slot; 0: none
        CUevent done = nullptr;               // behind all of them, in work_'s context
        std::uint64_t runs = 0;               // so many
        int submitting = 0;                   // replays of which not all is handed over, one within the other
        std::uint64_t follower = 0, followed = 0;   // the slot's life that came behind them last, and how many they were
        // What they read or write, until it is known that they have completed, each with the last of `runs` that does: whole buffers,
        // which say so themselves too, and the allocations in slabs.
        struct Small {
            CUdeviceptr end;
            std::uint64_t run;
            bool writes;
        };
        std::unordered_map<pager::Buffer*, std::uint64_t> uses;
        std::map<CUdeviceptr, Small> small;
    };
    std::array<Lane, 8> lanes_;
    std::atomic<std::uint32_t> pending_{0};   // lanes that are not known to have completed, a bit each
    std::uint64_t* report_ = nullptr;         // see OwnWork::expect()
    std::atomic<const volatile std::uint64_t*> stopped_{nullptr};  // what report_ says
    std::mutex words_mutex_;                  // what follows, to denied_
    struct Verdict {
        std::string words;
        std::vector<std::uint64_t> codes;     // of the kernels of the slice
    };
    std::unordered_map<std::uint64_t, Verdict> verdicts_;         // for what it may say
    std::set<std::uint64_t> denied_;
    std::uint64_t iteration_ = 0, frees_ = 0;
    std::unordered_map<CUdeviceptr, std::uint64_t> freed_;  // in iteration_: the last free at each address, counted
    std::vector<std::pair<std::weak_ptr<Known>, CUdeviceptr>> saved_;   // KnownOp::Use::copy of all
    Figures figures_;
    std::uint64_t replays_begun_ = 0, saves_ = 0;
};

}  // namespace udnnmem::replay
