// Session: what it says of the run: at the end, and to `udnnmem top`.
#include <unistd.h>

#include <string>

#include "profiler/trace/writer/json_line.hpp"
#include "shim/host/launcher.hpp"
#include "shim/log/log.hpp"
#include "shim/preload/session.hpp"

namespace udnnmem::preload {
namespace {

// To be typed as it stands.
std::string shell_word(const std::string& text) {
    if (text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+=:,@%") == std::string::npos && !text.starts_with('-')) return text;
    std::string word = text.starts_with('-') ? "'./" : "'";
    for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
}

}  // namespace

profiler::RunSummary Session::figures() {
    profiler::RunSummary f;
    f.ops = static_cast<std::int64_t>(pager_->ops());
    f.allocations = allocations_.load(std::memory_order_relaxed);
    for (pager::DevicePager* d : pager_->devices()) {
        const auto s = d->stats();
        auto bytes = [](std::size_t n) { return Bytes(static_cast<std::int64_t>(n)); };
        auto count = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
        f.peak_live_bytes += bytes(s.peak_live);
        f.peak_resident_bytes += bytes(s.peak_resident);
        f.peak_host_bytes += bytes(s.peak_host);
        f.bytes_in += bytes(s.bytes_in);
        f.bytes_out += bytes(s.bytes_out);
        f.fetches += count(s.fetches);
        f.evictions += count(s.evictions);
        f.clean_evictions += count(s.clean_evictions);
        f.drops += count(s.drops);
        f.bytes_dropped += bytes(s.bytes_dropped);
        f.stalls += count(s.stalls);
        f.stall_ns += Nanoseconds(s.stall_ns);
        f.served_from_host += count(s.served_from_host);
        f.verified_moves += count(s.verified_moves);
        f.failed_verifications += count(s.repaired_moves);
        f.deadlines += count(s.deadline_firings);
        f.over_budget += count(s.over_budget);
    }
    if (executor_) {
        const executor::Executor::Figures by = executor_->figures();
        f.iterations = static_cast<std::int64_t>(by.iterations);
        f.planned_iterations = static_cast<std::int64_t>(by.planned_iterations);
        f.strayed = static_cast<std::int64_t>(by.strayed);
        f.replays = static_cast<std::int64_t>(by.replayed.replays);
        f.replayed_ops = static_cast<std::int64_t>(by.replayed.ops);
        f.replay_ns = by.replayed.time;
        f.promised_ns = by.promised;
        f.planned_ns = by.planned;
        f.demand_ns = by.demand;
    }
    f.wall_ns = Nanoseconds(pager::now_ns() - started_ns_);
    return f;
}

// For `udnnmem top`: one line of the run, one for each device.
std::string Session::live_figures() {
    const profiler::RunSummary f = figures();
    profiler::JsonLine run("run");
    run.add("pid", static_cast<std::int64_t>(getpid())).add("name", program_invocation_short_name).add("version", UDNNMEM_VERSION).add("rank", host::launched_ranks().rank);
    const bool by_plan = executor_ && executor_->on() && executor_->figures().by_plan;
    run.add("policy", name_of(options_.policy)).add("state", by_plan ? "by plan" : learning() && learner_->recorder.hears_ops() ? "learning" : "on demand");
#define FIGURE(type, name) run.add(#name, f.name);
#include "profiler/trace/run_record.def"
#undef FIGURE
    std::string lines = run.finish();
    for (pager::DevicePager* d : pager_->devices()) {
        const auto s = d->stats();
        const auto m = d->memory();
        profiler::JsonLine line("device");
        const auto add = [&](const char* name, std::uint64_t value) { line.add(name, static_cast<std::int64_t>(value)); };
        add("device", static_cast<std::uint64_t>(d->device()));
        add("budget_bytes", m.device_budget);
        add("resident_bytes", m.frames);
        add("live_bytes", m.live);
        add("host_bytes", m.host_frames);
        add("host_budget_bytes", m.host_budget);
        add("peak_resident_bytes", s.peak_resident);
        add("peak_live_bytes", s.peak_live);
        add("peak_host_bytes", s.peak_host);
        add("bytes_in", s.bytes_in);
        add("bytes_out", s.bytes_out);
        add("fetches", s.fetches);
        add("evictions", s.evictions);
        add("clean_evictions", s.clean_evictions);
        add("drops", s.drops);
        add("bytes_dropped", s.bytes_dropped);
        add("stalls", s.stalls);
        add("stall_ns", static_cast<std::uint64_t>(s.stall_ns));
        add("served_from_host", s.served_from_host);
        add("over_budget", s.over_budget);
        lines += line.finish();
    }
    return lines;
}

void Session::summary() {
    if (options_.quiet) return;
    const std::string more = trace_ && trace_->complete() ? "; udnnmem report " + shell_word(trace_->path()) : "";
    for (pager::DevicePager* d : pager_->devices()) {
        const auto s = d->stats();
        auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
        log::note("device {}: budget {:.1f} MiB, peak {:.1f} MiB for {:.1f} MiB live; moved {:.1f} MiB in, {:.1f} MiB out "
                  "({} clean evictions){}; {} stalls, {:.3f} s; {} launches served from host frames; {} verified moves{}",
                  static_cast<int>(d->device()), mib(s.budget), mib(s.peak_resident), mib(s.peak_live), mib(s.bytes_in),
                  mib(s.bytes_out), s.clean_evictions, s.drops ? fmt::format(", {} buffers dropped and computed again", s.drops) : "", s.stalls, static_cast<double>(s.stall_ns) / 1e9, s.served_from_host,
                  s.verified_moves, more);
    }
}

}  // namespace udnnmem::preload
