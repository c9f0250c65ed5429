// Anytime search over drafts: a first draft by fixed prices, a sweep over prices, then local search that
// unmakes a part of the best draft and fits it anew. Every draft is judged by the simulator alone.
#pragma once

#include <array>
#include <functional>

#include "policy/planner.hpp"
#include "policy/udnn/draft.hpp"
#include "policy/udnn/select.hpp"
#include "policy/udnn/stopwatch.hpp"

namespace udnnmem::policy::udnn {

class Search {
public:
    // `trace`: as the machine's lookahead holds memory (CompiledTrace, `ahead`); plans are judged by `real`, which is as it is.
    // `negligible`: see Gaps.
    Search(const CompiledTrace& trace, const CompiledTrace& real, const Machine& machine, bool recompute, bool tails, std::int64_t negligible);

    struct Found {
        Draft draft;
        std::vector<std::int64_t> start;   // the times that its fetches were placed by
        std::int64_t time = INT64_MAX;   // ns; INT64_MAX: none that can be carried out
    };

    void first();                                   // the quick one
    // Both go on until so much of the watch's time is used, or a plan takes no longer than `bound`.
    void sweep(const Stopwatch& watch, double part, std::int64_t bound, const std::function<void()>& tick);
    void improve(const Stopwatch& watch, double part, std::int64_t bound, const std::function<void()>& tick);
    const Found& best() const { return best_; }
    CompiledPlan best_plan();

    std::int64_t evaluations = 0;

private:
    std::int64_t attempt(const Prices& prices, EngineTimeline& timeline, int rounds = 10, bool learns = true);
    bool may_fit();
    void expect(const EngineTimeline& timeline);
    void learn(Prices& prices, const EngineTimeline& timeline, double rate) const;
    bool offer(const Draft& draft, std::int64_t time);
    Draft blank() const;
    void stir(Draft& draft, const EngineTimeline& timeline);
    void leave(Draft& draft, std::size_t gap, std::uint8_t mode);

    const CompiledTrace& trace_;
    Machine machine_;
    bool recompute_;
    Gaps gaps_;
    Engine engine_;
    Drafter drafter_;
    Selector selector_;
    Found best_;
    Prices best_prices_;
    std::array<double, Prices::stretches> slack_{};  // of the last attempt: least memory to spare, as part of it
};

}  // namespace udnnmem::policy::udnn
