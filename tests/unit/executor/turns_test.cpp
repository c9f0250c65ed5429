// Turns: what is told later waits for what is told earlier, and not for ever.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "shim/executor/turns.hpp"

using namespace udnnmem;
using namespace std::chrono_literals;

TEST_CASE("an op waits for the turns that were taken before it, and for no others") {
    executor::Turns turns(1min);
    turns.wait_for(turns.taken());
    const std::uint64_t first = turns.take();
    const std::uint64_t told_between = turns.taken(), second = turns.take();
    std::atomic<int> went_on{0};
    std::thread between([&] { turns.wait_for(told_between), went_on |= 1; });
    std::thread last([&] { turns.wait_for(second), went_on |= 2; });
    std::this_thread::sleep_for(20ms);
    CHECK(went_on == 0);
    turns.over(first);
    between.join();
    std::this_thread::sleep_for(20ms);
    CHECK(went_on == 1);
    turns.over(second);
    last.join();
    CHECK(went_on == 3);
}

TEST_CASE("a turn that does not end is waited for once") {
    executor::Turns turns(50ms);
    const std::uint64_t stuck = turns.take();
    const auto begun = std::chrono::steady_clock::now();
    turns.wait_for(stuck);
    CHECK(std::chrono::steady_clock::now() - begun >= 50ms);
    turns.wait_for(stuck);   // returns: else the test does not end
    const std::uint64_t next = turns.take();
    std::thread waits([&] { turns.wait_for(next); });
    turns.over(next);
    waits.join();
    turns.over(stuck);
    turns.wait_for(next);
}
