// simulate(): compiles trace and plan, runs the engine, and puts its verdict in words.
#include "policy/simulator.hpp"

#include "policy/engine.hpp"

namespace udnnmem::policy {

Outcome simulate(const profiler::Trace& trace, const Machine& machine, const Plan& plan, Timeline* timeline) {
    Outcome outcome;
    const CompiledTrace compiled(trace);
    outcome.ideal = Nanoseconds(compiled.ideal);
    ReplayCompiler replays(compiled);
    CompiledPlan flat;
    if (!compile_plan(compiled, plan, replays, flat, outcome.error)) return outcome;
    Engine engine(compiled, machine);
    EngineTimeline times;
    const Verdict verdict = engine.run(flat, 8, INT64_MAX, timeline ? &times : nullptr);
    outcome.valid = verdict.valid();
    outcome.error = Engine::explain(verdict);
    outcome.time = Nanoseconds(verdict.time);
    outcome.recompute = Nanoseconds(verdict.recompute);
    outcome.stall = Nanoseconds(outcome.valid ? verdict.time - compiled.ideal - verdict.recompute : 0);
    outcome.peak = Bytes(verdict.peak);
    outcome.peak_host = Bytes(verdict.peak_host);
    outcome.in = Bytes(verdict.in);
    outcome.out = Bytes(verdict.out);
    outcome.demand_fetches = verdict.demand;
    if (timeline) {
        const auto copy = [](const std::vector<std::int64_t>& from, std::vector<Nanoseconds>& to) {
            to.clear();
            for (std::int64_t v : from) to.push_back(Nanoseconds(v));
        };
        copy(times.ready, timeline->ready);
        copy(times.start, timeline->start);
        copy(times.end, timeline->end);
    }
    return outcome;
}

}  // namespace udnnmem::policy
