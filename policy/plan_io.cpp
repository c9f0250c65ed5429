#include "policy/plan_io.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "profiler/trace/record.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Record;

constexpr std::int64_t most = std::int64_t{1} << 62;
constexpr double slowest = 1e6;   // link, bytes per second

const char* name_of(Do what) {
    switch (what) {
        case Do::evict: return "evict";
        case Do::clean: return "clean";
        case Do::prefetch: return "prefetch";
        case Do::drop: return "drop";
        case Do::replay: return "replay";
    }
    return "";
}

class Reader {
public:
    explicit Reader(const profiler::Trace* trace)
        : last_op_(trace ? static_cast<std::int64_t>(trace->ops.size()) - 1 : INT32_MAX - 1),
          last_buffer_(trace ? static_cast<std::int64_t>(trace->buffers.size()) - 1 : INT32_MAX - 1),
          trace_(trace) {}

    bool take(Record& record) {
        const std::string& kind = record.kind();
        if (!seen_ && !record.begins("plan")) return false;
        if (kind == "plan") return take_plan(record);
        if (kind == "start_evicted") return take_start(record);
        if (kind == "action") return take_action(record);
        return true;
    }

    bool seen() const { return seen_; }
    PlanFile& file() { return file_; }

private:
    bool take_plan(Record& record) {
        if (seen_) return record.fail("kind", "a file holds one plan, this is the second");
        seen_ = true;
        return record.read_text_or("policy", "", file_.plan.policy) && record.read_text_or("trace", "", file_.trace) &&
               record.read_integer_or("memory_bytes", 0, most, 0, file_.memory.value) && read_link(record, "link_in", file_.link_in) &&
               read_link(record, "link_out", file_.link_out) && record.read_integer_or("time_ns", 0, most, 0, file_.time.value);
    }

    bool read_link(Record& record, const char* field, double& to) {
        if (!record.read_number_or(field, 0, 0, to)) return false;
        return to == 0 || to >= slowest || record.fail(field, fmt::format("must be at least {} bytes per second, or 0 where it is not known, is {}", slowest, to));
    }

    bool read_buffer(Record& record, BufferId& to) {
        std::int64_t id = 0;
        if (!record.read_integer("buffer", 0, INT32_MAX, id)) return false;
        if (id > last_buffer_) return record.fail("buffer", fmt::format("the trace has no buffer {}", id));
        to = BufferId(static_cast<std::int32_t>(id));
        return true;
    }

    bool take_start(Record& record) {
        BufferId buffer;
        if (!read_buffer(record, buffer)) return false;
        if (trace_ && !trace_->buffers[static_cast<std::size_t>(buffer.value)].persistent)
            return record.fail("buffer", fmt::format("buffer {} is not persistent: it is not there when the iteration starts", buffer.value));
        if (std::find(file_.plan.start_evicted.begin(), file_.plan.start_evicted.end(), buffer) != file_.plan.start_evicted.end())
            return record.fail("buffer", fmt::format("buffer {} is listed twice", buffer.value));
        file_.plan.start_evicted.push_back(buffer);
        return true;
    }

    bool take_action(Record& record) {
        Action action;
        std::string what;
        std::int64_t op = 0;
        if (!record.read_text("do", what)) return false;
        if (what == "replay") {
            action.what = Do::replay;
            if (!record.read_integer("before_op", 0, last_op_, op)) return false;
            if (!record.read_integers("ops", 0, last_op_, numbers_)) return false;
            if (numbers_.empty()) return record.fail("ops", "must name an op");
            for (const std::int64_t n : numbers_) action.ops.push_back(OpIndex(static_cast<std::int32_t>(n)));
            for (const OpIndex n : action.ops)
                if (n.value >= op) return record.fail("ops", fmt::format("op {} has not run yet before op {}", n.value, op));
            if (!record.read_integers("buffers", 0, last_buffer_, numbers_)) return false;
            if (numbers_.empty()) return record.fail("buffers", "must name a buffer");
            for (const std::int64_t n : numbers_) action.buffers.push_back(BufferId(static_cast<std::int32_t>(n)));
        } else {
            if (what == "evict") action.what = Do::evict;
            else if (what == "clean") action.what = Do::clean;
            else if (what == "prefetch") action.what = Do::prefetch;
            else if (what == "drop") action.what = Do::drop;
            else return record.fail("do", fmt::format("must be evict, clean, prefetch, drop or replay, is \"{}\"", what.substr(0, 40)));
            if (!record.read_integer("after_op", action.what == Do::prefetch ? -1 : 0, last_op_, op)) return false;
            if (!read_buffer(record, action.buffer)) return false;
        }
        action.op = OpIndex(static_cast<std::int32_t>(op));
        file_.plan.actions.push_back(std::move(action));
        return true;
    }

    std::int64_t last_op_, last_buffer_;
    const profiler::Trace* trace_;
    PlanFile file_;
    bool seen_ = false;
    std::vector<std::int64_t> numbers_;
};

template <class Id>
void append_numbers(std::string& to, const std::vector<Id>& ids) {
    to += '[';
    for (std::size_t i = 0; i < ids.size(); ++i) fmt::format_to(std::back_inserter(to), "{}{}", i ? "," : "", ids[i].value);
    to += ']';
}

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Expected<PlanFile> parse_plan(const std::string& name, std::string_view text, const profiler::Trace* trace) {
    Reader reader(trace);
    if (auto read = profiler::for_each_record(name, text, [&](Record& record) { return reader.take(record); }); !read)
        return tl::make_unexpected(read.error());
    if (!reader.seen()) return tl::make_unexpected(Error{fmt::format("{}: line 1: plan: is missing: not a plan", name)});
    auto& actions = reader.file().plan.actions;
    std::stable_sort(actions.begin(), actions.end(), [](const Action& a, const Action& b) { return a.op < b.op; });
    return std::move(reader.file());
}

Expected<PlanFile> read_plan(const std::string& path, const profiler::Trace* trace) {
    auto text = profiler::read_text(path);
    if (!text) return tl::make_unexpected(text.error());
    return parse_plan(path, *text, trace);
}

std::string format_plan(const PlanFile& file) {
    std::string text = fmt::format("{{\"kind\":\"plan\",\"policy\":{},\"trace\":{},\"memory_bytes\":{},\"link_in\":{},\"link_out\":{},\"time_ns\":{}}}\n",
                                   quoted(file.plan.policy), quoted(file.trace), file.memory.value, file.link_in, file.link_out, file.time.value);
    const auto out = std::back_inserter(text);
    for (const BufferId buffer : file.plan.start_evicted) fmt::format_to(out, "{{\"kind\":\"start_evicted\",\"buffer\":{}}}\n", buffer.value);
    for (const Action& action : file.plan.actions) {
        if (action.what == Do::replay) {
            fmt::format_to(out, "{{\"kind\":\"action\",\"before_op\":{},\"do\":\"replay\",\"ops\":", action.op.value);
            append_numbers(text, action.ops);
            text += ",\"buffers\":";
            append_numbers(text, action.buffers);
            text += "}\n";
        } else {
            fmt::format_to(out, "{{\"kind\":\"action\",\"after_op\":{},\"do\":\"{}\",\"buffer\":{}}}\n", action.op.value, name_of(action.what), action.buffer.value);
        }
    }
    return text;
}

Expected<void> write_plan(const std::string& path, const PlanFile& file) { return profiler::write_text(path, format_plan(file)); }

}  // namespace udnnmem::policy
