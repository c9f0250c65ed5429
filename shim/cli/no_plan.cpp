#include "shim/cli/no_plan.hpp"

#include <fmt/core.h>

#include "shim/cli/format.hpp"

namespace udnnmem::cli {

namespace {

// As an option takes it: a few bytes need their unit.
std::string exactly(Bytes bytes) { return fmt::format("{}{}", bytes.value, bytes.value < (1 << 20) ? "B" : ""); }

}  // namespace

std::string why_no_plan(const std::string& error, const policy::Liveness& live, const policy::Machine& machine, bool recompute) {
    if (live.largest_working_set() > machine.memory) return fmt::format("the largest op alone needs {}", human(live.largest_working_set()));
    if (machine.host == Bytes::max() || live.peak() - machine.memory <= machine.host) return error;
    const Bytes least = live.peak() - machine.memory;
    return fmt::format("{}: peak live is {}, memory and host hold {} less: give at least --host {}{}", error, human(live.peak()), human(least - machine.host), exactly(least), recompute ? ", or more memory" : ", more memory, or --recompute auto");
}

std::string no_plan(const std::string& error, const policy::Liveness& live, const policy::Machine& machine, bool recompute, std::optional<Bytes> enough) {
    const std::string why = fmt::format("no plan in {}: {}", human(machine.memory), why_no_plan(error, live, machine, recompute));
    if (live.largest_working_set() > machine.memory) return fmt::format("{}: give at least --memory {}", why, exactly(live.largest_working_set()));
    return enough ? fmt::format("{}: --host {} is enough", why, exactly(*enough)) : why;
}

}  // namespace udnnmem::cli
