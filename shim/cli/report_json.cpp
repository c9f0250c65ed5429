// The machine-readable reports. They and the page come from one function, so that their fields cannot part.
#include <algorithm>

#include "shim/cli/report_fields.hpp"
#include "shim/cli/report_formats.hpp"
#include "shim/cli/report_plan.hpp"
#include "shim/cli/report_ranges.hpp"
#include "shim/cli/speed.hpp"
#include "shim/cli/trace_input.hpp"

namespace udnnmem::cli {
namespace {

using Json = nlohmann::ordered_json;
using namespace profiler;

Json raw(Count n) { return n; }
Json raw(Bytes b) { return b.value; }
Json raw(Nanoseconds t) { return t.value; }

// A number, or null where it was not found out.
Json rate(double bytes_per_second) { return bytes_per_second > 0 ? Json(bytes_per_second) : Json(nullptr); }

Json link_of(const RunLink& link) {
    Json by_size = Json::array();
    for (std::size_t i = 0; i < link.sizes.size(); ++i) by_size.push_back({{"bytes", link.sizes[i]}, {"in_bytes_per_second", link.in_by_size[i]}, {"out_bytes_per_second", link.out_by_size[i]}});
    return {{"device", link.device},
            {"in_bytes_per_second", rate(link.in_bytes_per_second)},
            {"out_bytes_per_second", rate(link.out_bytes_per_second)},
            {"both_in_bytes_per_second", rate(link.both_in_bytes_per_second)},
            {"both_out_bytes_per_second", rate(link.both_out_bytes_per_second)},
            {"by_size", by_size}};
}

Json config_of(const RunConfig& config) {
    return {{"device", config.device}, {"name", config.device_name}, {"memory_bytes", config.memory.value}, {"budget_bytes", config.budget.value},
            {"host_budget_bytes", config.host_budget.value}, {"granule_bytes", config.granule.value}, {"policy", config.policy}, {"verify", config.verify}};
}

Json counts_of(const std::array<Count, std::size(event_kind_names)>& events) {
    Json counts = Json::object();
    for (std::size_t i = 0; i < events.size(); ++i) counts[event_kind_names[i]] = events[i];
    return counts;
}

Json buffer_of(const BufferMoves& buffer) {
    return {{"id", buffer.buffer.value}, {"device", buffer.device}, {"bytes", buffer.bytes.value}, {"bytes_in", buffer.in.value},
            {"bytes_out", buffer.out.value}, {"stall_ns", buffer.stall.value}, {"events", counts_of(buffer.events)}};
}

Json refusal_of(const OutOfMemory& o) {
    Json to{{"what", o.what}, {"device", o.device}, {"at_ns", o.at.value}, {"wanted_bytes", o.wanted.value}, {"live_bytes", o.live.value}, {"device_bytes", o.on_device.value}, {"host_bytes", o.on_host.value},
            {"budget_bytes", o.budget.value}, {"host_budget_bytes", o.host_budget.value}, {"enough_bytes", o.enough.value}, {"largest_op", o.largest_op.empty() ? Json(nullptr) : Json(o.largest_op)}, {"largest_op_bytes", o.largest_op_bytes.value}, {"largest", Json::array()}, {"text", explanation(o)}};
    for (const OutOfMemory::Holder& holder : o.largest) to["largest"].push_back({{"id", holder.buffer.value}, {"bytes", holder.bytes.value}, {"on_host", holder.on_host}});
    return to;
}

// What a planner would look at: who holds how much for how long while nobody uses it.
Json iteration_of(const Trace& iteration, const IterationView& view) {
    Json to{{"ops", iteration.ops.size()}, {"ideal_ns", view.ideal.value}, {"observed_ns", view.observed ? Json(view.length.value) : Json(nullptr)},
            {"peak_live_bytes", view.live[static_cast<std::size_t>(view.peak_op)].value}, {"peak_op", view.peak_op}, {"streams", view.streams}, {"stream_waits", view.stream_waits}, {"host_waits", view.host_waits},
            {"timed_by", iteration.header.timed_by.empty() ? Json(nullptr) : Json(iteration.header.timed_by)}, {"buffers", Json::array()}};
    for (const TraceBuffer& buffer : iteration.buffers) {
        const IterationView::Life& life = view.lives[static_cast<std::size_t>(buffer.id.value)];
        to["buffers"].push_back({{"id", buffer.id.value}, {"label", buffer.label}, {"bytes", buffer.bytes.value}, {"persistent", buffer.persistent}, {"first_op", life.first}, {"last_op", life.last},
                                 {"accesses", life.accesses}, {"idle_ns", life.idle.value}, {"longest_idle_ns", life.gap.value}, {"idle_after_op", life.gap_after}, {"idle_before_op", life.gap_before},
                                 {"evictions", life.evictions}, {"fetches", life.fetches}});
    }
    return to;
}

}  // namespace

Json report_fields(const Report& of) {
    const RunRecord& run = of.run;
    const IterationView& view = of.view;
    const Trace& iteration = run.iteration;
    const bool bare = !run.has_summary && !iteration.ops.empty();  // an iteration trace, no run
    Nanoseconds ideal = iteration.header.ideal;
    if (ideal.value == 0)
        for (const TraceOp& op : iteration.ops) ideal += op.duration;

    Json report;
    report["program"] = run.header.name;
    report["version"] = run.header.version;
    report["host"] = run.header.host;
    report["pid"] = run.header.pid;
    report["started_unix_ns"] = run.header.started_unix_ns;
    report["ended"] = run.ended;
    report["damaged_from_line"] = run.damaged > 0 ? Json(run.damaged) : Json(nullptr);
    report["device"] = !run.configs.empty() ? run.configs[0].device_name : iteration.header.device;
    report["policy"] = run.configs.empty() ? "" : run.configs[0].policy;
    Bytes host_budget;
    if (!run.configs.empty()) host_budget = run.configs[0].host_budget;
    report["budget_bytes"] = budget_of(run).value;
    report["host_budget_bytes"] = host_budget.value;
    const auto planned = std::count_if(run.sequences.begin(), run.sequences.end(), [](const RunSequence& s) { return s.planned_iterations > 0; });
    report["ideal_ns"] = iteration.ops.empty() ? Json(nullptr) : Json(ideal.value);
    const auto speed = speed_of(run);
    const auto share = [](const std::optional<double>& eta) { return eta ? Json(*eta) : Json(nullptr); };
    report["iteration_ns"] = speed ? Json(speed->time.value) : Json(nullptr);
    report["iteration_ops"] = speed ? Json(speed->ops ? speed->ops : static_cast<Count>(iteration.ops.size())) : Json(nullptr);
    report["iteration_by"] = speed ? Json(speed->by) : Json(nullptr);
#define FIGURE(type, name) report[#name] = raw(run.summary.name);
#include "profiler/trace/run_record.def"
#undef FIGURE
    // Kinds of iterations; the figure of that name is how many were followed.
    // What was learned is told at the end; null: the run was killed before.
    const bool told = !run.sequences.empty() || !run.summary.iterations;
    report["iterations"] = {{"found", iteration.ops.empty() ? 0 : 1}, {"learned", told ? Json(run.sequences.size()) : Json(nullptr)}, {"planned", told ? Json(planned) : Json(nullptr)}, {"followed", run.summary.iterations}};
    if (bare) {
        report["ops"] = iteration.ops.size();
        report["peak_live_bytes"] = peak_live(iteration).value;
    }
    report["mispredictions"] = run.summary.strayed;
    report["eta_ideal"] = speed ? share(speed->eta_ideal) : Json(nullptr);
    report["eta_bound"] = speed ? share(speed->eta_bound) : Json(nullptr);
    report["events_dropped"] = run.events_dropped;
    report["link"] = run.links.empty() ? Json(nullptr) : Json::array();
    for (const RunLink& link : run.links) report["link"].push_back(link_of(link));
    report["models"] = of.models;
    report["devices"] = Json::array();
    for (const RunConfig& config : run.configs) report["devices"].push_back(config_of(config));
    report["buffers"] = Json::array();
    for (const BufferMoves& buffer : run.buffers) report["buffers"].push_back(buffer_of(buffer));
    report["events"] = counts_of(run.events);
    report["trace"] = run.path;
    report["rank"] = run.header.rank;
    report["local_rank"] = run.header.local_rank;
    report["world_size"] = run.header.world_size;
    report["searched"] = run.searched;
    report["damage"] = run.damaged > 0 ? Json(damage_of(run)) : Json(nullptr);
    report["out_of_memory"] = Json::array();
    for (const OutOfMemory& refusal : run.refusals) report["out_of_memory"].push_back(refusal_of(refusal));
    add_plan_fields(report, run);
    report["ranges"] = ranges_of(iteration);
    report["iteration"] = iteration.ops.empty() ? Json(nullptr) : iteration_of(iteration, view);
    return report;
}

namespace {

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A CSV field: quoted where it must be (RFC 4180).
std::string field(const Json& value) {
    if (value.is_null()) return "";
    if (!value.is_string()) return dump(value);
    const auto text = Json::parse(dump(value)).get<std::string>();   // what is no UTF-8 replaced, as in JSON
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"') quoted += '"';
        quoted += c;
    }
    return quoted + '"';
}

}  // namespace

std::string report_json(std::span<const Report> reports) {
    std::string lines;
    for (const Report& report : reports) lines += dump(report_fields(report)) + "\n";
    return lines;
}

std::string report_csv(std::span<const Report> reports) {
    std::string heading, lines;
    for (const Report& report : reports) {
        std::string names, values;
        const Json fields = report_fields(report);
        for (const auto& [name, value] : fields.items()) {
            if (value.is_structured() || name == "link" || name == "models" || name == "iteration") continue;
            names += (names.empty() ? "" : ",") + name;
            values += (values.empty() ? "" : ",") + field(value);
        }
        heading = names;  // the same for every run
        lines += values + "\n";
    }
    return heading + "\n" + lines;
}

}  // namespace udnnmem::cli
