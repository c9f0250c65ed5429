#include "shim/cli/report_ranges.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/core.h>

#include "profiler/trace/trace_io.hpp"
#include "shim/cli/format.hpp"

namespace udnnmem::cli {

using namespace profiler;
using Json = nlohmann::ordered_json;

namespace {
constexpr std::size_t most_rows = 12;   // of the table; JSON has all
}

Phase phase_of(const TraceOp& op) {
    if (op.phase != Phase::unknown || op.range.empty()) return op.phase;
    static constexpr std::pair<const char*, Phase> words[] = {{"backward", Phase::backward}, {"bwd", Phase::backward}, {"optim", Phase::update},
                                                              {"update", Phase::update}, {"forward", Phase::forward}, {"fwd", Phase::forward}};
    std::string low = op.range;
    std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::size_t innermost = 0;
    Phase phase = Phase::unknown;
    for (const auto& [word, is] : words)
        if (const std::size_t at = low.rfind(word); at != std::string::npos && (phase == Phase::unknown || at > innermost)) innermost = at, phase = is;
    return phase;
}

const char* text_of(Phase phase) { return phase == Phase::unknown ? "" : name_of(phase); }

Json ranges_of(const Trace& iteration) {
    struct Sum {
        const TraceOp* first;
        std::int64_t ops = 0, time = 0;
        double flops = 0;
        std::set<std::int32_t> named;
    };
    std::map<std::string, std::size_t> places;
    std::vector<Sum> sums;
    for (const TraceOp& op : iteration.ops) {
        const auto [place, fresh] = places.try_emplace(op.range, sums.size());
        if (fresh) sums.push_back({&op});
        Sum& sum = sums[place->second];
        ++sum.ops;
        sum.time += op.duration.value;
        sum.flops += op.flops;
        for (const auto* set : {&op.reads, &op.writes})
            for (const BufferId id : *set) sum.named.insert(id.value);
    }
    Json ranges = Json::array();
    if (sums.size() == 1 && sums[0].first->range.empty()) return ranges;
    for (const Sum& sum : sums) {
        std::int64_t bytes = 0;
        for (const std::int32_t id : sum.named) bytes += iteration.buffers[static_cast<std::size_t>(id)].bytes.value;
        ranges.push_back({{"range", sum.first->range}, {"phase", text_of(phase_of(*sum.first))}, {"ops", sum.ops}, {"time_ns", sum.time}, {"flops", sum.flops}, {"bytes", bytes}});
    }
    return ranges;
}

void append_ranges(std::string& to, const Trace& iteration) {
    Json ranges = ranges_of(iteration);
    if (ranges.empty()) return;
    double whole = 0;
    for (const TraceOp& op : iteration.ops) whole += static_cast<double>(op.duration.value);
    std::stable_sort(ranges.begin(), ranges.end(), [](const Json& a, const Json& b) { return a["time_ns"] > b["time_ns"]; });
    to += fmt::format("  {:<44}{:>9}{:>8}{:>12}{:>9}{:>14}\n", "the program's range", "phase", "ops", "time", "share", "bytes named");
    for (std::size_t i = 0; i < std::min(ranges.size(), most_rows); ++i) {
        const Json& r = ranges[i];
        auto name = r["range"].get<std::string>();
        if (name.empty()) name = "(none)";
        name = shown(name, 43, Cut::front);
        const auto ns = r["time_ns"].get<std::int64_t>();
        to += fmt::format("  {:<44}{:>9}{:>8}{:>12}{:>7.1f} %{:>14}\n", name, r["phase"].get<std::string>(), human_count(r["ops"].get<std::int64_t>()), human(Nanoseconds(ns)),
                          100.0 * static_cast<double>(ns) / std::max(1.0, whole), human(Bytes(r["bytes"].get<std::int64_t>())));
    }
    if (ranges.size() > most_rows) to += fmt::format("  ... and {} more: --format json lists them all\n", human_count(static_cast<std::int64_t>(ranges.size() - most_rows)));
}

}  // namespace udnnmem::cli
