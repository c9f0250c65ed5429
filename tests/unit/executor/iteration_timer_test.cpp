// Times of iterations, on a driver that counts events and never gets to one unless it is told.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <vector>

#include "shim/executor/iteration_timer.hpp"
#include "shim/executor/op_clock.hpp"

using namespace udnnmem;

namespace {

std::uintptr_t g_made;
bool g_come;
CUcontext g_current;
std::set<CUevent> g_gone;   // recorded after their context went: an error on a card

pager::Driver counting_driver() {
    g_made = 0, g_come = false, g_current = reinterpret_cast<CUcontext>(1);
    g_gone.clear();
    pager::Driver d;
    d.cuCtxGetCurrent = [](CUcontext* c) { return *c = g_current, CUDA_SUCCESS; };
    d.cuEventCreate = [](CUevent* e, unsigned) { return *e = reinterpret_cast<CUevent>(++g_made), CUDA_SUCCESS; };
    d.cuEventRecord = [](CUevent e, CUstream) { return g_gone.count(e) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS; };
    d.cuEventQuery = [](CUevent) { return g_come ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; };
    d.cuEventElapsedTime = [](float* ms, CUevent, CUevent) { return *ms = 1, CUDA_SUCCESS; };
    return d;
}

}  // namespace

TEST_CASE("a device that falls far behind costs no more events") {
    const pager::Driver driver = counting_driver();
    executor::IterationTimer timer(driver);
    int told = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) timer.begin(nullptr, i, true);
    CHECK(g_made <= 16);
    g_come = true;
    timer.poll([&](std::uint64_t, std::int64_t ns) { told += ns == 1000000; });
    CHECK(told > 0);
}

TEST_CASE("events of a context that went are not used again") {
    const pager::Driver driver = counting_driver();
    executor::IterationTimer timer(driver);
    for (std::uint64_t i = 0; i < 4; ++i) timer.begin(nullptr, i, true);
    timer.context_destroying(g_current);
    for (std::uintptr_t e = 1; e <= g_made; ++e) g_gone.insert(reinterpret_cast<CUevent>(e));
    for (std::uint64_t i = 0; i < 2; ++i) timer.begin(nullptr, i, true);   // the next context has the same handle
    g_come = true;
    int told = 0;
    timer.poll([&](std::uint64_t, std::int64_t) { ++told; });
    CHECK(told == 1);
}

TEST_CASE("two threads' ops between the same two calls are no op's time, and cost no more events") {
    const pager::Driver driver = counting_driver();
    executor::OpClock clock(driver);
    const CUstream one = reinterpret_cast<CUstream>(1), two = reinterpret_cast<CUstream>(2);
    g_come = true;
    int told = 0;
    for (int i = 0; i < 1000; ++i) {
        clock.begin(one, 0, 0);
        clock.begin(two, 0, 0);
        clock.end(one);
        clock.end(two);
        clock.poll([&](const executor::OpClock::Timed& t) { told += t.took.value == 1000000; });
    }
    CHECK(g_made <= 16);
    CHECK(told >= 998);   // the second ones; that of the iteration that goes on comes later
}

TEST_CASE("each op is timed often, and seldom from then on") {
    const pager::Driver driver = counting_driver();
    const CUstream stream = reinterpret_cast<CUstream>(1);
    g_come = true;
    for (const std::int32_t steps : {64, 256, 1000}) {
        executor::OpClock clock(driver);
        std::vector<int> timed(static_cast<std::size_t>(steps));
        const auto iteration = [&](std::uint64_t before) {   // ops of it that are timed
            int ops = 0;
            for (std::int32_t k = 0; k < steps; ++k) {
                if (!clock.wants(k, executor::OpClock::apart(timed.size(), before))) continue;
                clock.begin(stream, 0, k);
                clock.end(stream);
                ++timed[static_cast<std::size_t>(k)], ++ops;
            }
            clock.poll([](const executor::OpClock::Timed&) {});
            return ops;
        };
        constexpr int few = executor::OpClock::few_timed + 1;   // the first one is, each time
        std::uint64_t before = 0;
        while (before < 1000 && iteration(before) > few) ++before;
        CHECK(before < 1000);
        CHECK(*std::min_element(timed.begin(), timed.end()) >= static_cast<int>(executor::OpClock::often));
    }
}
