// The page (shim/cli/page): figures of all runs as in the JSON report, and iterations in columns: one array a field, starts as
// differences, names and ranges by number, access sets in one list. page.js draws from these alone.
#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/core.h>

#include "shim/cli/page.hpp"
#include "shim/cli/report_fields.hpp"
#include "shim/cli/report_formats.hpp"
#include "shim/cli/report_ranges.hpp"

namespace udnnmem::cli {
namespace {

using namespace profiler;
using Json = nlohmann::ordered_json;

constexpr std::size_t most_delayed = 200;     // of the plan: those that were delayed most
constexpr std::size_t most_page_bytes = 4'600'000;  // of the iterations
constexpr std::size_t most_moves = 20'000;          // of an iteration: the longest ones
constexpr std::size_t bin_count = 400;

// Strings by number, the empty one first.
class Names {
  public:
    std::size_t of(const std::string& name) {
        const auto [at, fresh] = numbers_.try_emplace(name, list_.size());
        if (fresh) list_.push_back(name);
        return at->second;
    }
    const std::vector<std::string>& list() const { return list_; }

  private:
    std::vector<std::string> list_{""};
    std::map<std::string, std::size_t> numbers_{{"", 0}};
};

// Largest moves of the view, by start.
std::vector<const IterationView::Move*> chosen_moves(const IterationView& view) {
    std::vector<const IterationView::Move*> moves;
    for (const IterationView::Move& move : view.moves) moves.push_back(&move);
    if (moves.size() > most_moves) {
        std::stable_sort(moves.begin(), moves.end(), [](auto* a, auto* b) { return a->end - a->start > b->end - b->start; });
        moves.resize(most_moves);
        std::stable_sort(moves.begin(), moves.end(), [](auto* a, auto* b) { return a->start < b->start; });
    }
    return moves;
}

Json columns_of(const Trace& trace, const IterationView& view) {
    Names names, ranges, labels;
    Json ops = {{"name", Json::array()}, {"start", Json::array()}, {"duration", Json::array()}, {"stream", Json::array()}, {"phase", Json::array()}, {"range", Json::array()},
                {"flops", Json::array()}, {"workspace", Json::array()}, {"access_end", Json::array()}, {"access", Json::array()}};
    std::int64_t before = 0;
    for (const TraceOp& op : trace.ops) {
        const std::int64_t start = view.start[static_cast<std::size_t>(op.index.value)].value;
        ops["name"].push_back(names.of(op.name));
        ops["start"].push_back(start - before);
        ops["duration"].push_back(op.duration.value);
        ops["stream"].push_back(op.stream);
        ops["phase"].push_back(static_cast<int>(phase_of(op)));
        ops["range"].push_back(ranges.of(op.range));
        ops["flops"].push_back(op.flops);
        ops["workspace"].push_back(op.workspace.value);
        std::vector<BufferId> named;
        std::set_union(op.reads.begin(), op.reads.end(), op.writes.begin(), op.writes.end(), std::back_inserter(named));
        for (const BufferId id : named) ops["access"].push_back(id.value);
        ops["access_end"].push_back(ops["access"].size());
        before = start;
    }
    Json buffers = {{"bytes", Json::array()}, {"label", Json::array()}, {"persistent", Json::array()}, {"first", Json::array()}, {"last", Json::array()}, {"place", Json::array()}, {"accesses", Json::array()},
                    {"idle", Json::array()}, {"gap", Json::array()}, {"gap_after", Json::array()}, {"gap_before", Json::array()}, {"evictions", Json::array()}, {"fetches", Json::array()}};
    for (const TraceBuffer& buffer : trace.buffers) {
        const IterationView::Life& life = view.lives[static_cast<std::size_t>(buffer.id.value)];
        buffers["bytes"].push_back(buffer.bytes.value);
        buffers["label"].push_back(labels.of(buffer.label));
        buffers["persistent"].push_back(buffer.persistent ? 1 : 0);
        buffers["first"].push_back(life.first);
        buffers["last"].push_back(life.last);
        buffers["place"].push_back(life.place.value);
        buffers["accesses"].push_back(life.accesses);
        buffers["idle"].push_back(life.idle.value);
        buffers["gap"].push_back(life.gap.value);
        buffers["gap_after"].push_back(life.gap_after);
        buffers["gap_before"].push_back(life.gap_before);
        buffers["evictions"].push_back(life.evictions);
        buffers["fetches"].push_back(life.fetches);
    }
    Json moves = {{"kind", Json::array()}, {"buffer", Json::array()}, {"bytes", Json::array()}, {"start", Json::array()}, {"end", Json::array()}};
    for (const IterationView::Move* move : chosen_moves(view)) {
        moves["kind"].push_back(static_cast<int>(move->kind));
        moves["buffer"].push_back(move->buffer);
        moves["bytes"].push_back(move->bytes.value);
        moves["start"].push_back(move->start.value);
        moves["end"].push_back(move->end.value);
    }
    Json away = {{"buffer", Json::array()}, {"from", Json::array()}, {"to", Json::array()}, {"dropped", Json::array()}};
    for (const IterationView::Away& stretch : view.away) {
        away["buffer"].push_back(stretch.buffer);
        away["from"].push_back(stretch.from.value);
        away["to"].push_back(stretch.to.value);
        away["dropped"].push_back(static_cast<int>(stretch.dropped));
    }
    Json kinds = Json::array();
    for (const char* name : event_kind_names) kinds.push_back(name);
    return {{"observed", view.observed}, {"length", view.length.value}, {"ideal", view.ideal.value}, {"placed", view.placed.value}, {"names", names.list()}, {"ranges", ranges.list()}, {"labels", labels.list()},
            {"kinds", kinds}, {"ops", std::move(ops)}, {"buffers", std::move(buffers)}, {"moves", std::move(moves)}, {"away", std::move(away)}};
}

// What moved over the whole run, in stretches of equal length; null where nothing did.
Json bins_of(const RunRecord& run) {
    Nanoseconds begin = Nanoseconds::max(), end;
    for (const RunEvent& event : run.moves) begin = std::min(begin, event.start), end = std::max(end, event.end);
    if (run.moves.empty() || end <= begin) return nullptr;
    const double length = static_cast<double>((end - begin).value), step = length / bin_count;
    std::vector<double> in(bin_count), out(bin_count), stall(bin_count);
    for (const RunEvent& event : run.moves) {
        auto* to = event.kind == EventKind::fetch ? &in : event.kind == EventKind::evict || event.kind == EventKind::clean ? &out : event.kind == EventKind::stall ? &stall : nullptr;
        if (!to) continue;
        const double from = static_cast<double>((event.start - begin).value), until = std::max(static_cast<double>((event.end - begin).value), from + 1);
        const double amount = event.kind == EventKind::stall ? until - from : static_cast<double>(event.bytes.value);
        for (auto bin = static_cast<std::size_t>(from / step); bin < bin_count && static_cast<double>(bin) * step < until; ++bin) {
            const double inside = std::min(until, static_cast<double>(bin + 1) * step) - std::max(from, static_cast<double>(bin) * step);
            (*to)[bin] += amount * std::max(0.0, inside) / (until - from);
        }
    }
    const auto rounded = [](const std::vector<double>& values) {
        Json list = Json::array();
        for (const double v : values) list.push_back(static_cast<std::int64_t>(v + 0.5));
        return list;
    };
    return {{"length", length}, {"in", rounded(in)}, {"out", rounded(out)}, {"stall", rounded(stall)}};
}

void keep_most_delayed(Json& steps) {
    std::vector<Json> all(steps.begin(), steps.end());
    std::stable_sort(all.begin(), all.end(), [](const Json& a, const Json& b) {
        const auto ns = [](const Json& s) { return s["delay_ns"].is_null() ? -1 : s["delay_ns"].get<std::int64_t>(); };
        return ns(a) > ns(b);
    });
    if (all.size() > most_delayed) all.resize(most_delayed);
    steps = all;
}

// JSON as the contents of a script element: nothing in it may look like the element's end.
std::string embedded(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) text.insert(at + 1, 1, '\\');
    for (std::size_t at = 0; (at = text.find("<!--", at)) != std::string::npos; at += 9) text.replace(at, 1, "\\u003c");
    return text;
}

void fill_in(std::string& page, std::string_view mark, std::string_view with) { page.replace(page.find(mark), mark.size(), with); }

}  // namespace

std::string report_html(std::span<const Report> reports) {
    std::string list;
    std::size_t drawn = 0;
    for (const Report& of : reports) {
        const RunRecord& run = of.run;
        Json report = report_fields(of);
        report["buffers"] = nullptr;  // the page has what it shows of them in columns
        if (!report["iteration"].is_null()) report["iteration"].erase("buffers");
        keep_most_delayed(report["steps"]);
        if (!of.models.is_null()) {
            report["models"]["memory"].erase("live_bytes");
            if (report["models"]["binds"].is_object()) report["models"]["binds"].erase("ops");
        }
        std::string columns = "null";
        if (!run.iteration.ops.empty()) {
            columns = embedded(columns_of(run.iteration, of.view));
            if (drawn && drawn + columns.size() > most_page_bytes) columns = "null";
            drawn += columns.size();
        }
        list += fmt::format("{}{{\"report\":{},\"bins\":{},\"view\":{}}}", list.empty() ? "" : ",", embedded(report), embedded(bins_of(run)), columns);
    }
    std::string page = page_html;
    fill_in(page, "@STYLE@", page_css);
    fill_in(page, "@SCRIPT@", page_js);
    fill_in(page, "@DATA@", "{\"runs\":[" + list + "]}");
    return page;
}

}  // namespace udnnmem::cli
