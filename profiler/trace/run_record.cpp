#include "profiler/trace/run_record.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "profiler/trace/record.hpp"
#include "profiler/trace/trace_io.hpp"

namespace udnnmem::profiler {
namespace {


bool read_figure(Record& record, const char* field, Count& to) { return record.read_integer_or(field, 0, most_value, 0, to); }
bool read_figure(Record& record, const char* field, Bytes& to) { return record.read_integer_or(field, 0, most_value, 0, to.value); }
bool read_figure(Record& record, const char* field, Nanoseconds& to) { return record.read_integer_or(field, 0, most_value, 0, to.value); }

bool read_device(Record& record, std::int32_t& to) {
    std::int64_t device = 0;
    if (!record.read_integer_or("device", 0, 1 << 20, 0, device)) return false;
    to = static_cast<std::int32_t>(device);
    return true;
}

bool read_rank(Record& record, const char* field, std::int32_t& to) {
    std::int64_t rank = -1;
    if (!record.read_integer_or(field, -1, INT32_MAX, -1, rank)) return false;
    to = static_cast<std::int32_t>(rank);
    return true;
}

// The entry of `list` for a device, made if there is none; the list ascends by device.
template <class T>
T& entry_of(std::vector<T>& list, std::int32_t device) {
    auto at = std::lower_bound(list.begin(), list.end(), device, [](const T& entry, std::int32_t d) { return entry.device < d; });
    if (at == list.end() || at->device != device) {
        at = list.emplace(at);
        at->device = device;
    }
    return *at;
}

// Nothing stays of a record that is not as it must be.
class RunReader {
  public:
    bool take(Record& record) {
        const std::string& kind = record.kind();
        if (!header_seen && !record.begins("header")) return false;
        if (kind == "header") return take_header(record);
        if (kind == "config") return take_config(record);
        if (kind == "link") return take_link(record);
        if (kind == "event") return take_event(record);
        if (kind == "out_of_memory") return take_refusal(record);
        if (kind == "sequence") return take_sequence(record);
        if (kind == "adaptation") return take_adaptation(record);
        if (kind == "step") return take_step(record);
        if (kind == "misprediction") return take_misprediction(record);
        if (kind == "not_replayable") return take_not_replayable(record);
        if (kind == "summary") return take_summary(record);
        if (kind == "learned") return record.read_integer_or("searched", 0, most_value, 0, run.searched);
        if (kind == "op" || kind == "buffer") iteration_seen = true;
        return true;
    }

    RunRecord finish() {
        for (auto& [key, moves] : moves_) run.buffers.push_back(moves);
        std::sort(run.buffers.begin(), run.buffers.end(), [](const BufferMoves& a, const BufferMoves& b) {
            const Bytes moved_a = a.in + a.out, moved_b = b.in + b.out;
            if (moved_a != moved_b) return moved_a > moved_b;
            return std::pair(a.device, a.buffer) < std::pair(b.device, b.buffer);
        });
        return std::move(run);
    }

    RunRecord run;
    bool header_seen = false;
    bool iteration_seen = false;

  private:
    bool take_header(Record& record) {
        if (header_seen) return record.fail("kind", "a trace has one header, this is the second");
        header_seen = true;
        std::int64_t schema = 0;
        std::string origin;
        if (!record.read_integer("schema", 1, most_value, schema)) return false;
        if (schema != 1) return record.fail("schema", fmt::format("must be 1, is {}: written by a newer version", schema));
        if (!record.read_text_or("name", "", run.header.name) || !record.read_text_or("origin", "", origin) ||
            !record.read_text_or("host", "", run.header.host) || !record.read_integer_or("pid", 0, most_value, 0, run.header.pid) ||
            !record.read_integer_or("started_unix_ns", 0, most_value, 0, run.header.started_unix_ns) || !read_rank(record, "rank", run.header.rank) ||
            !read_rank(record, "local_rank", run.header.local_rank) || !read_rank(record, "world_size", run.header.world_size))
            return false;
        constexpr std::string_view ours = "udnnmem ";
        if (origin.compare(0, ours.size(), ours) == 0) run.header.version = origin.substr(ours.size());
        return true;
    }

    bool take_config(Record& record) {
        RunConfig config;
        const bool good = read_device(record, config.device) && record.read_text_or("device_name", "", config.device_name) && record.read_text_or("policy", "", config.policy) &&
               record.read_integer_or("memory_bytes", 0, most_value, 0, config.memory.value) &&
               record.read_integer_or("budget_bytes", 0, most_value, 0, config.budget.value) &&
               record.read_integer_or("host_budget_bytes", 0, INT64_MAX, 0, config.host_budget.value) &&
               record.read_integer_or("granule_bytes", 0, most_value, 0, config.granule.value) && record.read_number_or("verify", 0, 0, config.verify);
        if (good) entry_of(run.configs, config.device) = std::move(config);
        return good;
    }

    bool take_link(Record& record) {
        std::int32_t device = 0;
        if (!read_device(record, device)) return false;
        std::vector<RunLink> links = run.links;
        RunLink& link = entry_of(links, device);   // keeps the sizes, where this says none
        const bool good = record.read_number_or("in_bytes_per_second", 0, 0, link.in_bytes_per_second) &&
               record.read_number_or("out_bytes_per_second", 0, 0, link.out_bytes_per_second) &&
               record.read_number_or("both_in_bytes_per_second", 0, 0, link.both_in_bytes_per_second) &&
               record.read_number_or("both_out_bytes_per_second", 0, 0, link.both_out_bytes_per_second) && take_sizes(record, link);
        if (good && links.size() == run.links.size()) run.remeasured.push_back(device);
        if (good) run.links = std::move(links);
        return good;
    }

    bool take_sizes(Record& record, RunLink& link) {
        if (!record.has("sizes")) return true;
        if (!record.read_integers("sizes", 0, most_value, link.sizes) || !record.read_integers("in_by_size", 0, most_value, link.in_by_size) || !record.read_integers("out_by_size", 0, most_value, link.out_by_size)) return false;
        return (link.sizes.size() == link.in_by_size.size() && link.sizes.size() == link.out_by_size.size()) || record.fail("sizes", "must be as many as in_by_size and out_by_size");
    }

    bool take_event(Record& record) {
        std::string name;
        std::int64_t buffer = 0;
        RunEvent event;
        if (!record.read_text("event", name)) return false;
        const auto kind = std::find(std::begin(event_kind_names), std::end(event_kind_names), name);
        if (kind == std::end(event_kind_names)) return true;  // a newer version's
        event.kind = static_cast<EventKind>(kind - std::begin(event_kind_names));
        if (!read_device(record, event.device) || !record.read_integer_or("buffer", -1, INT32_MAX, -1, buffer) ||
            !record.read_integer_or("bytes", 0, most_value, 0, event.bytes.value) || !record.read_integer_or("start_ns", 0, most_value, 0, event.start.value) ||
            !record.read_integer_or("end_ns", event.start.value, most_value, event.start.value, event.end.value))
            return false;
        event.buffer = BufferId(static_cast<std::int32_t>(buffer));
        add(event);
        return true;
    }

    bool take_refusal(Record& record) {
        OutOfMemory refusal;
        if (!read_device(record, refusal.device) || !record.read_text_or("what", "", refusal.what) || !record.read_text_or("largest_op", "", refusal.largest_op)) return false;
        for (const auto& [field, to] : {std::pair{"at_ns", &refusal.at.value}, {"wanted_bytes", &refusal.wanted.value}, {"live_bytes", &refusal.live.value},
                                        {"device_bytes", &refusal.on_device.value}, {"host_bytes", &refusal.on_host.value}, {"budget_bytes", &refusal.budget.value},
                                        {"host_budget_bytes", &refusal.host_budget.value}, {"enough_bytes", &refusal.enough.value}, {"largest_op_bytes", &refusal.largest_op_bytes.value}})
            if (!record.read_integer_or(field, 0, INT64_MAX, 0, *to)) return false;
        // Three lists side by side: numbers, sizes, and 1 for those on the host.
        std::vector<std::int64_t> ids, sizes, hosts;
        if (!record.read_integers("buffers", -1, INT32_MAX, ids) || !record.read_integers("buffer_bytes", 0, most_value, sizes) || !record.read_integers("on_host", 0, 1, hosts)) return false;
        if (sizes.size() != ids.size() || hosts.size() != ids.size()) return record.fail("buffer_bytes", "must have as many entries as buffers");
        for (std::size_t i = 0; i < ids.size(); ++i) refusal.largest.push_back({BufferId(static_cast<std::int32_t>(ids[i])), Bytes(sizes[i]), hosts[i] == 1});
        run.refusals.push_back(std::move(refusal));
        return true;
    }

    bool take_sequence(Record& record) {
        RunSequence s;
        std::int64_t id = 0;
        if (!record.read_integer("id", 0, INT32_MAX, id) || !record.read_text_or("first", "", s.first) || !record.read_text_or("no_plan", "", s.no_plan)) return false;
        s.id = static_cast<std::int32_t>(id);
        for (const auto& [field, to] : {std::pair{"ops", &s.ops}, {"turns", &s.turns}, {"iterations", &s.iterations}, {"planned_iterations", &s.planned_iterations}, {"given_up", &s.given_up},
                                        {"peak_promised_bytes", &s.peak_promised.value}, {"peak_bytes", &s.peak.value}, {"ideal_ns", &s.ideal.value}, {"promised_ns", &s.promised.value}, {"planned_ns", &s.planned.value}, {"demand_ns", &s.demand.value}})
            if (!record.read_integer_or(field, 0, most_value, 0, *to)) return false;
        run.sequences.push_back(std::move(s));
        return true;
    }

    bool take_adaptation(Record& record) {
        Adaptation a;
        std::int64_t id = 0;
        if (!record.read_integer("sequence", 0, INT32_MAX, id) || !record.read_text_or("change", "", a.change) || !record.read_integer_or("before_ns", 0, most_value, 0, a.before.value) ||
            !record.read_integer_or("promised_ns", 0, most_value, 0, a.promised.value) || !record.read_integer_or("measured_ns", 0, most_value, 0, a.measured.value) || !record.read_flag_or("kept", false, a.kept))
            return false;
        a.sequence = static_cast<std::int32_t>(id);
        run.adaptations.push_back(std::move(a));
        return true;
    }

    bool take_step(Record& record) {
        RunStep s;
        std::int64_t sequence = 0, index = 0, cause = -1, buffer = -1;
        if (!record.read_integer("sequence", 0, INT32_MAX, sequence) || !record.read_integer("index", 0, INT32_MAX, index) || !record.read_text_or("name", "", s.name) ||
            !record.read_integer_or("cause", -1, static_cast<std::int64_t>(std::size(held_causes)) - 1, -1, cause) || !record.read_integer_or("buffer", -1, INT32_MAX, -1, buffer))
            return false;
        for (const auto& [field, to] : {std::pair{"planned_start_ns", &s.planned_start.value}, {"start_ns", &s.start.value}, {"planned_ns", &s.planned.value}, {"took_ns", &s.took.value},
                                        {"held_ns", &s.held.value}, {"held_times", &s.held_times}})
            if (!record.read_integer_or(field, -1, most_value, -1, *to)) return false;
        s.sequence = static_cast<std::int32_t>(sequence), s.index = static_cast<std::int32_t>(index), s.cause = static_cast<std::int32_t>(cause);
        s.buffer = BufferId(static_cast<std::int32_t>(buffer));
        run.steps.push_back(std::move(s));
        return true;
    }

    bool take_not_replayable(Record& record) {
        NotReplayable r;
        if (!record.read_text_or("kernel", "", r.kernel) || !record.read_text_or("why", "", r.why) || !record.read_integer_or("ops", 0, most_value, 0, r.ops)) return false;
        run.not_replayable.push_back(std::move(r));
        return true;
    }

    bool take_misprediction(Record& record) {
        Misprediction m;
        if (!record.read_text_or("expected", "", m.expected) || !record.read_text_or("seen", "", m.seen) || !record.read_integer_or("times", 0, most_value, 0, m.times)) return false;
        run.mispredictions.push_back(std::move(m));
        return true;
    }

    void add(const RunEvent& event) {
        const auto kind = static_cast<std::size_t>(event.kind);
        ++run.events[kind];
        run.moves.push_back(event);
        if (event.buffer.value < 0) return;
        BufferMoves& moves = moves_[{event.device, event.buffer.value}];
        moves.device = event.device;
        moves.buffer = event.buffer;
        moves.bytes = std::max(moves.bytes, event.bytes);
        ++moves.events[kind];
        // Sums saturate: a file that nobody wrote may hold anything.
        const auto sum = [](auto a, auto b) { return a.value > most_value - b.value ? decltype(a)(most_value) : a + b; };
        if (event.kind == EventKind::fetch) moves.in = sum(moves.in, event.bytes);
        if (event.kind == EventKind::evict || event.kind == EventKind::clean) moves.out = sum(moves.out, event.bytes);
        if (event.kind == EventKind::stall) moves.stall = sum(moves.stall, event.end - event.start);
    }

    bool take_summary(Record& record) {
        RunSummary summary;
        Count dropped = 0;
        bool last = false;
#define FIGURE(type, name) \
    if (!read_figure(record, #name, summary.name)) return false;
#include "profiler/trace/run_record.def"
#undef FIGURE
        if (!record.read_integer_or("events_dropped", 0, most_value, 0, dropped) || !record.read_flag_or("last", false, last)) return false;
        run.has_summary = true;
        run.summary = summary, run.events_dropped = dropped, run.ended = last;
        return true;
    }

    std::map<std::pair<std::int32_t, std::int32_t>, BufferMoves> moves_;
};

}  // namespace

namespace {

std::string_view lines_before(std::string_view text, std::int64_t line) {
    std::size_t end = 0;
    for (; line > 1; --line) end = text.find('\n', end) + 1;
    return text.substr(0, end);
}

}  // namespace

Expected<RunRecord> parse_run(const std::string& name, std::string_view text) {
    RunReader reader;
    const auto damaged = read_records(name, "a trace", text, [&](Record& record) { return reader.take(record); }, Invalid::damage);
    if (!damaged) return tl::make_unexpected(damaged.error());
    if (!reader.header_seen) return tl::make_unexpected(Error{fmt::format("{}: line 1: header: is missing: not a trace, or cut short before its first line was whole", name)});
    RunRecord run = reader.finish();
    run.path = name;
    run.damaged = damaged->line;
    run.cut_short = damaged->cut_short;
    run.damage = damaged->why;
    if (reader.iteration_seen) {
        auto iteration = parse_trace_to_damage(name, damaged->line ? lines_before(text, damaged->line) : text);
        if (!iteration) return tl::make_unexpected(iteration.error());
        if (!iteration->damage.empty()) {  // only what stands before it is the run's
            auto before = parse_run(name, lines_before(text, iteration->damaged));
            if (!before) return before;
            run = std::move(*before);
            run.damaged = iteration->damaged;
            run.damage = iteration->damage;
        } else {
            run.iteration = std::move(*iteration);
            if (!run.damaged) run.damaged = run.iteration.damaged;
        }
    }
    const bool told = run.has_summary || !run.configs.empty() || !run.moves.empty() || !run.refusals.empty() || !run.iteration.ops.empty();
    if (!told && !run.damage.empty()) return tl::make_unexpected(Error{fmt::format("{}: line {}: {}", name, run.damaged, run.damage)});
    return run;
}

Expected<RunRecord> read_run(const std::string& path) {
    const auto text = read_text(path);
    if (!text) return tl::make_unexpected(text.error());
    return parse_run(path, *text);
}

Bytes peak_live(const Trace& iteration) {
    const std::size_t count = iteration.ops.size();
    std::vector<std::int32_t> first(iteration.buffers.size(), -1), last(iteration.buffers.size(), -1);
    for (const TraceOp& op : iteration.ops) {
        for (const auto* set : {&op.reads, &op.writes}) {
            for (const BufferId id : *set) {
                const auto i = static_cast<std::size_t>(id.value);
                if (first[i] < 0) first[i] = op.index.value;
                last[i] = op.index.value;
            }
        }
    }
    Bytes persistent;
    std::vector<std::int64_t> change(count + 1, 0);
    for (const TraceBuffer& buffer : iteration.buffers) {
        const auto i = static_cast<std::size_t>(buffer.id.value);
        if (buffer.persistent) {
            persistent += buffer.bytes;
            continue;
        }
        const std::int32_t begin = buffer.alloc_op.value >= 0 ? buffer.alloc_op.value : first[i];
        const std::int32_t end = buffer.free_op.value >= 0 ? buffer.free_op.value : last[i];
        if (begin < 0 || end < begin) continue;  // no op names it
        change[static_cast<std::size_t>(begin)] += buffer.bytes.value;
        change[static_cast<std::size_t>(end) + 1] -= buffer.bytes.value;
    }
    Bytes live = persistent, peak = persistent;
    for (const TraceOp& op : iteration.ops) {
        live += Bytes(change[static_cast<std::size_t>(op.index.value)]);
        peak = std::max(peak, live + op.workspace);
    }
    return peak;
}

}  // namespace udnnmem::profiler
