// PyTorch's memory snapshot: `segments` is the memory at the end, `device_traces` what happened, oldest first; a device a run.
// Addresses are the places that IterationView gave the buffers, so that nothing overlaps. The format is described in PyTorch's
// torch/cuda/_memory_viz.py and in its "Understanding CUDA Memory Usage".
#include <algorithm>

#include "shim/cli/commands.hpp"
#include "shim/cli/pickle.hpp"
#include "shim/cli/report_formats.hpp"
#include "shim/cli/report_view.hpp"

namespace udnnmem::cli {
namespace {

using namespace profiler;

constexpr std::int64_t base = std::int64_t{1} << 40;  // of all addresses

class Snapshot {
  public:
    Snapshot(Pickle& to, const Report& of, std::int32_t device) : to_(to), run_(of.run), trace_(of.run.iteration), view_(of.view), device_(device) {
        if (trace_.ops.empty()) return;  // cut short: its buffers have no lives
        for (const TraceBuffer& buffer : trace_.buffers)
            if (life(buffer).first >= 0 && buffer.bytes.value > 0) held_.push_back(&buffer);
    }

    void segments() {
        if (held_.empty()) return;
        std::vector<const TraceBuffer*> left;
        Bytes active;
        for (const TraceBuffer* buffer : held_)
            if (buffer->persistent) left.push_back(buffer), active += buffer->bytes;
        std::sort(left.begin(), left.end(), [&](auto* a, auto* b) { return life(*a).place < life(*b).place; });
        to_.begin_dictionary();
        to_.entry("device", device_), to_.entry("address", base), to_.entry("total_size", view_.placed.value), to_.entry("stream", 0);
        for (const char* sum : {"allocated_size", "active_size", "requested_size"}) to_.entry(sum, active.value);
        to_.entry("segment_type", "large");
        to_.text("segment_pool_id"), to_.pair(0, 0);
        to_.text("is_expandable"), to_.flag(false);
        to_.text("frames"), to_.begin_list(), to_.end_list();
        to_.text("blocks"), to_.begin_list();
        std::int64_t at = 0;
        for (const TraceBuffer* buffer : left) {
            const std::int64_t place = life(*buffer).place.value;
            if (place > at) block(at, place - at, nullptr);
            block(place, buffer->bytes.value, buffer);
            at = place + buffer->bytes.value;
        }
        if (at < view_.placed.value) block(at, view_.placed.value - at, nullptr);
        to_.end_list();
        to_.end_dictionary();
    }

    void events() {
        std::vector<std::vector<const TraceBuffer*>> born(trace_.ops.size()), dies(trace_.ops.size());
        for (const TraceBuffer* buffer : held_) {
            born[static_cast<std::size_t>(life(*buffer).first)].push_back(buffer);
            if (!buffer->persistent) dies[static_cast<std::size_t>(life(*buffer).last)].push_back(buffer);
        }
        to_.begin_list();
        if (!held_.empty()) {
            begin("segment_alloc", base, view_.placed.value, Nanoseconds(0));
            to_.begin_list(), to_.end_list(), to_.end_dictionary();
        }
        for (std::size_t k = 0; k < trace_.ops.size(); ++k) {
            const Nanoseconds start = view_.start[k];
            for (const TraceBuffer* buffer : born[k]) event("alloc", *buffer, start);
            for (const TraceBuffer* buffer : dies[k])
                for (const char* action : {"free_requested", "free_completed"}) event(action, *buffer, start + trace_.ops[k].duration);
        }
        to_.end_list();
    }

  private:
    const IterationView::Life& life(const TraceBuffer& buffer) const { return view_.lives[static_cast<std::size_t>(buffer.id.value)]; }

    // Stops before the value of `frames`.
    void begin(const char* action, std::int64_t address, std::int64_t bytes, Nanoseconds at) {
        to_.begin_dictionary();
        to_.entry("action", action), to_.entry("addr", address), to_.entry("size", bytes), to_.entry("stream", 0);
        to_.entry("time_us", run_.header.started_unix_ns / 1000 + at.value / 1000);
        to_.text("frames");
    }
    void event(const char* action, const TraceBuffer& buffer, Nanoseconds at) {
        begin(action, base + life(buffer).place.value, buffer.bytes.value, at);
        frames(buffer);
        to_.end_dictionary();
    }
    void block(std::int64_t place, std::int64_t bytes, const TraceBuffer* buffer) {
        to_.begin_dictionary();
        to_.entry("address", base + place), to_.entry("size", bytes), to_.entry("requested_size", bytes), to_.entry("state", buffer ? "active_allocated" : "inactive");
        to_.text("frames");
        if (buffer) frames(*buffer);
        else to_.begin_list(), to_.end_list();
        to_.end_dictionary();
    }
    // In the place of a call stack: the buffer, and the op before which it was made.
    void frames(const TraceBuffer& buffer) {
        const auto frame = [&](const std::string& name, const std::string& file, std::int64_t line) {
            to_.begin_dictionary();
            to_.entry("name", name), to_.entry("filename", file), to_.entry("line", line);
            to_.end_dictionary();
        };
        to_.begin_list();
        frame(buffer.label.empty() ? "buffer " + std::to_string(buffer.id.value) : buffer.label, "buffer", buffer.id.value);
        if (buffer.persistent) frame("outlives the iteration", "persistent", 0);
        else frame(trace_.ops[static_cast<std::size_t>(life(buffer).first)].name, "op", life(buffer).first);
        to_.end_list();
    }

    Pickle& to_;
    const RunRecord& run_;
    const Trace& trace_;
    const IterationView& view_;
    const std::int32_t device_;
    std::vector<const TraceBuffer*> held_;
};

}  // namespace

std::string report_snapshot(std::span<const Report> reports) {
    for (const Report& report : reports)
        if (report.run.iteration.ops.empty()) warn(report.run.path + ": holds no iteration: the snapshot has nothing to show of it");
    Pickle pickle;
    pickle.begin_dictionary();
    pickle.text("segments"), pickle.begin_list();
    for (std::size_t i = 0; i < reports.size(); ++i) Snapshot(pickle, reports[i], static_cast<std::int32_t>(i)).segments();
    pickle.end_list();
    pickle.text("device_traces"), pickle.begin_list();
    for (std::size_t i = 0; i < reports.size(); ++i) Snapshot(pickle, reports[i], static_cast<std::int32_t>(i)).events();
    pickle.end_list();
    pickle.text("allocator_settings"), pickle.begin_dictionary(), pickle.end_dictionary();
    pickle.text("external_annotations"), pickle.begin_list(), pickle.end_list();
    pickle.end_dictionary();
    return pickle.finish();
}

}  // namespace udnnmem::cli
