// The event engine behind simulate(): one compiled trace on one machine, judged plan after plan without
// allocating. The rules are those of policy/README.md; the comments here say only where a rule is kept.
//
// Time goes from event to event (end of the running op, end of the transfer of each link, release of
// frames held back by a card's costs). At one instant: ends; actions; the next op's frames; the queues.
// One Engine serves one thread; the trace it was made with must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policy/compiled.hpp"
#include "policy/machine.hpp"
#include "policy/simulator.hpp"

namespace udnnmem::policy {

enum class Fault : std::uint8_t {
    none, start_memory, start_host, no_copy, action_not_resident, action_leaving, evict_needed, prefetch_no_copy,
    made_present, stuck, steady_state, too_slow,
};

struct Verdict {
    Fault fault = Fault::none;
    std::int32_t op = -1, buffer = -1;  // where a rule is broken
    std::int64_t time = 0, in = 0, out = 0, recompute = 0, demand = 0;  // of the last iteration; time: the period
    std::int64_t peak = 0, peak_host = 0;
    bool valid() const { return fault == Fault::none; }
};

struct EngineTimeline {
    std::vector<std::int64_t> ready, start, end;  // per op, relative to the iteration's start
    // Per op, its replays included: time lost for want of data (the inward link) and for want of frames (the
    // outward), and since when that link had been working without a pause. ns.
    std::vector<std::int64_t> starved, crowded, in_since, out_since;
};

class Engine {
public:
    Engine(const CompiledTrace& trace, const Machine& machine);

    // At most `iterations` iterations, fewer once they repeat; stops (too_slow) as soon as one but the
    // first has lasted longer than `give_up_after` ns. With the 8 of the machine model the time is the published one.
    Verdict run(const CompiledPlan& plan, int iterations = 8, std::int64_t give_up_after = INT64_MAX, EngineTimeline* timeline = nullptr);

    const Machine& machine() const { return machine_; }
    std::int64_t in_time(std::int32_t buffer) const { return in_time_[buffer]; }   // ns of its transfer
    std::int64_t out_time(std::int32_t buffer) const { return out_time_[buffer]; }
    static std::string explain(const Verdict& verdict);

private:
    struct Entry {
        std::int32_t buffer;
        std::int32_t life;     // of the buffer when queued: a transfer of an earlier life is void
        std::int32_t version;  // of its contents when queued
        bool evict;
    };
    struct Queue {
        std::vector<Entry> entries;
        std::size_t head = 0;
        std::int64_t end = 0;      // of the running transfer
        Entry current{};
        std::int64_t since = 0;    // when it last began after a pause
        bool busy = false;
        bool empty() const { return head == entries.size(); }
        void reset() { entries.clear(); head = 0; busy = false; end = since = 0; }
    };
    struct Item {
        std::int32_t op;
        std::int32_t step;    // -1: the op itself; else index into the plan's steps
        std::int32_t chain;
    };
    struct Held { std::int64_t until, bytes; };
    enum State : std::uint8_t { absent, resident, leaving, arriving };

    void reset(const CompiledPlan& plan);
    void lay_out(const CompiledPlan& plan);
    bool act(const CompiledPlan& plan, std::int32_t op);
    bool names(const CompiledPlan& plan, std::int64_t index, std::int32_t buffer, bool made) const;
    bool held_ahead(const CompiledPlan& plan, std::int32_t buffer) const;
    bool needed_soon(const CompiledPlan& plan, std::int32_t buffer) const;
    bool admit(const CompiledPlan& plan, std::int64_t item);
    bool ask(const CompiledPlan& plan, const Item& item);
    void start(const CompiledPlan& plan, const Item& item);
    void finish(const CompiledPlan& plan, const Item& item);
    bool start_transfers();
    void end_in();
    void end_out();
    void die(std::int32_t buffer);
    void stale(std::int32_t buffer);
    void give(std::int64_t bytes, std::int64_t extra);
    void take(std::int64_t bytes) { used_ += bytes; if (used_ > peak_) peak_ = used_; }
    bool fail(Fault fault, std::int32_t op, std::int32_t buffer) { verdict_.fault = fault; verdict_.op = op; verdict_.buffer = buffer; return false; }
    std::int64_t frames(std::int32_t buffer) const;
    void signature(std::vector<std::int64_t>& out) const;

    const CompiledTrace& trace_;
    Machine machine_;
    std::vector<std::int64_t> in_time_, out_time_, evict_time_;
    std::vector<std::uint8_t> state_, host_valid_, charged_, copying_;
    std::vector<std::int32_t> version_, life_, pending_, out_queued_;
    std::vector<Item> items_;
    Queue in_, out_;
    std::vector<Held> held_;
    std::size_t held_head_ = 0;
    std::int64_t now_ = 0, used_ = 0, peak_ = 0, host_used_ = 0, host_peak_ = 0;
    std::int64_t in_bytes_ = 0, out_bytes_ = 0, recompute_ = 0, demand_ = 0;
    std::int64_t admitted_ = 0, done_ = 0;  // items admitted and ended since the start, over all iterations
    bool asked_ = false, starved_ = false;
    Verdict verdict_;
    std::vector<std::int64_t> before_, after_;
};

}  // namespace udnnmem::policy
