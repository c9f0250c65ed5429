// Runs a program by plan: gets the iteration that the recorder found, plans it on a thread of its own, follows the
// program through it on the launch path, and gives the mover the plan's orders as the program passes their ops.
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
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "policy/machine.hpp"
#include "policy/planner.hpp"
#include "profiler/recorder/iteration.hpp"
#include "shim/executor/follower.hpp"
#include "shim/executor/iteration_timer.hpp"
#include "shim/executor/sequence.hpp"
#include "shim/executor/write_watch.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::executor {

// A plan as the launch path reads it: what to order after each step.
struct Rows {
    struct Entry {
        pager::Order::Kind kind;
        std::int32_t buffer;   // logical
    };
    std::vector<Entry> entries;
    std::vector<std::uint32_t> begin;    // of each step's entries; one more than there are steps
    Nanoseconds promised{0};             // the simulator's time of an iteration
    int lookahead = 0;                   // ops ahead of the device at which it takes memory
};
Rows make_rows(const policy::Plan& plan, std::size_t steps);
// The same with a third of its orders made wrong: another buffer, another kind, another step, twice, not at all.
Rows distorted(const Rows& rows, std::size_t buffers, std::uint64_t seed);

class Executor {
  public:
    struct Settings {
        const policy::Planner* planner = nullptr;
        Nanoseconds first_look{0};                 // planning before the first plan is taken up: the planner's quickest ...
        Nanoseconds second_look{5'000'000'000};    // ... and for a better one, in processor time
        std::function<void(const std::string&)> say;   // one line, for who asks for details. Any thread
        std::function<void()> thread_started;          // first thing on the planning thread
        std::optional<std::uint64_t> lie;              // tests: plans are distorted at random by this seed, and never given up
    };
    Executor(pager::Pager& pager, Settings settings);
    ~Executor();   // waits for the planning thread

    void learned(const profiler::Iteration& iteration) noexcept;

    // Whether ops have to be told. One load.
    bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
    // An op that is about to be submitted: its step, or Follower::nowhere.
    std::int32_t before(const char* name, std::uint64_t shape, pager::Op& op) noexcept;
    // It was handed to the driver, and the pager does not know it yet.
    void submitted(std::int32_t step, const pager::Op& op) noexcept;
    // It was submitted.
    void after(std::int32_t step, const pager::Op& op) noexcept;

    void context_destroying(CUcontext context) noexcept;

    // Orders are given no more, and the planning thread ends. One that is deep in a plan is not waited for: the executor has
    // to outlive it then, for it still looks at it.
    void stop() noexcept { end(false); }

    struct Figures {
        std::uint64_t iterations = 0, planned_iterations = 0;  // followed from end to end; of those, by a plan
        std::uint64_t strayed = 0;                             // times that the program left the sequence
        Nanoseconds promised{0}, demand{0}, planned{0};        // of an iteration: by the simulator; medians measured. 0: none
        bool by_plan = false;
    };
    Figures figures();

  private:
    // A way to run the iteration, and how long it took on the device; null rows: on demand.
    struct Way {
        std::uint64_t tag = 0;
        std::shared_ptr<const Rows> rows;
        std::vector<std::int64_t> times;
    };
    void end(bool patiently) noexcept;
    void run();
    void work();
    std::shared_ptr<const Rows> plan(const profiler::Trace& trace, const policy::Machine& machine, Nanoseconds look);
    policy::Machine machine(pager::DevicePager& device, const profiler::Trace& trace);
    void await_watch(profiler::Trace& trace);
    void begin_iteration();
    void measured(std::uint64_t tag, std::int64_t ns);
    void judge();
    void lose();

    pager::Pager& pager_;
    const Settings settings_;
    std::atomic<bool> on_{false}, stopping_{false};

    std::mutex mutex_;                              // all that follows but the thread's own
    std::unique_ptr<const Sequence> sequence_;
    std::unique_ptr<Follower> follower_;
    std::unique_ptr<WriteWatch> watch_;             // until what it saw was taken
    std::uint64_t watched_ = 0;                     // ops up to here have to complete first
    std::atomic<bool> watching_{false};
    pager::DevicePager* device_ = nullptr;
    std::vector<Way> ways_;                         // the last one is in force
    std::shared_ptr<const Rows> next_;              // to be taken up where the next iteration begins
    std::vector<pager::Buffer*> named_;
    std::vector<pager::Order> orders_;
    static constexpr std::uint64_t kRecent = 32;
    struct Passed {
        std::uint64_t clock = 0, number = 0;
        pager::StreamSlot* slot = nullptr;
    } recent_[kRecent];                             // the steps that came last, by their clock
    std::uint64_t clock_ = 0;                       // of the step that came last (DevicePager::plan_step)
    std::uint64_t first_clock_ = 1;                 // of step 0 of this iteration
    IterationTimer timer_;
    std::uint64_t last_tag_ = 0;
    bool whole_ = false;                            // this iteration was followed from its begin
    Figures figures_;

    std::mutex job_mutex_;
    std::condition_variable job_ready_, ended_;
    bool has_ended_ = false;                        // the thread has; under job_mutex_
    std::unique_ptr<profiler::Iteration> job_;      // under job_mutex_
    std::thread thread_;
};

}  // namespace udnnmem::executor
