// Finds out which ops of a learned iteration may be run again. In each round one iteration is watched whole: what an op names
// is copied before it, the op is run again on the copies, which lie elsewhere, after it, and hashes are compared.
//
//   round -1     nothing is run: what holds addresses of other buffers is found first, for a kernel that follows them would
//                write to those.
//   round 0      on the copies as they were: the same bits must come out. What changed is what the op is seen to write.
//   rounds 1..3  with what it writes filled with one of three patterns first (not-a-number, large, small: no minimum, maximum
//                or sum hides all of them): what still comes out the same is wholly written and does not depend on what was
//                there; what does not, is worked on in place. What it was not seen to write must stay as it was; what its
//                code may write (a store of equal values leaves no trace) is filled too, and must come out the same.
//                Not filled, and counted as worked on in place, is what may steer the op (indices, locks, lengths): with
//                anything else there it could write anywhere, or never end. Where no code says so, only what a transient's
//                first op finds there, which no program depends on, is filled. Nor is what the op writes to only where, or when, memory
//                says so (by indices, by a mask): that it wrote all of it this time says nothing of the next.
//   rounds 4..6  the same again, for ops whose code was not read. What they keep where no argument leads shows only later, so
//                Replayer tries them in the place of a replay first (KnownOp::trials).
//
// Nothing of the program's is written. An op that names a pointer table, or memory that is not managed, or whose source
// refuses it, is never run. What is found is an inference, and every use of it is checked by a hash (Replayer).
//
// before() and after() are called by launching threads, in the order of the ops, no lease held; evaluate() by another one.
// Thread-safe by the caller's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "shim/replay/known.hpp"
#include "shim/replay/own_work.hpp"

namespace udnnmem::replay {

class Proof {
  public:
    static constexpr int rounds = 4, rounds_uninspected = 7;   // beside the first one

    // Both outlive it.
    Proof(OwnWork& work, Known& known);
    ~Proof() { memory_.give_back(answers_); }
    Proof(const Proof&) = delete;
    Proof& operator=(const Proof&) = delete;

    // The op of step `k` is about to be submitted to `stream`; then was. A step out of order, or one that was not submitted in the
    // end, begins the round anew. `strays`: it may be using more than it was proven with, for stray words of it lead to something. Such
    // an op is tried in another iteration, which the round goes on for.
    void before(std::int32_t k, const LaunchSource* source, CUstream stream, bool strays);
    void after(std::int32_t k, CUstream stream);
    // The program left the iteration, by an op on `stream`.
    void lost(CUstream stream);
    void context_destroying(CUcontext context);

    // The round's ops were all submitted, to these streams, the last one before this number (StreamTable): once they have
    // completed, evaluate().
    bool queued() const { return state_ == kQueued; }
    std::uint64_t number() const { return number_; }
    std::uint64_t streams() const { return streams_; }
    bool over() const { return state_ == kOver; }
    bool failed() const { return state_ == kOver && !done_; }
    // Takes in what the round found, and begins the next one.
    void evaluate();

  private:
    enum State { kWaits, kRuns, kQueued, kOver };
    struct Copy {
        CUdeviceptr address, copy;
    };
    struct Answer {
        std::uint64_t words[3];
        bool operator==(const Answer& o) const { return words[0] == o.words[0] && words[1] == o.words[1]; }
    };
    struct Answers {
        Answer before, after, again;
    };
    bool is_due(std::size_t k) const { return !known_.ops[k].refused && !tried_[k] && (round_ < rounds || !known_.ops[k].inspected); }
    bool tries(std::size_t k) const { return is_due(k) && !left_out_[k]; }
    const char* look(std::int32_t k, const LaunchSource& source);
    const char* prepare(std::int32_t k, const LaunchSource& source, CUstream stream);
    const char* repeat(std::int32_t k, CUstream stream);
    void give_back(CUstream stream);
    std::uint64_t* words(Answer& a) { return a.words; }

    OwnWork& work_;
    pager::AnswerMemory& memory_;        // outlives work_
    Known& known_;
    State state_ = kWaits;
    bool done_ = false;
    int round_ = -1;
    int begun_rounds_ = 0;               // since the last that was whole
    static constexpr int kMostRounds = 16;   // that may be lost one after the other: each costs what it has copied and run again
    std::vector<char> tried_;            // per step: in this round; ...
    std::vector<char> left_out_;         // ... not in this iteration
    int again_ = 0;                      // iterations that the round took, beside the first
    static constexpr int kMostAgain = 8;
    std::int32_t next_ = 0;
    bool begun_ = false;                 // between before() and after() of next_
    std::uint64_t number_ = 0, streams_ = 0;
    std::uint32_t fills_ = 0;            // so far
    std::vector<std::uint32_t> first_;   // per step: its uses' answers
    std::vector<char> fresh_;            // per use of the program's: the first one of a transient
    std::uint32_t answers_count_ = 0;
    Answers* answers_ = nullptr;         // in memory_
    std::vector<Copy> copies_;           // of the op between before() and after() ...
    std::uint64_t life_ = 0;             // ... and StreamSlot::life of its stream
};

}  // namespace udnnmem::replay
