// libFuzzer target: the readers of traces, recorded runs and plans. Whatever the bytes: no crash, no hang; what is read
// keeps the invariants, reads the same when written again, a run is laid out for its report, and a plan that is read is judged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "policy/liveness.hpp"
#include "policy/plan_io.hpp"
#include "policy/simulator.hpp"
#include "profiler/trace/run_record.hpp"
#include "profiler/trace/trace_io.hpp"
#include "shim/cli/report_view.hpp"

using namespace udnnmem;

namespace {

// What plans are read against, and judged on.
const char* const network =
    "{\"kind\":\"header\",\"schema\":1}\n"
    "{\"kind\":\"buffer\",\"id\":0,\"bytes\":8,\"persistent\":true}\n{\"kind\":\"buffer\",\"id\":1,\"bytes\":4}\n{\"kind\":\"buffer\",\"id\":2,\"bytes\":4}\n"
    "{\"kind\":\"op\",\"index\":0,\"duration_ns\":5,\"reads\":[0],\"writes\":[1],\"replayable\":true}\n"
    "{\"kind\":\"op\",\"index\":1,\"duration_ns\":5,\"reads\":[1],\"writes\":[2],\"replayable\":true}\n"
    "{\"kind\":\"op\",\"index\":2,\"duration_ns\":5,\"reads\":[2],\"writes\":[2]}\n"
    "{\"kind\":\"op\",\"index\":3,\"duration_ns\":5,\"reads\":[0,1,2],\"writes\":[0]}\n";

void check(bool holds) {
    if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto trace = profiler::parse_trace("trace", text)) {
        check(profiler::validate(*trace).has_value());
        const std::string written = profiler::format_trace(*trace);
        const auto again = profiler::parse_trace("again", written);
        check(again.has_value() && profiler::format_trace(*again) == written);
        const policy::Liveness live(*trace);
        check(live.peak() >= live.persistent());
    } else {
        check(trace.error().message.find('\n') == std::string::npos);
    }
    if (const auto run = profiler::parse_run("run", text)) {
        check(profiler::validate(run->iteration).has_value());
        const cli::IterationView view = cli::view_of(*run);
        check(view.live.size() == run->iteration.ops.size() && view.lives.size() == (run->iteration.ops.empty() ? 0 : run->iteration.buffers.size()));
        // Its first lines are a run too, or not even a header.
        const auto cut = profiler::parse_run("cut", text.substr(0, text.rfind('\n', size / 2) + 1));
        check(cut.has_value() || cut.error().message.find("header: is missing") != std::string::npos);
    } else {
        check(run.error().message.find('\n') == std::string::npos);
    }
    static const profiler::Trace against = *profiler::parse_trace("network", network);
    if (const auto plan = policy::parse_plan("plan", text, &against)) {
        const std::string written = policy::format_plan(*plan);
        const auto again = policy::parse_plan("again", written, &against);
        check(again.has_value() && policy::format_plan(*again) == written);
        policy::Machine machine;
        machine.memory = Bytes(20);
        machine.link_in = machine.link_out = 1e9;
        const policy::Outcome outcome = policy::simulate(against, machine, plan->plan);
        check(outcome.valid ? outcome.time.value >= 20 && outcome.peak <= machine.memory : !outcome.error.empty());
    } else {
        check(plan.error().message.find('\n') == std::string::npos);
    }
    return 0;
}
