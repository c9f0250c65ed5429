// `udnnmem plan TRACE`: what a planner, or every planner, makes of a recorded iteration on a machine that
// need not be this one; writes plans and judges them.
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "policy/bounds.hpp"
#include "policy/liveness.hpp"
#include "policy/lp_bound.hpp"
#include "policy/plan_io.hpp"
#include "policy/planner.hpp"
#include "policy/simulator.hpp"
#include "profiler/trace/record.hpp"
#include "profiler/trace/trace_io.hpp"
#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"
#include "shim/cli/machine_options.hpp"
#include "shim/cli/no_plan.hpp"
#include "shim/cli/progress.hpp"
#include "shim/cli/trace_input.hpp"

namespace udnnmem::cli {
namespace {

struct PlanArguments {
    std::string trace, memory, link, host, policy = "udnn", recompute = "auto", emit, check;
    double seconds = 10, turnaround_us = 0, hash_gbps = 0;
    int lookahead = 0;
    bool json = false, force = false;
};

struct Row {
    policy::Plan plan;
    policy::Outcome outcome;
    double plan_ms = 0;
};

struct Bound {
    Nanoseconds time;
    std::string name;  // LB0 to LB3
};

// The linear programme's where there is a solver and the trace is small enough for a few seconds of it.
Bound bound_for(const profiler::Trace& trace, const policy::Machine& machine) {
    const policy::Bounds quick = policy::bounds(trace, machine);
    const auto programme = policy::lp_bound(trace, machine, Nanoseconds(5'000'000'000));
    if (programme && *programme > quick.best()) return {*programme, "LB3"};
    return {quick.best(), quick.best_name()};
}

// Nothing of a plan that recomputes: it may be faster than what bounds the others.
std::optional<double> share_of_bound(const policy::Outcome& outcome, const Bound& bound) {
    if (!outcome.valid || outcome.recompute.value > 0) return std::nullopt;
    return static_cast<double>(bound.time.value) / static_cast<double>(outcome.time.value);
}

std::string policy_names() {
    std::string names;
    for (const policy::Planner& planner : policy::planners()) names += fmt::format("{}{}", names.empty() ? "" : ", ", planner.name);
    return names;
}

nlohmann::ordered_json to_json(const Row& row, const profiler::Trace& trace, const policy::Machine& machine, const Bound& bound) {
    const policy::Outcome& o = row.outcome;
    nlohmann::ordered_json line{{"policy", row.plan.policy}, {"feasible", o.valid}};
    const auto number = [&](const char* name, auto value) {
        if (o.valid) line[name] = value;
        else line[name] = nullptr;
    };
    const auto time = static_cast<double>(o.time.value);
    number("time_ns", o.time.value);
    line["ideal_ns"] = o.ideal.value;
    line["lower_bound_ns"] = bound.time.value;
    number("eta_ideal", static_cast<double>(o.ideal.value) / time);
    const auto eta_bound = share_of_bound(o, bound);
    line["eta_bound"] = eta_bound ? nlohmann::ordered_json(*eta_bound) : nlohmann::ordered_json();
    number("peak_bytes", o.peak.value);
    number("bytes_in", o.in.value);
    number("bytes_out", o.out.value);
    number("recompute_ns", o.recompute.value);
    number("stall_ns", o.stall.value);
    line["plan_ms"] = std::round(row.plan_ms * 1000) / 1000;
    number("peak_host_bytes", o.peak_host.value);
    number("demand_fetches", o.demand_fetches);
    line["lower_bound"] = bound.name;
    line["trace"] = trace.header.name;
    line["damaged_from_line"] = trace.damaged ? nlohmann::ordered_json(trace.damaged) : nlohmann::ordered_json();
    line["memory_bytes"] = machine.memory.value;
    line["link_in"] = machine.link_in;
    line["link_out"] = machine.link_out;
    if (!o.valid) line["error"] = o.error;
    return line;
}

std::string to_text(const std::vector<Row>& rows, const profiler::Trace& trace, const policy::Liveness& live, const policy::Machine& machine, const Bound& bound, bool recompute) {
    const auto ideal = static_cast<double>(live.ideal().value);
    std::string text = fmt::format("{}: {} ops, {} with everything resident, peak live {} (largest op {})\n", shown(trace.header.name), human_count(static_cast<std::int64_t>(trace.ops.size())), human(live.ideal()),
                                   human(live.peak()), human(live.largest_working_set()));
    text += fmt::format("memory {} ({:.0f} % of peak live), links {} in, {} out, host {}, recompute {}\n", human(machine.memory), 100 * static_cast<double>(machine.memory.value) / static_cast<double>(std::max<std::int64_t>(1, live.peak().value)),
                        human_rate(machine.link_in), human_rate(machine.link_out), human(machine.host), recompute ? "auto" : "off");
    text += fmt::format("no plan without recompute is faster than {} ({} of ideal; {})\n\n", human(bound.time), human_share(ideal / static_cast<double>(bound.time.value)), bound.name);
    text += fmt::format("{:<15}{:>11}{:>10}{:>10}{:>11}{:>11}{:>11}{:>11}{:>10}\n", "policy", "time", "of ideal", "of bound", "stalled", "recompute", "in", "out", "planning");
    for (const Row& row : rows) {
        const policy::Outcome& o = row.outcome;
        if (!o.valid) {
            text += fmt::format("{:<15}no plan: {}\n", shown(row.plan.policy), shown(o.error));
            continue;
        }
        const auto time = static_cast<double>(o.time.value);
        const auto eta_bound = share_of_bound(o, bound);
        text += fmt::format("{:<15}{:>11}{:>10}{:>10}{:>11}{:>11}{:>11}{:>11}{:>10}\n", shown(row.plan.policy), human(o.time), human_share(ideal / time), eta_bound ? human_share(*eta_bound) : "-", human(o.stall), human(o.recompute), human(o.in), human(o.out),
                            human(Nanoseconds(static_cast<std::int64_t>(row.plan_ms * 1e6))));
    }
    return text;
}

// A plan with what it was made for as its defaults: given options win. `others`: whose plan it is, where it is not this trace's.
Row check(const PlanArguments& arguments, const profiler::Trace& trace, policy::Machine& machine, std::string& others) {
    const auto text = profiler::read_text(arguments.check);
    if (!text) fail(text.error());
    if (const auto alone = policy::parse_plan(arguments.check, *text); alone && !alone->trace.empty() && !trace.header.name.empty() && alone->trace != trace.header.name)
        others = fmt::format("the plan is of trace \"{}\", {} is \"{}\"", alone->trace, arguments.trace, trace.header.name);
    auto file = policy::parse_plan(arguments.check, *text, &trace);
    if (!file) fail(file.error().message + (others.empty() ? "" : ": " + others));
    if (arguments.memory.empty()) machine.memory = file->memory;
    if (arguments.link.empty()) machine.link_in = file->link_in, machine.link_out = file->link_out;
    if (arguments.memory.empty() && machine.memory.value <= 0) fail(arguments.check + ": line 1: plan.memory_bytes: is missing, and there is no --memory");
    if (!(machine.link_in > 0 && machine.link_out > 0)) fail(arguments.check + ": line 1: plan.link_in, link_out: are missing, and there is no --link");
    Row row{std::move(file->plan)};
    row.outcome = policy::simulate(trace, machine, row.plan);
    if (row.outcome.valid && !others.empty()) warn(arguments.check + ": " + others);
    return row;
}

// A host budget beside which there is a plan, where that is all that it lacks: what moves whole buffers may need more than
// peak live exceeds the memory by. `make` plans for a machine.
std::optional<Bytes> enough_host(const profiler::Trace& trace, policy::Machine machine, const std::function<policy::Plan(const policy::Machine&)>& make) {
    if (machine.host == Bytes::max()) return std::nullopt;
    machine.host = Bytes::max();
    const policy::Outcome without_bound = policy::simulate(trace, machine, make(machine));
    if (!without_bound.valid) return std::nullopt;
    machine.host = without_bound.peak_host;
    return policy::simulate(trace, machine, make(machine)).valid ? std::optional(machine.host) : std::nullopt;
}

void plan(const PlanArguments& arguments) {
    if (!arguments.emit.empty()) check_output(arguments.emit, arguments.force, std::vector{arguments.trace, arguments.check});
    const auto text = profiler::read_text(arguments.trace);
    if (!text) fail(text.error());
    const auto trace = profiler::parse_trace(arguments.trace, *text);
    if (!trace) fail(trace.error());
    warn_of_damage(arguments.trace, *trace);
    if (trace->ops.empty()) fail(arguments.trace + ": holds no op");
    const policy::Liveness live(*trace);

    RanOn own;
    if (arguments.check.empty() && (arguments.memory.empty() || arguments.link.empty())) {
        const auto run = profiler::parse_run(arguments.trace, *text);
        if (!run) fail(run.error());
        own = ran_on(*run);
    }
    policy::Machine machine;
    if (!arguments.memory.empty()) {
        const auto memory = parse_memory("--memory", arguments.memory, live.peak());
        if (!memory) fail(memory.error());
        machine.memory = *memory;
    } else if (own.memory) {
        machine.memory = *own.memory;
        machine.host = own.host.value_or(Bytes::max());
    } else if (arguments.check.empty()) {
        fail("plan needs --memory: only a recorded run, or the plan of --check, says one itself");
    }
    if (!arguments.link.empty()) {
        const auto links = parse_links(arguments.link);
        if (!links) fail(links.error());
        machine.link_in = links->in;
        machine.link_out = links->out;
    } else if (own.links) {
        machine.link_in = own.links->in;
        machine.link_out = own.links->out;
    } else if (arguments.check.empty()) {
        fail("plan needs --link: only a recorded run, or the plan of --check, says one itself");
    }
    if (!arguments.host.empty()) {
        const auto host = parse_memory("--host", arguments.host, live.peak());
        if (!host) fail(host.error());
        machine.host = *host;
    }
    machine.lookahead = arguments.lookahead;
    machine.turnaround = Nanoseconds(static_cast<std::int64_t>(arguments.turnaround_us * 1e3));
    if (arguments.hash_gbps > 0 && arguments.hash_gbps < 1e-3) fail(fmt::format("--hash: expected 0 or at least 0.001 GB/s, is {}", arguments.hash_gbps));
    machine.hash_rate = arguments.hash_gbps * 1e9;
    policy::PlannerOptions options;
    options.recompute = arguments.recompute != "off";
    options.time_budget = Nanoseconds(static_cast<std::int64_t>(arguments.seconds * 1e9));

    std::vector<Row> rows;
    std::string others;
    if (!arguments.check.empty()) {
        rows.push_back(check(arguments, *trace, machine, others));
        rows.back().outcome.ideal = live.ideal();
    } else {
        std::vector<const policy::Planner*> chosen;
        if (arguments.policy == "all") {
            for (const policy::Planner& planner : policy::planners())
                if (options.recompute || !planner.needs_recompute) chosen.push_back(&planner);
        } else if (const policy::Planner* planner = policy::find_planner(arguments.policy)) {
            if (!options.recompute && planner->needs_recompute) fail(fmt::format("--policy {} is all recompute: --recompute off leaves it nothing to plan", planner->name));
            chosen.push_back(planner);
        } else {
            fail(fmt::format("--policy {}: expected all or one of {}", arguments.policy, policy_names()));
        }
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            Progress progress(fmt::format("{} ({} of {})", chosen[i]->name, i + 1, chosen.size()));
            options.progress = [&](double part) { progress.show(part); };
            const auto start = std::chrono::steady_clock::now();
            Row row{chosen[i]->make_plan(*trace, machine, options)};
            row.plan_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
            row.outcome = policy::simulate(*trace, machine, row.plan);
            row.outcome.ideal = live.ideal();
            rows.push_back(std::move(row));
        }
    }

    const Bound bound = bound_for(*trace, machine);
    std::string shown_rows;
    if (arguments.json) {
        for (const Row& row : rows) shown_rows += to_json(row, *trace, machine, bound).dump() + "\n";
    } else {
        shown_rows = to_text(rows, *trace, live, machine, bound, options.recompute);
    }
    const Row* best = nullptr;
    for (const Row& row : rows)
        if (row.outcome.valid && (!best || row.outcome.time < best->outcome.time)) best = &row;
    if (!best) {
        if (arguments.json || rows.size() > 1) write_output("", shown_rows, false);
        const policy::Planner* const planner = policy::find_planner(arguments.policy == "all" || arguments.policy == "udnn" ? "belady" : arguments.policy);  // the simplest that udnn has beside it
        const auto enough = enough_host(*trace, machine, [&](const policy::Machine& m) {
            options.time_budget = Nanoseconds(300'000'000);
            options.progress = {};
            return arguments.check.empty() ? planner->make_plan(*trace, m, options) : rows.back().plan;
        });
        const std::string why = no_plan(rows.back().outcome.error, live, machine, options.recompute, enough);
        if (arguments.check.empty()) fail(why);
        fail(fmt::format("{}: {}{}", arguments.check, why, others.empty() ? "" : ": " + others));
    }
    if (!arguments.emit.empty()) {
        const policy::PlanFile file{best->plan, trace->header.name, machine.memory, machine.link_in, machine.link_out, best->outcome.time};
        if (is_stdout(arguments.emit)) return write_output("", policy::format_plan(file), false);
        if (const auto written = policy::write_plan(arguments.emit, file); !written) fail_at_work(written.error().message);
    }
    write_output("", shown_rows, false);
}

}  // namespace

void add_plan_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("plan", "Plan a recorded iteration for a machine, with one planner or all");
    auto arguments = std::make_shared<PlanArguments>();
    command->add_option("TRACE", arguments->trace, "trace file (.jsonl or .jsonl.zst), or - for standard input")->required()->check(file_name());
    command->add_option("--memory", arguments->memory, "device memory: 12GiB, 800MB, 50% of peak live (the budgets of a recorded run, with its --host)")->type_name("M");
    command->add_option("--link", arguments->link, "bandwidth to the device and back (as a recorded run measured it)")->type_name("GBPS[,GBPS]");
    command->add_option("--host", arguments->host, "host memory for what is evicted: 64GiB, 50% of peak live (unlimited)")->type_name("SIZE");
    CLI::Option* policy = command->add_option("--policy", arguments->policy, "planner, or all: " + policy_names())->type_name("NAME")->capture_default_str();
    command->add_option("--recompute", arguments->recompute, "may buffers be dropped and computed again")->check(CLI::IsMember({"auto", "off"}))->capture_default_str();
    command->add_option("--time", arguments->seconds, "time for udnn to search, of one core; it may take as long again to try the other planners' plans")->type_name("SECONDS")->check(within(0.0, 86400.0))->capture_default_str();
    command->add_option("--lookahead", arguments->lookahead, "ops ahead at which an op's memory is taken, as where the library maps it")->type_name("OPS")->check(whole_within(0, 16))->capture_default_str();
    command->add_option("--turnaround", arguments->turnaround_us, "from an op's end until memory that it frees can serve another")->type_name("US")->check(within(0.0, 1e9))->capture_default_str();
    command->add_option("--hash", arguments->hash_gbps, "rate at which the device hashes what it moves (0: no cost)")->type_name("GBPS")->check(within(0.0, 1e6))->capture_default_str();
    command->add_flag("--json", arguments->json, "one JSON object a line and policy");
    command->add_option("--emit", arguments->emit, "write the (fastest) plan to this file; -: to standard output, instead of the table")->type_name("FILE")->check(file_name());
    command->add_option("--check", arguments->check, "judge the plan of this file instead of making one")->type_name("PLAN")->check(file_name())->excludes(policy);
    command->add_flag("-f,--force", arguments->force, "overwrite the file of --emit");
    command->footer("The bound, which holds for plans without recompute, is the highest of LB0, all ops without a wait; LB1, what must cross the links at their rates; LB2, the best chain of windows of ops, each bound by "
                    "compute or by its moves; LB3, a linear programme over all moves, where there is a solver (cbc) and the trace is small.");
    command->callback([arguments] { plan(*arguments); });
}

}  // namespace udnnmem::cli
