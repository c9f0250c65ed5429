// The simulator and the one in Python, written apart from the same words, must agree: on whether a plan is
// valid, and to 0.1 % on its time. Plans come from all the planners, on random traces, and are then damaged
// at random: actions lost, doubled, moved, turned into others.
#include "tests/catch.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "policy/liveness.hpp"
#include "policy/plan_io.hpp"
#include "policy/planner.hpp"
#include "policy/simulator.hpp"
#include "profiler/trace/record.hpp"
#include "profiler/trace/trace_io.hpp"
#include "tests/policy/networks.hpp"

using namespace udnnmem;
using namespace udnnmem::policy;
using namespace udnnmem::tests;

namespace {

bool full() { return std::getenv("UDNNMEM_TEST_FULL") != nullptr; }

struct Case {
    std::string what;
    Outcome outcome;
};

// Cases for the simulator in Python, answered in one run of it.
class Batch {
public:
    Batch() : folder_(std::filesystem::temp_directory_path() / fmt::format("udnnmem-agreement-{}", ::getpid())) { std::filesystem::create_directories(folder_); }
    ~Batch() { std::filesystem::remove_all(folder_); }

    void trace(const profiler::Trace& trace) {
        trace_path_ = (folder_ / fmt::format("{}.jsonl", traces_++)).string();
        REQUIRE(profiler::write_trace(trace_path_, trace));
    }
    void add(const std::string& what, const profiler::Trace& trace, const Machine& machine, const Plan& plan) {
        const std::string path = (folder_ / fmt::format("p{}.jsonl", cases_.size())).string();
        REQUIRE(write_plan(path, {plan}));
        nlohmann::json job{{"trace", trace_path_}, {"plan", path}, {"memory", machine.memory.value}, {"link_in", machine.link_in}, {"link_out", machine.link_out}, {"latency", machine.link_latency.value}};
        if (machine.host != Bytes::max()) job["host"] = machine.host.value;
        job.update({{"lookahead", machine.lookahead}, {"turnaround", machine.turnaround.value}, {"map", machine.map.value}, {"hash", machine.hash_rate}});
        jobs_ += job.dump() + "\n";
        cases_.push_back({what, simulate(trace, machine, plan)});
    }
    // Compares all; what disagrees is kept in a folder for a look if UDNNMEM_KEEP is set.
    void compare() {
        const std::string jobs = (folder_ / "jobs").string(), answers = (folder_ / "answers").string();
        REQUIRE(profiler::write_text(jobs, jobs_));
        REQUIRE(std::system(fmt::format("python3 tests/policy/simulator.py --batch < {} > {}", jobs, answers).c_str()) == 0);
        std::ifstream file(answers);
        int valid = 0, wrong = 0;
        std::string differences;
        for (std::size_t i = 0; i < cases_.size(); ++i) {
            std::string line;
            REQUIRE(std::getline(file, line));
            const auto other = nlohmann::json::parse(line);
            const Outcome& ours = cases_[i].outcome;
            valid += ours.valid;
            bool good = other["valid"].get<bool>() == ours.valid;
            std::string difference = fmt::format("ours: {} {}; Python's: {}", ours.valid, ours.error, other["error"].get<std::string>());
            if (good && ours.valid) {
                const auto time = static_cast<double>(ours.time.value), theirs = other["time_ns"].get<double>();
                good = std::abs(time - theirs) <= 1e-3 * std::max(time, theirs) + 5 && other["recompute_ns"] == ours.recompute.value && other["peak_bytes"] == ours.peak.value;
                difference = fmt::format("ours: {} ns, replays {}, peak {}; Python's: {}", ours.time.value, ours.recompute.value, ours.peak.value, line);
            }
            if (!good && ++wrong <= 20) differences += fmt::format("case {} ({}): {}\n", i, cases_[i].what, difference);
            if (!good && std::getenv("UDNNMEM_KEEP")) {
                std::filesystem::copy(folder_, std::getenv("UDNNMEM_KEEP"), std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
            }
        }
        INFO(differences);
        CHECK(wrong == 0);
        CHECK(valid > static_cast<int>(cases_.size()) / 8);  // or the test tests little
    }

private:
    std::filesystem::path folder_;
    std::string trace_path_, jobs_;
    int traces_ = 0;
    std::vector<Case> cases_;
};

Machine random_machine(Random& random, const Liveness& live, std::size_t ops) {
    Machine machine;
    const std::int64_t least = live.largest_working_set().value, most = std::max(least, live.peak().value);
    machine.memory = Bytes(chance(random, 10) ? least : between(random, least, most));
    // So that a byte costs about as much as the ops that use it: links that are neither idle nor hopeless.
    const double bytes_per_ns = static_cast<double>(live.peak().value + 1) / static_cast<double>(live.ideal().value + 1);
    machine.link_in = 1e9 * bytes_per_ns * static_cast<double>(between(random, 1, 30)) / 10;
    machine.link_out = 1e9 * bytes_per_ns * static_cast<double>(between(random, 1, 30)) / 10;
    machine.link_latency = Nanoseconds(chance(random, 50) ? 10000 : between(random, 0, 1000));
    if (chance(random, 20)) machine.host = Bytes(between(random, most / 4, most));
    if (chance(random, 40)) {  // what a card costs
        const std::int64_t op = live.ideal().value / std::max<std::int64_t>(1, static_cast<std::int64_t>(ops)) + 1;
        if (chance(random, 70)) machine.lookahead = static_cast<int>(between(random, 1, 5));
        if (chance(random, 70)) machine.turnaround = Nanoseconds(between(random, 0, 2 * op));
        if (chance(random, 70)) machine.map = Nanoseconds(between(random, 0, op));
        if (chance(random, 70)) machine.hash_rate = 1e9 * bytes_per_ns * static_cast<double>(between(random, 1, 100));
    }
    return machine;
}

Plan damaged(Random& random, const profiler::Trace& trace, Plan plan) {
    const auto ops = static_cast<std::int64_t>(trace.ops.size()), buffers = static_cast<std::int64_t>(trace.buffers.size());
    for (std::int64_t times = between(random, 1, 3); times > 0 && !plan.actions.empty(); --times) {
        const auto i = static_cast<std::ptrdiff_t>(between(random, 0, static_cast<std::int64_t>(plan.actions.size()) - 1));
        Action& action = plan.actions[static_cast<std::size_t>(i)];
        switch (between(random, 0, 6)) {
            case 0: plan.actions.erase(plan.actions.begin() + i); break;
            case 1: plan.actions.insert(plan.actions.begin() + i, Action(action)); break;
            case 2:
                if (action.what != Do::replay) action.op = OpIndex(static_cast<std::int32_t>(between(random, 0, ops - 1)));
                break;
            case 3:
                if (action.what != Do::replay) action.what = static_cast<Do>(between(random, 0, 3));
                break;
            case 4:
                if (action.what != Do::replay) action.buffer = BufferId(static_cast<std::int32_t>(between(random, 0, buffers - 1)));
                break;
            case 5:
                if (action.what == Do::replay && action.ops.size() > 1) action.ops.erase(action.ops.begin());
                break;
            case 6:
                if (!plan.start_evicted.empty()) plan.start_evicted.pop_back();
                break;
        }
    }
    std::stable_sort(plan.actions.begin(), plan.actions.end(), [](const Action& a, const Action& b) { return a.op < b.op; });
    for (Action& action : plan.actions)
        if (action.op.value < 0 && action.what != Do::prefetch) action.op = OpIndex(0);
    return plan;
}

// The quick planners: those that search would only add time.
std::vector<const Planner*> quick() {
    std::vector<const Planner*> chosen;
    for (const Planner& planner : planners()) chosen.push_back(&planner);
    return chosen;
}

}  // namespace

TEST_CASE("two simulators agree on the plans of every planner", "[agreement]") {
    Random random(20);
    Batch batch;
    for (int i = 0; i < (full() ? 600 : 60); ++i) {
        const profiler::Trace trace = anything(random, 30);
        const Liveness live(trace);
        batch.trace(trace);
        for (int m = 0; m < 2; ++m) {
            const Machine machine = random_machine(random, live, trace.ops.size());
            for (const Planner* planner : quick()) {
                PlannerOptions options;
                options.recompute = planner->needs_recompute || chance(random, 70);
                options.time_budget = Nanoseconds(20'000'000);
                batch.add(fmt::format("{}, trace {}", planner->name, i), trace, machine, planner->make_plan(trace, machine, options));
            }
        }
    }
    batch.compare();
}

TEST_CASE("two simulators agree on damaged plans", "[agreement]") {
    Random random(21);
    Batch batch;
    for (int i = 0; i < (full() ? 1500 : 150); ++i) {
        const profiler::Trace trace = anything(random, 25);
        const Liveness live(trace);
        batch.trace(trace);
        const Machine machine = random_machine(random, live, trace.ops.size());
        for (const char* name : {"belady", "delta", "g10", "checkpoint-n2"}) {
            const Plan plan = find_planner(name)->make_plan(trace, machine, {});
            for (int d = 0; d < 3; ++d) batch.add(fmt::format("{}, trace {}, damage {}", name, i, d), trace, machine, damaged(random, trace, plan));
        }
    }
    batch.compare();
}
