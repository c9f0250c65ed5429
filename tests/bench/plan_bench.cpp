// What planning costs: the first plan by size and the exponent of its growth, the simulator's speed, the
// memory of a very long trace.
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "policy/compiled.hpp"
#include "policy/engine.hpp"
#include "policy/planner.hpp"
#include "tests/policy/long_trace.hpp"
#include "tests/policy/networks.hpp"

using namespace udnnmem;
using namespace udnnmem::policy;

namespace {

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void print(const char* name, double value, const char* unit, const char* goal) {
    std::printf("{\"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"goal\": %s}\n", name, value, unit, goal);
    std::fflush(stdout);
}

// A part of peak live, 16 GB/s. Best of three: the machine is seldom ours alone.
double first_plan_ms(const profiler::Trace& trace, bool recompute, Plan* plan = nullptr, double part = 0.5) {
    Machine m;
    m.memory = Bytes(static_cast<std::int64_t>(part * static_cast<double>(CompiledTrace(trace).peak_live)));
    m.link_in = m.link_out = 16e9;
    PlannerOptions options;
    options.recompute = recompute;
    options.time_budget = Nanoseconds(0);
    double best = 1e18;
    for (int i = 0; i < 3; ++i) {
        const double begin = now_ms();
        Plan p = find_planner("udnn")->make_plan(trace, m, options);
        best = std::min(best, now_ms() - begin);
        if (plan) *plan = std::move(p);
    }
    return best;
}

}  // namespace

int main() {
    const auto small = tests::long_trace(1000), middle = tests::long_trace(10'000);
    Plan plan;
    const double at_small = first_plan_ms(small, true), at_middle = first_plan_ms(middle, true, &plan);
    print("first_plan_10000_ops_ms", at_middle, "ms", "100");
    print("first_plan_10000_ops_swap_only_ms", first_plan_ms(middle, false), "ms", "100");
    const auto unrolled = tests::recurrent(1250, 8, 5);
    for (const double part : {0.3, 0.1}) {
        char name[64];
        std::snprintf(name, sizeof name, "first_plan_recurrent_%.0f_percent_ms", 100 * part);
        print(name, first_plan_ms(unrolled, true, nullptr, part) * 10'000 / static_cast<double>(unrolled.ops.size()), "ms/10000 ops", "100");
    }
    {
        const CompiledTrace compiled(middle);
        Machine m;
        m.memory = Bytes(compiled.peak_live / 2);
        m.link_in = m.link_out = 16e9;
        ReplayCompiler replays(compiled);
        CompiledPlan flat;
        std::string error;
        compile_plan(compiled, plan, replays, flat, error);
        Engine engine(compiled, m);
        engine.run(flat, 1);
        const double begin = now_ms();
        constexpr int runs = 100;  // of one iteration
        for (int i = 0; i < runs; ++i) engine.run(flat, 1);
        print("simulate_10000_ops_10_iterations_ms", (now_ms() - begin) * 10 / runs, "ms", "50");
    }
    const auto large = tests::long_trace(100'000);
    const double at_large = first_plan_ms(large, true);
    print("first_plan_100000_ops_ms", at_large, "ms", "null");
    print("first_plan_exponent_1000_to_10000", std::log10(at_middle / at_small), "", "null");
    print("first_plan_exponent_10000_to_100000", std::log10(at_large / at_middle), "", "1.25");  // n log n is 1.1
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    print("planner_memory_100000_ops_mb", static_cast<double>(usage.ru_maxrss) / 1024, "MB", "500");
}
