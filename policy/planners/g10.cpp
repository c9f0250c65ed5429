// G10 (H. Zhang, Y. Zhou, Y. Xue, Y. Liu, J. Huang, "G10: Enabling an efficient unified GPU memory and
// storage architecture with smart tensor migrations", MICRO 2023), with the host as its only other tier.
//
// Over and over, the inactive period is taken that relieves most: bytes x time above the line, which is
// 99 % of the memory. It must last 2.5 times as long as its two transfers take. Both are booked on their
// link: the eviction from the period's start on, the prefetch as late as it can be. When no period finds
// capacity any more and the load is still above the line, the rest is taken by the same rule without
// booking: late transfers are better than demand, which the paper leaves them to (its memory was never
// that scarce). Then prefetches move to earlier ops while there is room below the line. What is missing
// still goes by demand, the least recently used first, as in the paper.
#include "policy/planners/published.hpp"

#include <algorithm>
#include <queue>

#include "policy/player.hpp"

namespace udnnmem::policy {
namespace {

using profiler::Trace;

// What a link can still carry while each op runs, in an iteration that repeats.
class Channel {
public:
    Channel(const Trace& trace, double bandwidth) {
        for (const auto& op : trace.ops) free_.push_back(static_cast<double>(op.duration.value) * 1e-9 * bandwidth);
    }

    // The op in which a transfer ends that starts with op `from` and goes forward; limit if it does not end before.
    std::int32_t forward(double bytes, std::int32_t from, std::int32_t limit) const {
        while (from < limit && (bytes -= at(from)) > 0) ++from;
        return from;
    }
    // The op in which a transfer must start to end with op `from`, going back; limit if there is none after it.
    std::int32_t backward(double bytes, std::int32_t from, std::int32_t limit) const {
        while (from > limit && (bytes -= at(from)) > 0) --from;
        return from;
    }
    void book(double bytes, std::int32_t from, std::int32_t step, std::int32_t limit) {
        for (std::int32_t k = from; bytes > 0 && k != limit; k += step) {
            double& free = free_[static_cast<std::size_t>(k) % free_.size()];
            const double taken = std::min(free, bytes);
            free -= taken;
            bytes -= taken;
        }
    }

private:
    double at(std::int32_t k) const { return free_[static_cast<std::size_t>(k) % free_.size()]; }
    std::vector<double> free_;
};

struct Period {
    std::size_t buffer, use;   // the gap
    std::int32_t from, to;     // ops in it: [from, to), beyond the last op: of the next iteration
    double relief = 0;
    int generation = -1;
    bool operator<(const Period& other) const { return relief < other.relief; }
};

class G10 {
public:
    G10(const Trace& trace, const Machine& machine, const Liveness& live)
        : trace_(trace), machine_(machine), live_(live), ops_(static_cast<std::int32_t>(trace.ops.size())), line_(static_cast<std::int64_t>(0.99 * static_cast<double>(machine.memory.value))),
          in_(trace, machine.link_in), out_(trace, machine.link_out), start_(2 * trace.ops.size() + 1, 0) {
        for (std::size_t k = 0; k < trace.ops.size(); ++k) load_.push_back(live.live(k).value);
        for (std::size_t k = 0; k < 2 * trace.ops.size(); ++k) start_[k + 1] = start_[k] + static_cast<double>(trace.ops[k % trace.ops.size()].duration.value);
    }

    void choose(std::vector<Gap>& gaps) {
        std::priority_queue<Period> queue;
        for (std::size_t b = 0; b < trace_.buffers.size(); ++b) {
            const auto uses = live_.uses_of(b);
            const double transfers = static_cast<double>(trace_.buffers[b].bytes.value) * (1e9 / machine_.link_in + 1e9 / machine_.link_out) + 2.0 * static_cast<double>(machine_.link_latency.value);
            for (std::size_t i = 0; i < uses.size(); ++i) {
                const bool wraps = i + 1 == uses.size();
                if (wraps && !trace_.buffers[b].persistent) continue;
                Period period{b, i, uses[i].op + 1, wraps ? uses.front().op + ops_ : uses[i + 1].op};
                if (time(period.from, period.to) < 2.5 * transfers) continue;
                period.relief = 1e300;
                queue.push(period);
            }
        }
        take_all(queue, gaps);
        in_ = Channel(trace_, machine_.link_in);
        out_ = Channel(trace_, machine_.link_out);
        crowded_ = true;
        take_all(queue, gaps);
        hasten(gaps);
    }

private:
    void take_all(std::priority_queue<Period> queue, std::vector<Gap>& gaps) {
        // Relief only falls as periods are taken: who is up to date at the head of the queue is the largest.
        const int stride = 1 + ops_ / 4000;  // the line is drawn anew after so many
        int taken = 0;
        draw();
        while (!queue.empty() && over_ > 0) {
            Period period = queue.top();
            queue.pop();
            if (period.generation != generation_) {
                period.relief = size(period.buffer) * above(period.from, period.to);
                period.generation = generation_;
                if (period.relief > 0) queue.push(period);
                continue;
            }
            if (take(period, gaps) && ++taken % stride == 0) draw();
        }
    }

    double size(std::size_t b) const { return static_cast<double>(trace_.buffers[b].bytes.value); }
    double time(std::int32_t from, std::int32_t to) const { return start_[static_cast<std::size_t>(to)] - start_[static_cast<std::size_t>(from)]; }
    std::int64_t& load(std::int32_t k) { return load_[static_cast<std::size_t>(k % ops_)]; }

    void draw() {
        above_.assign(2 * static_cast<std::size_t>(ops_) + 1, 0);
        for (std::int32_t k = 0; k < 2 * ops_; ++k)
            above_[static_cast<std::size_t>(k) + 1] = above_[static_cast<std::size_t>(k)] + (load(k) > line_ ? std::max(1.0, time(k, k + 1)) : 0.0);
        over_ = above_.back();
        ++generation_;
    }
    double above(std::int32_t from, std::int32_t to) const { return above_[static_cast<std::size_t>(to)] - above_[static_cast<std::size_t>(from)]; }

    bool take(const Period& period, std::vector<Gap>& gaps) {
        const double bytes = size(period.buffer);
        if (gaps[live_.use_offset(period.buffer) + period.use].fate == Fate::evict) return false;
        const std::int32_t gone = out_.forward(bytes, period.from, period.to) + 1;
        const std::int32_t back = in_.backward(bytes, period.to - 1, period.from);
        if (gone >= back || above(gone, back) <= 0) return false;
        if (!crowded_) {
            out_.book(bytes, period.from, 1, period.to);
            in_.book(bytes, period.to - 1, -1, period.from);
        }
        for (std::int32_t k = gone; k < back; ++k) load(k) -= trace_.buffers[period.buffer].bytes.value;
        Gap& gap = gaps[live_.use_offset(period.buffer) + period.use];
        gap.fate = Fate::evict;
        gap.prefetch_after = back - 1;
        taken_.push_back({period.buffer, period.use, gone, back});
        return true;
    }

    void hasten(std::vector<Gap>& gaps) {
        std::sort(taken_.begin(), taken_.end(), [](const Period& a, const Period& b) { return a.to < b.to; });
        for (Period& period : taken_) {
            const std::int64_t bytes = trace_.buffers[period.buffer].bytes.value;
            while (period.to > period.from && load(period.to - 1) + bytes <= line_) {
                --period.to;
                load(period.to) += bytes;
            }
            gaps[live_.use_offset(period.buffer) + period.use].prefetch_after = period.to - 1;
        }
    }

    const Trace& trace_;
    const Machine& machine_;
    const Liveness& live_;
    const std::int32_t ops_;
    const std::int64_t line_;
    Channel in_, out_;
    bool crowded_ = false;               // the links have no capacity left to book
    std::vector<double> start_;          // of each op of two iterations, ns
    std::vector<std::int64_t> load_;     // bytes at each op
    std::vector<double> above_;          // time above the line before each op of two iterations, ns
    double over_ = 0;
    int generation_ = 0;
    std::vector<Period> taken_;
};

}  // namespace

Plan plan_g10(const Trace& trace, const Machine& machine, const PlannerOptions&) {
    const Liveness live(trace);
    std::vector<Gap> gaps = Player::keep_all(live);
    if (!trace.ops.empty()) G10(trace, machine, live).choose(gaps);
    Plan plan = Player(trace, live, machine).play(gaps, {PlayOptions::Order::recency});
    plan.policy = "g10";
    return plan;
}

}  // namespace udnnmem::policy
