#include "shim/executor/executor.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "policy/compiled.hpp"
#include "policy/simulator.hpp"
#include "shim/host/quiet_thread.hpp"

namespace udnnmem::executor {
namespace {

constexpr std::size_t kMeasured = 5;      // iterations of a way before it is judged, the first of them not counted
constexpr std::chrono::milliseconds kPatience(100);  // with a planner, when the program ends
constexpr std::size_t kKept = 64;         // iterations whose times are kept
constexpr double kWorse = 1.02;           // a way that takes so much longer than the one before is given up
constexpr double kFasterByPlan = 0.98;    // a second plan is worth trying if it promises so much
// Costs of this executor on a card: frames are taken when an op is launched, some ops ahead of the device (so many that it
// has work meanwhile), and a move is noticed by a mover that looks every now and then.
constexpr int kLeastAhead = 2, kMostAhead = 8;
constexpr Nanoseconds kWorkAhead{400'000};
constexpr Nanoseconds kTurnaround{100'000}, kLatency{50'000};
constexpr double kAssumedLink = 12e9;     // bytes per second, until the first moves were timed
constexpr double kSpare = 0.01;           // of the memory, for frames that are stranded in a size class

struct Stopped {};

std::int64_t median(std::vector<std::int64_t> v) {
    if (v.empty()) return 0;
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

// Of a way: its first iteration began where the way before it had left things.
std::int64_t settled(const std::vector<std::int64_t>& times) {
    return times.size() > 1 ? median({times.begin() + 1, times.end()}) : median(times);
}

}  // namespace

Rows make_rows(const policy::Plan& plan, std::size_t steps) {
    Rows rows;
    std::vector<std::vector<Rows::Entry>> by_step(steps);
    for (const bool at_start : {false, true})
        for (const policy::Action& a : plan.actions) {
            if ((a.op.value < 0) != at_start) continue;
            // What begins with the iteration is ordered at the end of the one before.
            const std::size_t step = at_start ? steps - 1 : static_cast<std::size_t>(a.op.value);
            if (step >= steps) continue;
            switch (a.what) {
                case policy::Do::evict: by_step[step].push_back({pager::Order::Kind::evict, a.buffer.value}); break;
                case policy::Do::clean: by_step[step].push_back({pager::Order::Kind::clean, a.buffer.value}); break;
                case policy::Do::prefetch: by_step[step].push_back({pager::Order::Kind::fetch, a.buffer.value}); break;
                case policy::Do::drop:
                case policy::Do::replay: break;  // never planned without PlannerOptions::recompute
            }
        }
    rows.begin.push_back(0);
    for (const auto& row : by_step) {
        rows.entries.insert(rows.entries.end(), row.begin(), row.end());
        rows.begin.push_back(static_cast<std::uint32_t>(rows.entries.size()));
    }
    return rows;
}

Rows distorted(const Rows& rows, std::size_t buffers, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t steps = rows.begin.size() - 1;
    std::vector<std::vector<Rows::Entry>> by_step(steps);
    for (std::size_t k = 0; k < steps; ++k)
        for (std::uint32_t i = rows.begin[k]; i < rows.begin[k + 1]; ++i) {
            Rows::Entry entry = rows.entries[i];
            std::size_t at = k;
            switch (random() % 15) {
                case 0: entry.buffer = static_cast<std::int32_t>(random() % buffers); break;
                case 1: entry.kind = static_cast<pager::Order::Kind>(random() % 3); break;
                case 2: at = random() % steps; break;
                case 3: by_step[random() % steps].push_back(entry); break;
                case 4: continue;
                default: break;
            }
            by_step[at].push_back(entry);
        }
    Rows out;
    out.promised = rows.promised;
    out.lookahead = rows.lookahead;
    for (const auto& row : by_step) {
        out.begin.push_back(static_cast<std::uint32_t>(out.entries.size()));
        out.entries.insert(out.entries.end(), row.begin(), row.end());
    }
    out.begin.push_back(static_cast<std::uint32_t>(out.entries.size()));
    return out;
}

Executor::Executor(pager::Pager& pager, Settings settings) : pager_(pager), settings_(std::move(settings)), timer_(pager.driver()) {}

Executor::~Executor() { end(true); }

void Executor::end(bool patiently) noexcept {
    on_.store(false);
    std::unique_lock lock(job_mutex_);
    if (stopping_.exchange(true)) return;
    job_ready_.notify_all();
    if (thread_.joinable()) {
        auto gone = [this] { return has_ended_; };
        if (patiently) ended_.wait(lock, gone);
        else ended_.wait_for(lock, kPatience, gone);
        const bool joins = has_ended_;
        lock.unlock();
        if (joins) thread_.join();
        else thread_.detach();
    }
    const Figures f = figures();
    if (f.iterations)
        settings_.say(std::to_string(f.iterations) + " iterations followed, " + std::to_string(f.planned_iterations) + " by plan; on the device " +
                      std::to_string(f.planned.value / 1000) + " us by plan (" + std::to_string(f.promised.value / 1000) + " promised), " +
                      std::to_string(f.demand.value / 1000) + " us on demand");
}

// ---- planning --------------------------------------------------------------------------------------------------------

void Executor::learned(const profiler::Iteration& iteration) noexcept try {
    std::lock_guard lock(job_mutex_);
    if (stopping_.load()) return;
    job_ = std::make_unique<profiler::Iteration>(iteration);
    if (!thread_.joinable()) thread_ = host::quiet_thread([this] { run(); });
    job_ready_.notify_all();
} catch (...) {  // no memory, no thread: the run stays on demand
}

policy::Machine Executor::machine(pager::DevicePager& device, const profiler::Trace& trace) {
    const auto room = device.room();
    policy::Machine m;
    m.memory = Bytes(static_cast<std::int64_t>(static_cast<double>(room.movable) * (1 - kSpare)));
    m.host = Bytes(static_cast<std::int64_t>(room.host));
    m.link_in = room.in > 0 ? room.in : room.out > 0 ? room.out : kAssumedLink;
    m.link_out = room.out > 0 ? room.out : m.link_in;
    m.link_latency = kLatency;
    const std::int64_t typical = trace.header.ideal.value / static_cast<std::int64_t>(std::max<std::size_t>(1, trace.ops.size()));
    m.lookahead = static_cast<int>(std::clamp<std::int64_t>(kWorkAhead.value / std::max<std::int64_t>(1, typical), kLeastAhead, kMostAhead));
    m.turnaround = kTurnaround;
    return m;
}

// Null: there is none that can be carried out.
std::shared_ptr<const Rows> Executor::plan(const profiler::Trace& trace, const policy::Machine& machine, Nanoseconds look) {
    policy::PlannerOptions options;
    options.recompute = false;
    options.time_budget = look;
    options.progress = [this](double) {
        if (stopping_.load(std::memory_order_relaxed)) throw Stopped();
    };
    policy::Machine at_work = machine;
    policy::Plan made = settings_.planner->make_plan(trace, at_work, options);
    policy::Outcome outcome = policy::simulate(trace, at_work, made);
    while (!outcome.valid && at_work.lookahead > 0) {  // memory is too tight to have so many ops ready
        at_work.lookahead /= 2;
        made = settings_.planner->make_plan(trace, at_work, options);
        outcome = policy::simulate(trace, at_work, made);
    }
    if (!outcome.valid) {
        settings_.say("no plan for an iteration of " + std::to_string(trace.ops.size()) + " ops: " + outcome.error);
        return nullptr;
    }
    auto rows = std::make_shared<Rows>(make_rows(made, trace.ops.size()));
    rows->promised = outcome.time;
    rows->lookahead = at_work.lookahead;
    if (settings_.lie) *rows = distorted(*rows, trace.buffers.size(), *settings_.lie);
    auto ms = [](Nanoseconds t) { return std::to_string(t.value / 1000) + " us"; };
    settings_.say("plan by " + std::string(settings_.planner->name) + " for an iteration of " + std::to_string(trace.ops.size()) +
                  " ops: " + ms(outcome.time) + " promised, " + ms(outcome.ideal) + " with all memory; " + std::to_string(rows->entries.size()) +
                  " orders, links " + std::to_string(static_cast<long>(machine.link_in / 1e6)) + " MB/s in, " +
                  std::to_string(static_cast<long>(machine.link_out / 1e6)) + " MB/s out");
    return rows;
}

void Executor::run() {
    if (settings_.thread_started) settings_.thread_started();
    work();
    std::lock_guard lock(job_mutex_);
    has_ended_ = true;
    ended_.notify_all();
}

void Executor::work() {
    while (true) {
        std::unique_ptr<profiler::Iteration> job;
        {
            std::unique_lock lock(job_mutex_);
            job_ready_.wait(lock, [&] { return job_ || stopping_.load(); });
            if (stopping_.load()) return;
            job = std::move(job_);
        }
        try {
            const auto devices = pager_.devices();
            if (devices.size() != 1) {
                settings_.say("more than one device: no plan, memory is paged on demand");
                continue;
            }
            pager::DevicePager& device = *devices[0];
            auto sequence = std::make_unique<Sequence>(
                make_sequence(*job, device.small_below(), device.granule(), [this](std::uint64_t at) { return pager_.find(at); }));
            job.reset();
            const policy::Machine m = machine(device, sequence->plan_trace);
            if (sequence->steps.empty() || policy::CompiledTrace(sequence->plan_trace).peak_live <= m.memory.value) continue;  // nothing to plan
            const Sequence& known = *sequence;
            {
                // Followed from now on, so that demand paging is measured too.
                std::lock_guard lock(mutex_);
                follower_.reset();
                watch_.reset();
                sequence_ = std::move(sequence);
                follower_ = std::make_unique<Follower>(*sequence_);
                watch_ = std::make_unique<WriteWatch>(pager_.driver(), *sequence_);
                watching_.store(true);
                device_ = &device;
                ways_.assign(1, Way{++last_tag_, nullptr, {}});
                next_.reset();
                watched_ = 0;
                whole_ = false;
                on_.store(true);
            }
            const auto first = plan(known.plan_trace, m, settings_.first_look);
            if (first) {
                std::lock_guard lock(mutex_);
                next_ = first;
            }
            if (!first || settings_.second_look.value <= 0 || first->promised <= known.plan_trace.header.ideal) continue;
            profiler::Trace seen = known.plan_trace;
            await_watch(seen);
            const auto second = plan(seen, m, settings_.second_look);
            if (second && static_cast<double>(second->promised.value) < kFasterByPlan * static_cast<double>(first->promised.value)) {
                std::lock_guard lock(mutex_);
                next_ = second;
            }
        } catch (const Stopped&) {
            return;
        } catch (const std::exception& e) {
            settings_.say(std::string("planning failed: ") + e.what());
        }
    }
}

// Takes what the watch saw, once it has seen all of it.
void Executor::await_watch(profiler::Trace& trace) {
    for (auto pause = std::chrono::milliseconds(2);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
        {
            std::lock_guard lock(mutex_);
            const bool over = !watch_ || watch_->gave_up(), seen = !over && watch_->queued() && watched_ && pager_.streams().complete(pager_.streams().all_streams(), watched_);
            if (seen) {
                const WriteWatch::Seen uses = watch_->apply(trace);
                settings_.say(std::to_string(uses.writes) + " of " + std::to_string(uses.all) + " uses of buffers were seen to write");
            }
            if (seen || over) {
                watching_.store(false);
                return;
            }
        }
        std::unique_lock lock(job_mutex_);
        job_ready_.wait_for(lock, pause, [&] { return job_ || stopping_.load(); });
        if (stopping_.load()) throw Stopped();
        if (job_) return;   // the program does something else by now
    }
}

// ---- the launch path -------------------------------------------------------------------------------------------------

// Where step 0 is about to be submitted.
void Executor::begin_iteration() {
    timer_.poll([this](std::uint64_t tag, std::int64_t ns) { measured(tag, ns); });
    judge();
    if (next_) ways_.push_back({++last_tag_, std::exchange(next_, nullptr), {}});
}

void Executor::measured(std::uint64_t tag, std::int64_t ns) {
    ++figures_.iterations;
    for (Way& way : ways_) {
        if (way.tag != tag) continue;
        if (way.rows) ++figures_.planned_iterations;
        way.times.push_back(ns);
        if (way.times.size() > kKept) way.times.erase(way.times.begin());
    }
}

// A way that is no better than the one before is given up.
void Executor::judge() {
    if (ways_.size() < 2 || ways_.back().times.size() != kMeasured || settings_.lie) return;
    const std::int64_t was = settled(ways_[ways_.size() - 2].times), is = settled(ways_.back().times);
    if (!was || static_cast<double>(is) <= kWorse * static_cast<double>(was)) return;
    settings_.say("plan given up: " + std::to_string(is / 1000) + " us an iteration, " + std::to_string(was / 1000) + " us without it");
    ways_.pop_back();
    if (!ways_.back().rows) lose();
}

// No order that was given counts any more.
void Executor::lose() {
    device_->forget_orders();
    whole_ = false;
    if (watch_) watch_->lost();
}

std::int32_t Executor::before(const char* name, std::uint64_t shape, pager::Op& op) noexcept try {
    std::lock_guard lock(mutex_);
    if (!follower_) return Follower::nowhere;
    named_.clear();
    auto movable = [this](pager::Buffer* b) {
        if (!b->slab) named_.push_back(b);
    };
    for (std::uint32_t i = 0; i < op.count; ++i) movable(op.buffers[i]);
    for (pager::Buffer* b : op.more) movable(b);
    const bool was_lost = follower_->lost();
    const std::int32_t step = follower_->at(name, shape, named_);
    if (step == Follower::nowhere) {
        if (!was_lost) {
            ++figures_.strayed;
            lose();
        }
        return step;
    }
    const Rows* rows = ways_.back().rows.get();
    if (step == 0) {
        begin_iteration();
        rows = ways_.back().rows.get();
    }
    while (first_clock_ + static_cast<std::uint64_t>(step) <= clock_) first_clock_ += sequence_->steps.size();
    clock_ = first_clock_ + static_cast<std::uint64_t>(step);
    if (!rows) return step;
    const Sequence::Step& known = sequence_->steps[static_cast<std::size_t>(step)];
    for (std::uint32_t i = 0; i < known.count; ++i) {
        const std::uint32_t again = sequence_->uses[known.first + i].again;
        named_[i]->next_use.store(again ? clock_ + again : 0, std::memory_order_relaxed);
    }
    device_->plan_step(clock_);
    const std::uint64_t behind = clock_ - static_cast<std::uint64_t>(rows->lookahead) - 1;
    if (const Passed& passed = recent_[behind % kRecent]; passed.clock == behind) {
        op.paced_by = passed.slot;
        op.paced_number = passed.number;
    }
    return step;
} catch (...) {
    return Follower::nowhere;
}

void Executor::submitted(std::int32_t step, const pager::Op& op) noexcept try {
    if (step == Follower::nowhere || !watching_.load(std::memory_order_relaxed)) return;
    std::lock_guard lock(mutex_);
    if (watch_ && follower_ && !op.captured) watch_->submitted(step, op, *follower_, *device_);
} catch (...) {
}

void Executor::context_destroying(CUcontext context) noexcept {
    std::lock_guard lock(mutex_);
    if (watch_) watch_->context_destroying(context);
}

void Executor::after(std::int32_t step, const pager::Op& op) noexcept try {
    if (step == Follower::nowhere) return;
    std::lock_guard lock(mutex_);
    if (!follower_ || !on()) return;
    if (watch_ && watch_->queued() && !watched_) {
        watched_ = pager_.streams().now();
        pager_.streams().mark(*op.slot);
    }
    if (watch_ && watch_->at_work()) whole_ = false;   // hashing takes its time
    if (step == 0) {
        timer_.begin(op.stream, ways_.back().tag, whole_);
        whole_ = true;
    }
    const Rows* rows = ways_.back().rows.get();
    if (!rows || static_cast<std::size_t>(step) + 1 >= rows->begin.size()) return;
    const std::uint64_t number = op.slot->last_op.load(std::memory_order_acquire);
    recent_[clock_ % kRecent] = {clock_, number, op.slot};
    if (op.slot->unmarked.load(std::memory_order_relaxed) > static_cast<std::uint32_t>(rows->lookahead) / 2) pager_.streams().mark(*op.slot);
    const std::uint32_t from = rows->begin[static_cast<std::size_t>(step)], to = rows->begin[static_cast<std::size_t>(step) + 1];
    if (from == to) return;
    orders_.clear();
    for (std::uint32_t i = from; i < to; ++i) {
        const Rows::Entry& entry = rows->entries[i];
        pager::Buffer* b = follower_->bound(entry.buffer);
        if (!b || b->device != device_) continue;
        if (entry.kind == pager::Order::Kind::fetch) orders_.push_back({entry.kind, b, b->id, number, op.slot});
        else orders_.push_back({entry.kind, b, b->id, b->last_use.load(std::memory_order_acquire)});
    }
    if (orders_.empty()) return;
    pager_.streams().mark(*op.slot);
    device_->order(orders_.data(), orders_.size());
} catch (...) {
}

Executor::Figures Executor::figures() {
    std::lock_guard lock(mutex_);
    Figures f = figures_;
    if (ways_.empty()) return f;
    f.demand = Nanoseconds(settled(ways_.front().times));
    const Way& way = ways_.back();
    f.by_plan = way.rows != nullptr;
    if (way.rows) {
        f.promised = way.rows->promised;
        f.planned = Nanoseconds(settled(way.times));
    }
    return f;
}

}  // namespace udnnmem::executor
