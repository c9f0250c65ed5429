// Event pairs beside threads that wait in the driver, contexts that go, and a program whose current context is its own.
#include "tests/unit/learner/made_up_driver.hpp"

#include "shim/preload/op_timers.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using namespace udnnmem::preload;
using Reading = profiler::Recorder::Reading;

namespace {
std::int32_t timed(OpTimers& timers, CUstream stream) {
    const std::int32_t timer = timers.start(stream);
    timers.stop(timer, stream, true);
    return timer;
}
}  // namespace

TEST_CASE("a launch that waits for room on its stream keeps no other from being timed, or learning from its end") {
    MadeUpDriver::play();
    MadeUpDriver& driver = MadeUpDriver::one();
    static auto& timers = *new OpTimers({.only_events = true});   // stays: where it fails a thread still waits in it
    std::atomic<bool> over{false};
    std::thread waits([&] {
        MadeUpDriver::contexts = {MadeUpDriver::context(1)};
        timed(timers, MadeUpDriver::full);
    });
    REQUIRE(soon([&] { return driver.waiting == 1; }));
    std::thread others([&] {
        MadeUpDriver::contexts = {MadeUpDriver::context(1)};
        const std::int32_t timer = timed(timers, MadeUpDriver::stream(1));
        Nanoseconds begin{-1}, duration;
        if (timers.read(timer, begin, duration) == Reading::done && duration == Nanoseconds(500'000)) timers.close(), over = true;
    });
    CHECK(soon([&] { return over.load(); }));
    driver.gate = true;
    waits.join();
    others.join();
    CHECK(driver.held() == 0);   // also what was in use as the others were destroyed
    CHECK(driver.errors == 0);
}

TEST_CASE("the caller's context is what it was, whatever the events are of") {
    MadeUpDriver::play();
    OpTimers timers({.only_events = true});
    const std::int32_t timer = timed(timers, MadeUpDriver::stream(1));
    MadeUpDriver::contexts = {MadeUpDriver::context(2)};
    Nanoseconds begin{-1}, duration;
    CHECK(timers.read(timer, begin, duration) == Reading::done);
    CHECK(MadeUpDriver::contexts == std::vector{MadeUpDriver::context(2)});
    timers.close();
    CHECK(MadeUpDriver::contexts == std::vector{MadeUpDriver::context(2)});
    CHECK(MadeUpDriver::one().held() == 0);
}

TEST_CASE("a context does not go while its events are read") {
    MadeUpDriver::play();
    MadeUpDriver& driver = MadeUpDriver::one();
    OpTimers timers({.only_events = true});
    const std::int32_t timer = timed(timers, MadeUpDriver::stream(1));
    driver.slow = true;
    std::thread reads([&] {
        Nanoseconds begin{-1}, duration;
        timers.read(timer, begin, duration);
    });
    REQUIRE(soon([&] { return driver.waiting == 1; }));
    std::atomic<bool> gone{false};
    std::thread destroys([&] { timers.context_destroying(MadeUpDriver::context(1)), gone = true; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(gone);
    driver.gate = true;
    reads.join();
    destroys.join();
    timers.close();
    CHECK(driver.errors == 0);
}

TEST_CASE("pairs are used again, those of a context that went for another one") {
    MadeUpDriver::play();
    OpTimers timers({.only_events = true});
    Nanoseconds begin{-1}, duration;
    for (std::uintptr_t c = 1; c < 4; ++c) {
        MadeUpDriver::contexts = {MadeUpDriver::context(c)};
        for (int i = 0; i < 100; ++i) {
            const std::int32_t timer = timed(timers, MadeUpDriver::stream(1));
            CHECK(timer == 0);
            CHECK(timers.read(timer, begin, duration) == Reading::done);
            if (i % 3 == 0) timers.forget(timers.start(MadeUpDriver::stream(1)));
        }
        const std::int32_t pending = timed(timers, MadeUpDriver::stream(1));
        timers.context_destroying(MadeUpDriver::context(c));
        CHECK(timers.read(pending, begin, duration) == Reading::lost);
        std::lock_guard lock(MadeUpDriver::one().mutex);
        MadeUpDriver::one().events.clear();
    }
    CHECK(timers.start(MadeUpDriver::stream(1)) == 0);
    timers.stop(0, MadeUpDriver::stream(1), false);
    timers.close();
    CHECK(timers.start(MadeUpDriver::stream(1)) == -1);
    CHECK(MadeUpDriver::one().held() == 0);
    CHECK(MadeUpDriver::one().errors == 0);
}
