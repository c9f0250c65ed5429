#include "shim/preload/refusal.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "profiler/trace/writer/json_line.hpp"
#include "shim/log/log.hpp"
#include "shim/pager/told_id.hpp"

namespace udnnmem::preload {
namespace {

constexpr std::size_t kShown = 5;     // buffers on stderr ...
constexpr std::size_t kTraced = 50;   // ... and in the trace

std::string human(std::size_t bytes) {
    if (bytes < 1024) return fmt::format("{} bytes", bytes);
    return bytes < 1 << 20 ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024) : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

void Refusals::note(pager::DevicePager& device, const char* what, std::size_t wanted, bool op, const profiler::Recorder::LargestOp& seen) noexcept try {
    const int nth = count_.fetch_add(1);
    if (nth >= kMost) return;
    const auto memory = device.memory();
    using Held = pager::DevicePager::Held;
    std::vector<Held> all = device.held_buffers();
    std::ranges::stable_sort(all, std::ranges::greater(), &Held::bytes);
    std::size_t on_host = 0, live = 0, capacity = 0, movable = 0, slabs = 0, largest_buffer = 0;
    for (const Held& h : all) {
        capacity += h.capacity;
        live += h.bytes;
        on_host += h.on_host ? h.bytes : 0;
        (h.slab ? slabs : movable) += h.capacity;
        largest_buffer = std::max(largest_buffer, h.capacity);
    }
    std::lock_guard lock(mutex_);
    const std::size_t largest = std::max(static_cast<std::size_t>(seen.bytes.value), op ? wanted : 0);
    // In whole granules: all of it on the device, or on device and host together with room to exchange the largest buffer
    // (DevicePager::allocate); and one op's buffers beside what never moves.
    const std::size_t granule = device.granule();
    const auto up = [&](std::size_t n) { return (n + granule - 1) / granule * granule; };
    const auto less = [](std::size_t a, std::size_t b) { return a > b ? a - b : 0; };
    const std::size_t fixed = std::max(memory.device_budget - device.room().movable, slabs + granule);   // slabs may be more than the budget
    const std::size_t all_of_it = fixed + movable + (op ? 0 : up(wanted)), exchanged = all_of_it + std::max(largest_buffer, op ? 0 : up(wanted));
    const std::size_t enough = std::max(std::min(all_of_it, up(less(exchanged, memory.host_budget))), fixed + up(largest) + (op ? granule : 0));
    const std::size_t enough_host = up(less(exchanged, memory.device_budget));

    if (nth == 0) {
        log::error("out of memory: {} on device {} asked for {}", what, static_cast<int>(device.device()), human(wanted));
        log::error("  live before it: {} in {} allocations, which take {} in whole granules of {}; {} of it on the host; device budget {}, host budget {}", human(live), all.size(), human(capacity), human(granule), human(on_host),
                   human(memory.device_budget), human(memory.host_budget));
        std::string list;
        for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i) list += fmt::format("{}{} ({}{})", i ? ", " : "", human(all[i].bytes), all[i].slab ? "small allocations, " : "", all[i].on_host ? "on the host" : "on the device");
        log::error("  the largest: {}", list.empty() ? "none" : list);
        if (seen.bytes.value) log::error("  the largest op {}: {}, {}", seen.among ? fmt::format("of the {} that were looked at", seen.among) : "so far", seen.name, human(static_cast<std::size_t>(seen.bytes.value)));
        const std::string or_on_host = enough_host > memory.host_budget ? fmt::format(", or UDNNMEM_HOST_BUDGET={} with this device budget", enough_host) : "";
        log::error("  it takes at least UDNNMEM_BUDGET={} with this host budget{}, and more if more is asked for later", enough, or_on_host);
    }
    profiler::JsonLine line("out_of_memory");
    const auto bytes = [](std::size_t n) { return Bytes(static_cast<std::int64_t>(n)); };
    line.add("what", what).add("device", static_cast<std::int32_t>(device.device())).add("at_ns", pager::now_ns()).add("wanted_bytes", bytes(wanted)).add("live_bytes", bytes(live));
    line.add("device_bytes", bytes(live - on_host)).add("host_bytes", bytes(on_host)).add("budget_bytes", bytes(memory.device_budget)).add("host_budget_bytes", bytes(memory.host_budget)).add("enough_bytes", bytes(enough));
    if (seen.bytes.value) line.add("largest_op", seen.name).add("largest_op_bytes", seen.bytes);
    std::vector<std::int64_t> ids, sizes, hosts;
    for (std::size_t i = 0; i < std::min(all.size(), kTraced); ++i) {
        ids.push_back(pager::told_id(all[i].id).value);
        sizes.push_back(static_cast<std::int64_t>(all[i].bytes));
        hosts.push_back(all[i].on_host);
    }
    lines_ += line.add("buffers", ids).add("buffer_bytes", sizes).add("on_host", hosts).finish();
} catch (...) {  // no memory for an explanation
}

std::string Refusals::take_lines() {
    std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
}

}  // namespace udnnmem::preload
