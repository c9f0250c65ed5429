// Chooses which gaps to leave, and how: a weighted covering of the bytes that do not fit. Gaps are taken in
// order of what they free (bytes x ops that lack them) against what they cost (time of link and compute at
// given prices), each only while some op under it still lacks memory; then what turned out superfluous is
// kept again. n log n: one sort and a tree over the ops.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "policy/udnn/draft.hpp"

namespace udnnmem::policy::udnn {

struct Prices {
    double compute = 1;                      // of a ns of replay against one of either link
    static constexpr int stretches = 48;     // the iteration in so many parts of equal ideal time, each with prices of its own
    std::array<double, stretches> in_at, out_at, compute_at;
    std::array<double, stretches> memory_at; // worth of a byte there, where it lacks
    Prices() { in_at.fill(1); out_at.fill(1); compute_at.fill(1); memory_at.fill(1); }
    std::int64_t segment = INT64_MAX;        // dropped buffers that one replay recreates: at most so many bytes
    double noise = 0;                        // spread of a random factor on every score
    bool drops = true;
    bool tight = false;                      // first what frees no more than lacks, then the smallest that do: large buffers seldom fit exactly
};

class Selector {
public:
    Selector(const Gaps& gaps, const Machine& machine, Drafter& drafter, std::uint64_t seed);

    // Turns `keep` into swap or drop until the draft fits or nothing more can be done; true if it fits.
    // Leaves the drafter with its `ends` count.
    bool fit(Draft& draft, const Prices& prices, int rounds = 10);

    // Keeps again what need not be left, dearest first by the same prices. To be called after fit() has succeeded.
    void prune(Draft& draft, const Prices& prices);

    void hold(std::int32_t gap) { held_[gap] = holding_; }  // neither of them changes this gap
    void release() { ++holding_; }

    std::mt19937_64 random;
    int stretch(std::int32_t op) const { return stretch_[op]; }

private:
    struct Candidate { double score; std::int32_t gap; std::uint8_t mode; bool again; };  // again: not retained by replays on the way
    double replay_cost(std::int32_t gap, const Draft& draft);
    void load(const std::vector<std::int64_t>& usage);
    void add(std::int32_t from, std::int32_t to, std::int64_t bytes);   // ops [from, to)
    std::int64_t most(std::int32_t from, std::int32_t to);
    void add(std::int32_t node, std::int32_t low, std::int32_t high, std::int32_t from, std::int32_t to, std::int64_t bytes);
    std::int64_t most(std::int32_t node, std::int32_t low, std::int32_t high, std::int32_t from, std::int32_t to) const;
    struct Window { std::int32_t from, to; };
    Window window(const Gap& gap) const { return {gap.from + 1, gap.to + (gap.wraps ? trace_.ops : 0)}; }
    double cost(std::int32_t gap, std::uint8_t mode, const Prices& prices) const;
    bool may_drop(std::int32_t gap, std::int64_t limit);
    void join(std::int32_t gap);
    std::int32_t find(std::int32_t gap);
    void gather(const Draft& draft);

    const Gaps& gaps_;
    const CompiledTrace& trace_;
    Machine machine_;
    Drafter& drafter_;
    std::vector<std::int64_t> in_time_, out_time_;
    std::vector<std::uint8_t> stretch_;             // per op, and of the end
    std::vector<std::int64_t> top_, lazy_;          // the tree: usage less memory
    std::int32_t leaves_ = 1;
    std::vector<double> weight_;
    std::vector<Candidate> candidates_;
    Csr<std::int32_t> readers_;                     // per gap: gaps whose replay reads it
    std::vector<std::int32_t> parent_, running_;    // segments; per op: dropped gaps whose replay runs it
    std::vector<std::int64_t> segment_;
    std::vector<std::uint8_t> dropped_;
    std::vector<std::int64_t> held_;                // per gap: current if held
    std::int64_t holding_ = 1;
    std::vector<std::int64_t> seen_;                // per op
    std::int64_t now_ = 0;
    std::vector<std::int32_t> stack_;
};

}  // namespace udnnmem::policy::udnn
