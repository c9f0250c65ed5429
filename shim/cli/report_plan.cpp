#include "shim/cli/report_plan.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "shim/cli/format.hpp"

namespace udnnmem::cli {
namespace {

using namespace profiler;
using Json = nlohmann::ordered_json;

constexpr std::size_t most_mispredictions = 5, most_refusals = 8, most_steps = 5;   // of the tables in words; JSON has all

// Of each step; -1: not known.
std::vector<std::int64_t> delays_of(const std::vector<RunStep>& steps) {
    std::vector<std::int64_t> delays;
    std::int64_t late = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const RunStep& s = steps[i];
        if (i == 0 || steps[i - 1].sequence != s.sequence) late = 0;
        if (s.start.value < 0) {
            delays.push_back(-1);
            continue;
        }
        const std::int64_t now = std::max<std::int64_t>(0, s.start.value - s.planned_start.value);
        delays.push_back(std::max<std::int64_t>(0, now - late));
        late = now;
    }
    return delays;
}

Json sequence_of(const RunSequence& s) {
    return {{"id", s.id}, {"first", s.first}, {"ops", s.ops}, {"turns", s.turns}, {"iterations", s.iterations}, {"planned_iterations", s.planned_iterations}, {"given_up", s.given_up},
            {"peak_promised_bytes", s.peak_promised.value}, {"peak_bytes", s.peak.value}, {"ideal_ns", s.ideal.value}, {"promised_ns", s.promised.value}, {"planned_ns", s.planned.value}, {"demand_ns", s.demand.value}, {"no_plan", s.no_plan.empty() ? Json(nullptr) : Json(s.no_plan)}};
}

}  // namespace

void add_plan_fields(Json& report, const RunRecord& run) {
    report["sequences"] = Json::array();
    for (const RunSequence& s : run.sequences) report["sequences"].push_back(sequence_of(s));
    report["mispredicted"] = Json::array();
    for (const Misprediction& m : run.mispredictions) report["mispredicted"].push_back({{"expected", m.expected}, {"seen", m.seen}, {"times", m.times}});
    report["not_replayable"] = Json::array();
    for (const NotReplayable& r : run.not_replayable) report["not_replayable"].push_back({{"kernel", r.kernel}, {"why", r.why}, {"ops", r.ops}});
    report["adaptations"] = Json::array();
    for (const Adaptation& a : run.adaptations)
        report["adaptations"].push_back({{"sequence", a.sequence}, {"change", a.change}, {"before_ns", a.before.value}, {"promised_ns", a.promised.value}, {"measured_ns", a.measured.value}, {"kept", a.kept}});
    report["steps"] = Json::array();
    const std::vector<std::int64_t> delays = delays_of(run.steps);
    const auto known = [](std::int64_t ns) { return ns < 0 ? Json(nullptr) : Json(ns); };
    for (std::size_t i = 0; i < run.steps.size(); ++i) {
        const RunStep& s = run.steps[i];
        report["steps"].push_back({{"sequence", s.sequence}, {"index", s.index}, {"name", s.name}, {"planned_start_ns", s.planned_start.value}, {"start_ns", known(s.start.value)}, {"planned_ns", s.planned.value},
                                   {"took_ns", known(s.took.value)}, {"delay_ns", known(delays[i])}, {"held_ns", s.held.value}, {"held_times", s.held_times},
                                   {"cause", s.cause < 0 ? Json(nullptr) : Json(held_causes[s.cause])}, {"buffer", s.buffer.value < 0 ? Json(nullptr) : Json(s.buffer.value)}});
    }
}

void append_plan(std::string& to, const RunRecord& run) {
    for (const RunSequence& s : run.sequences) {
        to += fmt::format("  sequence {:<7} {} from {}: {} of {} by plan, {}", s.id, counted(s.ops, "op", "ops"), shown(s.first), human_count(s.planned_iterations), counted(s.iterations, "iteration", "iterations"), counted(s.turns, "turn", "turns"));
        if (s.planned.value) to += fmt::format("; {} each, {} promised", human(s.planned), human(s.promised));
        if (s.peak.value) to += fmt::format("; {} of memory, {} promised", human(s.peak), human(s.peak_promised));
        if (s.demand.value) to += fmt::format("; {} on demand", human(s.demand));
        if (!s.no_plan.empty()) to += "; no plan: " + shown(s.no_plan);
        if (s.given_up) to += fmt::format("; {} given up", counted(s.given_up, "plan", "plans"));
        to += '\n';
    }
    for (const Adaptation& a : run.adaptations) {
        to += fmt::format("  another plan     for sequence {}: {}; {} before, ", a.sequence, shown(a.change), human(a.before));
        to += a.measured.value ? fmt::format("{} by it, {}\n", human(a.measured), a.kept ? "kept" : "given up") : "not measured yet\n";
    }
    for (const Misprediction& m : std::span(run.mispredictions).first(std::min(run.mispredictions.size(), most_mispredictions)))
        to += fmt::format("  stepped out      {} at {}, where {} was expected\n", counted(m.times, "time", "times"), shown(m.seen), m.seen == m.expected ? "it, but of another shape or with other buffers," : shown(m.expected));
    for (const NotReplayable& r : std::span(run.not_replayable).first(std::min(run.not_replayable.size(), most_refusals)))
        to += fmt::format("  not run again    {} of {}: it {}\n", counted(r.ops, "op", "ops"), shown(r.kernel), shown(r.why));
    const std::vector<std::int64_t> delays = delays_of(run.steps);
    std::vector<std::size_t> worst;
    for (std::size_t i = 0; i < delays.size(); ++i)
        if (delays[i] > 0) worst.push_back(i);
    std::stable_sort(worst.begin(), worst.end(), [&](std::size_t a, std::size_t b) { return delays[a] > delays[b]; });
    if (worst.size() > most_steps) worst.resize(most_steps);
    if (!worst.empty()) to += "  later than planned:\n";
    for (const std::size_t i : worst) {
        const RunStep& s = run.steps[i];
        to += fmt::format("    {:<10} at {}, not {}: op {} of sequence {}, {}", human(Nanoseconds(delays[i])), human(s.start), human(s.planned_start), s.index, s.sequence, shown(s.name));
        if (s.cause >= 0) to += fmt::format("; its launch waited {} for {} (buffer {})", counted(s.held_times, "time", "times"), held_causes[s.cause], s.buffer.value);
        to += '\n';
    }
}

}  // namespace udnnmem::cli
