// One learned sequence and the ways to run it: on demand, by a plan, by a better one. A way stays only while it measures
// no worse than the one before it.
//
// Not thread-safe: the executor's lock is around it, save for what is marked as the planning thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shim/executor/follower.hpp"
#include "shim/executor/rows.hpp"
#include "shim/executor/sequence.hpp"
#include "shim/executor/write_watch.hpp"

namespace udnnmem::executor {

class Course {
  public:
    // `id`: in the order in which they were learned.
    Course(int id, Sequence&& learned, const pager::Driver& driver);
    // One that an earlier run stored, with its plan.
    Course(int id, Sequence&& learned, std::shared_ptr<const Rows> rows);

    const int id;
    const Sequence sequence;
    Follower follower;
    std::int32_t step = Follower::nowhere;      // that the last op is
    std::unique_ptr<WriteWatch> watch;          // until what it saw was taken
    std::uint64_t watched = 0;                  // ops up to here have to complete first
    std::uint64_t followed_at = 0;              // when it was last followed, in ops
    bool stored = false;                        // by an earlier run
    std::uint64_t turns = 0;                    // times that the program came to it from elsewhere

    // What is in force now; null: on demand.
    const Rows* rows() const { return ways_.back().rows.get(); }
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
    // What is in force is given up if it is worse than what came before: then what was measured of both, else zeros.
    struct Judgement {
        Nanoseconds is{0}, was{0};
    };
    Judgement judge();
    // A plan worth keeping for the next start: one that was measured, or came from there. Null: none.
    std::shared_ptr<const Rows> worth_storing() const;
    // Once for each plan that comes to be worth it.
    bool newly_worth_storing();
    // The plan that was stored is not to be used.
    void drop_stored() { next_ = nullptr, stored = false, stage = Stage::fresh; }

    struct Figures {
        std::uint64_t iterations = 0, planned_iterations = 0;   // followed from end to end; of those, by a plan
        std::uint64_t given_up = 0;
        Nanoseconds promised{0}, demand{0}, planned{0};         // of an iteration; medians measured. 0: none
        bool by_plan = false;
    };
    Figures figures() const;

    // The planning thread's.
    enum class Stage { fresh, watching, planned };
    Stage stage = Stage::fresh;
    std::shared_ptr<const Rows> first;

  private:
    struct Way {
        std::uint64_t tag = 0;
        std::shared_ptr<const Rows> rows;
        std::vector<std::int64_t> times[2];     // ns; [1] of iterations that came after one of this course
        bool judged[2] = {false, false}, told = false;
        Nanoseconds typical() const;
    };
    std::vector<Way> ways_;                     // the last one is in force
    std::shared_ptr<const Rows> next_;
    Figures figures_;
};

}  // namespace udnnmem::executor
