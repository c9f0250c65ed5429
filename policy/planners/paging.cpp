// Paging on demand, the way a driver's page-fault handler or a cache does it: nothing moves until an op
// lacks room; then whole buffers go out, the least recently used first (`demand`), or the one whose next
// use is farthest (`belady`: L. A. Belady, "A study of replacement algorithms for a virtual-storage
// computer", 1966; optimal in the number of misses for pages of one size). What is missing is fetched
// when the op comes up.
//
// The decisions are made by playing the iteration over and over, without times, until the buffers on the
// device at its start are the same twice, and written down as evictions after the op before. The start of
// an iteration is taken just after op 0 has its buffers, so what op 0 misses is a prefetch at the end.
#include "policy/planners/published.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "policy/liveness.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

class Paging {
public:
    Paging(const Trace& trace, const Machine& machine, bool farthest)
        : trace_(trace), live_(trace), memory_(machine.memory.value), farthest_(farthest), resident_(trace.buffers.size(), 0), key_(trace.buffers.size(), 0), allocs_(trace.ops.size()), frees_(trace.ops.size()) {
        for (std::size_t b = 0; b < trace.buffers.size(); ++b) {
            if (trace.buffers[b].persistent) {
                enter(b, -1);
            } else if (live_.first(b) >= 0) {
                allocs_[static_cast<std::size_t>(live_.first(b))].push_back(b);
                frees_[static_cast<std::size_t>(live_.last(b))].push_back(b);
            }
        }
    }

    // Plays iterations until one begins as it ends (at most `longest`); the plan is the last one's.
    Plan play(int longest) {
        Plan plan;
        if (trace_.ops.empty()) return plan;
        make_room(0, nullptr);
        run(0);
        for (int i = 0; i < longest; ++i) {
            const std::vector<char> start = resident_;
            plan.actions.clear();
            finish(0);
            for (std::size_t k = 1; k < trace_.ops.size(); ++k) {
                make_room(k, &plan);
                run(k);
                finish(k);
            }
            make_room(0, &plan);
            const std::vector<char> end = resident_;
            ++turn_;
            run(0);
            if (resident_ == start || i + 1 == longest) {
                close(plan, start, end);
                break;
            }
        }
        return plan;
    }

private:
    std::int64_t size(std::size_t b) const { return trace_.buffers[b].bytes.value; }

    // Sorts what may leave: the smallest key goes first. Next uses count on over iterations, so that keys of different ones compare.
    std::int64_t key_at(std::size_t b, std::int64_t op) const {
        if (!farthest_) return clock_;
        const std::int64_t origin = turn_ * static_cast<std::int64_t>(trace_.ops.size());
        const auto uses = live_.uses_of(b);
        const std::size_t next = live_.use_at_or_after(b, static_cast<std::int32_t>(op + 1));
        if (next < uses.size()) return -(origin + uses[next].op);
        if (!trace_.buffers[b].persistent || uses.empty()) return -(std::int64_t{1} << 60);
        return -(origin + uses.front().op + static_cast<std::int64_t>(trace_.ops.size()));
    }

    void enter(std::size_t b, std::int64_t op) {
        if (resident_[b]) queue_.erase({key_[b], b});
        else used_ += size(b);
        resident_[b] = 1;
        key_[b] = key_at(b, op);
        queue_.insert({key_[b], b});
    }

    void leave(std::size_t b) {
        if (!resident_[b]) return;
        resident_[b] = 0;
        used_ -= size(b);
        queue_.erase({key_[b], b});
    }

    void make_room(std::size_t k, Plan* plan) {
        std::int64_t need = trace_.ops[k].workspace.value;
        const auto named = live_.buffers_of(k);
        for (const std::int32_t b : named)
            if (!resident_[static_cast<std::size_t>(b)]) need += size(static_cast<std::size_t>(b));
        for (const std::size_t b : allocs_[k])
            if (!std::binary_search(named.begin(), named.end(), static_cast<std::int32_t>(b))) need += size(b);
        auto candidate = queue_.begin();
        while (used_ + need > memory_ && candidate != queue_.end()) {
            const std::size_t b = candidate->second;
            ++candidate;
            if (size(b) == 0 || std::binary_search(named.begin(), named.end(), static_cast<std::int32_t>(b))) continue;
            leave(b);
            if (plan) plan->actions.push_back({Do::evict, OpIndex(static_cast<std::int32_t>(k ? k : trace_.ops.size()) - 1), BufferId(static_cast<std::int32_t>(b))});
        }
    }

    void run(std::size_t k) {
        ++clock_;
        for (const std::size_t b : allocs_[k]) enter(b, static_cast<std::int64_t>(k));
        for (const std::int32_t b : live_.buffers_of(k)) enter(static_cast<std::size_t>(b), static_cast<std::int64_t>(k));
    }

    void finish(std::size_t k) {
        for (const std::size_t b : frees_[k]) leave(b);
    }

    // What the end of the iteration must do so that the next begins with `start` on the device.
    void close(Plan& plan, const std::vector<char>& start, const std::vector<char>& end) {
        const OpIndex last(static_cast<std::int32_t>(trace_.ops.size()) - 1);
        for (std::size_t b = 0; b < start.size(); ++b) {
            if (!trace_.buffers[b].persistent) continue;
            const BufferId id(static_cast<std::int32_t>(b));
            if (!start[b]) plan.start_evicted.push_back(id);
            if (end[b] && !start[b]) plan.actions.push_back({Do::evict, last, id});
        }
        for (std::size_t b = 0; b < start.size(); ++b)
            if (trace_.buffers[b].persistent && start[b] && !end[b]) plan.actions.push_back({Do::prefetch, last, BufferId(static_cast<std::int32_t>(b))});
    }

    const Trace& trace_;
    Liveness live_;
    std::int64_t memory_;
    bool farthest_;
    std::int64_t used_ = 0, clock_ = 0, turn_ = 0;
    std::vector<char> resident_;
    std::vector<std::int64_t> key_;
    std::set<std::pair<std::int64_t, std::size_t>> queue_;
    std::vector<std::vector<std::size_t>> allocs_, frees_;
};

}  // namespace

Plan plan_demand(const Trace& trace, const Machine& machine, const PlannerOptions&) {
    Plan plan = Paging(trace, machine, false).play(12);
    plan.policy = "demand";
    return plan;
}

Plan plan_belady(const Trace& trace, const Machine& machine, const PlannerOptions&) {
    Plan plan = Paging(trace, machine, true).play(12);
    plan.policy = "belady";
    return plan;
}

}  // namespace udnnmem::policy
