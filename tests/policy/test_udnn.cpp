// What our planner promises beyond the table of test_reference.cpp: BERT as recorded, time and host budgets.
#include "tests/catch.hpp"

#include <cstdlib>
#include <ctime>
#include <map>

#include "policy/compiled.hpp"
#include "policy/planner.hpp"
#include "policy/simulator.hpp"
#include "profiler/trace/trace_io.hpp"
#include "tests/policy/long_trace.hpp"
#include "tests/policy/patience.hpp"
#include "tests/policy/small_traces.hpp"

using namespace udnnmem;
using namespace udnnmem::policy;
using namespace udnnmem::tests;

namespace {

const bool full = std::getenv("UDNNMEM_TEST_FULL") != nullptr;

const profiler::Trace& network(const std::string& name) {
    static std::map<std::string, profiler::Trace> loaded;
    auto it = loaded.find(name);
    if (it == loaded.end()) {
        auto trace = profiler::read_trace("tests/traces/" + name + ".jsonl.zst");
        REQUIRE(trace);
        it = loaded.emplace(name, std::move(*trace)).first;
    }
    return it->second;
}

Outcome planned(const profiler::Trace& trace, const Machine& m, bool recompute, double seconds) {
    PlannerOptions options;
    options.recompute = recompute;
    options.time_budget = Nanoseconds(static_cast<std::int64_t>(seconds * patience * 1e9));
    return simulate(trace, m, find_planner("udnn")->make_plan(trace, m, options));
}

Machine card(std::int64_t memory, double gigabytes) {
    Machine m;
    m.memory = Bytes(memory);
    m.link_in = m.link_out = gigabytes * 1e9;
    return m;
}

}  // namespace

TEST_CASE("BERT as recorded, 15.754 GB/s, without recompute", "[udnn][reference]") {
    const auto& trace = network("bert-base-b256");
    const auto peak = static_cast<double>(CompiledTrace(trace).peak_live);
    const double ideal = static_cast<double>(CompiledTrace(trace).ideal);
    CHECK(ideal / static_cast<double>(planned(trace, card(static_cast<std::int64_t>(0.5 * peak), 15.754), false, 2.5).time.value) >= 0.995);
    CHECK(ideal / static_cast<double>(planned(trace, card(static_cast<std::int64_t>(0.35 * peak), 15.754), false, full ? 10 : 4).time.value) >= 0.96);
}

TEST_CASE("a network that fits is left alone", "[udnn]") {
    const auto t = Builder().persistent(50).buffer(100).buffer(100).op(10, {0}, {1}).op(10, {1}, {2}).op(10, {1, 2}, {}).trace();
    PlannerOptions options;
    const Plan plan = find_planner("udnn")->make_plan(t, machine(250), options);
    CHECK(plan.actions.empty());
    CHECK(plan.start_evicted.empty());
}

TEST_CASE("where no buffer is named twice there is nothing to search", "[udnn]") {
    Builder builder;
    for (int k = 0; k < 8; ++k) builder.buffer(30);
    builder.persistent(60);
    for (int k = 0; k < 8; ++k) builder.op(10, {}, {k});
    auto m = machine(40);
    m.turnaround = Nanoseconds(5);
    for (const bool recompute : {false, true}) {
        const auto out = planned(builder.trace(), m, recompute, 0.05);
        INFO(out.error);
        CHECK(out.time.value == 8 * (10 + 5));
    }
}

TEST_CASE("the first plan is there at once, and more time is never worse", "[udnn]") {
    const auto& trace = network("resnet50-b768-roofline");
    const auto m = card(CompiledTrace(trace).peak_live / 2, 55);
    std::int64_t before = INT64_MAX;
    for (const double seconds : {0.0, 0.3, 1.0}) {
        const auto out = planned(trace, m, true, seconds);
        REQUIRE(out.valid);
        CHECK(out.time.value <= before);
        before = out.time.value;
    }
}

TEST_CASE("what is tried beside the search takes no longer than it", "[udnn]") {
    const auto trace = long_trace(10'000);
    const auto m = card(CompiledTrace(trace).peak_live / 2, 55);
    const std::clock_t start = std::clock();
    const auto out = planned(trace, m, true, 0.4);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    INFO(seconds << " s");
    REQUIRE(out.valid);
    CHECK(seconds < 1.6 * patience);  // all planners together take more than twice as long
}

TEST_CASE("memory taken ahead of need is planned around", "[udnn]") {
    const auto& trace = network("bert-base-b256-modern");
    auto m = card(CompiledTrace(trace).peak_live / 2, 55);
    m.turnaround = Nanoseconds(100'000);
    for (const bool recompute : {false, true})
        for (const int ops : {1, 2}) {
            m.lookahead = ops;
            const auto out = planned(trace, m, recompute, 1.5);
            INFO("lookahead " << ops << ", recompute " << recompute << ": " << out.time.value << " ns, ideal " << out.ideal.value << " " << out.error);
            REQUIRE(out.valid);
            CHECK(static_cast<double>(out.time.value) < 1.06 * static_cast<double>(out.ideal.value));
        }
}

TEST_CASE("a host budget is kept: what finds no room there is replayed", "[udnn]") {
    const auto& trace = network("resnet50-b768-roofline");
    auto m = card(CompiledTrace(trace).peak_live / 2, 55);
    for (const std::int64_t host : {0ll, 2'000'000'000ll}) {
        m.host = Bytes(host);
        const auto out = planned(trace, m, true, 0.5);
        INFO(out.error);
        REQUIRE(out.valid);
        CHECK(out.peak_host.value <= host);
        CHECK(out.time.value < CompiledTrace(trace).ideal * 13 / 10);
    }
}
