// What a program does outside of the sequences that are known, and what of it repeats.
//
// A passage is what ran between two first steps of known sequences, and was none of them. One that comes a second time
// is a sequence of its own (a last batch of another size, one step of an evaluation); so is what repeats within one
// (an evaluation of many steps, another model's turn), which the iteration finder finds.
//
// Passages are written on the launch path, under the executor's lock; the rest is the planning thread's. What is seen of
// a buffer here is its uses: a transient one lives from the first to the last of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "profiler/recorder/iteration.hpp"
#include "profiler/recorder/iteration_finder.hpp"
#include "shim/executor/follower.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::executor {

// The handles of a sequence's streams, by their numbers in it; the further ones are not kept.
struct StreamsOf {
    std::array<std::uint64_t, 8> handles{};
    void set(std::int32_t number, CUstream stream) {
        if (const auto n = static_cast<std::size_t>(number); n < handles.size()) handles[n] = reinterpret_cast<std::uintptr_t>(stream);
    }
    std::uint64_t of(std::int32_t number) const {
        const auto n = static_cast<std::size_t>(number);
        return n < handles.size() ? handles[n] : n;
    }
};

struct Passage {
    struct Op {
        const char* name;
        std::uint64_t shape, stream;
        std::uint32_t first, count;  // of `uses`
    };
    struct Use {
        pager::Buffer* buffer;
        std::uint32_t id;
        bool overwritten;            // wholly written, not read
        std::size_t bytes;
    };
    static constexpr std::size_t piece_ops = 2048, piece_uses = 1 << 16;

    std::vector<Op> ops;
    std::vector<Use> uses;
    std::uint32_t newest = 0;        // no buffer that an op named before it has a higher id
    bool ends = true;                // at a first step; false: it goes on in the next one

    void add(const char* name, const Seen& seen, const pager::Op& op);
    // The first `steps` of a sequence, as they just ran.
    void add(const Sequence& sequence, const Follower& follower, const StreamsOf& streams, std::int32_t steps);
    void restart(std::uint32_t newest_id);
    // So many that the planning thread may see them before it ends.
    bool is_piece() const { return ops.size() >= piece_ops || uses.size() >= piece_uses; }
};

class Passages {
  public:
    static constexpr std::size_t most_ops = 1 << 17;       // of a passage; a longer one is not looked at
    static constexpr std::size_t most_uses = 1 << 22;      // ... nor one of more uses: 24 bytes each, and there are ops of thousands
    static constexpr std::size_t most_remembered = 256;    // passages that came once

    // How long an op takes, as far as is known: its name, shape and the bytes that it names.
    using Price = std::function<Nanoseconds(const char* name, std::uint64_t shape, std::size_t bytes)>;
    explicit Passages(Price price) : price_(std::move(price)) {}

    // An iteration that was found to repeat; as a rule none. A fingerprint that `known` knows is none. A passage counts when it
    // came `times` times.
    std::optional<profiler::Iteration> take(Passage&& passage, const std::function<bool(std::uint64_t fingerprint)>& known, int times = 2);
    // A sequence of that fingerprint is known no more: where the passage comes again it is learned again.
    void forget(std::uint64_t fingerprint) { came_.erase(fingerprint); }
    std::size_t uses_kept() const { return so_far_.uses.size(); }

  private:
    struct Range {
        std::size_t begin, end;
    };
    std::optional<Range> period();
    Range best_begin(std::size_t period) const;
    bool lasts(const Passage::Use& use, std::uint32_t newest) const;
    std::uint32_t newest_at(std::size_t op) const;
    std::uint64_t fingerprint(const Range& range) const;
    profiler::Iteration iteration(const Range& range) const;
    void clear();

    const Price price_;
    Passage so_far_;                                   // the pieces of one that goes on
    std::unordered_map<std::uint64_t, int> came_;      // by fingerprint
    profiler::History history_;
    profiler::IterationFinder finder_{history_};
    std::unordered_map<const pager::Buffer*, std::uint32_t> in_history_;  // the id under which it is there
    std::size_t searched_ = 0;                         // ops of so_far_ that the finder has seen
};

}  // namespace udnnmem::executor
