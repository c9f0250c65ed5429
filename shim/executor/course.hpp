// One learned sequence and the ways to run it: on demand, by a plan, by a better one. A plan stays only while it measures
// no worse than what came before it; one that was changed by what was measured (Rows::change) only if it measures better.
//
// Not thread-safe: the executor's lock is around it, save for what is marked as the planning thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profiler/trace/run.hpp"
#include "shim/executor/follower.hpp"
#include "shim/executor/launch_memo.hpp"
#include "shim/executor/op_clock.hpp"
#include "shim/executor/passages.hpp"
#include "shim/executor/rows.hpp"
#include "shim/executor/sequence.hpp"
#include "shim/executor/small_places.hpp"
#include "shim/executor/write_watch.hpp"
#include "shim/replay/proof.hpp"

namespace udnnmem::executor {

class Course {
  public:
    // `id`: in the order in which they were learned.
    Course(int id, Sequence&& learned, pager::Pager& pager);
    // One that an earlier run stored, with its plan and what it knew.
    Course(int id, Sequence&& learned, profiler::Trace&& seen, std::shared_ptr<replay::Known> known, std::shared_ptr<const Rows> rows);

    const int id;
    const Sequence sequence;
    const Nanoseconds longest;                  // of its ops, as it was learned
    const Bytes bytes;                          // of all that they name and that can move
    Follower follower;
    LaunchMemos memos;                          // of steps all of whose buffers outlive the iteration, once it was followed around
    SmallPlaces small;                          // followed while launches are kept
    std::int32_t step = Follower::nowhere;      // that the last op is
    StreamsOf streams;                          // in which its ops were last
    std::unique_ptr<WriteWatch> watch;          // until what it saw was taken, or it gave up
    std::uint64_t watched = 0;                  // ops up to here have to complete first
    std::uint64_t awaited = 0;                  // the end of ops up to here is waited for: a mark behind them is due in each stream
    std::uint64_t followed_at = 0;              // when it was last followed, in ops
    const bool restored = false;                // an earlier run stored it ...
    bool stored = false;                        // ... and its plan is good
    bool planned_at_once = false;               // when it begins: see Executor::find_device()
    std::uint64_t tells_times = 4;              // iterations after which its shortest times are told again
    std::string no_plan;                        // why there is none; empty: there is, or nobody has tried
    Bytes unplanned_at{0};                      // where it was planned for and none is needed, or none possible: the budget then. Else 0
    Bytes fitted{0};                            // where none is needed: what it holds at most
    std::uint64_t turns = 0;                    // times that the program came to it from elsewhere

    // What is in force now; null: on demand.
    const Rows* rows() const { return ways_.back().rows.get(); }
    std::shared_ptr<const Rows> in_force() const { return ways_.back().rows; }
    std::shared_ptr<const Rows> to_come() const { return next_ ? next_ : in_force(); }   // where an iteration begins
    std::uint64_t way() const { return ways_.back().tag; }
    // Of its steps in this iteration, how far apart are those that are timed.
    std::uint32_t timed_apart() const { return timed_apart_; }
    // Of the iteration that begins now. `by_itself`: the one before it was of this course too.
    std::uint64_t tag(bool by_itself) const { return ways_.back().tag * 2 + (by_itself ? 1 : 0); }
    // The same for two courses only if they are the same.
    std::uint64_t fingerprint() const;
    // To be taken up where an iteration begins.
    void offer(std::shared_ptr<const Rows> rows) { next_ = std::move(rows); }
    // An iteration begins: what was offered comes into force, under a tag of its own.
    void begin(std::uint64_t& last_tag);
    // An iteration took so long on the device. False: it was none of this course's.
    bool measured(std::uint64_t tag, Nanoseconds took);
    // The device memory that an iteration of the way in force took, at most.
    void took(Bytes peak);
    // What is in force is given up if it is worse than what came before: a plan that is, then what was measured of it and of what
    // is in force now, else zeros.
    struct Judgement {
        Nanoseconds plan{0}, instead{0};
    };
    Judgement judge();
    // The plan in force takes much longer than it promised, nothing more is to be made of it, and how long an iteration takes on
    // demand was never measured, for the plan came too soon: where it says yes, memory is paged on demand until judge() can
    // compare the two. Once.
    bool compares_with_demand(std::uint64_t& last_tag);
    // When a step ran, and how long it was held back, by the way in force.
    struct Actual {
        Nanoseconds since{-1}, took{-1};        // the iteration's begin; the shortest of `timings`. -1: not timed
        Nanoseconds sum{0};                     // of all timings
        std::uint32_t timings = 0;
        Nanoseconds held{0};                    // in all, waiting for memory on the launching thread
        std::uint64_t times = 0;                // that it was held back
        std::uint64_t causes[4] = {};           // by pager::Residency of the first buffer that was not there, device left out
        std::uint32_t buffer = 0;               // the last such

        static constexpr std::uint32_t kSure = 3;   // timings before it is believed to take longer: moves and hashes run beside it
        // How much longer it may be believed to take: not at all, what it takes at least, or on average, with what runs beside it
        // (few timings of many ops are enough for what all of them take).
        enum class Longer { no, least, average };
        // What the next plan reckons with, after one that took it to last so long; by a `guess`, which any timing is better than.
        Nanoseconds believed(Nanoseconds planned, bool guess, Longer longer) const {
            if (longer == Longer::average && timings) return Nanoseconds(sum.value / timings);
            return timings && (guess || took < planned || (longer != Longer::no && timings >= kSure)) ? took : planned;
        }
    };
    // Its plan was made for other memory than there is: on demand until there is another one, made as for a fresh sequence. What was
    // measured says nothing any more.
    void plan_anew();
    // Iterations in a row that began with other memory than the plan in force was made for, and after how many that counts.
    std::uint64_t elsewhere_for = 0, elsewhere_after = 4;
    void timed(const OpClock::Timed& t);
    void held(std::int32_t step, const pager::Buffer& b, pager::Residency found, Nanoseconds waited);
    const std::vector<Actual>& actual() const { return actual_; }
    void tell_steps(std::vector<profiler::RunStep>& to) const;   // by the plan in force
    // The shortest that each op was ever seen to take, while it was learned or by any plan.
    profiler::RunTimes shortest() const;
    Nanoseconds typical() const { return ways_.back().typical(); }
    // Of the plan in force: as it was made, or as promise_again() has it.
    Nanoseconds promise() const { return ways_.back().promised; }
    // What the simulator says of `rows`, if they are in force, with what moves were measured to cost.
    void promise_again(const Rows& rows, Nanoseconds time);
    // The way in force was measured long enough to be judged.
    bool judgeable() const;
    // The plan in force was measured long enough to be compared with what it promised. Once for each.
    bool to_be_improved();
    const std::vector<profiler::Adaptation>& adaptations() const { return adaptations_; }
    // A plan worth keeping for the next start: one that was measured, or came from there. Null: none.
    std::shared_ptr<const Rows> worth_storing() const;
    // Host memory is too small to run it on demand, with nothing dropped: found as the run began. With the executor's mutex held.
    bool needs_drops() const { return known && known->needed; }
    // A plan was made for it, whatever became of that. The planning thread's.
    bool had_plan() const { return promised.value > 0; }
    // An op of a plan with replays is not the one that was proven in its place, or may not be: stray words of it lead somewhere. Steps
    // that this happens to in most iterations are told by differs_often(), once.
    void differed(std::int32_t step) { ++differed_[static_cast<std::size_t>(step)]; }
    bool differs_often() const { return !differing_.empty(); }
    std::vector<std::int32_t> take_differing() { return std::exchange(differing_, {}); }
    // Once for each plan that comes to be worth storing.
    bool newly_worth_storing();
    // The plan that was stored is not to be used; it is planned for anew, once `stage` says so.
    void drop_stored() { next_ = nullptr, stored = false, stage = Stage::fresh; }
    // Restored, and not followed around in this run.
    bool unseen() const { return restored && !follower.settled(); }
    // It is what comes next.
    const Rows* stored_rows() const { return stored ? next_.get() : nullptr; }

    struct Figures {
        std::uint64_t iterations = 0, planned_iterations = 0;   // followed from end to end; of those, by a plan
        std::uint64_t given_up = 0;
        Nanoseconds promised{0}, demand{0}, planned{0};         // of an iteration; medians measured. 0: none
        bool by_plan = false;
        Bytes peak_promised{0}, peak{0};
    };
    Figures figures() const;
    std::uint64_t iterations() const { return figures_.iterations; }
    Nanoseconds ideal() const;                  // of an iteration, with everything resident: the shortest of all its ops

    // The planning thread's.
    enum class Stage { fresh, watching, unproven, proving, proven, planned, improving };
    Stage stage = Stage::fresh;                 // under the lock
    profiler::Trace seen;                       // the sequence's trace with the writes that were seen
    std::vector<bool> left_out;                 // buffers that some op cannot have on the device: of no size in `seen`, and in no plan. Empty: none
    Bytes elsewhere{0};                         // of the memory: held by what is no part of it and has nowhere to go
    Nanoseconds promised{0};                    // by the best plan that was offered ...
    Nanoseconds first_promised{0};              // ... and by the first, which knows nothing of what ops write
    double costs = 1, links = 1;                // to plan with: times what moves are assumed to cost, and what links were seen to carry
    int improved = 0;                           // times that it was tried
    std::unique_ptr<replay::Proof> proof;       // under the executor's proof_mutex_
    // What can be run again: the launch path's once `proven`.
    std::shared_ptr<replay::Known> known;
    bool proven = false;
    bool discarded = false;   // nothing more is dropped: what is known of its ops is wrong. Under the executor's lock

  private:
    struct Way {
        std::uint64_t tag = 0;
        std::shared_ptr<const Rows> rows;
        std::vector<std::int64_t> times[2];     // ns; [1] of iterations that came after one of this course
        bool judged[2] = {false, false}, told = false, compared = false;
        bool trial = false;                     // on demand, to compare with the plan before it
        std::uint64_t begun = 0;                // iterations, since what was measured of its ops counts
        std::uint64_t peaks = 0;                // iterations whose memory was measured ...
        Bytes peak{0};                          // ... but the first, which began where the way before had left things
        Nanoseconds promised{0};                // as the rows say, or again
        std::ptrdiff_t adaptation = -1;         // of adaptations_
        Nanoseconds typical() const;
        // Which of `times` it is judged by: a course that never follows itself has but the first.
        bool alone() const { return times[1].empty() && times[0].size() >= kAlone; }
        const std::vector<std::int64_t>& judged_by() const { return times[!alone()]; }
    };
    static constexpr std::size_t kAlone = 24;   // iterations, all after one of another course: more than are watched or proved in

    static constexpr std::uint32_t kLookedAt = 16;   // iterations, to say what happens in most
    void find_differing();
    void change(const std::string& what, Nanoseconds promised);
    void measure_anew();
    bool knows_demand() const { return !ways_.front().times[!ways_.back().alone()].empty(); }

    std::vector<Way> ways_;                     // the last one is in force, the first is on demand
    std::shared_ptr<const Rows> next_;
    std::uint32_t timed_apart_ = 1;
    std::vector<Actual> actual_;
    std::vector<std::uint32_t> differed_;       // per step, how often ...
    std::uint32_t looked_at_ = 0;               // ... in so many iterations
    std::vector<std::int32_t> differing_;
    std::vector<std::int64_t> shortest_;        // ns; of each op ...
    std::vector<bool> guessed_;                 // ... which counts for nothing once it is measured
    std::vector<profiler::Adaptation> adaptations_;
    Figures figures_;
};

}  // namespace udnnmem::executor
