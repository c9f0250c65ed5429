// `udnnmem advise TRACE...`: which memory, which link, which card, which batch. Every figure is a plan
// judged by the simulator. Speeds of compute are those of the traced device.
#include "shim/cli/advise.hpp"

#include <algorithm>
#include <memory>

#include <fmt/core.h>

#include "policy/bounds.hpp"
#include "policy/liveness.hpp"
#include "policy/planner.hpp"
#include "policy/scaling.hpp"
#include "profiler/trace/trace_io.hpp"
#include "shim/cli/commands.hpp"
#include "shim/cli/no_plan.hpp"
#include "shim/cli/progress.hpp"
#include "shim/cli/trace_input.hpp"

namespace udnnmem::cli {
namespace {

constexpr double shares[] = {0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};  // of peak live
constexpr double reserve_gib = 1;      // of a card: contexts, kernels, libraries
constexpr double pays_from = 0.9;      // a batch pays while its samples per second reach this part of the ideal
constexpr std::int64_t largest_tried = std::int64_t{1} << 24;  // batch: one of which nothing grows has no end
constexpr Card common_cards[] = {
    {"RTX 3060 12GB", 12, 24}, {"RTX 4060 Ti 16GB", 16, 12.5}, {"RTX 4090 24GB", 24, 25}, {"RTX 5090 32GB", 32, 52}, {"L4 24GB", 24, 25},      {"L40S 48GB", 48, 25},
    {"A100 40GB", 40, 25},     {"A100 80GB", 80, 25},          {"H100 80GB", 80, 52},     {"H200 141GB", 141, 52},   {"GH200 96GB", 96, 350},
};

struct AdviseArguments {
    std::vector<std::string> traces, links{"15.75", "55"};
    std::string host, recompute = "auto", policy = "udnn", format = "text", output, batches;
    double seconds = 0.5;
    bool force = false;
};

const char* what_binds(const policy::Outcome& outcome, const policy::Machine& machine) {
    const auto time = static_cast<double>(outcome.time.value);
    if (static_cast<double>(outcome.stall.value) <= 0.02 * time) return static_cast<double>(outcome.recompute.value) <= 0.02 * time ? "compute" : "memory";
    const double in = static_cast<double>(outcome.in.value) / machine.link_in * 1e9 / time, out = static_cast<double>(outcome.out.value) / machine.link_out * 1e9 / time;
    if (std::max(in, out) < 0.7) return "memory";  // waits for room, with links idle
    return in >= out ? "link in" : "link out";
}

class Adviser {
public:
    Adviser(const AdviseArguments& arguments, Progress& progress, std::size_t traces) : progress_(progress), planner_(policy::find_planner(arguments.policy)), traces_(traces) {
        if (!planner_) fail(fmt::format("--policy {}: no such planner (udnnmem plan --help lists them)", arguments.policy));
        options_.recompute = arguments.recompute != "off";
        if (!options_.recompute && planner_->needs_recompute) fail(fmt::format("--policy {} is all recompute: --recompute off leaves it nothing to plan", planner_->name));
        options_.time_budget = Nanoseconds(static_cast<std::int64_t>(arguments.seconds * 1e9));
        for (const std::string& text : arguments.links) {
            const auto links = parse_links(text);
            if (!links) fail(links.error());
            links_.push_back(*links);
        }
        steps_ = static_cast<double>(links_.size() * (std::size(shares) + 9) + std::size(common_cards) * 9);
    }

    Advice advise(const std::string& file, const profiler::Trace& trace, const policy::BatchModel* batches, Bytes host) {
        const policy::Liveness live(trace);
        Advice advice{trace.header.name, file, static_cast<std::int64_t>(trace.ops.size()), trace.header.batch, live.ideal(), live.peak(), live.persistent(), live.largest_working_set(), trace.damaged, damage_of(trace), host};
        done_ = 0;
        for (const Links& links : links_) advice.links.push_back(along_memory(trace, live, links, host));
        for (const Card& card : common_cards) advice.cards.push_back(on_card(trace, live, card, batches, host));
        ++traces_done_;
        return advice;
    }

private:
    AdvicePoint point(const profiler::Trace& trace, const policy::Liveness& live, const policy::Machine& machine, double time_share = 1) {
        AdvicePoint point{machine.memory, static_cast<double>(machine.memory.value) / static_cast<double>(std::max<std::int64_t>(1, live.peak().value))};
        policy::PlannerOptions options = options_;
        options.time_budget = Nanoseconds(static_cast<std::int64_t>(static_cast<double>(options.time_budget.value) * time_share));
        const double before = done_;
        options.progress = [&, before](double part) { show(before + part); };
        if (live.peak() <= machine.memory) {  // nothing to plan
            point.outcome = policy::simulate(trace, machine, policy::Plan{});
        } else if (live.largest_working_set() > machine.memory) {
            point.outcome.error = "an op does not fit";  // why_no_plan has its figure
        } else {
            point.outcome = policy::simulate(trace, machine, planner_->make_plan(trace, machine, options));
        }
        point.outcome.ideal = live.ideal();
        point.bound = policy::lower_bound(trace, machine);
        if (point.outcome.valid) point.binds = what_binds(point.outcome, machine);
        else point.outcome.error = why_no_plan(point.outcome.error, live, machine, options_.recompute);
        show(++done_);
        return point;
    }

    LinkAdvice along_memory(const profiler::Trace& trace, const policy::Liveness& live, const Links& links, Bytes host) {
        LinkAdvice advice{links};
        policy::Machine machine;
        machine.link_in = links.in;
        machine.link_out = links.out;
        machine.host = host;
        const auto keep_best = [](AdvicePoint& point, const AdvicePoint& smaller) {
            // What runs in less memory runs in more.
            if (smaller.outcome.valid && (!point.outcome.valid || point.outcome.time > smaller.outcome.time)) point.outcome = smaller.outcome, point.binds = smaller.binds;
        };
        for (const double share : shares) {
            machine.memory = Bytes(static_cast<std::int64_t>(static_cast<double>(live.peak().value) * share));
            advice.points.push_back(point(trace, live, machine));
            if (advice.points.size() > 1) keep_best(advice.points.back(), advice.points[advice.points.size() - 2]);
        }
        for (std::size_t w = 0; w < wanted_speeds.size(); ++w) {
            const auto found = std::find_if(advice.points.begin(), advice.points.end(), [&](const AdvicePoint& p) { return p.speed() >= wanted_speeds[w]; });
            if (found == advice.points.end()) continue;
            Bytes enough = found->memory, little = found == advice.points.begin() ? live.largest_working_set() : std::prev(found)->memory;
            for (int i = 0; i < 3 && little < enough; ++i) {
                machine.memory = Bytes(little.value + (enough.value - little.value) / 2);
                (point(trace, live, machine).speed() >= wanted_speeds[w] ? enough : little) = machine.memory;
            }
            advice.smallest[w] = enough;
        }
        return advice;
    }

    CardAdvice on_card(const profiler::Trace& trace, const policy::Liveness& live, const Card& card, const policy::BatchModel* batches, Bytes host) {
        CardAdvice advice{card, Bytes(static_cast<std::int64_t>((card.gib - reserve_gib) * 0x1p30))};
        policy::Machine machine;
        machine.memory = advice.memory;
        machine.link_in = machine.link_out = card.link * 1e9;
        machine.host = host;
        advice.point = point(trace, live, machine);
        if (!batches) return advice;
        // Doubling, then halving the step: both questions have one answer to the left and another to the right.
        const auto largest = [&](const auto& good) -> std::optional<LargestBatch> {
            std::int64_t low = 0, high = 1;
            while (high <= largest_tried && good(high)) low = high, high *= 2;
            if (low == largest_tried) return LargestBatch{low, true};
            while (high - low > std::max<std::int64_t>(1, low / 16)) {
                const std::int64_t middle = low + (high - low) / 2;
                (good(middle) ? low : high) = middle;
            }
            return low ? std::optional(LargestBatch{low}) : std::nullopt;
        };
        const policy::Planner* simplest = policy::find_planner("belady");
        advice.fits = largest([&](std::int64_t batch) {
            const profiler::Trace scaled = batches->at(batch);
            return policy::Liveness(scaled).largest_working_set() <= machine.memory && policy::simulate(scaled, machine, simplest->make_plan(scaled, machine, {})).valid;
        });
        advice.pays = largest([&](std::int64_t batch) {
            if (!advice.fits || batch > advice.fits->batch) return false;
            const profiler::Trace scaled = batches->at(batch);
            const policy::Liveness scaled_live(scaled);
            const double before = done_;
            const bool good = scaled_live.peak() <= machine.memory || point(scaled, scaled_live, machine, 0.3).speed() >= pays_from;
            done_ = before;
            return good;
        });
        done_ += 8;
        return advice;
    }

    void show(double done) { progress_.show((static_cast<double>(traces_done_) + std::min(1.0, done / steps_)) / static_cast<double>(traces_)); }

    Progress& progress_;
    const policy::Planner* planner_;
    policy::PlannerOptions options_;
    std::vector<Links> links_;
    std::size_t traces_, traces_done_ = 0;
    double done_ = 0, steps_ = 1;
};

void advise(const AdviseArguments& arguments) {
    check_output(arguments.output, arguments.force, arguments.traces);
    std::vector<profiler::Trace> traces;
    for (const std::string& path : arguments.traces) {
        auto trace = profiler::read_trace(path);
        if (!trace) fail(trace.error());
        warn_of_damage(path, *trace);
        if (trace->ops.empty()) fail(path + ": holds no op");
        traces.push_back(std::move(*trace));
    }
    const auto batches = parse_batches(arguments.batches, traces.size());
    if (!batches) fail(batches.error());
    for (std::size_t i = 0; i < batches->size(); ++i) traces[i].header.batch = (*batches)[i];
    std::vector<Bytes> hosts(traces.size(), Bytes::max());
    for (std::size_t i = 0; !arguments.host.empty() && i < traces.size(); ++i) {
        const auto given = parse_memory("--host", arguments.host, policy::Liveness(traces[i]).peak());
        if (!given) fail(given.error());
        hosts[i] = *given;
    }
    // Traces of one network at several batch sizes make a better model together.
    const auto together = policy::BatchModel::fit(traces);
    if (!together && traces.size() > 1) warn(fmt::format("no model of the batch size from all traces together, each has its own: {}", together.error().message));
    std::vector<Advice> advice;
    {
        Progress progress("planning");
        Adviser adviser(arguments, progress, traces.size());
        for (std::size_t i = 0; i < traces.size(); ++i) {
            const auto alone = policy::BatchModel::fit({&traces[i], 1});
            advice.push_back(adviser.advise(arguments.traces[i], traces[i], together ? &*together : alone ? &*alone : nullptr, hosts[i]));
        }
    }
    const auto make = arguments.format == "json" ? advice_json : arguments.format == "html" ? advice_html : advice_text;
    write_output(arguments.output, make(advice), arguments.force);
}

}  // namespace

void add_advise_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("advise", "Which memory, link, card and batch size a recorded iteration needs");
    auto arguments = std::make_shared<AdviseArguments>();
    command->add_option("TRACE", arguments->traces, "trace files; several of one network make a model of its batch size; - for standard input")->required()->check(file_name());
    command->add_option("--link", arguments->links, "links to plan for, each GBPS or GBPS,GBPS (in, out)")->type_name("GBPS[,GBPS]")->expected(1)->take_all()->capture_default_str();
    command->add_option("--batch", arguments->batches, "batch sizes of the traces, where they do not say")->type_name("K,K...");
    command->add_option("--host", arguments->host, "host memory for what is evicted: 64GiB, 50% of each trace's peak live (unlimited)")->type_name("SIZE");
    command->add_option("--policy", arguments->policy, "planner")->type_name("NAME")->capture_default_str();
    command->add_option("--recompute", arguments->recompute, "may buffers be dropped and computed again")->check(CLI::IsMember({"auto", "off"}))->capture_default_str();
    command->add_option("--time", arguments->seconds, "time to search for each plan (udnnmem plan --help)")->type_name("SECONDS")->check(within(0.0, 3600.0))->capture_default_str();
    CLI::Option* format = command->add_option("--format", arguments->format, "text; html, a page for a browser; json, one object")->check(CLI::IsMember({"text", "json", "html"}))->capture_default_str();
    command->add_flag_callback("--json", [arguments] { arguments->format = "json"; }, "the same as --format json")->excludes(format);
    command->add_option("-o,--output", arguments->output, "file to write instead of standard output")->type_name("FILE")->check(file_name());
    command->add_flag("-f,--force", arguments->force, "overwrite that file");
    command->callback([arguments] { advise(*arguments); });
}

}  // namespace udnnmem::cli
