// Watches what a run does until its iteration is known, then stops. The launch path hands over ops; one
// consumer (the learner's thread) looks for the period and turns one iteration into lines of the trace file.
//
// Invariants
//   - op() takes no lock and makes no system call; it allocates only for an op of more than ObservedOp::inline_touches
//     addresses. A full ring drops the op: the search then starts anew, and is never wrong.
//   - allocated() and released() are never dropped. A release is told before the memory can be given out again.
//   - Once on() is false it stays so, and the launch path pays one load. The same while hears_ops() is false: a search that
//     finds nothing is followed by a rest several times as long as it took, the next one by a longer rest, so that a program
//     that never repeats, or not for hours, loses no time to it in the long run.
//   - Where nothing came of what was told (it fits, or its memory is gone) it does not end, but rests until again().
//   - Ops are timed while a search is young. In an older one only when a period is known, for one more period.
//   - What it says is a description: nothing that the program computes depends on it.
// op(), missed(), what orders ops, again(), allocated(), released(), on(), hears_ops() and timing() may be called from any thread, drain() and end() from one. Nothing throws but drain().
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/recorder/history.hpp"
#include "profiler/recorder/iteration.hpp"
#include "profiler/recorder/iteration_finder.hpp"
#include "profiler/ring.hpp"

namespace udnnmem::profiler {

class Recorder {
  public:
    enum class Reading { pending, done, lost };
    struct Settings {
        std::size_t queue = 1 << 12;      // ops; a power of two
        Position timed_ops = 1 << 15;     // a search is young for so many
        Position search_ops = 1 << 17;    // after so many a search rests, if nothing is about to be found; each one looks at twice as many
        Position most_ops = 1 << 19;      // after so many it rests, come what may
        std::size_t most_kept = 1 << 23;  // or when the ops looked at make so many uses of memory: 16 bytes each, and there are ops of thousands
        Nanoseconds search_time{600'000'000'000};  // or after so long in which ops were told, doubled and excused as search_ops is
        int searches = 8;                 // then it ends
        int rest = 4;                     // the first rest, in times of the search before it; each one is four times as many
        std::function<Nanoseconds()> now; // for rests; empty: std::chrono::steady_clock
        Position watched_periods = 16;    // how long a period is watched after it was found: it may be a part of a longer one ...
        Position watched_least = 2048;    // ... at least so many ops: a few launches in a row that are alike are no iteration
        // When an op began (-1: not known) and how long it took, and its timer back; called from drain().
        std::function<Reading(std::int32_t timer, Nanoseconds& start, Nanoseconds& duration)> read_timer;
        IterationFinder::Chance chance;  // called from drain(). May be empty: nothing does
        std::function<void(const Iteration&)> found;  // an iteration, each time that one is told; called from drain(). May be empty
        std::function<void()> ended;      // no timer is asked for any more; called once, from drain(). May be empty
        std::function<void()> rests;      // no timer is asked for until the rest is over; called from drain(). May be empty
        std::function<bool()> spare;      // nothing came of what was told: it rests until again(), where it would end. Called from drain(). May be empty
        std::function<std::string()> timed_by;  // what times ops, for people; called from drain(). May be empty
        std::function<void()> wake;       // drain() should come soon: a quarter of the queue is full. May be empty
    };

    explicit Recorder(Settings settings);
    ~Recorder();

    bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
    bool hears_ops() const noexcept { return hears_ops_.load(std::memory_order_relaxed); }  // on(), and searching
    bool timing() const noexcept { return timing_.load(std::memory_order_relaxed); }  // ops should carry a timer

    bool op(ObservedOp& op) noexcept;  // takes `more`; false: it was dropped, its timer stays the caller's
    // What orders ops, after the call that did; told in their place among them, or not at all where the ring is full.
    void event_recorded(std::uint64_t event, std::uint64_t stream) noexcept { order(Told::event_recorded, stream, event); }
    void stream_waits(std::uint64_t stream, std::uint64_t event) noexcept { order(Told::stream_waits, stream, event); }
    // For `event`, else for what is on `stream`, else for everything. A program that goes on asking with nothing new submitted tells nothing more.
    void host_waited(std::uint64_t stream, std::uint64_t event) noexcept;
    void again() noexcept { again_.store(true); }   // what was told is of no use now: a rest that waits for this ends
    void missed() noexcept { gap_.store(true); }  // there was an op that cannot be told: as one that was dropped
    // `tag`: the run's own number for it, as its events have it; -1: none.
    void allocated(std::uint64_t address, std::uint64_t bytes, std::int32_t tag = -1) noexcept;
    void released(std::uint64_t address) noexcept;
    // The program says that an iteration begins (UDNNMEM_ITERATION_MARK). Then one runs from such a mark to another; without any,
    // or where what repeats does not keep to them, as without.
    void mark() noexcept;
    std::uint64_t marks() const noexcept { return marks_told_.load(std::memory_order_relaxed); }

    // Of the ops that were looked at, the one that used the most bytes of allocations; no name: there was none. Any thread.
    struct LargestOp {
        std::string name;
        Bytes bytes;
        std::int64_t among = 0;   // ops that were looked at; 0: all so far
    };
    LargestOp largest_op() const;
    // Whether drain() has looked at all that was told. Any thread.
    bool caught_up() const noexcept { return !hears_ops() || looked_at_.load(std::memory_order_acquire) >= ring_.pushed(); }

    // Takes in what was told since. Lines for the trace file (profiler/trace/README.md: `learned`, `buffer`, `op`), empty
    // as a rule. `last`: no more calls come; what was found is told even if not all its times are there.
    std::string drain(bool last);
    // Nothing more is learned: everything is freed, `ended` is called. From drain()'s thread, or where there is none; again: nothing.
    void end() noexcept;

  private:
    struct Life {
        enum class Kind : std::uint8_t { made, released, mark };
        std::uint64_t before;   // ops that were told before it
        std::uint64_t address, bytes;
        Kind kind;
        std::int32_t tag;
    };
    struct Pending {
        Position at;
        std::int32_t timer;
    };
    bool push(const ObservedOp& record, std::uint64_t& turn) noexcept;
    void order(Told told, std::uint64_t stream, std::uint64_t event) noexcept;
    void note(std::uint64_t address, std::uint64_t bytes, Life::Kind kind, std::int32_t tag) noexcept;
    void find(Position begin, Position period);
    void time_ops(bool yes);
    bool news(Position begin, Position period) const;
    std::string tell();
    bool young() const;
    bool timed_since(Position at) const;
    void find_between_marks();
    std::string take_ops();
    void note_size(Position at);
    void count_repeats(bool found);
    std::uint64_t print_of(Position begin, Position ops) const;
    std::string repeated_lines() const;
    void take_lives(std::uint64_t before);
    void read_timers();
    void search(Nanoseconds now);
    bool tired() const;
    void rest(Nanoseconds now);
    void finish(Nanoseconds now);
    void stop() { on_.store(false), hears_ops_.store(false), timing_.store(false); }
    std::string lines();

    const Settings settings_;
    std::atomic<bool> on_{true}, hears_ops_{true}, timing_{true};
    Ring<ObservedOp> ring_;
    std::atomic<bool> again_{false};
    std::atomic<std::uint64_t> told_until_{0}, told_wait_{0}, newest_op_{0};   // the ring's count as a wait of the host was told last, which it was; the newest op's turn
    std::atomic<bool> gap_{false};            // an op was dropped since the last one that was not
    std::mutex lives_mutex_;
    std::deque<Life> lives_;                  // under lives_mutex_
    std::atomic<std::uint64_t> marks_told_{0};
    std::atomic<std::uint64_t> looked_at_{0};    // records of the ring ...
    std::atomic<std::int64_t> ops_seen_{0};      // ... and ops among them
    mutable std::mutex largest_mutex_;
    LargestOp largest_;                          // under largest_mutex_; written by the consumer

    // The consumer's.
    History history_;
    IterationFinder finder_{history_, settings_.most_ops / 4, settings_.chance};
    std::deque<Pending> pending_;
    std::deque<Position> marks_;              // the last of them, ascending
    std::uint64_t taken_ = 0;
    Position found_begin_ = -1, found_end_ = -1, found_period_ = 0;  // found, not yet told
    Position told_period_ = 0;                // the longest
    SeenKernels told_kernels_;
    std::unordered_map<std::uint64_t, Position> held_;                 // by print_of() a period: ops for which it went on
    std::unordered_map<std::uint64_t, Position>::value_type* holds_ = nullptr;   // that of the period that holds now; null: it is not counted
    struct Iterated {
        Position begin, ops;
        std::uint64_t print;                  // of the period that it is, or is several of
    };
    std::vector<Iterated> iterated_;          // that were told
    std::uint64_t found_print_ = 0;
    Position timed_from_ = 0;                 // ops from there on carry timers; none, if it is the largest position
    bool waits_for_times_ = false;            // a period is known; it is told when one was timed
    bool marks_serve_ = false;                // an iteration ran from mark to mark
    int search_ = 0;                          // its number
    Position search_begin_ = 0;
    Nanoseconds search_since_{-1}, rest_until_{0};
    Nanoseconds looked_{-1}, searched_{0};    // when drain() looked last; how long ops were told in this search
    bool idle_ = false;                       // it rests until again()
    bool told_any_ = false;
    bool ended_ = false;
};

}  // namespace udnnmem::profiler
