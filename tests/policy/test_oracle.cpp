// How near to the best plan there is: on networks so small that every plan of the simple kind can be tried
// (each gap kept, swapped with every moment for its fetch and with the copy out early or late, or replayed),
// the simulator itself names the optimum, and our planner must come near it.
#include "tests/catch.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "policy/bounds.hpp"
#include "policy/compiled.hpp"
#include "policy/engine.hpp"
#include "policy/liveness.hpp"
#include "policy/lp_bound.hpp"
#include "policy/planner.hpp"
#include "policy/simulator.hpp"
#include "profiler/trace/trace_io.hpp"
#include "tests/policy/networks.hpp"
#include "tests/policy/patience.hpp"
#include "tests/policy/small_traces.hpp"

using namespace udnnmem;
using namespace udnnmem::policy;
using namespace udnnmem::tests;

namespace {

// One way to treat one gap: nothing, or actions and perhaps a start off the device.
struct Option {
    std::vector<Action> actions;
    bool away_at_start = false;
    std::int32_t buffer = -1;
};

std::vector<std::vector<Option>> options_of(const CompiledTrace& t, bool recompute) {
    std::vector<std::vector<Option>> all;
    for (std::int32_t b = 0; b < t.buffers; ++b) {
        const auto uses = t.uses[b];
        std::int32_t written = -1;
        for (std::size_t i = 0; i < uses.size(); ++i) {
            if (uses[i].writes()) written = uses[i].op;
            const bool wraps = i + 1 == uses.size();
            if (wraps && !t.persistent[b]) break;
            const std::int32_t from = uses[i].op, to = wraps ? uses[0].op : uses[i + 1].op;
            if (wraps ? from == t.ops - 1 && to == 0 : to == from + 1) continue;
            std::vector<Option> list(1);
            const auto swap = [&](std::int32_t fetch, bool away) {
                Option o;
                o.buffer = b;
                o.away_at_start = away;
                o.actions = {evict(from, b), prefetch(fetch, b)};
                list.push_back(o);
                if (written >= 0 && written < from) {
                    o.actions.push_back(clean(written, b));
                    list.push_back(o);
                }
            };
            if (wraps) {
                for (std::int32_t p = -1; p < to; ++p) swap(p, true);
                for (std::int32_t p = from + 1; p < t.ops; ++p) swap(p, false);
            } else {
                for (std::int32_t p = from + 1; p < to; ++p) swap(p, false);
                if (recompute && written >= 0 && written == t.writer_before(b, to) && t.replayable[written]) {
                    Option o;
                    o.actions = {drop(from, b), replay(to, {written}, {b})};
                    list.push_back(o);
                }
            }
            all.push_back(list);
        }
    }
    return all;
}

// The least time over the product of all options; 0 if there are too many to try.
std::int64_t optimum(const profiler::Trace& trace, const Machine& m, bool recompute) {
    const CompiledTrace t(trace);
    const auto options = options_of(t, recompute);
    double product = 1;
    for (const auto& list : options) product *= static_cast<double>(list.size());
    if (product > 60'000 || product < 20) return 0;
    Engine engine(t, m);
    ReplayCompiler replays(t);
    CompiledPlan flat;
    std::string error;
    std::int64_t best = INT64_MAX;
    std::vector<std::size_t> choice(options.size(), 0);
    for (;;) {
        Plan plan;
        for (std::size_t i = 0; i < options.size(); ++i) {
            const Option& o = options[i][choice[i]];
            plan.actions.insert(plan.actions.end(), o.actions.begin(), o.actions.end());
            if (o.away_at_start) plan.start_evicted.push_back(BufferId(o.buffer));
        }
        // At one op: what leaves first, then fetches by their next use.
        std::stable_sort(plan.actions.begin(), plan.actions.end(), [&](const Action& a, const Action& b) {
            if (a.op != b.op) return a.op < b.op;
            if ((a.what == Do::prefetch) != (b.what == Do::prefetch)) return b.what == Do::prefetch;
            if (a.what != Do::prefetch || b.what != Do::prefetch) return false;
            const auto next = [&](const Action& p) {
                for (const auto& u : t.uses[p.buffer.value])
                    if (u.op > p.op.value) return u.op;
                return t.ops + t.uses[p.buffer.value][0].op;
            };
            return next(a) < next(b);
        });
        if (compile_plan(t, plan, replays, flat, error)) {
            const Verdict v = engine.run(flat);
            if (v.valid()) best = std::min(best, v.time);
        }
        std::size_t i = 0;
        while (i < choice.size() && ++choice[i] == options[i].size()) choice[i++] = 0;
        if (i == choice.size()) break;
    }
    return best;
}

// Three or four layers, forward and backward, one or two of them with a weight.
profiler::Trace tiny(std::mt19937_64& random) {
    Builder builder;
    const int layers = static_cast<int>(between(random, 3, 4)), weights = static_cast<int>(between(random, 0, 1));
    for (int i = 0; i <= layers; ++i) builder.buffer(between(random, 20, 200));
    for (int i = 0; i <= layers; ++i) builder.buffer(between(random, 20, 60));  // gradients
    for (int i = 0; i < weights; ++i) builder.persistent(between(random, 20, 120));
    const int w = 2 * layers + 2;
    for (int i = 0; i < layers; ++i) {
        std::vector<int> reads;
        if (i) reads.push_back(i);
        if (i < weights) reads.push_back(w + i);
        builder.op(between(random, 20, 300), reads, {i + 1});
    }
    builder.replayable();
    for (int i = layers; i-- > 0;) {
        std::vector<int> reads{i + 1}, writes{layers + 1 + i};
        if (i + 1 < layers) reads.push_back(layers + 2 + i);
        if (i < weights) {
            reads.push_back(w + i);
            writes.push_back(w + i);
        }
        builder.op(between(random, 20, 400), reads, writes);
    }
    return builder.trace();
}

}  // namespace

TEST_CASE("small networks: near the best of all plans", "[udnn][oracle]") {
    std::mt19937_64 random(11);
    const bool full = std::getenv("UDNNMEM_TEST_FULL") != nullptr;
    const int wanted = full ? 300 : 40;
    double sum = 0, worst = 1;
    int cases = 0, optimal = 0;
    for (int tries = 0; cases < wanted && tries < 20 * wanted; ++tries) {
        const auto trace = tiny(random);
        const auto m = machine(CompiledTrace(trace).peak_live * between(random, 45, 90) / 100);
        const bool recompute = chance(random, 50);
        const std::int64_t best = optimum(trace, m, recompute);
        if (best == 0 || best == INT64_MAX) continue;
        PlannerOptions options;
        options.recompute = recompute;
        options.time_budget = Nanoseconds(static_cast<std::int64_t>(60e6 * tests::patience));
        const auto out = simulate(trace, m, find_planner("udnn")->make_plan(trace, m, options));
        INFO("try " << tries << ": " << out.error);
        REQUIRE(out.valid);
        if (!recompute) CHECK(lower_bound(trace, m).value <= out.time.value);
        const double ratio = static_cast<double>(out.time.value) / static_cast<double>(best);
        INFO("ours " << out.time.value << ", best " << best << ", recompute " << recompute);
        CHECK(ratio <= 1.10);
        sum += std::log(ratio);
        worst = std::max(worst, ratio);
        optimal += ratio <= 1.0001;
        ++cases;
    }
    REQUIRE(cases == wanted);
    WARN(cases << " networks: geomean " << std::exp(sum / cases) << ", worst " << worst << ", " << optimal << " optimal or better");
    CHECK(std::exp(sum / cases) <= 1.02);
}

TEST_CASE("the linear programme bounds the best of all plans, and more tightly than windows do", "[udnn][oracle]") {
    std::mt19937_64 random(5);
    double ours = 0, windows = 0;
    int cases = 0;
    for (int tries = 0; cases < 12 && tries < 400; ++tries) {
        const auto trace = tiny(random);
        auto m = machine(CompiledTrace(trace).peak_live * between(random, 45, 80) / 100);
        m.link_latency = Nanoseconds(0);  // which the bounds leave out
        const std::int64_t best = optimum(trace, m, false);
        if (best == 0 || best == INT64_MAX) continue;
        const auto bound = lp_bound(trace, m, Nanoseconds(20'000'000'000));
        if (!bound) {
            WARN("no solver");
            return;
        }
        INFO("try " << tries << ", best " << best);
        CHECK(bound->value <= best);
        CHECK(bound->value >= CompiledTrace(trace).ideal - 2);
        ours += static_cast<double>(bound->value) / static_cast<double>(best);
        windows += static_cast<double>(lower_bound(trace, m).value) / static_cast<double>(best);
        ++cases;
    }
    REQUIRE(cases == 12);
    WARN("part of the optimum: linear programme " << ours / cases << ", windows " << windows / cases);
    CHECK(ours >= windows);
    CHECK(ours / cases > 0.8);
}

TEST_CASE("no plan without recompute is faster than the bounds say, where buffers are freed long after their last use too", "[udnn][oracle]") {
    const auto late = Builder().buffer(100).buffer(100).buffer(100).op(10, {}, {0}).op(10, {0}, {1}).op(10, {1}, {2}).op(10, {2}, {}).trace();
    std::vector<profiler::Trace> traces{late};
    traces[0].buffers[0].free_op = traces[0].buffers[1].free_op = OpIndex(3);
    for (const char* name : {"mlp", "conv", "transformer", "residual", "unet"}) {
        auto trace = profiler::read_trace(std::string("tests/traces/tinygrad-") + name + ".jsonl.zst");
        REQUIRE(trace);
        traces.push_back(std::move(*trace));
    }
    int solved = 0;
    for (const auto& trace : traces) {
        const Liveness live(trace);
        for (const double share : {0.2, 0.5}) {
            auto m = machine(std::max(live.largest_working_set().value, static_cast<std::int64_t>(share * static_cast<double>(live.peak().value))));
            m.link_in = m.link_out = 1e7;
            PlannerOptions options;
            options.recompute = false;
            options.time_budget = Nanoseconds(static_cast<std::int64_t>(200e6 * tests::patience));
            const auto out = simulate(trace, m, find_planner("udnn")->make_plan(trace, m, options));
            INFO(trace.header.name << " at " << share << ": " << out.error);
            REQUIRE(out.valid);
            CHECK(lower_bound(trace, m).value <= out.time.value);
            const auto programme = lp_bound(trace, m, Nanoseconds(20'000'000'000));
            solved += programme.has_value();
            if (programme) CHECK(programme->value <= out.time.value);
        }
    }
    WARN(solved << " programmes solved");
}
