// The machine model rule by rule, on traces small enough to work out by hand: links of 1 byte a ns,
// latency 10 ns, ops of a few hundred ns.
#include "tests/catch.hpp"

#include "policy/bounds.hpp"
#include "policy/simulator.hpp"
#include "tests/policy/small_traces.hpp"

using namespace udnnmem;
using namespace udnnmem::policy;
using namespace udnnmem::tests;

TEST_CASE("all resident: the period is the sum of the durations, the peak is peak live", "[simulator]") {
    const auto t = Builder().buffer(100).buffer(50).op(10, {}, {0}).op(20, {0}, {1}, 7).op(30, {1}, {}).trace();
    const auto out = simulate(t, machine(157), {});
    REQUIRE(out.valid);
    CHECK(out.time.value == 60);
    CHECK(out.stall.value == 0);
    CHECK(out.peak.value == 157);
    CHECK_FALSE(simulate(t, machine(156), {}).valid);
}

TEST_CASE("a hopeless link is slow, and so is a hopeless hash", "[simulator]") {
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0, 1}, {}).trace();
    const Plan plan{"", {}, {evict(0, 0), prefetch(1, 0)}};
    const std::int64_t day = 86'400'000'000'000;
    for (const double rate : {1e-9, 1e-300}) {
        auto m = machine(200);
        m.link_in = m.link_out = rate;
        CHECK(simulate(t, m, plan).time.value > 30 * day);
        m.memory = Bytes(150);
        CHECK(lower_bound(t, m).value > 30 * day);
        m = machine(200);
        m.hash_rate = rate;
        CHECK(simulate(t, m, plan).time.value > 30 * day);
    }
}

TEST_CASE("evict and prefetch: latency and bytes, frames free at the copy's end", "[simulator]") {
    // b0 made by op 0, used again by op 3; b1 (op 1 to 2) does not fit beside it.
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0}, {}).trace();
    const Plan plan{"", {}, {evict(0, 0), prefetch(1, 0)}};
    const auto out = simulate(t, machine(100), plan);
    REQUIRE(out.valid);
    // op 0 to 10, out to 120, op 1 and 2 to 140, in to 250 (it blocks until b1 is dead), op 3 to 260.
    CHECK(out.time.value == 260);
    CHECK(out.in.value == 100);
    CHECK(out.out.value == 100);
    CHECK(out.demand_fetches == 0);
    CHECK(simulate(t, machine(100), {"", {}, {evict(0, 0)}}).demand_fetches == 1);
}

TEST_CASE("a clean copy makes the eviction free; a write in between does not", "[simulator]") {
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(200, {0}, {}).op(10, {}, {1}).op(10, {0}, {}).trace();
    const auto out = simulate(t, machine(100), {"", {}, {clean(0, 0), evict(1, 0)}});
    REQUIRE(out.valid);
    CHECK(out.time.value == 10 + 200 + 10 + 110 + 10);
    const auto w = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(200, {0}, {0}).op(10, {}, {1}).op(10, {0}, {}).trace();
    const auto dirty = simulate(w, machine(100), {"", {}, {clean(0, 0), evict(1, 0)}});
    REQUIRE(dirty.valid);
    CHECK(dirty.time.value == 10 + 200 + 110 + 10 + 110 + 10);
    CHECK(dirty.out.value == 200);
}

TEST_CASE("what an op writes and leaves intact keeps its copy, and is no more what it was made as", "[simulator]") {
    const auto build = [](bool intact) {
        Builder builder;
        builder.buffer(100).buffer(100).op(10, {}, {0}).replayable().op(200, {0}, {0});
        if (intact) builder.intact(0);
        return builder.op(10, {}, {1}).op(10, {0}, {}).trace();
    };
    for (const bool intact : {false, true}) {
        const auto moved = simulate(build(intact), machine(100), {"", {}, {clean(0, 0), evict(1, 0)}});
        REQUIRE(moved.valid);
        CHECK(moved.out.value == (intact ? 100 : 200));
        CHECK(moved.time.value == 10 + 200 + (intact ? 0 : 110) + 10 + 110 + 10);
        CHECK(simulate(build(intact), machine(100), {"", {}, {drop(1, 0), replay(3, {0}, {0})}}).error.find("old version") != std::string::npos);
    }
}

TEST_CASE("queues do not overtake, the next op takes frames before the queues", "[simulator]") {
    const auto t = Builder().persistent(50).persistent(50).buffer(60).op(10, {}, {}).op(100, {}, {2}).op(10, {0, 1}, {}).trace();
    // At op 0's end 60 bytes are free: op 1 takes them, the prefetch waits until b2 is dead.
    const auto out = simulate(t, machine(60), {"", {BufferId(0), BufferId(1)}, {prefetch(0, 0), prefetch(0, 1), evict(2, 0), evict(2, 1)}});
    CHECK_FALSE(out.valid);  // both do not fit for op 2
    const auto fits = simulate(t, machine(110), {"", {BufferId(0), BufferId(1)}, {prefetch(0, 0), prefetch(0, 1), evict(2, 0), evict(2, 1)}});
    INFO(fits.error);
    REQUIRE(fits.valid);
    // b0 comes beside b2 from 10 to 70; b1 waits for b2's end at 110, to 170; op 2 ends at 180.
    CHECK(fits.time.value == 180);
}

TEST_CASE("drop and replay: chains, intermediates, state, in-place writers", "[simulator]") {
    // x -> a (op 0), a -> b (op 1), b updated in place (op 2), op 3 fills memory, op 4 uses b.
    Builder builder;
    builder.buffer(10).buffer(40).buffer(40).buffer(80).persistent(5);
    builder.op(10, {}, {0}).op(10, {0}, {1}).op(10, {1, 4}, {2, 4}).op(10, {2}, {2}).op(10, {}, {3}).op(10, {0, 2}, {});
    const auto t = builder.replayable().trace();
    const auto out = simulate(t, machine(95), {"", {}, {drop(3, 2), replay(5, {1, 2, 3}, {2})}});
    INFO(out.error);
    REQUIRE(out.valid);
    CHECK(out.time.value == 90);
    CHECK(out.recompute.value == 30);
    CHECK(out.peak.value == 95);  // twice: with b3, and the chain with its intermediate
    const auto partial = simulate(t, machine(95), {"", {}, {drop(3, 2), replay(5, {1, 2}, {2})}});
    CHECK(partial.error.find("old version") != std::string::npos);
    const auto in_place = simulate(t, machine(95), {"", {}, {drop(3, 2), replay(5, {3}, {2})}});
    CHECK(in_place.error.find("every writer") != std::string::npos);
    const auto missing = simulate(t, machine(95), {"", {}, {drop(3, 2), replay(5, {2, 3}, {2})}});
    CHECK(missing.error.find("neither on the device") != std::string::npos);
    CHECK(simulate(t, machine(95), {"", {}, {drop(3, 2)}}).error.find("op 5") != std::string::npos);
}

TEST_CASE("replay: what an op overwrites and what does not last is no state", "[simulator]") {
    // Op 1 makes b1 of b0, and changes b0: run again later it would find b0 as it left it.
    Builder builder;
    builder.buffer(40).buffer(40).buffer(80);
    builder.op(10, {}, {0}).op(10, {0}, {0, 1}).op(10, {}, {2}).op(10, {0, 1}, {});
    const auto t = builder.replayable().trace();
    CHECK(simulate(t, machine(120), {"", {}, {drop(1, 1), replay(3, {1}, {1})}}).error.find("overwritten") != std::string::npos);
    CHECK(simulate(t, machine(200), {"", {}, {drop(1, 1), replay(3, {0, 1}, {1})}}).valid);
}

TEST_CASE("steady state: what starts off the device ends there, and queues carry over", "[simulator]") {
    const auto t = Builder().persistent(100).buffer(100).op(10, {0}, {0}).op(300, {}, {}).op(10, {}, {1}).trace();
    // Prefetched for op 0 at the start: 110 + 10 + 300 + 10; evicted dirty after op 0, gone long before op 2.
    const auto out = simulate(t, machine(100), {"", {BufferId(0)}, {prefetch(-1, 0), evict(0, 0)}});
    REQUIRE(out.valid);
    CHECK(out.time.value == 430);
    CHECK(simulate(t, machine(100), {"", {BufferId(0)}, {prefetch(-1, 0)}}).error.find("op 2") != std::string::npos);
    CHECK(simulate(t, machine(200), {"", {BufferId(0)}, {prefetch(-1, 0)}}).error.find("start") != std::string::npos);
    CHECK(simulate(t, machine(200), {"", {}, {evict(0, 0)}}).error.find("start") != std::string::npos);
}

TEST_CASE("the host budget holds back copies; start_evicted counts", "[simulator]") {
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0}, {}).trace();
    auto m = machine(100);
    m.host = Bytes(100);
    CHECK(simulate(t, m, {"", {}, {evict(0, 0), prefetch(1, 0)}}).peak_host.value == 100);
    m.host = Bytes(99);
    CHECK(simulate(t, m, {"", {}, {evict(0, 0), prefetch(1, 0)}}).error.find("op 1") != std::string::npos);
}

TEST_CASE("actions that break a rule are refused by op and rule", "[simulator]") {
    const auto t = Builder().buffer(100).buffer(10).op(10, {}, {0}).op(10, {0}, {1}).op(10, {1}, {}).op(10, {0}, {}).trace();
    CHECK(simulate(t, machine(500), {"", {}, {evict(0, 0)}}).error.find("used by the next") != std::string::npos);
    CHECK(simulate(t, machine(500), {"", {}, {evict(0, 1)}}).error.find("not resident") != std::string::npos);
    CHECK(simulate(t, machine(500), {"", {}, {evict(1, 0), drop(2, 0)}}).error.find("way out") != std::string::npos);
    CHECK(simulate(t, machine(500), {"", {}, {prefetch(-1, 0)}}).error.find("no copy") != std::string::npos);
    CHECK(simulate(t, machine(500), {"", {}, {evict(9, 0)}}).error.find("op 9") != std::string::npos);
    CHECK(simulate(t, machine(500), {"", {BufferId(0)}, {}}).error.find("persistent") != std::string::npos);
}

TEST_CASE("turnaround: from an op's end until what it frees can serve the next", "[simulator][costs]") {
    auto m = machine(100);
    m.turnaround = Nanoseconds(5);
    // The end of a buffer: op 2 waits for b0's frames, and op 0 of the next iteration for b1's.
    const auto ends = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {0}, {}).op(10, {}, {1}).op(10, {1}, {}).trace();
    CHECK(simulate(ends, m, {}).time.value == 40 + 2 * 5);
    // Workspace.
    CHECK(simulate(Builder().op(10, {}, {}, 100).op(10, {}, {}, 60).trace(), m, {}).time.value == 20 + 2 * 5);
    CHECK(simulate(Builder().op(10, {}, {}, 40).op(10, {}, {}, 60).trace(), m, {}).time.value == 20);  // both fit
    // A drop: b1 waits for b0's frames, the replay for b1's, the next iteration for b0's.
    const auto dropped = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0}, {}).replayable().trace();
    CHECK(simulate(dropped, m, {"", {}, {drop(0, 0), replay(3, {0}, {0})}}).time.value == 50 + 3 * 5);
    // An eviction without a copy, for the host has one: b1 waits for b0's frames, b0's fetch for b1's, the next iteration for b0's.
    const auto evicted = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(200, {0}, {}).op(10, {}, {1}).op(10, {0}, {}).trace();
    CHECK(simulate(evicted, m, {"", {}, {clean(0, 0), evict(1, 0)}}).time.value == 340 + 3 * 5);
    // One with a copy: its frames are free at the copy's end, as ever.
    const auto copied = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0}, {}).trace();
    CHECK(simulate(copied, m, {"", {}, {evict(0, 0), prefetch(1, 0)}}).time.value == 260 + 2 * 5);
}

TEST_CASE("mapping: of fetches, of evictions' copies, of what begins to live", "[simulator][costs]") {
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0}, {}).trace();
    auto m = machine(200);
    m.map = Nanoseconds(3);
    CHECK(simulate(t, m, {}).time.value == 40 + 2 * 3);  // b0 and b1 begin
    m.lookahead = 1;                                     // then it is done before
    CHECK(simulate(t, m, {}).time.value == 40);
    m.lookahead = 0;
    m.memory = Bytes(100);
    CHECK(simulate(t, m, {"", {}, {evict(0, 0), prefetch(1, 0)}}).time.value == 260 + 4 * 3);
    // 100 MiB are frames of 64, 32 and 4 MiB.
    const auto large = Builder().buffer(100 << 20).op(10, {}, {0}).trace();
    m.memory = Bytes(100 << 20);
    CHECK(simulate(large, m, {}).time.value == 10 + 3 * 3);
}

TEST_CASE("hashing: at drops, at evictions, after replays", "[simulator][costs]") {
    auto m = machine(100);
    m.hash_rate = 2e9;  // 100 bytes in 50 ns
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0}, {}).replayable().trace();
    CHECK(simulate(t, m, {"", {}, {evict(0, 0), prefetch(1, 0)}}).time.value == 260 + 50);  // before the copy's frames are free
    const auto out = simulate(t, m, {"", {}, {drop(0, 0), replay(3, {0}, {0})}});
    CHECK(out.time.value == 50 + 2 * 50);  // the drop's and the replay's
    CHECK(out.recompute.value == 10 + 50);
    const auto evicted = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(200, {0}, {}).op(10, {}, {1}).op(10, {0}, {}).trace();
    CHECK(simulate(evicted, m, {"", {}, {clean(0, 0), evict(1, 0)}}).time.value == 340 + 50);  // the copy kept is compared
}

TEST_CASE("lookahead: what an op needs is there when the op that many before it starts", "[simulator][costs]") {
    // b0 is fetched for op 2 while ops 0 and 1 run, from 0 to 60.
    const auto t = Builder().persistent(50).op(100, {}, {}).op(100, {}, {}).op(10, {0}, {}).trace();
    const Plan plan{"", {BufferId(0)}, {prefetch(-1, 0), evict(2, 0)}};
    auto m = machine(50);
    CHECK(simulate(t, m, plan).time.value == 210);
    m.lookahead = 1;
    CHECK(simulate(t, m, plan).time.value == 210);
    m.lookahead = 2;
    CHECK(simulate(t, m, plan).time.value == 60 + 210);
    m.lookahead = 9;  // it ends with the iteration
    CHECK(simulate(t, m, plan).time.value == 60 + 210);

    // Frames: op 2's are wanted when op 1 starts, and op 1's input is still there.
    const auto chain = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {0}, {}).op(10, {}, {1}).op(10, {1}, {}).trace();
    m.memory = Bytes(100);
    m.lookahead = 1;
    CHECK(simulate(chain, m, {}).error.find("op 2 waits") != std::string::npos);
    m.memory = Bytes(200);
    CHECK(simulate(chain, m, {}).time.value == 40);

    // Replayed ops count: b1, fetched from op 1's end, is for the op after the replay.
    const auto replayed = Builder().buffer(40).persistent(50).op(10, {}, {0}).op(10, {}, {}).op(10, {0, 1}, {}).replayable().trace();
    const Plan again{"", {BufferId(1)}, {drop(0, 0), prefetch(1, 1), replay(2, {0}, {0}), evict(2, 1)}};
    m.lookahead = 0;
    CHECK(simulate(replayed, m, again).time.value == 20 + 60 + 10);  // the replay runs beside the fetch
    m.lookahead = 1;
    CHECK(simulate(replayed, m, again).time.value == 20 + 60 + 10 + 10);
}

TEST_CASE("with a lookahead, what ops hold that have not begun stays", "[simulator]") {
    // Op 2 reads buffer 0, and has its frames while op 1 runs.
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(1000, {}, {1}).op(10, {0}, {}).op(10, {0, 1}, {0}).op(10, {0}, {}).trace();
    auto m = machine(500);
    m.lookahead = 2;
    CHECK(simulate(t, m, {"", {}, {clean(0, 0), drop(1, 0)}}).error.find("used by the next op") != std::string::npos);
    CHECK(simulate(t, m, {"", {}, {evict(0, 0), prefetch(1, 0)}}).error.find("used by the next op") != std::string::npos);
    // A copy made before op 3 has begun to write is stale once it has, whenever op 3 took its frames.
    const auto out = simulate(t, m, {"", {}, {clean(1, 0)}});
    REQUIRE(out.valid);
    CHECK(out.out.value == 100);
    m.lookahead = 0;
    CHECK(simulate(t, m, {"", {}, {clean(0, 0), drop(1, 0)}}).valid);  // fetched again for op 2
}
