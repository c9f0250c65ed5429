// Ours: see search.hpp for the method. What it returns is never worse than the best of all other planners,
// for their plans are judged by the same engine and the best plan wins, whoever made it.
#include "policy/udnn/udnn.hpp"

#include <memory>

#include "policy/udnn/search.hpp"

namespace udnnmem::policy {

namespace {

struct Judged {
    CompiledPlan plan;
    std::int64_t time = INT64_MAX;
};

// The others' plans, quickest first, as far as a quarter of the time reaches; each is kept only if it is better than
// what there is.
void try_others(const profiler::Trace& trace, const CompiledTrace& compiled, const Machine& machine, const PlannerOptions& options, Engine& engine,
                const udnn::Stopwatch& watch, const std::function<void()>& tick, Judged& best) {
    ReplayCompiler replays(compiled);
    CompiledPlan flat;
    std::string error;
    for (const char* name : {"demand", "belady", "vdnn", "pofo", "checkpoint-n2", "checkpoint-n3", "chen", "delta", "g10", "capuchin"}) {
        if (best.time < INT64_MAX && watch.used() > 0.25) return;
        if (options.time_budget.value > 0) tick();
        const Planner& planner = *find_planner(name);
        if (planner.needs_recompute && !options.recompute) continue;
        if (!compile_plan(compiled, planner.make_plan(trace, machine, options), replays, flat, error)) continue;
        const Verdict verdict = engine.run(flat);
        if (!verdict.valid() || verdict.time >= best.time) continue;
        best.plan = flat;
        best.time = verdict.time;
    }
}

}  // namespace

Plan plan_udnn(const profiler::Trace& trace, const Machine& machine, const PlannerOptions& options) {
    const udnn::Stopwatch watch(options.time_budget);
    const CompiledTrace compiled(trace);
    Engine engine(compiled, machine);
    auto ours = std::make_unique<udnn::Search>(compiled, machine, options.recompute, machine.memory.value / 500);
    ours->first();
    if (ours->best().time == INT64_MAX) {  // so tight that the small ones count
        ours = std::make_unique<udnn::Search>(compiled, machine, options.recompute, 0);
        ours->first();
    }
    udnn::Search& search = *ours;
    Judged best;
    const auto tick = [&] {
        if (options.progress) options.progress(std::min(1.0, watch.used()));
    };
    if (search.best().time > compiled.ideal) try_others(trace, compiled, machine, options, engine, watch, tick, best);
    if (options.time_budget.value > 0 && search.best().time > compiled.ideal) {
        search.sweep(watch, 0.75, compiled.ideal, tick);
        search.improve(watch, 1, compiled.ideal, tick);
    }
    if (search.best().time < INT64_MAX) {
        CompiledPlan plan = search.best_plan();
        const Verdict verdict = engine.run(plan);
        if (verdict.valid() && verdict.time <= best.time) {
            best.plan = std::move(plan);
            best.time = verdict.time;
        }
    }
    if (options.progress) options.progress(1);
    return decompile_plan(best.plan, "udnn");
}

}  // namespace udnnmem::policy
