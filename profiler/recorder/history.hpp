// The recent past of a run, in the order of submission: ops with the allocations that they use, and the
// lives of those allocations. Positions count ops from the start of the run and never repeat.
//
// Invariants
//   - Two allocations that are alive at the same time do not overlap.
//   - uses(op) name allocations that were alive at op's position; what lay in none is left out.
// Not thread-safe: it belongs to the recorder's consumer.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/recorder/observed.hpp"
#include "profiler/trace/units.hpp"

namespace udnnmem::profiler {

using Position = std::int64_t;

class History {
  public:
    struct Allocation {
        std::uint64_t address = 0, bytes = 0;
        Position born = 0;         // made before the op at this position
        Position died = -1;        // freed before the op at this position; -1: alive
        std::uint32_t ordinal = 0; // among those born at the same position
        std::int32_t tag = -1;     // the run's own number for it; -1: none
    };
    // `write`: all of it is written, none is read.
    struct Use {
        std::uint32_t allocation = 0;  // index into allocations()
        Mode mode = Mode::read_write;
        std::uint16_t word = 0;        // as Touch's
        std::uint64_t offset = 0;      // bytes from its start
    };
    struct Op {
        const char* name = "";
        const char* range = "";
        const char* call = "";
        std::uint64_t call_number = 0;
        double call_flops = 0;
        std::uint64_t shape = 0, stream = 0;
        std::uint32_t first_use = 0, use_count = 0;
        std::uint32_t first_wait = 0, wait_count = 0;
        Position host_waited = -1;            // the host had waited for the op at this position, later than before the op before; -1: for none
        std::uint32_t given = 0;              // of the uses, those that the op was given; behind them those that tables lead to
        Nanoseconds start{-1}, duration{-1};  // -1: not measured
    };

    void allocated(std::uint64_t address, std::uint64_t bytes, std::int32_t tag = -1);
    void released(std::uint64_t address);
    // The op at position end(); takes `more` of the record.
    Position add(const ObservedOp& op);
    // What is ordered by the program beside the order of a stream.
    void event_recorded(std::uint64_t event, std::uint64_t stream);
    void stream_waits(std::uint64_t stream, std::uint64_t event);
    void host_waited(std::uint64_t stream, std::uint64_t event);
    void set_time(Position at, Nanoseconds start, Nanoseconds duration);
    // The distinct allocations that an op uses, in bytes.
    std::uint64_t bytes_of(const Op& op) const;
    // The ops so far are forgotten (some were missed, or they are too many); allocations that are alive stay known.
    void forget_ops();
    // Uses and allocations: what its memory goes by.
    std::size_t kept() const { return uses_.size() + allocations_.size() - alive_.size(); }
    // Most of the allocations that are kept are of no use once the ops are forgotten.
    bool crowded() const { return allocations_.size() > 2 * alive_.size() + 4096; }

    Position begin() const { return begin_; }                       // oldest op that is known
    Position end() const { return begin_ + static_cast<Position>(ops_.size()); }
    const Op& op(Position at) const { return ops_[static_cast<std::size_t>(at - begin_)]; }
    std::span<const Use> uses(const Op& op) const { return {uses_.data() + op.first_use, op.use_count}; }
    // The ops of other streams that it was made to wait for, since the op before it in its stream: of each stream the last.
    std::span<const Position> waits(const Op& op) const { return {waits_.data() + op.first_wait, op.wait_count}; }
    // What it was given. Tables fill up as a run goes on, so what they lead to does not tell ops apart.
    std::span<const Use> given(const Op& op) const { return {uses_.data() + op.first_use, op.given}; }
    std::span<const Use> led(const Op& op) const { return uses(op).subspan(op.given); }
    const std::vector<Allocation>& allocations() const { return allocations_; }

    // Whether the ops at `a` and `b` do the same to the same memory, or to memory that was allocated at the same point
    // of each one's past: one iteration and the next. Both known, a > b.
    bool corresponds(Position a, Position b) const;
    // Where they would but for words of structures: which. They are no more than those that agree. Else none.
    std::vector<std::uint16_t> differing_words(Position a, Position b) const;
    // That word of the kernel's parameters is no use of memory, in no op so far and in none to come.
    void forget_word(const char* kernel, std::uint16_t word);

  private:
    using Word = std::pair<const char*, std::uint16_t>;
    std::vector<Position> before(std::uint64_t stream) const;
    bool same(const Use& later, const Use& earlier, Position apart) const;
    void forget_words(Op& op);

    Position begin_ = 0;
    std::vector<Op> ops_;
    std::vector<Use> uses_;
    std::vector<Allocation> allocations_;
    std::map<std::uint64_t, std::uint32_t> alive_;  // by address
    std::set<Word> forgotten_;                      // few
    std::vector<Position> waits_;
    std::unordered_map<std::uint64_t, Position> last_in_;                           // by stream: its last op
    std::unordered_map<std::uint64_t, std::vector<Position>> waiting_, recorded_;   // by stream: what its next op waits for; by event: what comes before it
    Position host_knows_ = -1, host_told_ = -1;                                     // the last op that the host has waited for; the same, as the last op was added
    Position last_born_ = -1;
    std::uint32_t ordinal_ = 0;
};

}  // namespace udnnmem::profiler
