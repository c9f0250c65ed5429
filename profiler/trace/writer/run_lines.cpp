#include "profiler/trace/writer/run_lines.hpp"

#include "profiler/trace/writer/json_line.hpp"

namespace udnnmem::profiler {

std::string line_of(const RunSequence& s) {
    JsonLine line("sequence");
    line.add("id", s.id).add("first", s.first).add("ops", s.ops).add("turns", s.turns).add("iterations", s.iterations);
    line.add("planned_iterations", s.planned_iterations).add("given_up", s.given_up).add("ideal_ns", s.ideal).add("promised_ns", s.promised);
    line.add("peak_promised_bytes", s.peak_promised).add("peak_bytes", s.peak);
    if (s.first_op >= 0) line.add("first_op", s.first_op);
    if (!s.no_plan.empty()) line.add("no_plan", s.no_plan);
    return line.add("planned_ns", s.planned).add("demand_ns", s.demand).finish();
}

std::string line_of(const NotReplayable& r) {
    return JsonLine("not_replayable").add("kernel", r.kernel).add("why", r.why).add("ops", r.ops).finish();
}

std::string line_of(const Misprediction& m) {
    return JsonLine("misprediction").add("expected", m.expected).add("seen", m.seen).add("times", m.times).finish();
}

std::string line_of(const Adaptation& a) {
    return JsonLine("adaptation").add("sequence", a.sequence).add("change", a.change).add("before_ns", a.before).add("promised_ns", a.promised).add("measured_ns", a.measured).add("kept", a.kept).finish();
}

std::string line_of(const RunStep& s) {
    JsonLine line("step");
    line.add("sequence", s.sequence).add("index", s.index).add("name", s.name).add("planned_start_ns", s.planned_start).add("start_ns", s.start).add("planned_ns", s.planned);
    return line.add("took_ns", s.took).add("held_ns", s.held).add("held_times", s.held_times).add("cause", s.cause).add("buffer", s.buffer).finish();
}

std::string line_of(const RunTimes& t) {
    return JsonLine("times").add("ops", static_cast<Count>(t.ops.size())).add("first_op", t.first_op).add("duration_ns", t.ops).finish();
}

}  // namespace udnnmem::profiler
