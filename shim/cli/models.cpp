#include "shim/cli/models.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include <fmt/core.h>

#include "policy/engine.hpp"
#include "policy/scaling.hpp"
#include "policy/planner.hpp"
#include "shim/cli/format.hpp"
#include "shim/cli/no_plan.hpp"
#include "shim/cli/trace_input.hpp"

namespace udnnmem::cli {
namespace {

using namespace profiler;
using Json = nlohmann::ordered_json;

// What an op is, by words that libraries and compilers put into kernels' names; the first line that fits counts.
const char* kind_of(const std::string& name) {
    static constexpr std::pair<const char*, const char*> words[] = {
        {"memcpy", "copy"}, {"htod", "copy"}, {"dtoh", "copy"}, {"dtod", "copy"}, {"memset", "fill"}, {"graphlaunch", "graph"}, {"in a graph", "graph"}, {"nccl", "collective"}, {"allreduce", "collective"},
        {"wgrad", "convolution"}, {"dgrad", "convolution"}, {"fprop", "convolution"}, {"winograd", "convolution"}, {"conv", "convolution"},
        {"cross_entropy", "reduction"}, {"crossentropy", "reduction"}, {"loss", "reduction"},
        {"attention", "attention"}, {"flash", "attention"}, {"fmha", "attention"}, {"softmax", "attention"},
        {"gemm", "matrix product"}, {"matmul", "matrix product"}, {"cutlass", "matrix product"}, {"linear", "matrix product"}, {"einsum", "matrix product"},
        {"adam", "update"}, {"sgd", "update"}, {"apply_grad", "update"}, {"optim", "update"}, {"momentum", "update"},
        {"norm", "normalisation"}, {"bn_", "normalisation"}, {"pool", "pooling"}, {"reduce", "reduction"}, {"mean", "reduction"}, {"sum", "reduction"},
        {"embed", "gather"}, {"gather", "gather"}, {"scatter", "gather"}, {"index", "gather"},
        {"elementwise", "elementwise"}, {"relu", "elementwise"}, {"gelu", "elementwise"}, {"bias", "elementwise"}, {"add", "elementwise"}, {"mul", "elementwise"}, {"dropout", "elementwise"},
    };
    // tinygrad names a kernel by its shape alone: "r_32_16_4" reduces, "E_8_4" does not.
    if (name == "E" || (name.size() > 2 && (name[0] == 'r' || name[0] == 'E') && name[1] == '_' && std::isdigit(static_cast<unsigned char>(name[2])))) return name[0] == 'r' ? "reduction" : "elementwise";
    std::string low = name;
    std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const auto& [word, kind] : words)
        if (low.find(word) != std::string::npos) return kind;
    return "other";
}

Json kinds_of(const Trace& trace) {
    struct Sum {
        Count ops = 0;
        std::int64_t time = 0, bytes = 0;
        double flops = 0;
    };
    std::map<std::string, Sum> sums;
    for (const TraceOp& op : trace.ops) {
        Sum& sum = sums[kind_of(op.call.empty() ? op.name : op.call)];
        ++sum.ops;
        sum.time += op.duration.value;
        sum.flops += op.flops;
        std::vector<BufferId> named;
        std::set_union(op.reads.begin(), op.reads.end(), op.writes.begin(), op.writes.end(), std::back_inserter(named));
        for (const BufferId id : named) sum.bytes += trace.buffers[static_cast<std::size_t>(id.value)].bytes.value;
    }
    Json kinds = Json::array();
    for (const auto& [kind, sum] : sums) kinds.push_back({{"kind", kind}, {"ops", sum.ops}, {"time_ns", sum.time}, {"flops", sum.flops}, {"bytes", sum.bytes}});
    std::sort(kinds.begin(), kinds.end(), [](const Json& a, const Json& b) { return a["time_ns"] > b["time_ns"]; });
    return kinds;
}

// The rate that ops reach, by their FLOPs: a step for each power of ten. With it, what the model says the iteration takes.
Json compute_of(const Trace& trace, const IterationView& view, Json& summary) {
    struct Step {
        Count ops = 0;
        double flops = 0, ns = 0;
    };
    std::map<int, Step> steps;
    double known = 0, flops = 0;
    for (const TraceOp& op : trace.ops) {
        if (!(op.flops > 0) || op.duration.value == 0) continue;
        Step& step = steps[static_cast<int>(std::floor(std::log10(op.flops)))];
        ++step.ops;
        step.flops += op.flops;
        step.ns += static_cast<double>(op.duration.value);
        known += static_cast<double>(op.duration.value);
        flops += op.flops;
    }
    Json rates = Json::array();
    for (const auto& [power, step] : steps) rates.push_back({{"from_flops", std::pow(10, power)}, {"ops", step.ops}, {"flops_per_second", step.flops / step.ns * 1e9}});
    double error = 0;
    for (const TraceOp& op : trace.ops) {
        if (!(op.flops > 0) || op.duration.value == 0) continue;
        const Step& step = steps[static_cast<int>(std::floor(std::log10(op.flops)))];
        error += std::abs(op.flops / (step.flops / step.ns) - static_cast<double>(op.duration.value));
    }
    const double ideal = static_cast<double>(view.ideal.value);
    if (flops > 0) {
        summary.push_back(fmt::format("compute: {} in {} with everything resident; FLOPs are known of {:.1f} % of that time: {:.4g} TFLOP, {:.3g} TFLOP/s while they run", human_count(static_cast<Count>(trace.ops.size())) + " ops", human(view.ideal),
                                      100 * known / std::max(1.0, ideal), flops / 1e12, flops / known / 1e3));
        summary.push_back(fmt::format("  t_l = FLOPs_l / FLOPS(FLOPs_l), a rate for each power of ten, is off by {:.1f} % of the time of an op", 100 * error / known));
    } else {
        summary.push_back(fmt::format("compute: {} ops in {} with everything resident; the trace says FLOPs of none of them", human_count(static_cast<Count>(trace.ops.size())), human(view.ideal)));
    }
    return {{"ideal_ns", view.ideal.value}, {"flops", flops}, {"flops_known_ns", known}, {"rates", rates}, {"mean_error", flops > 0 ? Json(error / known) : Json(nullptr)}};
}

Json memory_of(const Trace& trace, const IterationView& view, std::optional<Bytes> memory, Json& summary) {
    // allocated - released, op by op, as the trace has them.
    std::int64_t allocated = 0, released = 0;
    std::vector<std::vector<std::int32_t>> born(trace.ops.size() + 1), dies(trace.ops.size() + 1);
    for (const TraceBuffer& buffer : trace.buffers) {
        const IterationView::Life& life = view.lives[static_cast<std::size_t>(buffer.id.value)];
        if (life.first < 0) continue;
        born[static_cast<std::size_t>(life.first)].push_back(buffer.id.value);
        dies[static_cast<std::size_t>(life.last) + 1].push_back(buffer.id.value);
    }
    Json list = Json::array();
    Count above = 0;
    double excess = 0;  // byte ns
    for (std::size_t k = 0; k < trace.ops.size(); ++k) {
        for (const auto id : dies[k]) released += trace.buffers[static_cast<std::size_t>(id)].bytes.value;
        for (const auto id : born[k]) allocated += trace.buffers[static_cast<std::size_t>(id)].bytes.value;
        const std::int64_t used = allocated - released + trace.ops[k].workspace.value;
        list.push_back(used);
        if (memory && used > memory->value) ++above, excess += static_cast<double>(used - memory->value) * static_cast<double>(trace.ops[k].duration.value);
    }
    const std::int64_t peak = view.live[static_cast<std::size_t>(view.peak_op)].value;
    std::string line = fmt::format("memory: allocated - released is at most {}, at op {} ({})", human(Bytes(peak)), view.peak_op, trace.ops[static_cast<std::size_t>(view.peak_op)].name);
    if (memory) line += peak <= memory->value ? fmt::format("; M = {} holds at every op", human(*memory)) : fmt::format("; M = {} is exceeded at {} ops, by {}·s in all", human(*memory), human_count(above), human(Bytes(static_cast<std::int64_t>(excess / 1e9))));
    summary.push_back(line);
    return {{"memory_bytes", memory ? Json(memory->value) : Json(nullptr)}, {"peak_live_bytes", peak}, {"peak_op", view.peak_op}, {"ops_above", memory ? Json(above) : Json(nullptr)}, {"excess_byte_seconds", excess / 1e9}, {"live_bytes", list}};
}

// t = latency + bytes / bandwidth, latency at least 0, least squares over the moves of one direction.
Json link_fit(const RunRecord& run, EventKind kind) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    const auto each = [&](const auto& use) {
        for (const RunEvent& event : run.moves)
            if (event.kind == kind && event.bytes.value > 0 && event.end > event.start) use(static_cast<double>(event.bytes.value), static_cast<double>((event.end - event.start).value));
    };
    each([&](double bytes, double ns) { ++n, x += bytes, y += ns, xx += bytes * bytes, xy += bytes * ns; });
    if (n < 2 || n * xx - x * x <= 1e-9 * n * xx) return nullptr;  // sizes that do not differ say nothing
    double slope = (n * xy - x * y) / (n * xx - x * x), latency = (y - slope * x) / n;
    if (latency < 0) slope = xy / xx, latency = 0;  // the least squares that a link can have
    if (!(slope > 0)) return nullptr;
    double error = 0;
    each([&](double bytes, double ns) { error += std::abs(latency + slope * bytes - ns); });
    return {{"moves", static_cast<Count>(n)}, {"bytes_per_second", 1e9 / slope}, {"latency_ns", latency}, {"mean_error", error / y}};
}

Json link_of(const RunRecord& run, const std::optional<Links>& links, Json& summary) {
    const Json in = link_fit(run, EventKind::fetch), out = link_fit(run, EventKind::evict);
    const auto fitted = [&](const char* way, const Json& fit) {
        if (!fit.is_null()) summary.push_back(fmt::format("  {} moves {}: {} + bytes / {}, off by {:.0f} % of a move's time (which counts its mapping and its waits)", human_count(fit["moves"].get<Count>()), way, human(Nanoseconds(static_cast<std::int64_t>(fit["latency_ns"].get<double>()))), human_rate(fit["bytes_per_second"].get<double>()), 100 * fit["mean_error"].get<double>()));
    };
    summary.push_back(links ? fmt::format("link: bytes / {} in, bytes / {} out", human_rate(links->in), human_rate(links->out)) : std::string("link: not measured (--link says one)"));
    fitted("in", in);
    fitted("out", out);
    return {{"in_bytes_per_second", links ? Json(links->in) : Json(nullptr)}, {"out_bytes_per_second", links ? Json(links->out) : Json(nullptr)}, {"moves_in", in}, {"moves_out", out}};
}

// What each op waits for in our planner's plan of moves alone: its data (link), room (memory), or nothing (compute). What is
// computed again waits for neither, and would hide what binds.
Json binds_of(const Trace& trace, std::optional<Bytes> given, const std::optional<Links>& links, Json& summary) {
    if (!given || !links) return nullptr;
    const Bytes memory = *given;
    policy::Machine machine;
    machine.memory = memory;
    machine.link_in = links->in;
    machine.link_out = links->out;
    policy::PlannerOptions options;
    options.recompute = false;
    options.time_budget = Nanoseconds(500'000'000);
    const policy::CompiledTrace compiled(trace);
    policy::ReplayCompiler replays(compiled);
    policy::CompiledPlan plan;
    std::string error;
    const policy::Plan made = compiled.peak_live <= memory.value ? policy::Plan{} : policy::find_planner("udnn")->make_plan(trace, machine, options);
    policy::EngineTimeline timeline;
    policy::Engine engine(compiled, machine);
    policy::Verdict verdict;
    if (policy::compile_plan(compiled, made, replays, plan, error)) verdict = engine.run(plan, 8, INT64_MAX, &timeline);
    if (!error.empty() || !verdict.valid()) {
        summary.push_back(no_plan(error.empty() ? policy::Engine::explain(verdict) : error, policy::Liveness(trace), machine, options.recompute));
        return nullptr;
    }
    Json ops = Json::array();
    std::map<std::string, std::pair<Count, std::int64_t>> sums{{"compute", {}}, {"memory", {}}, {"link", {}}};  // ops, ns
    for (std::size_t k = 0; k < trace.ops.size(); ++k) {
        const std::int64_t starved = timeline.starved[k], crowded = timeline.crowded[k];
        const bool waits = starved + crowded > trace.ops[k].duration.value / 100;
        const char* binds = !waits ? "compute" : starved >= crowded ? "link" : "memory";
        ops.push_back(binds);
        ++sums[binds].first;
        sums["link"].second += starved;
        sums["memory"].second += crowded;
        sums["compute"].second += trace.ops[k].duration.value;
    }
    summary.push_back(fmt::format("in {} an iteration is computed to take {} by moves alone (udnnmem plan tries what can be computed again too): compute binds at {} ops, the link at {} (waits of {}), memory at {} ({})", human(memory), human(Nanoseconds(verdict.time)), human_count(sums["compute"].first),
                                  human_count(sums["link"].first), human(Nanoseconds(sums["link"].second)), human_count(sums["memory"].first), human(Nanoseconds(sums["memory"].second))));
    Json to{{"time_ns", verdict.time}, {"recompute", options.recompute}};
    for (const auto& [name, sum] : sums) to[name] = {{"ops", sum.first}, {"ns", sum.second}};
    to["ops"] = std::move(ops);
    return to;
}

struct Line {
    double fixed = 0, each = 0;
};
// Least squares of (fixed + each * k) / t = 1, so that a short iteration counts as much as a long one.
std::optional<Line> fit(std::span<const BatchFit::Point> points, const BatchFit::Point* without) {
    double a = 0, b = 0, c = 0, d = 0, e = 0;
    std::vector<std::int64_t> seen;
    for (const BatchFit::Point& p : points) {
        if (&p == without) continue;
        const double u = 1 / p.time, v = static_cast<double>(p.batch) / p.time;
        a += u * u, b += u * v, c += v * v, d += u, e += v;
        if (std::find(seen.begin(), seen.end(), p.batch) == seen.end()) seen.push_back(p.batch);
    }
    if (seen.size() < 2) return std::nullopt;
    const double determinant = a * c - b * b;
    return Line{(d * c - b * e) / determinant, (a * e - b * d) / determinant};
}

}  // namespace

std::optional<BatchFit> fit_batches(std::span<const Report> reports) {
    BatchFit result;
    for (const Report& report : reports) {
        const std::int64_t batch = report.run.iteration.header.batch;
        double time = 0;
        for (const TraceOp& op : report.run.iteration.ops) time += static_cast<double>(op.duration.value);
        if (batch > 0 && time > 0) result.points.push_back({batch, time, {}});
    }
    const auto line = fit(result.points, nullptr);
    if (!line) return std::nullopt;
    // Op by op, one trace of each batch size (ranks have the same). Libraries may run other kernels for another batch size, so
    // what differs is said, not refused.
    std::vector<Trace> traces;
    for (const Report& report : reports) {
        const Trace& trace = report.run.iteration;
        if (trace.header.batch > 0 && std::none_of(traces.begin(), traces.end(), [&](const Trace& t) { return t.header.batch == trace.header.batch; })) traces.push_back(trace);
    }
    if (const auto one = policy::BatchModel::fit(traces); !one) result.doubt = one.error().message;
    result.fixed = line->fixed;
    result.each = line->each;
    for (BatchFit::Point& p : result.points)
        if (const auto others = fit(result.points, &p)) p.predicted = others->fixed + others->each * static_cast<double>(p.batch);
    return result;
}

Expected<Json> models_of(const RunRecord& run, const IterationView& view, const ModelOptions& options, const std::optional<BatchFit>& batches) {
    const Trace& trace = run.iteration;
    const RanOn own = ran_on(run);
    std::optional<Bytes> memory = own.memory;
    if (options.memory) {
        const auto given = parse_memory("--memory", *options.memory, view.live[static_cast<std::size_t>(view.peak_op)]);
        if (!given) return tl::make_unexpected(given.error());
        memory = *given;
    }
    const std::optional<Links> links = options.links ? options.links : own.links;

    Json models, summary = Json::array();
    models["compute"] = compute_of(trace, view, summary);
    models["batch"] = nullptr;
    if (batches && !(batches->each > 0)) {
        summary.push_back("  t_iter(k): none: a larger batch takes no longer here" + (batches->doubt.empty() ? "" : ": " + batches->doubt));
    } else if (batches) {
        Json points = Json::array();
        for (const BatchFit::Point& p : batches->points) points.push_back({{"batch", p.batch}, {"time_ns", p.time}, {"predicted_ns", p.predicted ? Json(*p.predicted) : Json(nullptr)}});
        models["batch"] = {{"fixed_ns", batches->fixed}, {"each_ns", batches->each}, {"points", points}, {"doubt", batches->doubt.empty() ? Json(nullptr) : Json(batches->doubt)}};
        if (!batches->doubt.empty()) summary.push_back("  t_iter(k) is in doubt: " + batches->doubt);
        summary.push_back(fmt::format("  t_iter(k) = {} + k * {}", human(Nanoseconds(static_cast<std::int64_t>(batches->fixed))), human(Nanoseconds(static_cast<std::int64_t>(batches->each)))));
        for (const BatchFit::Point& p : batches->points)
            summary.push_back(fmt::format("    batch {}: {}{}", p.batch, human(Nanoseconds(static_cast<std::int64_t>(p.time))), p.predicted ? fmt::format("; the others predict {} ({:+.1f} %)", human(Nanoseconds(static_cast<std::int64_t>(*p.predicted))), 100 * (*p.predicted / p.time - 1)) : ""));
    }
    if (!batches && !options.no_batches.empty()) summary.push_back("  t_iter(k): " + options.no_batches);
    models["memory"] = memory_of(trace, view, memory, summary);
    models["link"] = link_of(run, links, summary);
    models["binds"] = binds_of(trace, memory, links, summary);
    models["kinds"] = kinds_of(trace);
    models["summary"] = std::move(summary);
    return models;
}

}  // namespace udnnmem::cli
