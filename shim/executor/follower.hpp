// Where in a learned sequence a running program is.
//
// An op is the step that is expected next if it has that step's shape and names the step's buffers: the persistent ones
// themselves, the transient ones in the same places as before, each of them the same one throughout an iteration and none that is
// another one there. An op that is not is passed over; the place is found
// again at the step that was expected, at the first step, or anywhere that the last ops lead to and nothing else does
// (find(): shapes and persistent buffers). Wrong answers are possible only for sequences that look the same, and cost
// time, nothing else.
//
// A sequence whose persistent buffers are not known yet (it was stored by an earlier run) takes those that its ops name,
// by their sizes, from the first step on; one wrong op and it begins anew. Once it was followed around, they are known.
//
// Not thread-safe: the executor's lock is around it. at() allocates nothing while the sequence is followed.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "shim/executor/sequence.hpp"

namespace udnnmem::executor {

class Follower;

// An op as it comes: `named`, the movable buffers that it names, in its order.
struct Seen {
    std::uint64_t shape = 0;
    std::span<pager::Buffer* const> named;
};

// The last ops, whatever they were: those that were steps are written down once the program does something else.
class Recent {
  public:
    static constexpr std::size_t window = 8, most_named = 12;   // of an op's buffers, so many are looked at
    void push(const Seen& seen);
    // The last `run` steps before `end`, in the order in which they come, as they just ran.
    void push(const Follower& follower, std::uint64_t run, std::int32_t end);
    void take_back() { --seen_; }
    std::size_t size() const { return seen_ < window ? static_cast<std::size_t>(seen_) : window; }

  private:
    friend class Follower;
    struct Op {
        std::uint64_t shape;
        std::uint32_t count;
        pager::Buffer* named[most_named];
    };
    const Op& ago(std::size_t i) const { return ops_[(seen_ - 1 - i) % window]; }
    Op ops_[window] = {};
    std::uint64_t seen_ = 0;
};

class Follower {
  public:
    static constexpr std::int32_t nowhere = -1;

    // `restored`: an earlier run stored it. What its persistent buffers are is known once it came in this run, and so is that it comes at all.
    explicit Follower(const Sequence& sequence, bool restored = false);

    // The step that the op is, or nowhere.
    std::int32_t at(const Seen& seen);
    // It is known to be the step that is expected.
    std::int32_t go_on(const Seen& seen) { return arrive(next_, seen); }
    // The same by the last ops, of which `seen` is the last, when at() did not know.
    std::int32_t find(const Seen& seen, const Recent& recent);

    // Ops that came one after the other as expected, up to the last one; 0: lost.
    std::uint64_t run() const { return run_; }
    std::int32_t expected() const { return next_; }
    const Sequence& sequence() const { return sequence_; }
    // Its persistent buffers are known: it was learned in this run, or came.
    bool settled() const { return settled_; }
    // What logical buffer `i` is in this iteration; null: not seen yet, or gone.
    pager::Buffer* bound(std::int32_t i) const;
    // The same, also if it is gone.
    struct Bound {
        pager::Buffer* buffer = nullptr;
        std::uint32_t id = 0;
    };
    Bound last_bound(std::int32_t i) const { return known_[static_cast<std::size_t>(i)].bound; }

  private:
    bool is(std::int32_t step, const Seen& seen) const;
    bool could_be(std::size_t b, const pager::Buffer* named, std::int32_t at) const;
    bool is_another(const pager::Buffer* named, std::size_t b, std::int32_t at) const;
    std::int32_t arrive(std::int32_t step, const Seen& seen);
    void bind(const Sequence::Step& step, const Seen& seen);
    void forget();
    void settle();
    std::uint64_t as_persistent(const pager::Buffer* named) const;
    std::size_t head(std::uint64_t shape, std::size_t count, std::uint64_t first) const;
    bool begins_as_a_step(const Seen& seen) const;
    std::uint64_t window_hash(const Recent& recent, std::size_t length) const;

    const Sequence& sequence_;
    std::int32_t next_ = 0;                    // expected
    std::int32_t before_ = 0;                  // what was expected when the program began anew in the middle
    std::uint64_t run_ = 0;
    std::uint32_t stretch_ = 1;                // of an iteration, without a gap
    bool settled_ = false;
    struct Known {                             // all of a logical buffer that each of its steps looks at
        Bound bound;
        std::int32_t* latest = nullptr;        // what that buffer was last, in `logical_`; null: not looked up
        std::uint32_t stretch = 0;             // in which it was bound
        bool lasts = false;
    };
    std::vector<Known> known_;                 // per logical buffer
    std::unordered_map<const pager::Buffer*, std::int32_t> logical_;  // what each buffer was last; none goes
    std::vector<bool> heads_;                  // by shape, count and first buffer: whether a step may begin so. Most ops that are no step do not
    // By the hash of the last 2, the last `window` steps: where they end; nowhere: not in one place.
    std::unordered_map<std::uint64_t, std::int32_t> places_[2];
};

}  // namespace udnnmem::executor
