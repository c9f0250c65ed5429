// The machine model rule by rule, on traces small enough to work out by hand: links of 1 byte a ns,
// latency 10 ns, ops of a few hundred ns.
#include "tests/catch.hpp"

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

TEST_CASE("costs of a card: lookahead, turnaround, mapping, hashing", "[simulator]") {
    const auto t = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {}, {1}).op(10, {1}, {}).op(10, {0}, {}).trace();
    auto m = machine(200);
    CHECK(simulate(t, m, {}).time.value == 40);
    m.lookahead = 2;
    CHECK(simulate(t, m, {}).time.value == 40);
    const auto chain = Builder().buffer(100).buffer(100).op(10, {}, {0}).op(10, {0}, {}).op(10, {}, {1}).op(10, {1}, {}).trace();
    m.memory = Bytes(100);
    m.lookahead = 1;  // op 2's frames are wanted when op 1 starts, and op 1's input is still there
    CHECK(simulate(chain, m, {}).error.find("op 2 waits") != std::string::npos);
    m.lookahead = 0;
    m.turnaround = Nanoseconds(5);
    CHECK(simulate(chain, m, {}).time.value == 50);
    m.turnaround = {};
    m.map = Nanoseconds(3);
    CHECK(simulate(chain, m, {}).time.value == 46);
    m.map = {};
    m.hash_rate = 1e9;
    const auto hashed = simulate(t, [&] { auto h = m; h.memory = Bytes(100); return h; }(), {"", {}, {evict(0, 0), prefetch(1, 0)}});
    REQUIRE(hashed.valid);
    CHECK(hashed.time.value == 360);
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
