// Chrome's trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event
// Format"). Times in microseconds. A run is a process, a stream a thread whose ops are complete events (X); moves overlap, so they
// are asynchronous (b, e); memory is a counter (C), a refusal of it an instant (i); the program's own ranges are a thread.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "shim/cli/report_formats.hpp"
#include "shim/cli/report_view.hpp"
#include "shim/cli/trace_input.hpp"

namespace udnnmem::cli {
namespace {

using namespace profiler;

constexpr int ranges_thread = 1000;

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

class Process {
  public:
    Process(std::string& to, const RunRecord& run, const IterationView& view, std::size_t pid, std::size_t& next_id) : to_(to), run_(run), trace_(run.iteration), view_(view), pid_(pid), next_id_(next_id) {
        // Nothing before 0: what moved before the iteration shifts it.
        if (view_.observed || trace_.ops.empty()) {
            Nanoseconds first = trace_.ops.empty() ? Nanoseconds::max() : view_.origin;
            for (const RunEvent& event : run.moves) first = std::min(first, event.start);
            for (const OutOfMemory& refusal : run.refusals) first = std::min(first, refusal.at);
            base_ = first;
            shift_ = trace_.ops.empty() ? Nanoseconds(0) : view_.origin - first;
        }
    }

    void write() {
        std::string name = run_.header.name.empty() ? run_.path : run_.header.name;
        if (run_.header.rank >= 0) name += fmt::format(" rank {}", run_.header.rank);
        add("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}}}", pid_, json_text(name));
        add("{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{},\"args\":{{\"sort_index\":{}}}}}", pid_, pid_);
        if (run_.damaged) add("{{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":{},\"args\":{{\"labels\":{}}}}}", pid_, json_text(damage_of(run_)));
        ops();
        waits();
        ranges();
        memory();
        moves();
        refusals();
    }

  private:
    template <class... T>
    void add(fmt::format_string<T...> text, T&&... values) {
        if (to_.back() != '[') to_ += ",\n";
        fmt::format_to(std::back_inserter(to_), text, std::forward<T>(values)...);
    }
    static std::string us(Nanoseconds t) { return fmt::format("{}.{:03}", t.value / 1000, t.value % 1000); }
    void thread_name(int tid, std::string_view name) {
        add("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}", pid_, tid, json_text(name));
    }
    std::string label(std::int32_t buffer) const {
        const std::string& text = trace_.buffers[static_cast<std::size_t>(buffer)].label;
        return text.empty() ? fmt::format("buffer {}", buffer) : text;
    }

    void ops() {
        std::vector<std::int32_t> streams;
        for (const TraceOp& op : trace_.ops) {
            if (std::find(streams.begin(), streams.end(), op.stream) == streams.end()) {
                streams.push_back(op.stream);
                thread_name(op.stream, fmt::format("stream {}", op.stream));
            }
            std::string named;
            std::vector<BufferId> both;
            std::set_union(op.reads.begin(), op.reads.end(), op.writes.begin(), op.writes.end(), std::back_inserter(both));
            for (const BufferId id : both) named += (named.empty() ? "" : ", ") + label(id.value);
            add("{{\"ph\":\"X\",\"name\":{},\"cat\":\"op\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\"op\":{},\"buffers\":{},\"live_bytes\":{}}}}}", json_text(op.name), pid_, op.stream,
                us(shift_ + start(op)), us(op.duration), op.index.value, json_text(named), view_.live[static_cast<std::size_t>(op.index.value)].value);
        }
    }
    // An arrow from the op that a stream waits for to the one that waits.
    void waits() {
        for (const TraceOp& op : trace_.ops)
            for (const OpIndex k : op.waits) {
                if (k >= op.index) continue;   // of the iteration before
                const TraceOp& before = trace_.ops[static_cast<std::size_t>(k.value)];
                const std::string head = fmt::format("\"name\":\"waits\",\"cat\":\"wait\",\"id\":\"{:#x}\",\"pid\":{}", next_id_++, pid_);
                add("{{\"ph\":\"s\",{},\"tid\":{},\"ts\":{}}}", head, before.stream, us(shift_ + start(before) + Nanoseconds(before.duration.value / 2)));
                add("{{\"ph\":\"f\",\"bp\":\"e\",{},\"tid\":{},\"ts\":{}}}", head, op.stream, us(shift_ + start(op)));
            }
    }
    Nanoseconds start(const TraceOp& op) const { return view_.start[static_cast<std::size_t>(op.index.value)]; }

    // At each depth a range spans the ops that follow each other in it, in one stream: those of others may overlap.
    void ranges() {
        std::map<std::int32_t, std::vector<const TraceOp*>> streams;
        for (const TraceOp& op : trace_.ops) streams[op.stream].push_back(&op);
        int thread = ranges_thread;
        for (const auto& [stream, ops] : streams) ranges(ops, thread++, streams.size() > 1 ? fmt::format("the program's ranges, stream {}", stream) : "the program's ranges");
    }
    void ranges(const std::vector<const TraceOp*>& ops, int thread, const std::string& name) {
        bool any = false;
        std::vector<std::pair<std::string, std::size_t>> open;  // whole path, first of `ops`
        const auto close = [&](std::size_t depth, std::size_t after) {
            for (; open.size() > depth; open.pop_back()) {
                const auto& [path, first] = open.back();
                if (!std::exchange(any, true)) thread_name(thread, name);
                Nanoseconds end;
                for (std::size_t k = first; k < after; ++k) end = std::max(end, start(*ops[k]) + ops[k]->duration);
                const Nanoseconds begin = start(*ops[first]);
                add("{{\"ph\":\"X\",\"name\":{},\"cat\":\"range\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{}}}", json_text(path.substr(path.rfind('/') + 1)), pid_, thread, us(shift_ + begin), us(end - begin));
            }
        };
        for (std::size_t at_op = 0; at_op < ops.size(); ++at_op) {
            const TraceOp& op = *ops[at_op];
            std::vector<std::string> paths;
            for (std::size_t at = 0; at < op.range.size();) {
                at = std::min(op.range.find('/', at), op.range.size());
                paths.push_back(op.range.substr(0, at++));
            }
            std::size_t same = 0;
            while (same < open.size() && same < paths.size() && open[same].first == paths[same]) ++same;
            close(same, at_op);
            for (; same < paths.size(); ++same) open.emplace_back(paths[same], at_op);
        }
        close(0, ops.size());
    }

    void memory() {
        std::vector<std::pair<Nanoseconds, std::int64_t>> steps;  // of what is on the device
        Bytes before;
        for (const TraceOp& op : trace_.ops) {
            const Bytes live = view_.live[static_cast<std::size_t>(op.index.value)];
            add("{{\"ph\":\"C\",\"name\":\"live\",\"pid\":{},\"ts\":{},\"args\":{{\"bytes\":{}}}}}", pid_, us(shift_ + start(op)), live.value);
            steps.emplace_back(start(op), (live - before).value);
            before = live;
        }
        if (view_.away.empty()) return;
        for (const IterationView::Away& away : view_.away) {
            const std::int64_t bytes = trace_.buffers[static_cast<std::size_t>(away.buffer)].bytes.value;
            steps.emplace_back(away.from, -bytes);
            steps.emplace_back(away.to, bytes);
        }
        std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        std::int64_t resident = 0;
        for (std::size_t i = 0; i < steps.size(); ++i) {
            resident += steps[i].second;
            if (i + 1 == steps.size() || steps[i + 1].first != steps[i].first)
                add("{{\"ph\":\"C\",\"name\":\"on the device\",\"pid\":{},\"ts\":{},\"args\":{{\"bytes\":{}}}}}", pid_, us(shift_ + steps[i].first), resident);
        }
    }

    void moves() {
        if (!base_) return;
        std::unordered_map<std::int32_t, std::int32_t> ours;  // the iteration's buffer of a run's number
        for (const TraceBuffer& buffer : trace_.buffers)
            if (buffer.run_id >= 0) ours[buffer.run_id] = buffer.id.value;
        for (const RunEvent& event : run_.moves) {
            const auto found = ours.find(event.buffer.value);
            const std::string name = found != ours.end() ? label(found->second) : fmt::format("allocation {}", event.buffer.value);
            const std::string head = fmt::format("\"name\":\"{}\",\"cat\":\"{}\",\"id\":\"{:#x}\",\"pid\":{},\"tid\":0", event_kind_names[static_cast<std::size_t>(event.kind)], event.kind == EventKind::stall ? "wait" : "move", next_id_++, pid_);
            add("{{\"ph\":\"b\",{},\"ts\":{},\"args\":{{\"buffer\":{},\"bytes\":{}}}}}", head, us(event.start - *base_), json_text(name), event.bytes.value);
            add("{{\"ph\":\"e\",{},\"ts\":{}}}", head, us(event.end - *base_));
        }
    }

    void refusals() {
        if (!base_) return;
        for (const OutOfMemory& refusal : run_.refusals)
            add("{{\"ph\":\"i\",\"s\":\"p\",\"name\":\"out of memory\",\"cat\":\"refusal\",\"pid\":{},\"tid\":0,\"ts\":{},\"args\":{{\"text\":{}}}}}", pid_, us(refusal.at - *base_), json_text(explanation(refusal)));
    }

    std::string& to_;
    const RunRecord& run_;
    const Trace& trace_;
    const IterationView& view_;
    const std::size_t pid_;
    std::size_t& next_id_;
    std::optional<Nanoseconds> base_;  // the run's clock at 0; none: its moves lie on no clock of the ops
    Nanoseconds shift_;
};

}  // namespace

std::string report_chrome(std::span<const Report> reports) {
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    std::size_t next_id = 1;
    for (std::size_t i = 0; i < reports.size(); ++i) Process(text, reports[i].run, reports[i].view, i + 1, next_id).write();
    return text + "]}\n";
}

}  // namespace udnnmem::cli
