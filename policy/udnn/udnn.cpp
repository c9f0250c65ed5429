// Ours: see search.hpp for the method. What it returns is never worse than the best of all other planners
// that there is time for: their plans are judged by the same engine and the best plan wins, whoever made it.
#include "policy/udnn/udnn.hpp"

#include <memory>

#include "policy/udnn/search.hpp"

namespace udnnmem::policy {

namespace {

struct Judged {
    CompiledPlan plan;
    std::int64_t time = INT64_MAX;
};

// The others' plans, quickest first; each is kept only if it is better than what there is.
class Others {
public:
    Others(const profiler::Trace& trace, const CompiledTrace& compiled, const Machine& machine, const PlannerOptions& options, const udnn::Stopwatch& watch, Engine& engine)
        : trace_(trace), compiled_(compiled), machine_(machine), options_(options), watch_(watch), engine_(engine), replays_(compiled) {}

    // As many as there is time for, told what part of it the next one will take; goes on where it stopped.
    void try_until(const std::function<bool(double)>& enough, Judged& best) {
        for (; next_ < std::size(all) && !enough(all[next_].cost * first_); ++next_) {
            const double before = watch_.used();
            try_one(*find_planner(all[next_].name), best);
            if (next_ == 0) first_ = watch_.used() - before;
        }
    }

private:
    void try_one(const Planner& planner, Judged& best) {
        if (planner.needs_recompute && !options_.recompute) return;
        if (!compile_plan(compiled_, planner.make_plan(trace_, machine_, options_), replays_, flat_, error_)) return;
        const Verdict verdict = engine_.run(flat_);
        if (!verdict.valid() || verdict.time >= best.time) return;
        best.plan = flat_;
        best.time = verdict.time;
    }

    // None can be stopped on its way. What each takes of what the first does, on 10,000 to 100,000 ops.
    static constexpr struct {
        const char* name;
        double cost;
    } all[] = {{"demand", 1}, {"belady", 1.5}, {"vdnn", 3}, {"checkpoint-n2", 25}, {"checkpoint-n3", 35}, {"chen", 30}, {"pofo", 30}, {"delta", 20}, {"g10", 30}, {"capuchin", 20}};
    const profiler::Trace& trace_;
    const CompiledTrace& compiled_;
    const Machine& machine_;
    const PlannerOptions& options_;
    const udnn::Stopwatch& watch_;
    Engine& engine_;
    ReplayCompiler replays_;
    CompiledPlan flat_;
    std::string error_;
    std::size_t next_ = 0;
    double first_ = 0;
};

}  // namespace

Plan plan_udnn(const profiler::Trace& trace, const Machine& machine, const PlannerOptions& options) {
    const udnn::Stopwatch watch(options.time_budget);
    const CompiledTrace compiled(trace), held(trace, machine.lookahead);
    Engine engine(compiled, machine);
    auto ours = std::make_unique<udnn::Search>(held, compiled, machine, options.recompute, options.tails, machine.memory.value / 500);
    ours->first();
    if (ours->best().time == INT64_MAX) {  // so tight that the small ones count
        ours = std::make_unique<udnn::Search>(held, compiled, machine, options.recompute, options.tails, 0);
        ours->first();
    }
    udnn::Search& search = *ours;
    Judged best;
    const auto tick = [&] {
        if (options.progress) options.progress(std::min(1.0, watch.used()));
    };
    // Half of the time is ours at least, and as much again is the others' in the end. A plan wanted at once is ours alone, if there is one.
    Others others(trace, compiled, machine, options, watch, engine);
    const auto some_plan = [&] { return search.best().time < INT64_MAX || best.time < INT64_MAX; };
    if (search.best().time > compiled.ideal) {
        const bool at_once = options.time_budget.value <= 0;
        const auto others_until = [&](double part) {
            others.try_until([&](double cost) {
                if (!at_once) tick();
                return some_plan() && watch.used() + cost > part;
            }, best);
        };
        others_until(0.5);
        if (!at_once && best.time > compiled.ideal) {
            const double used = std::min(1.0, watch.used());
            search.sweep(watch, used + 0.75 * (1 - used), compiled.ideal, tick);
            search.improve(watch, 1, compiled.ideal, tick);
            if (search.best().time > compiled.ideal) others_until(2);
        }
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
