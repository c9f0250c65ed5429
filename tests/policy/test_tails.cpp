// What becomes of buffers that are held after their last use: settle_tails() on small traces, and on random ones, where the ops that it
// gives for a dropped tail are run on contents that are numbers.
#include "tests/catch.hpp"

#include <algorithm>
#include <map>

#include "policy/liveness.hpp"
#include "policy/planner.hpp"
#include "policy/simulator.hpp"
#include "policy/tails.hpp"
#include "tests/policy/networks.hpp"
#include "tests/policy/small_traces.hpp"

using namespace udnnmem;
using namespace udnnmem::policy;
using namespace udnnmem::tests;

namespace {

// 1 and 2 are made of 0, which lasts; all that is made is freed after the last op.
profiler::Trace held() {
    profiler::Trace t = Builder().persistent(100).buffer(100).buffer(100).buffer(100)
                            .op(1000, {0}, {1}).op(1000, {1}, {2}).op(1000, {2}, {3}).op(1000, {3}, {}).replayable().trace();
    for (int b : {1, 2, 3}) t.buffers[static_cast<std::size_t>(b)].free_op = OpIndex(3);
    return t;
}
Plan let_go() { return {"", {}, {drop(1, 1), drop(2, 2)}}; }
std::vector<OpIndex> ops(std::initializer_list<int> list) {
    std::vector<OpIndex> v;
    for (int k : list) v.push_back(OpIndex(k));
    return v;
}

// What buffers hold, as numbers that tell how they came about: a buffer's number after an op is made of those of all that the op
// reads, and of its own before. State, which any version will do of, counts as one number.
class Contents {
public:
    explicit Contents(const profiler::Trace& trace) : trace_(trace) {
        for (const profiler::TraceBuffer& b : trace.buffers)
            if (b.persistent) now_[b.id.value] = 1000u + static_cast<std::uint64_t>(b.id.value);
    }
    void run(std::int32_t k, std::map<std::int32_t, std::uint64_t>* made = nullptr) {
        const profiler::TraceOp& op = trace_.ops[static_cast<std::size_t>(k)];
        std::uint64_t sum = static_cast<std::uint64_t>(k) + 1;
        for (const BufferId b : op.reads) sum = sum * 0x9e3779b97f4a7c15u + (state(op, b) ? 7 : made && made->count(b.value) ? (*made)[b.value] : now_[b.value]);
        for (const BufferId b : op.writes) {
            if (made && state(op, b)) continue;
            std::uint64_t& to = made ? (*made)[b.value] : now_[b.value];
            to = (to ^ sum) * 0xff51afd7ed558ccdu + static_cast<std::uint64_t>(b.value);
        }
    }
    void begins(std::int32_t b) { now_[b] = 0; }
    std::uint64_t of(std::int32_t b) { return now_[b]; }

private:
    bool state(const profiler::TraceOp& op, BufferId b) const {
        return trace_.buffers[static_cast<std::size_t>(b.value)].persistent && std::binary_search(op.writes.begin(), op.writes.end(), b) && std::binary_search(op.reads.begin(), op.reads.end(), b);
    }
    const profiler::Trace& trace_;
    std::map<std::int32_t, std::uint64_t> now_;
};

}  // namespace

TEST_CASE("a tail is dropped with the ops that make it again of what outlives it") {
    const profiler::Trace t = held();
    const SettledPlan s = settle_tails(t, let_go(), true);
    REQUIRE(s.plan.actions.size() == 2);
    REQUIRE(s.dropped.size() == 2);
    for (const Action& a : s.plan.actions) CHECK(a.what == Do::drop);
    CHECK(s.dropped[0].buffer == BufferId(1));
    CHECK(s.dropped[0].freed == OpIndex(3));
    CHECK(s.dropped[0].ops == ops({0}));
    CHECK(s.dropped[1].ops == ops({0, 1}));   // 1 may be freed before 2
}

TEST_CASE("a tail that cannot be made again is copied out") {
    profiler::Trace t = held();
    bool recompute = true;
    SECTION("since nothing may") { recompute = false; }
    SECTION("since its op may not") { t.ops[0].replayable = t.ops[1].replayable = false; }
    SECTION("since what it is made of is written over before it is freed") { t.ops[3].writes = {BufferId(0)}; }
    const SettledPlan s = settle_tails(t, let_go(), recompute);
    CHECK(s.dropped.empty());
    REQUIRE(s.plan.actions.size() == 2);
    for (const Action& a : s.plan.actions) CHECK(a.what == Do::evict);
    CHECK(simulate(t, machine(300), s.plan).valid);
}

TEST_CASE("told of tails, the planner leaves them where there is room, and counts what else they cost") {
    profiler::Trace t = held();
    PlannerOptions options;
    options.time_budget = Nanoseconds(0);
    const auto time = [&](std::int64_t memory) {
        const SettledPlan s = settle_tails(t, find_planner("udnn")->make_plan(t, machine(memory), options), options.recompute);
        if (options.tails && memory == 400) CHECK(s.plan.actions.empty());
        return simulate(t, machine(memory), s.plan).time.value;
    };
    options.tails = true;
    CHECK(time(400) == 4000);
    CHECK(time(300) == 4000);   // one is dropped
    options.recompute = false;
    t.ops[1].duration = t.ops[2].duration = t.ops[3].duration = Nanoseconds(10);
    CHECK(time(300) > time(400));   // one is copied out
}

TEST_CASE("a drop that a replay follows is none of a tail") {
    profiler::Trace t = Builder().persistent(100).buffer(100).buffer(100).op(1000, {0}, {1}).op(1000, {0}, {2}).op(1000, {2}, {}).op(1000, {1}, {}).replayable().trace();
    Plan plan{"", {}, {drop(0, 1), act(Do::replay, 3, -1)}};
    plan.actions[1].ops = ops({0});
    plan.actions[1].buffers = {BufferId(1)};
    const SettledPlan s = settle_tails(t, plan, true);
    CHECK(s.plan.actions.size() == 2);
    CHECK(s.dropped.empty());
}

TEST_CASE("on random traces what is dropped for good can be made again at any time until it is freed") {
    Random random(11);
    std::size_t dropped = 0, evicted = 0;
    for (int i = 0; i < 600; ++i) {
        profiler::Trace trace = anything(random, 14);
        const auto last = static_cast<std::int32_t>(trace.ops.size()) - 1;
        for (profiler::TraceBuffer& b : trace.buffers)
            if (!b.persistent && b.free_op.value >= 0 && chance(random, 60)) b.free_op = OpIndex(static_cast<std::int32_t>(between(random, b.free_op.value, last)));
        const Liveness live(trace);
        for (profiler::TraceBuffer& b : trace.buffers)
            if (!b.persistent && b.free_op.value < 0 && live.last(static_cast<std::size_t>(b.id.value)) >= 0 && chance(random, 70))
                b.free_op = OpIndex(static_cast<std::int32_t>(between(random, live.last(static_cast<std::size_t>(b.id.value)), last)));
        const Liveness now(trace);
        Machine machine;
        machine.memory = Bytes(between(random, now.largest_working_set().value, std::max(now.largest_working_set(), now.peak()).value));
        machine.link_in = machine.link_out = 1e9 * static_cast<double>(now.peak().value + 1) / static_cast<double>(now.ideal().value + 1);
        PlannerOptions options;
        options.recompute = chance(random, 80);
        options.tails = chance(random, 70);
        options.time_budget = Nanoseconds(0);
        const Plan plan = find_planner("udnn")->make_plan(trace, machine, options);
        if (!simulate(trace, machine, plan).valid) continue;
        const SettledPlan s = settle_tails(trace, plan, options.recompute);
        INFO("trace " << i);
        CHECK((options.recompute || s.dropped.empty()));
        REQUIRE(s.plan.actions.size() == plan.actions.size());
        for (std::size_t k = 0; k < plan.actions.size(); ++k) evicted += plan.actions[k].what != s.plan.actions[k].what;
        for (const DroppedTail& tail : s.dropped) {
            ++dropped;
            const std::int32_t b = tail.buffer.value;
            const auto used = now.uses_of(static_cast<std::size_t>(b)).back().op;
            Contents contents(trace);
            std::uint64_t was = 0;
            for (std::int32_t k = 0; k <= last; ++k) {
                for (const profiler::TraceBuffer& other : trace.buffers)
                    if (!other.persistent && now.first(static_cast<std::size_t>(other.id.value)) == k) contents.begins(other.id.value);
                contents.run(k);
                if (k == used) was = contents.of(b);
                // What is freed after this op is gone, but for the tail itself.
                for (const profiler::TraceBuffer& other : trace.buffers)
                    if (!other.persistent && other.id.value != b && now.last(static_cast<std::size_t>(other.id.value)) <= std::min(k, tail.freed.value)) contents.begins(other.id.value);
                if (k < used || k > tail.freed.value) continue;
                Contents copy = contents;
                if (k == tail.freed.value)
                    for (const profiler::TraceBuffer& other : trace.buffers)
                        if (!other.persistent && now.last(static_cast<std::size_t>(other.id.value)) <= k) copy.begins(other.id.value);
                std::map<std::int32_t, std::uint64_t> made;
                for (const OpIndex op : tail.ops) copy.run(op.value, &made);
                REQUIRE(made[b] == was);
            }
        }
    }
    CHECK(dropped > 100);
    CHECK(evicted > 100);
}
