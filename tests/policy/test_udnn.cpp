// Our planner against the floors of tests/traces/reference.tsv, against the other planners, and against
// the order of networks that it has never seen. A sample with a short time in `make test`; every case of
// the reference with ten seconds each, and the means that are promised, under UDNNMEM_TEST_FULL=1.
#include "tests/catch.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "policy/compiled.hpp"
#include "policy/planner.hpp"
#include "policy/simulator.hpp"
#include "profiler/trace/trace_io.hpp"
#include "tests/policy/small_traces.hpp"

using namespace udnnmem;
using namespace udnnmem::policy;
using namespace udnnmem::tests;

namespace {

const bool full = std::getenv("UDNNMEM_TEST_FULL") != nullptr;

struct Case {
    std::string net;
    double link = 0, part = 0;
    std::int64_t memory = 0;
    double ideal = 0, bound = 0, swap = 0, recompute = 0;  // ms
};

std::vector<Case> reference() {
    std::vector<Case> cases;
    std::ifstream file("tests/traces/reference.tsv");
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream in(line);
        Case c;
        double lru, belady, g10;
        in >> c.net >> c.link >> c.part >> c.memory >> c.ideal >> c.bound >> lru >> belady >> g10 >> c.swap >> c.recompute;
        cases.push_back(c);
    }
    return cases;
}

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
    options.time_budget = Nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
    return simulate(trace, m, find_planner("udnn")->make_plan(trace, m, options));
}

Machine card(std::int64_t memory, double gigabytes) {
    Machine m;
    m.memory = Bytes(memory);
    m.link_in = m.link_out = gigabytes * 1e9;
    return m;
}

double geomean(const std::vector<double>& values) {
    double sum = 0;
    for (double v : values) sum += std::log(v);
    return std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("no case of the reference is more than 1 % slower", "[udnn][reference]") {
    const auto cases = reference();
    REQUIRE(cases.size() == 110);
    std::map<std::string, std::vector<double>> of_ideal, of_bound;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const Case& c = cases[i];
        for (const bool recompute : {false, true}) {
            if (!full && (i * 2 + recompute) % 19 != 4) continue;  // twelve of them, of every network and link
            const auto out = planned(network(c.net), card(c.memory, c.link), recompute, full ? 10 : 2.5);
            INFO(c.net << " " << c.link << " GB/s, " << c.part << " of peak live, " << (recompute ? "with" : "without") << " recompute: " << out.error);
            REQUIRE(out.valid);
            CHECK(out.peak.value <= c.memory);
            const double ms = static_cast<double>(out.time.value) * 1e-6, floor = recompute ? c.recompute : c.swap;
            CHECK(ms <= floor * (full ? 1.01 : 1.05) + 0.05);
            const std::string family = c.net.find("modern") != std::string::npos ? "modern" : "roofline";
            const std::string key = family + (c.link < 20 ? " 15.75 " : " 55 ") + (c.part == 0.5 ? "50" : c.part == 0.25 ? "25" : "");
            if (recompute) of_ideal[key].push_back(c.ideal / ms);
            else of_bound[family].push_back(c.bound / ms);
        }
    }
    if (!full) return;
    CHECK(geomean(of_bound["modern"]) >= 0.99);
    CHECK(geomean(of_ideal["modern 55 50"]) > 0.97);
    CHECK(geomean(of_ideal["modern 55 25"]) > 0.89);
    CHECK(geomean(of_ideal["modern 15.75 50"]) > 0.89);
    CHECK(geomean(of_ideal["modern 15.75 25"]) > 0.70);
    CHECK(geomean(of_ideal["roofline 55 50"]) > 0.93);
    CHECK(geomean(of_ideal["roofline 55 25"]) > 0.74);
}

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
