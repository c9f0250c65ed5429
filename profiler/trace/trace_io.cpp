#include "profiler/trace/trace_io.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "profiler/trace/record.hpp"

namespace udnnmem::profiler {
namespace {

constexpr std::int64_t most_ops = 1 << 30;
constexpr std::int64_t schema = 1;
constexpr std::size_t most_kept = 16;   // iterations that a run learned

Phase phase_of(const std::string& name) {
    if (name == "forward") return Phase::forward;
    if (name == "backward") return Phase::backward;
    if (name == "update" || name == "optimizer") return Phase::update;
    return Phase::unknown;
}

// Collects the records of one file; `sizes_`, `workspace_` (the largest) and `times_` guard every later sum against overflow.
class TraceReader {
public:
    bool take(Record& record) {
        last_line_ = record.line();
        const std::string& kind = record.kind();
        if (!header_seen_ && !record.begins("header")) return false;
        if (kind == "header") return take_header(record);
        if (kind == "buffer") return take_buffer(record);
        if (kind == "op") return take_op(record);
        if (kind == "learned") return take_learned(record);
        if (kind == "unchanged") return take_unchanged(record);
        if (kind == "times") return take_times(record);
        if (kind == "repeated") return take_repeated(record);
        if (kind == "sequence") return take_sequence(record);
        return true;
    }

    // The file has ended: of the iterations that its run learned, and of which all ops are there, the one that was most of the run.
    void end() {
        if (learned_ && !lacks_ops()) keep();
        if (kept_.empty()) return;
        const Kept* shown = most_of(followed_);
        if (!shown) shown = most_of(repeated_);
        if (!shown) shown = &kept_.back();
        expected_ = static_cast<std::int64_t>(shown->trace.ops.size());
        times_ = shown->times;
        trace_ = shown->trace;
    }
    bool lacks_ops() const { return static_cast<std::int64_t>(trace_.ops.size()) < expected_; }   // that the run said are there
    bool header_seen() const { return header_seen_; }
    std::int64_t last_line() const { return last_line_; }
    Nanoseconds told() const { return Nanoseconds(times_); }
    Trace& trace() { return trace_; }

private:
    struct Kept {
        Trace trace;
        std::int64_t first_op, times;   // ops of the run before it, ns of its ops
    };
    struct Repeats {
        std::int64_t period = 0, first_op = -1, ops = 0;   // of one of those; the last: ops of the run that it was
        bool are(const Kept& k) const { return period == static_cast<std::int64_t>(k.trace.ops.size()) && first_op == k.first_op; }
    };

    bool take_header(Record& record) {
        if (header_seen_) return record.fail("kind", "a trace has one header, this is the second");
        header_seen_ = true;
        TraceHeader& header = trace_.header;
        std::int64_t version = 0;
        if (!record.read_integer("schema", 1, most_value, version)) return false;
        if (version != schema) return record.fail("schema", fmt::format("must be {}, is {}: written by a newer version", schema, version));
        return record.read_text_or("name", "", header.name) && record.read_text_or("origin", "", header.origin) &&
               record.read_text_or("device", "", header.device) && record.read_integer_or("batch", 0, INT32_MAX, 0, header.batch) &&
               record.read_integer_or("memory_bytes", 0, most_value, 0, header.memory.value) &&
               record.read_integer_or("ideal_ns", 0, most_value, 0, header.ideal.value) && record.read_text_or("timed_by", "", header.timed_by);
    }

    // A run's recorder found an iteration: what follows stands instead of what it thought before.
    bool take_learned(Record& record) {
        if (learned_ && !lacks_ops()) keep();
        learned_ = true;
        if (!record.read_integer_or("ideal_ns", 0, most_value, 0, trace_.header.ideal.value) || !record.read_integer_or("ops", 0, most_ops, 0, expected_) || !record.read_text_or("timed_by", "", trace_.header.timed_by) || !record.read_integer_or("first_op", 0, most_value, 0, first_op_)) return false;
        trace_.buffers.clear();
        trace_.ops.clear();
        sizes_ = workspace_ = times_ = 0;
        return true;
    }

    void keep() {
        if (trace_.ops.empty()) return;
        if (kept_.size() == most_kept) kept_.erase(kept_.begin());
        kept_.push_back({trace_, first_op_, times_});
    }

    // The one that was most of the run. Null: `of` is empty, or that is none of those here, as a stored one.
    const Kept* most_of(const std::vector<Repeats>& of) const {
        const auto longest = std::max_element(of.begin(), of.end(), [](const Repeats& a, const Repeats& b) { return a.ops < b.ops; });
        const auto found = longest == of.end() ? kept_.end() : std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return longest->are(k); });
        return found == kept_.end() ? nullptr : &*found;
    }

    // Each iteration so far, the newest one, of which ops may still come, last.
    template <class Each>
    void each(Each act) {
        for (Kept& k : kept_) act(k.trace, k.first_op, k.times);
        act(trace_, first_op_, times_);
    }

    // How many ops of the run an iteration was: while it was learned ...
    bool take_repeated(Record& record) {
        Repeats r;
        if (!record.read_integer("ops", 0, most_ops, r.period) || !record.read_integer("first_op", 0, most_value, r.first_op) || !record.read_integer("for_ops", 0, most_value, r.ops)) return false;
        repeated_.push_back(r);
        return true;
    }
    // ... and, which says more, followed to its end.
    bool take_sequence(Record& record) {
        Repeats r;
        std::int64_t iterations = 0;
        if (!record.read_integer_or("ops", 0, most_value, 0, r.period) || !record.read_integer_or("iterations", 0, most_value, 0, iterations) || !record.read_integer_or("first_op", -1, most_value, -1, r.first_op)) return false;
        r.ops = r.period > 0 ? std::min(iterations, most_value / r.period) * r.period : 0;
        if (r.ops) followed_.push_back(r);
        return true;
    }

    // Of an iteration of so many ops: one of them was not seen to write these, so it only reads them.
    bool take_unchanged(Record& record) {
        std::int64_t ops = 0, at = 0;
        std::vector<std::int64_t> buffers;
        std::string name;
        if (!record.read_text_or("name", "", name) || !record.read_integer("ops", 0, most_ops, ops) || !record.read_integer("op", 0, most_ops, at) || !record.read_integers("buffers", 0, INT32_MAX, buffers)) return false;
        each([&](Trace& trace, std::int64_t, std::int64_t) {
            if (ops != static_cast<std::int64_t>(trace.ops.size()) || at >= ops) return;
            TraceOp& op = trace.ops[static_cast<std::size_t>(at)];
            if (!name.empty() && name != op.name) return;   // another iteration, of as many ops
            std::erase_if(op.writes, [&](BufferId id) {
                const std::int32_t run_id = trace.buffers[static_cast<std::size_t>(id.value)].run_id;
                return run_id >= 0 && std::find(buffers.begin(), buffers.end(), run_id) != buffers.end() && std::find(op.reads.begin(), op.reads.end(), id) != op.reads.end();
            });
        });
        return ops != static_cast<std::int64_t>(trace_.ops.size()) || at < ops || record.fail("op", fmt::format("must be below {}, the number of ops", ops));
    }

    // Of the same: its ops were seen to take less, later in the run.
    bool take_times(Record& record) {
        std::int64_t ops = 0, first_op = 0;
        std::vector<std::int64_t> durations;
        if (!record.read_integer("ops", 0, most_ops, ops) || !record.read_integer_or("first_op", -1, most_value, -1, first_op) || !record.read_integers("duration_ns", 0, most_value, durations)) return false;
        if (static_cast<std::int64_t>(durations.size()) != ops) return record.fail("duration_ns", fmt::format("must be {} numbers, one for each op, is {}", ops, durations.size()));
        std::int64_t sum = 0;
        for (const std::int64_t d : durations) {
            if (d > most_value - sum) return record.fail("duration_ns", "the times of all ops exceed 2^62 ns");
            sum += d;
        }
        each([&](Trace& trace, std::int64_t begin, std::int64_t& times) {
            if (durations.size() != trace.ops.size() || first_op != begin) return;
            for (std::size_t k = 0; k < durations.size(); ++k) trace.ops[k].duration = Nanoseconds(durations[k]);
            times = sum;
            trace.header.ideal = Nanoseconds(sum);
        });
        return true;
    }

    bool take_buffer(Record& record) {
        TraceBuffer buffer;
        std::int64_t id = 0, alloc = -1, free = -1, run_id = -1;
        const auto next = static_cast<std::int64_t>(trace_.buffers.size());
        if (!record.read_integer("id", 0, most_ops, id)) return false;
        if (id != next) return record.fail("id", fmt::format("buffers come in ascending order from 0: must be {}, is {}", next, id));
        if (!record.read_integer("bytes", 0, most_value, buffer.bytes.value) || !record.read_flag_or("persistent", false, buffer.persistent) ||
            !record.read_text_or("label", "", buffer.label) || !record.read_integer_or("alloc_op", -1, most_ops, -1, alloc) ||
            !record.read_integer_or("free_op", -1, most_ops, -1, free) || !record.read_integer_or("run_id", -1, INT32_MAX, -1, run_id))
            return false;
        buffer.run_id = static_cast<std::int32_t>(run_id);
        if (buffer.bytes.value > most_value - workspace_ - sizes_) return record.fail("bytes", "the sizes of all buffers exceed 2^62 bytes");
        sizes_ += buffer.bytes.value;
        if (alloc >= 0 && free >= 0 && alloc > free) return record.fail("free_op", fmt::format("is {}, before its alloc_op {}", free, alloc));
        buffer.id = BufferId(static_cast<std::int32_t>(id));
        if (!buffer.persistent) {
            buffer.alloc_op = OpIndex(static_cast<std::int32_t>(alloc));
            buffer.free_op = OpIndex(static_cast<std::int32_t>(free));
        }
        trace_.buffers.push_back(std::move(buffer));
        return true;
    }

    bool take_access_set(Record& record, const char* field, std::int32_t op, std::vector<BufferId>& to) {
        if (!record.has(field)) return true;
        if (!record.read_integers(field, INT64_MIN, INT64_MAX, ids_)) return false;
        std::sort(ids_.begin(), ids_.end());
        ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
        to.reserve(ids_.size());
        for (const std::int64_t id : ids_) {
            if (id < 0 || id >= static_cast<std::int64_t>(trace_.buffers.size()))
                return record.fail(field, fmt::format("names buffer {}, which no earlier line defines", id));
            const TraceBuffer& buffer = trace_.buffers[static_cast<std::size_t>(id)];
            if (buffer.alloc_op.value > op) return record.fail(field, fmt::format("names buffer {} before its alloc_op {}", id, buffer.alloc_op.value));
            if (buffer.free_op.value >= 0 && buffer.free_op.value < op)
                return record.fail(field, fmt::format("names buffer {} after its free_op {}", id, buffer.free_op.value));
            to.push_back(BufferId(static_cast<std::int32_t>(id)));
        }
        return true;
    }

    bool take_waits(Record& record, TraceOp& op) {
        std::int64_t host = -1;
        if (!record.read_integer_or("host_waited", -1, most_ops, -1, host)) return false;
        op.host_waited = OpIndex(static_cast<std::int32_t>(host));
        if (!record.has("waits")) return true;
        if (!record.read_integers("waits", 0, most_ops, ids_)) return false;
        std::sort(ids_.begin(), ids_.end());
        for (const std::int64_t k : ids_) op.waits.emplace_back(static_cast<std::int32_t>(k));
        return true;
    }

    bool take_op(Record& record) {
        TraceOp op;
        std::int64_t index = 0, stream = 0;
        std::string phase;
        const auto next = static_cast<std::int64_t>(trace_.ops.size());
        if (!record.read_integer("index", 0, most_ops, index)) return false;
        if (index != next) return record.fail("index", fmt::format("ops come in ascending order from 0: must be {}, is {}", next, index));
        op.index = OpIndex(static_cast<std::int32_t>(index));
        if (!record.read_text_or("name", "", op.name) || !record.read_text_or("phase", "", phase) || !record.read_text_or("range", "", op.range) || !record.read_text_or("call", "", op.call) ||
            !record.read_integer_or("stream", INT32_MIN, INT32_MAX, 0, stream) || !record.read_integer("duration_ns", 0, most_value, op.duration.value) ||
            !take_access_set(record, "reads", op.index.value, op.reads) || !take_access_set(record, "writes", op.index.value, op.writes) ||
            !record.read_integer_or("start_ns", -1, most_value, -1, op.start.value) || !take_waits(record, op) ||
            !record.read_integer_or("workspace_bytes", 0, most_value, 0, op.workspace.value) || !record.read_flag_or("replayable", false, op.replayable) ||
            !record.read_number_or("flops", 0, 0, op.flops))
            return false;
        if (op.duration.value > most_value - times_) return record.fail("duration_ns", "the times of all ops exceed 2^62 ns");
        times_ += op.duration.value;
        workspace_ = std::max(workspace_, op.workspace.value);
        if (workspace_ > most_value - sizes_) return record.fail("workspace_bytes", "with the sizes of all buffers exceeds 2^62 bytes");
        op.phase = phase_of(phase);
        op.stream = static_cast<std::int32_t>(stream);
        trace_.ops.push_back(std::move(op));
        return true;
    }

    Trace trace_;
    std::vector<Kept> kept_;
    std::vector<Repeats> repeated_, followed_;
    bool learned_ = false;        // trace_ is one that a run learned ...
    std::int64_t first_op_ = 0;   // ... after so many ops
    std::int64_t expected_ = 0;   // ops of trace_; 0: not said
    bool header_seen_ = false;
    std::int64_t sizes_ = 0, workspace_ = 0, times_ = 0, last_line_ = 0;
    std::vector<std::int64_t> ids_;
};

// The line from which on a trace is lost. The file of a run that was killed may end within a line, its iteration is whole
// where the ops take what was said; a file that was copied in part may end with a whole line, and its ops take less than its
// header says, by more than what is rounded there, or are fewer than the run said.
std::int64_t first_lost(const Damage& seen, const Trace& trace, bool lacks_ops, Nanoseconds told, std::int64_t last_line) {
    const Nanoseconds ideal = trace.header.ideal;
    if (seen.cut_short && ideal.value > 0 && told >= ideal && !lacks_ops) return 0;
    const bool short_of_time = told < ideal && (ideal - told).value > ideal.value / 100;
    return seen.line == 0 && (short_of_time || lacks_ops) ? last_line + 1 : seen.line;
}

// A file that ends early names frees, buffers and ops that its ops never reach. What no op names lives from its alloc_op to the
// iteration's end, or from its begin to its free_op, where it states but one of them.
void clip(Trace& trace) {
    const auto count = static_cast<std::int32_t>(trace.ops.size());
    for (TraceBuffer& buffer : trace.buffers) {
        if (buffer.alloc_op.value >= count) buffer.alloc_op = buffer.free_op = OpIndex(-1);
        if (buffer.free_op.value >= count) buffer.free_op = OpIndex(count - 1);
    }
    for (TraceOp& op : trace.ops) {
        std::erase_if(op.waits, [&](OpIndex k) { return k.value >= count; });
        if (op.host_waited.value >= count) op.host_waited = OpIndex(-1);
    }
    std::vector<bool> named(trace.buffers.size(), false);
    for (const TraceOp& op : trace.ops)
        for (const auto* set : {&op.reads, &op.writes})
            for (const BufferId id : *set) named[static_cast<std::size_t>(id.value)] = true;
    for (TraceBuffer& buffer : trace.buffers) {
        if (named[static_cast<std::size_t>(buffer.id.value)] || (buffer.alloc_op.value < 0) == (buffer.free_op.value < 0)) continue;
        if (buffer.alloc_op.value < 0) buffer.alloc_op = OpIndex(0);
        else buffer.free_op = OpIndex(count - 1);
    }
}

// Text as a JSON string.
std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class Id>
void append_ids(std::string& to, const std::vector<Id>& ids) {
    to += '[';
    for (std::size_t i = 0; i < ids.size(); ++i) fmt::format_to(std::back_inserter(to), "{}{}", i ? "," : "", ids[i].value);
    to += ']';
}

}  // namespace

const char* name_of(Phase phase) {
    switch (phase) {
        case Phase::forward: return "forward";
        case Phase::backward: return "backward";
        case Phase::update: return "update";
        case Phase::unknown: break;
    }
    return "unknown";
}

namespace {

Expected<Trace> parse(const std::string& name, std::string_view text, Invalid invalid) {
    TraceReader reader;
    const auto damaged = read_records(name, "a trace", text, [&](Record& record) { return reader.take(record); }, invalid);
    if (!damaged) return tl::make_unexpected(damaged.error());
    if (!reader.header_seen()) return tl::make_unexpected(Error{fmt::format("{}: line 1: header: is missing: not a trace", name)});
    const bool lacks_ops = reader.lacks_ops();
    reader.end();
    clip(reader.trace());
    reader.trace().damaged = first_lost(*damaged, reader.trace(), lacks_ops, reader.told(), reader.last_line());
    reader.trace().damage = damaged->why;
    return std::move(reader.trace());
}

}  // namespace

Expected<Trace> parse_trace(const std::string& name, std::string_view text) { return parse(name, text, Invalid::refused); }

Expected<Trace> parse_trace_to_damage(const std::string& name, std::string_view text) { return parse(name, text, Invalid::damage); }

Expected<Trace> read_trace(const std::string& path) {
    auto text = read_text(path);
    if (!text) return tl::make_unexpected(text.error());
    return parse_trace(path, *text);
}

Expected<void> validate(const Trace& trace) {
    const auto wrong = [](std::string what) { return tl::make_unexpected(Error{std::move(what)}); };
    const auto count = static_cast<std::int32_t>(trace.ops.size());
    std::int64_t sizes = 0, times = 0;
    for (std::size_t i = 0; i < trace.buffers.size(); ++i) {
        const TraceBuffer& buffer = trace.buffers[i];
        if (buffer.id.value != static_cast<std::int32_t>(i)) return wrong(fmt::format("buffer {}: id: must be its position, is {}", i, buffer.id.value));
        if (buffer.bytes.value < 0 || buffer.bytes.value > most_value - sizes) return wrong(fmt::format("buffer {}: bytes: negative, or the sum exceeds 2^62", i));
        sizes += buffer.bytes.value;
        if (buffer.alloc_op.value < -1 || buffer.alloc_op.value >= count) return wrong(fmt::format("buffer {}: alloc_op: no such op {}", i, buffer.alloc_op.value));
        if (buffer.free_op.value < -1 || buffer.free_op.value >= count) return wrong(fmt::format("buffer {}: free_op: no such op {}", i, buffer.free_op.value));
        if (buffer.free_op.value >= 0 && buffer.alloc_op.value > buffer.free_op.value)
            return wrong(fmt::format("buffer {}: free_op: is {}, before its alloc_op {}", i, buffer.free_op.value, buffer.alloc_op.value));
        if (buffer.persistent && (buffer.alloc_op.value >= 0 || buffer.free_op.value >= 0)) return wrong(fmt::format("buffer {}: alloc_op: a persistent buffer has none", i));
    }
    for (std::size_t k = 0; k < trace.ops.size(); ++k) {
        const TraceOp& op = trace.ops[k];
        if (op.index.value != static_cast<std::int32_t>(k)) return wrong(fmt::format("op {}: index: must be its position, is {}", k, op.index.value));
        if (op.duration.value < 0 || op.duration.value > most_value - times) return wrong(fmt::format("op {}: duration_ns: negative, or the sum exceeds 2^62", k));
        times += op.duration.value;
        const auto exists = [&](OpIndex i) { return i.value >= 0 && i.value < count; };
        if (!std::all_of(op.waits.begin(), op.waits.end(), exists) || !std::is_sorted(op.waits.begin(), op.waits.end())) return wrong(fmt::format("op {}: waits: not ascending, or not of ops that exist", k));
        if (op.host_waited.value != -1 && !exists(op.host_waited)) return wrong(fmt::format("op {}: host_waited: no such op {}", k, op.host_waited.value));
        if (op.workspace.value < 0 || op.workspace.value > most_value - sizes) return wrong(fmt::format("op {}: workspace_bytes: negative, or above 2^62 with all buffers", k));
        for (const auto* set : {&op.reads, &op.writes}) {
            const char* field = set == &op.reads ? "reads" : "writes";
            for (std::size_t i = 0; i < set->size(); ++i) {
                const std::int32_t id = (*set)[i].value;
                if (id < 0 || static_cast<std::size_t>(id) >= trace.buffers.size()) return wrong(fmt::format("op {}: {}: no such buffer {}", k, field, id));
                if (i && (*set)[i - 1] >= (*set)[i]) return wrong(fmt::format("op {}: {}: not ascending", k, field));
                const TraceBuffer& buffer = trace.buffers[static_cast<std::size_t>(id)];
                if (buffer.alloc_op > op.index || (buffer.free_op.value >= 0 && buffer.free_op < op.index))
                    return wrong(fmt::format("op {}: {}: buffer {} is not allocated then", k, field, id));
            }
        }
    }
    return {};
}

std::string format_trace(const Trace& trace) {
    const TraceHeader& header = trace.header;
    std::string text = fmt::format("{{\"kind\":\"header\",\"schema\":{},\"name\":{},\"batch\":{},\"origin\":{},\"ideal_ns\":{},\"device\":{},\"memory_bytes\":{}", schema,
                                   quoted(header.name), header.batch, quoted(header.origin), header.ideal.value, quoted(header.device), header.memory.value);
    if (!header.timed_by.empty()) text += ",\"timed_by\":" + quoted(header.timed_by);
    text += "}\n";
    const auto out = std::back_inserter(text);
    for (const TraceBuffer& buffer : trace.buffers) {
        fmt::format_to(out, "{{\"kind\":\"buffer\",\"id\":{},\"bytes\":{},\"persistent\":{},\"label\":{}", buffer.id.value, buffer.bytes.value, buffer.persistent, quoted(buffer.label));
        if (buffer.alloc_op.value >= 0) fmt::format_to(out, ",\"alloc_op\":{}", buffer.alloc_op.value);
        if (buffer.free_op.value >= 0) fmt::format_to(out, ",\"free_op\":{}", buffer.free_op.value);
        if (buffer.run_id >= 0) fmt::format_to(out, ",\"run_id\":{}", buffer.run_id);
        text += "}\n";
    }
    for (const TraceOp& op : trace.ops) {
        fmt::format_to(out, "{{\"kind\":\"op\",\"index\":{},\"name\":{},\"phase\":\"{}\",\"stream\":{},\"duration_ns\":", op.index.value, quoted(op.name), name_of(op.phase), op.stream);
        if (op.start.value >= 0) fmt::format_to(out, "{},\"start_ns\":{},\"reads\":", op.duration.value, op.start.value);
        else fmt::format_to(out, "{},\"reads\":", op.duration.value);
        append_ids(text, op.reads);
        text += ",\"writes\":";
        append_ids(text, op.writes);
        if (!op.waits.empty()) text += ",\"waits\":", append_ids(text, op.waits);
        if (op.host_waited.value >= 0) fmt::format_to(out, ",\"host_waited\":{}", op.host_waited.value);
        if (!op.call.empty()) text += ",\"call\":" + quoted(op.call);
        if (!op.range.empty()) text += ",\"range\":" + quoted(op.range);
        fmt::format_to(out, ",\"workspace_bytes\":{},\"replayable\":{},\"flops\":{}}}\n", op.workspace.value, op.replayable, op.flops);
    }
    return text;
}

Expected<void> write_trace(const std::string& path, const Trace& trace) { return write_text(path, format_trace(trace)); }

}  // namespace udnnmem::profiler
