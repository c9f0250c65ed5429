// The report that people read first: what the run was allowed, what it took, what that cost.
#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "shim/cli/format.hpp"
#include "shim/cli/report_formats.hpp"
#include "shim/cli/report_plan.hpp"
#include "shim/cli/report_ranges.hpp"
#include "shim/cli/speed.hpp"
#include "shim/cli/trace_input.hpp"

namespace udnnmem::cli {
namespace {

using namespace profiler;

constexpr std::size_t most_buffers = 10;  // of the table; JSON has all
constexpr std::size_t most_column = 13;   // characters of a column, of runs side by side

std::string share(Bytes part, Bytes whole) { return whole.value > 0 ? fmt::format(" ({:.1f} % of peak live)", 100.0 * static_cast<double>(part.value) / static_cast<double>(whole.value)) : ""; }

void append_iteration(std::string& to, const Trace& iteration, const IterationView& view) {
    Nanoseconds ideal = iteration.header.ideal;
    if (ideal.value == 0)
        for (const TraceOp& op : iteration.ops) ideal += op.duration;
    to += fmt::format("  one iteration    {}, {}, its ops take {} in all with everything resident, peak live {}\n", counted(static_cast<std::int64_t>(iteration.ops.size()), "op", "ops"),
                      counted(static_cast<std::int64_t>(iteration.buffers.size()), "buffer", "buffers"), human(ideal), human(peak_live(iteration)));
    if (view.streams > 1 || view.host_waits)
        to += fmt::format("  its order        {}{}; the host waits for the device {}\n", counted(view.streams, "stream", "streams"), view.streams > 1 ? ", of which one waits for another " + counted(view.stream_waits, "time", "times") : "", counted(view.host_waits, "time", "times"));
    if (!iteration.header.timed_by.empty()) to += fmt::format("  its times        by {}\n", shown(iteration.header.timed_by));
}

// "an iteration takes 12 ms by plan, as measured: 93.1 % of the speed with everything resident, 98.0 % of what any plan can reach"
void append_speed(std::string& to, const RunRecord& run) {
    if (run.has_summary && run.summary.ops > 0 && run.summary.fetches == 0 && run.summary.evictions == 0 && run.summary.drops == 0 && run.summary.served_from_host == 0) {
        to += "  speed            all of it fitted: nothing was moved\n";
        return;
    }
    const auto speed = speed_of(run);
    if (!speed || !(speed->eta_ideal || speed->overlaps)) return;
    to += fmt::format("  speed            {} takes {} {}, as measured", speed->ops ? "an iteration of " + counted(speed->ops, "op", "ops") : "an iteration", human(speed->time), std::string_view(speed->by) == "plan" ? "by plan" : "on demand");
    if (speed->overlaps) to += "; ops of several streams run at the same time, so that what it could take at best is not known";
    if (speed->eta_ideal) to += fmt::format(": {:.1f} % of the speed with everything resident", 100 * *speed->eta_ideal);
    if (speed->eta_bound) to += fmt::format(", {:.1f} % of what moving buffers can reach in this memory", 100 * *speed->eta_bound);
    to += '\n';
}

void append_figures(std::string& to, const RunRecord& run) {
    const RunSummary& s = run.summary;
    to += fmt::format("  ran              {}, {}, {} made\n", human(s.wall_ns), counted(s.ops, "op", "ops"), counted(s.allocations, "buffer", "buffers"));
    to += fmt::format("  peak live        {}\n", human(s.peak_live_bytes));
    to += fmt::format("  peak on device   {}{}\n", human(s.peak_resident_bytes), share(s.peak_resident_bytes, s.peak_live_bytes));
    to += fmt::format("  peak on host     {}\n", human(s.peak_host_bytes));
    to += fmt::format("  moved in         {} in {}\n", human(s.bytes_in), counted(s.fetches, "fetch", "fetches"));
    to += fmt::format("  moved out        {} in {}, {} of them clean\n", human(s.bytes_out), counted(s.evictions, "eviction", "evictions"), human_count(s.clean_evictions));
    if (s.drops) to += fmt::format("  computed again   {} that had been dropped, {} in {}; {} that never crossed the link\n", counted(s.replays, "buffer", "buffers"), human(s.replay_ns), counted(s.replayed_ops, "kernel or copy", "kernels and copies"), human(s.bytes_dropped));
    to += fmt::format("  stalls           {} waited, {} in all\n", counted(s.stalls, "launch", "launches"), human(s.stall_ns));
    to += fmt::format("  from host frames {}\n", counted(s.served_from_host, "op", "ops"));
    to += fmt::format("  verified moves   {}, {} differed\n", human_count(s.verified_moves), human_count(s.failed_verifications));
    if (s.iterations) {
        to += fmt::format("  by plan          {} of {} followed to the end", human_count(s.planned_iterations), counted(s.iterations, "iteration that was", "iterations that were"));
        if (s.strayed) to += fmt::format("; {} another op came than was expected", counted(s.strayed, "time", "times"));
        if (s.planned_iterations && s.planned_ns.value) to += fmt::format("; {} each, {} promised", human(s.planned_ns), human(s.promised_ns));
        if (s.demand_ns.value) to += fmt::format("; {} on demand", human(s.demand_ns));
        to += '\n';
    }
    if (s.deadlines) to += fmt::format("  deadlines        {} held back too long and let go\n", counted(s.deadlines, "launch was", "launches were"));
    if (s.over_budget) to += fmt::format("  over budget      {}: raise the budget, or make the batch smaller\n", counted(s.over_budget, "time", "times"));
    if (run.events_dropped) to += fmt::format("  not recorded     {} (the figures above count them)\n", counted(run.events_dropped, "event", "events"));
}

void append_buffers(std::string& to, const RunRecord& run) {
    const auto count = [](const BufferMoves& b, EventKind kind) { return human_count(b.events[static_cast<std::size_t>(kind)]); };
    to += fmt::format("  {:>8} {:>12} {:>9} {:>9} {:>8} {:>12} {:>12} {:>12}\n", "buffer", "bytes", "evicted", "clean", "fetched", "moved in", "moved out", "stalled");
    for (const BufferMoves& b : std::span(run.buffers).first(std::min(run.buffers.size(), most_buffers))) {
        const std::string id = run.configs.size() > 1 ? fmt::format("{}:{}", b.device, b.buffer.value) : fmt::format("{}", b.buffer.value);
        to += fmt::format("  {:>8} {:>12} {:>9} {:>9} {:>8} {:>12} {:>12} {:>12}\n", id, human(b.bytes), count(b, EventKind::evict), count(b, EventKind::evict_clean),
                          count(b, EventKind::fetch), human(b.in), human(b.out), human(b.stall));
    }
    if (run.buffers.size() > most_buffers)
        to += fmt::format("  ... and {} more: --format json lists them all\n", human_count(static_cast<std::int64_t>(run.buffers.size() - most_buffers)));
}

void append_models(std::string& to, const nlohmann::ordered_json& models) {
    for (const auto& line : models["summary"]) to += "  " + shown(line.get<std::string>()) + "\n";
    to += fmt::format("  {:<18}{:>8}{:>12}{:>9}{:>14}{:>14}\n", "kind of op", "ops", "time", "share", "TFLOP/s", "bytes named");
    for (const auto& kind : models["kinds"]) {
        const auto ns = kind["time_ns"].get<std::int64_t>();
        const auto flops = kind["flops"].get<double>();
        to += fmt::format("  {:<18}{:>8}{:>12}{:>7.1f} %{:>14}{:>14}\n", kind["kind"].get<std::string>(), human_count(kind["ops"].get<std::int64_t>()), human(Nanoseconds(ns)),
                          100.0 * static_cast<double>(ns) / std::max(1.0, models["compute"]["ideal_ns"].get<double>()), flops > 0 && ns ? fmt::format("{:.3g}", flops / static_cast<double>(ns) / 1e3) : "-", human(Bytes(kind["bytes"].get<std::int64_t>())));
    }
}

// Of a trace with neither figures nor ops. Only a run's has a process that can have been killed.
const char* why_empty(const RunRecord& run) {
    if (run.cut_short) return "  no figures are known: it is cut short before its first figures and its first op\n";
    if (run.damaged) return "  no figures are known: it is damaged before its first figures and its first op\n";
    if (run.header.pid) return "  no figures were recorded: the program was killed within its first second of GPU work, or this is not the whole file\n";
    return "  nothing is known of it: it was cut before its first op\n";
}

std::string column_name(const RunRecord& run) {
    if (run.header.rank >= 0) return fmt::format("rank {}", run.header.rank);
    return run.header.pid ? fmt::format("pid {}", run.header.pid) : run.header.name.empty() ? run.path : run.header.name;
}

// A column a run, by number where names do not fit or do not differ; the figures that differ between ranks tell which of them is short of memory or of link.
std::string side_by_side(std::span<const Report> reports) {
    std::vector<std::string> names;
    for (const Report& report : reports) names.push_back(column_name(report.run));
    const std::set<std::string> different(names.begin(), names.end());
    std::string text;
    if (different.size() < names.size() || std::any_of(names.begin(), names.end(), [](const std::string& name) { return shown(name, most_column) != shown(name); }))
        for (std::size_t i = 0; i < names.size(); ++i) {
            text += fmt::format("{:<5}{}, {}\n", fmt::format("#{}", i + 1), shown(names[i]), shown(reports[i].run.path));
            names[i] = fmt::format("#{}", i + 1);
        }
    const auto row = [&](const char* title, const auto& value) {
        text += fmt::format("{:<19}", title);
        for (const Report& report : reports) text += fmt::format("{:>14}", value(report.run));
        text += '\n';
    };
    const auto figure = [&](const char* title, const auto& value) {
        row(title, [&](const RunRecord& run) { return run.has_summary ? value(run.summary) : std::string("-"); });
    };
    text += fmt::format("{:<19}", "");
    for (const std::string& name : names) text += fmt::format("{:>14}", shown(name));
    text += '\n';
    row("host", [](const RunRecord& run) { return run.header.host.empty() ? "-" : shown(run.header.host, most_column); });
    row("budget", [](const RunRecord& run) {
        return run.configs.empty() ? std::string("-") : human(budget_of(run));
    });
    row("peak live", [](const RunRecord& run) { return run.has_summary ? human(run.summary.peak_live_bytes) : run.iteration.ops.empty() ? std::string("-") : human(peak_live(run.iteration)); });
    figure("peak on device", [](const RunSummary& s) { return human(s.peak_resident_bytes); });
    figure("peak on host", [](const RunSummary& s) { return human(s.peak_host_bytes); });
    figure("moved in", [](const RunSummary& s) { return human(s.bytes_in); });
    figure("moved out", [](const RunSummary& s) { return human(s.bytes_out); });
    figure("stalls", [](const RunSummary& s) { return human_count(s.stalls); });
    figure("stalled", [](const RunSummary& s) { return human(s.stall_ns); });
    figure("ops", [](const RunSummary& s) { return human_count(s.ops); });
    figure("ran", [](const RunSummary& s) { return human(s.wall_ns); });
    text += fmt::format("{:<19}", "one iteration");
    for (const Report& report : reports) text += fmt::format("{:>14}", report.run.iteration.ops.empty() ? "-" : human(report.view.ideal));
    text += '\n';
    figure("by plan", [](const RunSummary& s) { return s.planned_iterations ? human(s.planned_ns) : std::string("-"); });
    return text;
}

}  // namespace

std::string explanation(const OutOfMemory& o) {
    std::string text = fmt::format("out of memory: {} on device {} asked for {}; {} live, {} of it on the host; device budget {}, host budget {}; a device budget of at least {} would have been needed", shown(o.what), o.device, human(o.wanted), human(o.live), human(o.on_host), human(o.budget),
                                   human(o.host_budget), human(o.enough));
    if (!o.largest_op.empty()) text += fmt::format("\n    the largest op by then: {}, {}", shown(o.largest_op), human(o.largest_op_bytes));
    for (std::size_t i = 0; i < std::min<std::size_t>(o.largest.size(), 5); ++i)
        text += fmt::format("\n    buffer {}, {} on the {}", o.largest[i].buffer.value, human(o.largest[i].bytes), o.largest[i].on_host ? "host" : "device");
    return text;
}

std::string report_text(std::span<const Report> reports) {
    std::string text = reports.size() > 1 ? side_by_side(reports) : "";
    for (const auto& [run, view, models] : reports) {
        if (!text.empty()) text += '\n';
        text += shown(run.header.name.empty() ? run.path : run.header.name);
        if (run.header.rank >= 0) text += fmt::format(" rank {}", run.header.rank) + (run.header.world_size > 0 ? fmt::format(" of {}", run.header.world_size) : "");
        if (run.header.pid) text += fmt::format(" (pid {} on {})", run.header.pid, shown(run.header.host));
        if (!run.header.version.empty()) text += ", udnnmem " + shown(run.header.version);
        text += '\n';
        for (const RunConfig& config : run.configs)
            text += fmt::format("  device {}         {}, {}; budget {}, host budget {}, policy {}\n", config.device, shown(config.device_name), human(config.memory), human(config.budget),
                                human(config.host_budget), shown(config.policy));
        // A run that moved anything ends with the rates that its own moves reached, one way at a time; both ways at once are measured at the start alone.
        const bool moved = run.summary.bytes_in + run.summary.bytes_out > Bytes(0);
        for (const RunLink& link : run.links) {
            const bool by_moves = moved && (run.ended || std::find(run.remeasured.begin(), run.remeasured.end(), link.device) != run.remeasured.end());
            text += fmt::format("  link {}           {} in, {} out, measured {}\n", link.device, human_rate(link.in_bytes_per_second), human_rate(link.out_bytes_per_second), by_moves ? "while running" : "at the start");
            if (link.both_in_bytes_per_second > 0 && link.both_out_bytes_per_second > 0)
                text += fmt::format("  link {}           {} in and {} out at once, measured at the start\n", link.device, human_rate(link.both_in_bytes_per_second), human_rate(link.both_out_bytes_per_second));
        }
        if (run.has_summary) append_figures(text, run);
        append_plan(text, run);
        if (!run.iteration.ops.empty()) append_iteration(text, run.iteration, view);
        else if (run.searched) text += fmt::format("  one iteration    not found: nothing that repeats in {}\n", counted(run.searched, "op", "ops"));
        append_speed(text, run);
        append_ranges(text, run.iteration);
        if (run.has_summary && !run.ended && !run.damaged) text += "  the program was killed, or still runs: figures of its last second may be missing\n";
        if (run.damaged) text += fmt::format("  the trace is {}{}\n", shown(damage_of(run)), run.has_summary && !run.ended ? "; the figures are those up to there" : "");
        if (!run.has_summary && run.iteration.ops.empty()) text += why_empty(run);
        for (const OutOfMemory& refusal : run.refusals) text += "  " + explanation(refusal) + "\n";
        if (!models.is_null()) append_models(text, models);
        if (!run.buffers.empty()) append_buffers(text, run);
    }
    return text;
}

}  // namespace udnnmem::cli
