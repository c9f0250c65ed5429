// Runs a program by plan: gets the iteration that the recorder found, plans it on a thread of its own, follows the
// program through it on the launch path, and gives the mover the plan's orders as the program passes their ops.
//
// Several sequences are known side by side (training, evaluation, a last batch of another size, another model), each
// with its own plans (Course). All are followed at once; the one that has been right for longest is acted upon, and
// stays so while it is right. What is none of them is paged on demand, and looked at: what repeats becomes one of them.
//
// Invariants
//   - What the program computes does not depend on anything here: orders are wishes (shim/pager/order.hpp).
//   - The launch path waits for no planner: a plan is taken up where an iteration begins, or not yet.
//   - A plan stays only while it measures no worse than what came before it (demand paging to begin with).
//   - One device: with more than one managed device in the process everything stays on demand.
// before() and after() may be called by any launching thread, learned() by one at a time. Nothing throws.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "policy/machine.hpp"
#include "policy/planner.hpp"
#include "profiler/recorder/iteration.hpp"
#include "profiler/trace/run.hpp"
#include "shim/executor/course.hpp"
#include "shim/executor/iteration_timer.hpp"
#include "shim/executor/op_clock.hpp"
#include "shim/executor/passages.hpp"
#include "shim/executor/turns.hpp"
#include "shim/host/quick_mutex.hpp"
#include "shim/pager/pager.hpp"
#include "shim/replay/replayer.hpp"

namespace udnnmem::executor {

class Executor {
  public:
    struct Settings {
        const policy::Planner* planner = nullptr;
        Nanoseconds first_look{0};                 // planning before the first plan is taken up: the planner's quickest ...
        Nanoseconds second_look{5'000'000'000};    // ... and for a better one, in processor time
        std::function<void(const std::string&)> say;   // one line, for who asks for details. Any thread
        std::function<void(const std::string&)> note;  // one line that everybody should see
        std::function<void(const std::string&)> record; // lines for the trace. May be empty; the planning thread
        std::string plan_file;                         // "": none
        std::function<std::string(CUdevice)> device_name;
        bool recompute = true;                         // what was dropped may be computed again
        double verify_replay = 1;                      // share of that which is compared
        std::function<bool()> recorder_listens;        // whether learned() may be called soon. May be empty; the planning thread
        std::function<void()> search_again;            // learned() may be called anew: so far nothing was of use, and memory is moved. May be empty
        std::function<void()> thread_started;          // first thing on the planning thread
        replay::Flip flip;                             // tests: one bit of what replays make or work on is wrong
        std::optional<std::uint64_t> lie;              // tests: plans are distorted at random by this seed, and never given up
    };
    Executor(pager::Pager& pager, Settings settings);
    ~Executor();   // waits for the planning thread

    void learned(const profiler::Iteration& iteration) noexcept;
    // Memory is being moved: what fitted when it was learned may fit no more, or something else runs now. One load as a rule.
    void paging() noexcept {
        if (kept_back_.load(std::memory_order_relaxed)) [[unlikely]] reconsider();
    }

    static constexpr std::size_t kMostCourses = 32;   // followed side by side; of more, those that were followed last

    // The name of the op that a graph is which is launched whole.
    static constexpr const char* graph_launch = "cuGraphLaunch";
    // Whether graphs are to be launched node by node, so that a plan can do something between the nodes. One load.
    bool wants_pieces() const noexcept { return pieces_.load(std::memory_order_relaxed); }

    // Whether ops have to be told. One load.
    bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
    // What before() found of an op, for the calls that follow it on the same thread.
    struct Place {
        Place() {}                                 // not constexpr: GCC would clear it by `rep stos`, which takes some 15 ns
        std::int32_t step = Follower::nowhere;
        bool timed = false;                        // between two events
        bool plain = false;                        // the plan has nothing to do after it
        pager::Residency found = pager::Residency::device;   // where `missing` was
        bool breaks = false;                       // nobody can say after it what dropped buffers depend on; while anything may be dropped
        std::uint64_t op = 0;                      // the n-th of those told
        std::uint64_t clock = 0;                   // of the step in the plan's count
        const pager::Buffer* missing = nullptr;    // the first of its buffers that is not there
        std::int64_t missed_at = 0;
        // While anything may be dropped: of which epoch (Known) the op is, 0 else; whose step it is, and the plan.
        std::uint64_t epoch = 0;
        std::uint64_t after = 0, turn = 0;         // Turns: the last one that comes before the op; its own, 0: nothing is due before it
        std::shared_ptr<Course> course;
        std::shared_ptr<const Rows> rows;
    };
    // An op that is about to be submitted. `launch`: where a launch like it may be recalled the next time; may be null.
    Place before(const char* name, std::uint64_t shape, pager::Op& op, const LaunchWords* launch = nullptr) noexcept;
    // The same where `op` names nothing so far: true if the launch is the one that is expected, as it was before; then `op` lists what
    // it names. False: nothing was done. One load where nothing is known.
    bool recall(const char* name, const LaunchWords& launch, pager::Op& op, Place& place) noexcept {
        return recalls_.load(std::memory_order_relaxed) && recall_expected(name, launch, op, place);
    }
    // Computes again what that op needs of what was dropped, if anything is. Not CUDA_SUCCESS: that could not be done, and the op
    // must not be submitted. `source`: null for what cannot be run again.
    CUresult compute_again(const Place& place, pager::Op& op, const replay::LaunchSource* source) noexcept {
        return place.epoch ? replay_for(place, op, source) : CUDA_SUCCESS;
    }
    // With the lease open, so that nothing that it names is dropped any more: it comes after what was computed again, by whomever.
    // Not CUDA_SUCCESS: that could not be done, and the op must not be submitted.
    CUresult follow_replays(const pager::Op& op) noexcept {
        replay::Replayer* const replayer = replayer_.load(std::memory_order_acquire);
        return replayer ? replayer->follow_replays(op) : CUDA_SUCCESS;
    }
    // It is about to be handed to the driver: it waits for nothing any more.
    void submitting(const Place& place, const pager::Op& op) noexcept {
        if (place.timed || place.missing) tell_submitting(place, op);
    }
    // It was handed to the driver, and the pager does not know it yet.
    void submitted(const Place& place, const pager::Op& op) noexcept {
        if (place.timed || (place.step != Follower::nowhere && watching_.load(std::memory_order_relaxed))) tell_submitted(place, op);
    }
    // It was submitted.
    void after(const Place& place, const pager::Op& op) noexcept;

    void context_destroying(CUcontext context) noexcept;
    // Whether the plan in force has anything to do after that op. For benchmarks.
    bool acts_after(const Place& place);
    // What follows has to be told also when on() says no. Some of it makes that be computed again which is dropped; not CUDA_SUCCESS:
    // that could not be done, and what is told of must not happen.
    // Kernels are about to be unloaded: no launch that was kept can be made again, and their handles may be others' from now on.
    // False: something that they made is still dropped, and they have to stay.
    bool code_unloading() noexcept {
        replay::Replayer* const replayer = replayer_.load(std::memory_order_acquire);
        if (!replayer) return true;
        const bool restored = !replayer->keeps() || restore_now() == CUDA_SUCCESS || !replayer->owes();   // else waiting failed: nothing runs there any more
        forget_functions();
        return restored;
    }
    // A stream waits for a value, or for the host: another stream or thread may order what it runs, whichever was told first.
    void gating() noexcept {
        if (!gates_.load(std::memory_order_relaxed)) gates_.store(true, std::memory_order_relaxed);
    }
    // An op runs that is not told, because a stream captures: nobody knows what it writes. It still follows replays.
    CUresult untold() noexcept {
        replay::Replayer* const replayer = replayer_.load(std::memory_order_acquire);
        return replayer && replayer->keeps() ? restore_beside_capture(false) : CUDA_SUCCESS;
    }
    // From here on ops may write what they are not given, for an address has escaped; `again`: it had before.
    CUresult escaping(bool again) noexcept {
        replay::Replayer* const replayer = replayer_.load(std::memory_order_acquire);
        return replayer && (again ? replayer->owes() : replayer->keeps()) ? restore_beside_capture(true) : CUDA_SUCCESS;
    }
    // The allocation at `address` is about to be freed; `in_order`: in that of `stream`, else once all that was submitted has completed.
    void releasing(CUdeviceptr address, CUstream stream, bool in_order) noexcept {
        replay::Replayer* const replayer = replayer_.load(std::memory_order_acquire);
        if (replayer && replayer->keeps()) [[unlikely]] releasing_now(address, stream, in_order);
    }

    // Orders are given no more, and the planning thread ends. One that is deep in a plan is not waited for: the executor has
    // to outlive it then, for it still looks at it.
    void stop() noexcept { end(false); }

    // All sequences together; times are those of the one that was followed most.
    struct Figures : Course::Figures {
        std::uint64_t strayed = 0;                             // times that the program left a sequence in the middle
        replay::Replayer::Figures replayed;
    };
    Figures figures();
    // For the trace: what was matched, and where the program did something else than was expected, most frequent first.
    std::vector<profiler::RunSequence> sequences();
    std::vector<profiler::Misprediction> mispredictions();
    std::vector<profiler::NotReplayable> not_replayable();   // ops that may not be run again, most frequent first
    std::vector<profiler::Adaptation> adaptations();
    std::vector<profiler::RunStep> steps();
    // `all`: at the end. Else of those that were followed four times as often as when they were told last: a run may be killed.
    std::vector<profiler::RunTimes> shortest(bool all);

  private:
    using CoursePointer = std::shared_ptr<Course>;
    static constexpr double kFasterByPlan = 0.98;   // a second plan is worth trying if it promises so much
    static constexpr double kSpare = 0.01;          // of the memory, for frames that are stranded in a size class
    static constexpr std::size_t kMostJobs = 4;     // iterations that wait for the planning thread; of more, the newest
    // Up to so much more memory than a plan was made for, it is used as it is; and with less, as long as it has the peak of the plan.
    // What memory buffers can share is no measure of more: hardly anything else has been allocated when a program starts.
    static constexpr double kMore = 1.25;
    static constexpr std::uint64_t kUnfollowed = 4096;   // ops after which what runs is a passage, wherever it began
    static constexpr std::size_t kWaiting = 64;     // pieces that wait for the planning thread; more are dropped

    void end(bool patiently) noexcept;
    bool recall_expected(const char* name, const LaunchWords& launch, pager::Op& op, Place& place) noexcept;
    void reconsider() noexcept;
    void tell_submitting(const Place& place, const pager::Op& op) noexcept;
    void tell_submitted(const Place& place, const pager::Op& op) noexcept;

    // planning.cpp: the planning thread
    void run();
    void work();
    bool wait_for_work(bool polls);
    bool go_on_demand();
    bool advance(Course& course);
    std::shared_ptr<Rows> plan(const Course& course, const profiler::Trace& trace, const policy::Machine& machine, Nanoseconds look, bool recompute = false, std::string* why_not = nullptr);
    void leave_out_too_large(Course& course);
    void set_stage(Course& course, Course::Stage stage);
    profiler::Trace what_is_known(const Course& course);
    void wake(bool& why);
    Nanoseconds slow_mapping();
    policy::Machine machine(const Course& course);
    // learning.cpp
    void learn(const profiler::Iteration& iteration, pager::DevicePager& device);
    bool known(std::uint64_t fingerprint);
    void take_passages(pager::DevicePager& device);
    void note_prices(const Sequence& sequence);
    Nanoseconds price(const char* name, std::uint64_t shape, std::size_t bytes);
    // adaptation.cpp
    void offer_better(Course& course, std::shared_ptr<const Rows> rows);
    Nanoseconds simulated(const Course& course, const profiler::Trace& trace, const Rows& rows);
    Nanoseconds fit_costs(Course& course, const Rows& rows, Nanoseconds took);
    void improve(Course& course);
    // proving.cpp
    enum class Watched { pending, seen, over };
    Watched look_at_watch(Course& course, profiler::Trace& trace);
    void make_replayer();
    void launch_node_by_node(const Course& course);
    Course::Stage begin_proof(Course& course);
    bool look_at_proof(Course& course);
    void end_proof(Course& course, bool resumed);
    void look_at_trials();
    void plan_without_denied(Course& course);
    void look_at_differing(Course& course);
    bool followed_of_late(const Course& course);
    // stored.cpp
    void load();
    bool find_device();
    std::size_t held_elsewhere(const profiler::Trace& trace);
    void look_beside(Course& course);
    void plan_at_once(Course& course);
    void not_used(const std::string& why);
    void forget(std::vector<CoursePointer>::iterator course);
    CUresult discard_changed(const CoursePointer& course, const char* kernel);
    void discard_stored(const std::string& why);
    bool strange() const;
    void note_stranger();
    void discard_strangers(bool at_end);
    void store(bool at_end) noexcept;

    // dropping.cpp: the launch path's, without a lock ...
    CUresult replay_for(const Place& place, pager::Op& op, const replay::LaunchSource* source) noexcept;
    std::vector<CUdeviceptr> led_to(const pager::Op& op);
    CUresult takes_all(const Place& place, const pager::Op& op);
    std::uint64_t new_epoch();
    void releasing_now(CUdeviceptr address, CUstream stream, bool in_order) noexcept;
    CUresult restore_now(bool waits = true) noexcept;
    void forget_functions() noexcept;
    CUresult restore_beside_capture(bool waits) noexcept;
    // ... and under mutex_.
    void note_epoch(Place& place, const pager::Op& op, bool goes_on);
    void note_led(const Place& place, const std::vector<CUdeviceptr>& bases);
    bool note_strays(const Place& place, const pager::Op& op);
    static bool replays(const Rows* rows) { return rows && !rows->replays.empty(); }
    void take_turn(Place& place, const pager::Op& op) noexcept;
    bool may_drop(const Rows& rows, const Rows::Entry& entry, std::int32_t step, pager::Buffer* b, std::uint64_t used);
    // iterations.cpp: the launch path's, under mutex_.
    void begin_iteration();
    bool is_in_pieces(const Course& course) const;
    void judge_pieces();
    void look_at_memory(Course& course);
    void compare_with_whole(const Course& course, Nanoseconds whole, const char* how);
    void launch_whole_again(Nanoseconds pieces, Nanoseconds whole, const char* how);

    // The launch path's, under mutex_.
    std::span<pager::Buffer* const> movable(const pager::Op& op);
    void tell(Place& place, const char* name, const Seen& seen, pager::Op& op, bool recalled);
    Course* follow(const Seen& seen, bool recalled);
    Course* find(const Seen& seen);
    void pass(const char* name, const Seen& seen, const pager::Op& op);
    void open_passage();
    void look_ahead(Place& place, const Seen& seen, pager::Op& op, bool recalled);
    bool give_orders(const Place& place, const pager::Op& op, std::uint64_t queued, bool tried);
    // Whether it is a step, and no other op was told since: only then is what the active course knows that op's.
    bool still_at(const Place& place) const { return active_ && place.step != Follower::nowhere && place.op == ops_; }
    void end_passage(bool known);
    void strayed(const Course& from, std::int32_t expected, const char* name);
    void lose();
    void restart_clock(std::int32_t step);
    std::uint64_t clock_of(std::int32_t step);

    pager::Pager& pager_;
    const Settings settings_;
    std::atomic<bool> on_{false}, stopping_{false};
    std::atomic<bool> pieces_{false};

    // Under mutex_ is all that follows but the thread's own. What every op looks at comes first, side by side, for a program leaves
    // little of it in the caches from one op to the next.
    alignas(64) host::QuickMutex mutex_;
    std::vector<CoursePointer> courses_;
    Course* active_ = nullptr;                      // acted upon; it may be lost
    Course* last_ = nullptr;                        // of the iteration before this one; null: none, or not whole
    pager::DevicePager* device_ = nullptr;
    std::atomic<replay::Replayer*> replayer_{nullptr};  // once something is worth proving; null: nothing is dropped
    static constexpr std::uint64_t kEpoch = std::uint64_t{1} << 32;  // above every step: no place in the clock is below 0
    std::uint64_t clock_ = kEpoch;                  // of the step that came last (DevicePager::plan_step)
    std::uint64_t first_clock_ = kEpoch + 1;        // of step 0 of this iteration
    std::uint64_t ops_ = 0;
    std::uint64_t unfollowed_ = 0;                  // ops since one was a step, while no passage is open
    std::uint32_t newest_id_ = 0, newest_before_ = 0;   // of the buffers that ops named; before this one
    std::atomic<bool> recalls_{false};              // the step that is expected has a memo
    bool following_ = false;                        // the last op was a step of the active course
    bool whole_ = false;                            // this iteration was followed from its begin
    bool passage_known_ = true, passage_whole_ = false;   // as long as it is known, it is the active course's up to here, and empty
    std::atomic<bool> watching_{false};
    std::atomic<bool> proves_{false};               // there is a proof under way (proving_)
    std::vector<pager::Buffer*> named_;             // by the op; what lies behind them is of no use
    std::vector<pager::Order> orders_;

    Course::Figures retired_;                       // of courses that made room
    std::set<std::uint64_t> denied_;                // by earlier runs (Replayer::denied()) ...
    std::size_t denials_stored_ = 0;                // ... and so many are in the file. Under job_mutex_
    std::string stored_device_;                     // that the stored plans are for; once the device is known ""
    Bytes stored_granule_;
    bool for_another_budget_ = false;               // graphs may go whole in this one, or in pieces: what was stored need not come
    std::uint64_t strangers_until_ = 0;             // stored plans are waited for so many ops; 0: nothing else repeated so far
    bool stores_later_ = false;                     // once it is known whether they are of this program
    int learned_ = 0;                               // courses so far
    Recent recent_ops_;
    Passage passage_;                               // since the last first step
    std::vector<Passage> passages_;                 // for the planning thread
    static constexpr std::uint64_t kRecent = 32;
    struct Passed {
        std::uint64_t clock = 0;
        pager::StreamSlot* slot = nullptr;
        std::atomic<std::uint64_t> number{0};       // of the op, once it was submitted; by whoever did that
    } recent_[kRecent];                             // the steps that came last, by their clock
    IterationTimer timer_;
    OpClock clock_of_ops_;
    std::uint64_t last_tag_ = 0;
    std::uint64_t strayed_ = 0;
    std::map<std::pair<std::string, std::string>, std::uint64_t> mispredictions_;  // by what was expected and what came
    CoursePointer whole_graphs_;                    // the sequence for whose sake graphs are launched node by node; null: they never were
    bool drops_ = true;                             // once it is false nothing is dropped any more
    std::uint64_t epoch_ = 1;                       // launches kept in another one are of no use
    replay::Led led_;                               // in this one
    Turns turns_{std::chrono::seconds(12)};         // taken under mutex_, waited for without, for longer than a replay waits for memory

    std::unique_ptr<replay::Replayer> replayer_owner_;
    std::mutex proof_mutex_;                        // after mutex_, where both are
    CoursePointer proving_;                         // under proof_mutex_
    std::atomic<bool> gates_{false};                // gating() was called

    std::mutex job_mutex_;                          // taken last
    std::condition_variable job_ready_, ended_;
    bool has_ended_ = false;                        // the thread has; under job_mutex_
    std::vector<profiler::Iteration> jobs_;         // under job_mutex_
    std::atomic<bool> kept_back_{false};            // what was learned last fitted, or its memory was gone: nothing to plan, until memory is moved
    bool reconsider_ = false, passages_wait_ = false, store_waits_ = false, advance_waits_ = false;   // under job_mutex_
    bool told_not_stored_ = false;   // the planning thread's
    bool leaves_file_ = false;       // the plan file is something else; set before that thread begins
    std::thread thread_;

    // The planning thread's, and load()'s, which comes before its work.
    std::unique_ptr<profiler::Iteration> kept_;     // that fitted
    Passages unknown_;
    std::unordered_map<std::uint64_t, Nanoseconds> prices_;     // by shape
    std::unordered_map<std::string, double> price_per_byte_;    // by name; "": of all
};

}  // namespace udnnmem::executor
