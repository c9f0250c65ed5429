// Finds the smallest period with which the ops of a run repeat: one training iteration.
//
// Two ops correspond (History::corresponds) when they are the same kernel on the same memory, or on memory that each
// allocated at the same point of its own past. So equal layers of a deep network are no period, for their weights
// differ, while an allocator that gives other addresses each iteration does not hide one. A period p is *found* when
// the last p ops, and at least `fewest` of them, each correspond to the op p before: the sequence was seen twice,
// whatever came before it. It is *lost* at the first op that does not correspond. A period that was lost is not found
// again, nor a shorter one of the same kernels, until it has held for `again` times as long, so that the steps of gradient
// accumulation do not stand for the iteration that they are part of; a long one, for `longest_again` ops and twice: no search
// goes on for 16 long iterations. What repeats of other kernels, as training after a longer loop that set it up, is found at once.
//
// Structures that libraries hand to kernels hold what lay there before where nothing was set, now and then an address. Where an op
// differs from the one a period before in such words alone, and they lead somewhere by chance, they are forgotten.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profiler/recorder/history.hpp"

namespace udnnmem::profiler {

// The kernels of what was seen to repeat.
class SeenKernels {
  public:
    // Those of the ops from `begin` to before `end`. They must be known.
    void add(const History& history, Position begin, Position end);
    // Whether at least half of those ops are of kernels that were added.
    bool most_of(const History& history, Position begin, Position end) const;
    void clear() { seen_.clear(); }

  private:
    std::unordered_set<std::uint64_t> seen_;
};

class IterationFinder {
  public:
    static constexpr Position fewest = 8;
    static constexpr Position again = 16;
    static constexpr std::size_t most_candidates = 24;
    static constexpr Position under_way = 1024;
    static constexpr Position sure = 64;   // ops, or a quarter of itself, for which a period has held when words that differ are asked about

    // Whether that word of the kernel's parameters, inside a structure, leads to memory by chance alone.
    using Chance = std::function<bool(const char* kernel, std::uint16_t word)>;

    explicit IterationFinder(History& history, Position longest_again = 1 << 17, Chance chance = {}) : history_(history), longest_again_(longest_again), chance_(std::move(chance)) {}

    // To be called after each op that is added. True if a period was found by this op, and was not known before.
    bool advance();
    // History::forget_ops() was called. What it held is freed.
    void restart();

    Position period() const { return period_; }   // 0: none holds now
    // A long one is under way that has held for an eighth of itself.
    bool nearly() const;
    // Ops for which it has held, counted from the first that corresponded.
    Position held() const { return period_ ? history_.end() - since_ : 0; }

  private:
    struct Candidate {
        Position period, since;
        std::optional<bool> kin;   // whether it is of the kernels of periods that were lost; asked once it has held once
    };
    void propose(Position at);
    // Whether it was lost before, or is a part of what was.
    bool lost_before(Candidate& c) const;
    bool goes_on(const Candidate& c, Position at);

    History& history_;
    const Position longest_again_;
    const Chance chance_;
    std::vector<Candidate> candidates_;
    std::unordered_map<std::uint64_t, Position> last_;  // by op and memory: where it was last seen
    Position period_ = 0, since_ = 0;
    Position lost_ = 0;  // longest period that was found and lost
    SeenKernels lost_kernels_;
};

}  // namespace udnnmem::profiler
