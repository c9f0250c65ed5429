#include "profiler/trace/writer/run_lines.hpp"

#include "profiler/trace/writer/json_line.hpp"

namespace udnnmem::profiler {

std::string line_of(const RunSequence& s) {
    JsonLine line("sequence");
    line.add("id", s.id).add("first", s.first).add("ops", s.ops).add("turns", s.turns).add("iterations", s.iterations);
    line.add("planned_iterations", s.planned_iterations).add("given_up", s.given_up).add("ideal_ns", s.ideal).add("promised_ns", s.promised);
    return line.add("planned_ns", s.planned).add("demand_ns", s.demand).finish();
}

std::string line_of(const Misprediction& m) {
    return JsonLine("misprediction").add("expected", m.expected).add("seen", m.seen).add("times", m.times).finish();
}

}  // namespace udnnmem::profiler
