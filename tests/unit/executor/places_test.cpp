// Ops of several threads between before() and submitted(), against a pager on a GPU that only keeps count.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "policy/planner.hpp"
#include "shim/executor/executor.hpp"
#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using executor::Executor;
using pager::test::Paged;

namespace {

// Ops of one buffer each, which outlives them.
profiler::Iteration loop_over(const std::vector<CUdeviceptr>& buffers, std::uint64_t shape) {
    profiler::Iteration found;
    found.begin = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const auto number = static_cast<std::int32_t>(i);
        auto& b = found.trace.buffers.emplace_back();
        b.id = BufferId(number);
        b.bytes = Bytes(2 * pager::test::granule);
        b.persistent = true;
        auto& op = found.trace.ops.emplace_back();
        op.index = OpIndex(number);
        op.duration = Nanoseconds(1000);
        op.reads = op.writes = {b.id};
        found.address.push_back(buffers[i]);
        found.steps.push_back({"op", shape, static_cast<std::uint32_t>(i), 1});
        found.used.push_back(number);
    }
    return found;
}

// An executor on device memory that cannot hold what loops over several buffers need.
struct Followed {
    Followed() {
        settings.planner = policy::find_planner("udnn");
        settings.say = [this](const std::string& line) {
            std::lock_guard lock(mutex);
            said.push_back(line);
        };
        settings.note = [](const std::string&) {};
        settings.search_again = [this] { ++searches; };
    }
    long told(const char* of) {
        std::lock_guard lock(mutex);
        return std::count_if(said.begin(), said.end(), [&](const std::string& line) { return line.find(of) != std::string::npos; });
    }
    bool known(long n) { return Paged::soon([&] { return told("is known") == n; }); }
    bool plans(long n, const char* of = "plan by udnn") { return Paged::soon([&] { return told(of) == n; }); }
    std::vector<CUdeviceptr> buffers(int n) {
        std::vector<CUdeviceptr> all;
        for (int i = 0; i < n; ++i) all.push_back(p.allocate(2));
        return all;
    }
    std::int32_t op(Executor& executor, std::uint64_t shape, const std::vector<CUdeviceptr>& named) {
        pager::Op op;
        for (const CUdeviceptr at : named) op.name(p.at(at));
        return executor.before("op", shape, op).step;
    }
    // Launches the ops of loop_over(loop, 1), `iterations` times.
    void run(Executor& executor, const std::vector<CUdeviceptr>& loop, int iterations) {
        for (int i = 0; i < iterations; ++i)
            for (const CUdeviceptr at : loop) {
                pager::Op op;
                op.name(p.at(at));
                const Executor::Place place = executor.before("op", 1, op);
                REQUIRE(p.begin(op, 1, {at}) == CUDA_SUCCESS);
                executor.submitted(place, op);
                p.pager->leave(op, CUDA_SUCCESS);
                executor.after(place, op);
            }
    }
    Paged p{{.device = 8, .host = 200, .lands = false, .times = true}};
    std::mutex mutex;
    std::vector<std::string> said;
    std::atomic<int> searches{0};
    Executor::Settings settings;
};

}  // namespace

TEST_CASE_METHOD(Followed, "an op that names freed memory too, by a word that nobody took out, is the step that it was") {
    const std::vector<CUdeviceptr> a = buffers(4), stale = buffers(1);
    Executor executor(*p.pager, settings);
    executor.learned(loop_over(a, 1));
    REQUIRE(known(1));
    REQUIRE(p.device->free(stale[0], CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    REQUIRE(p.at(stale[0]));
    for (int i = 0; i < 4; ++i) CHECK(op(executor, 1, {stale[0], a[static_cast<std::size_t>(i)]}) == i);
    executor.stop();
}

TEST_CASE_METHOD(Followed, "a launch that is recalled is the step that it was; one that is not the expected one is looked for", "[memo]") {
    struct Words final : executor::LaunchWords {
        explicit Words(std::uint64_t a) : address(a) {}
        std::uint64_t address;
        std::size_t count() const override { return 1; }
        bool copy(std::uint64_t* to) const override { return *to = address, true; }
        bool match(const std::uint64_t* words) const override { return *words == address; }
    };
    const std::vector<CUdeviceptr> a = buffers(4), other = buffers(1);
    Executor executor(*p.pager, settings);
    executor.learned(loop_over(a, 1));
    REQUIRE(known(1));
    int recalled = 0;
    const auto launch = [&](CUdeviceptr at) {
        pager::Op op;
        Executor::Place place;
        if (executor.recall("op", Words(at), op, place)) ++recalled;
        else op.name(p.at(at)), place = executor.before("op", 1, op, nullptr);
        CHECK((op.count == 1 && op.buffers[0] == p.at(at)));
        return place.step;
    };
    const auto note = [&](CUdeviceptr at) {
        pager::Op op;
        op.name(p.at(at));
        const Words words(at);
        return executor.before("op", 1, op, &words).step;
    };
    for (int i = 0; i < 4; ++i) CHECK(note(a[static_cast<std::size_t>(i)]) == i);
    for (int i = 0; i < 4; ++i) CHECK(launch(a[static_cast<std::size_t>(i)]) == i);
    CHECK(recalled == 4);
    CHECK((launch(a[0]) == 0 && recalled == 5));
    CHECK((launch(other[0]) == executor::Follower::nowhere && recalled == 5));   // where a[1] was expected
    CHECK((launch(a[1]) == 1 && recalled == 5));                                // nothing was followed before it
    CHECK((launch(a[2]) == 2 && recalled == 6));
    REQUIRE(p.device->free(a[3], CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    CHECK(launch(a[3]) == executor::Follower::nowhere);
    CHECK(recalled == 6);
    executor.stop();
}

TEST_CASE_METHOD(Followed, "what runs when nothing that is known does is learned, though no first step comes again") {
    const std::vector<CUdeviceptr> a = buffers(4), b = buffers(9);
    Executor executor(*p.pager, settings);
    executor.learned(loop_over(a, 1));
    REQUIRE(known(1));
    for (int i = 0; i < 6200; ++i) op(executor, 2, {b[static_cast<std::size_t>(i) % b.size()]});
    REQUIRE(known(2));
    for (int i = 0; i < 9; ++i) op(executor, 2, {b[static_cast<std::size_t>(i) % b.size()]});
    CHECK(op(executor, 2, {b[0]}) != executor::Follower::nowhere);
    executor.stop();
}

TEST_CASE_METHOD(Followed, "iterations that are found while one is planned for are learned, all") {
    std::vector<std::vector<CUdeviceptr>> loops;
    for (int i = 0; i < 4; ++i) loops.push_back(buffers(4));
    Executor executor(*p.pager, settings);
    for (std::size_t i = 0; i < loops.size(); ++i) executor.learned(loop_over(loops[i], i + 1));
    CHECK(known(4));
    executor.stop();
}

TEST_CASE_METHOD(Followed, "once memory is moved the recorder is asked again, if nothing came of what it told") {
    const auto reconsidered = [&](Executor& executor, int n) {
        return Paged::soon([&] { return executor.paging(), searches == n; });
    };
    Executor executor(*p.pager, settings);
    SECTION("for it fitted") {
        const std::vector<CUdeviceptr> a = buffers(2);
        executor.learned(loop_over(a, 1));
    }
    SECTION("for its memory was gone") {
        const std::vector<CUdeviceptr> a = buffers(4);
        const profiler::Iteration loop = loop_over(a, 1);
        REQUIRE(p.device->free(a[1], CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
        executor.learned(loop);
    }
    CHECK(reconsidered(executor, 1));
    executor.stop();
}

TEST_CASE_METHOD(Followed, "iterations that were followed stay counted when their sequence makes room for another") {
    std::vector<std::vector<CUdeviceptr>> loops{buffers(4)};
    for (std::size_t i = 1; i <= Executor::kMostCourses; ++i) loops.push_back(buffers(2));
    settings.second_look = Nanoseconds(0);
    Executor executor(*p.pager, settings);
    executor.learned(loop_over(loops[0], 1));
    REQUIRE(known(1));
    run(executor, loops[0], 5);
    const std::uint64_t iterations = executor.figures().iterations;
    REQUIRE(iterations > 0);
    const std::size_t told = executor.shortest(false).size();   // once it was followed four times
    CHECK(told == (iterations >= 4));
    CHECK(executor.shortest(false).empty());
    CHECK(executor.shortest(true).size() == 1);
    for (std::size_t i = 1; i < loops.size(); ++i) {
        executor.learned(loop_over(loops[i], i + 1));
        REQUIRE(known(static_cast<long>(i) + 1));
        for (const CUdeviceptr at : loops[i]) op(executor, i + 1, {at});
    }
    CHECK(executor.sequences().front().id == 1);   // the first is gone
    CHECK(executor.figures().iterations >= iterations);
    executor.stop();
}

TEST_CASE_METHOD(Followed, "where there is less memory for good than a plan was made for, or much more, it is made anew") {
    const std::vector<CUdeviceptr> loop = buffers(6);   // 12 granules, of 8
    settings.second_look = Nanoseconds(0);
    settings.recompute = false;
    Executor executor(*p.pager, settings);
    executor.learned(loop_over(loop, 1));
    REQUIRE(known(1));
    REQUIRE(plans(1));
    REQUIRE(Paged::soon([&] { return run(executor, loop, 1), executor.figures().by_plan; }));
    run(executor, loop, 4);   // fewer than it takes until another thread looks whether the plan can be improved
    CHECK(plans(0, "planned for anew"));
    std::size_t lowered = 0;
    p.gpu.fill_up();
    REQUIRE(p.device->yield(3 * pager::test::granule, lowered) == CUDA_SUCCESS);
    REQUIRE(lowered >= 3 * pager::test::granule);
    p.gpu.fill_up();   // others have it
    run(executor, loop, 3);
    CHECK(plans(0, "planned for anew"));   // for a while, perhaps
    run(executor, loop, 2);
    CHECK((plans(1, "planned for anew") && plans(2)));
    run(executor, loop, 20);
    CHECK(plans(1, "planned for anew"));
    p.gpu.fill_up(16);
    p.device->reclaim(lowered);
    CHECK(Paged::soon([&] { return run(executor, loop, 1), told("planned for anew") == 2; }));
    CHECK(Paged::soon([&] {
        std::lock_guard lock(mutex);
        return said.back().starts_with("plan by udnn");
    }));
    executor.stop();
}

TEST_CASE_METHOD(Followed, "what fitted is planned for where there is less memory for good") {
    const std::vector<CUdeviceptr> all = buffers(6), fits(all.begin(), all.begin() + 3);   // 6 granules, of 8
    settings.second_look = Nanoseconds(0);
    settings.recompute = false;
    Executor executor(*p.pager, settings);
    executor.learned(loop_over(all, 1));
    REQUIRE(plans(1));
    executor.learned(loop_over(fits, 2));
    REQUIRE(known(2));
    const auto turns = [&](int n) {
        while (n--)
            for (const CUdeviceptr at : fits) op(executor, 2, {at});
    };
    run(executor, all, 5);
    turns(10);
    CHECK(plans(0, "planned for anew"));
    std::size_t lowered = 0;
    p.gpu.fill_up();
    REQUIRE(p.device->yield(3 * pager::test::granule, lowered) == CUDA_SUCCESS);
    p.gpu.fill_up();
    CHECK(Paged::soon([&] { return turns(1), told("planned for anew") == 1; }));
    CHECK(plans(2));
    executor.stop();
}

TEST_CASE_METHOD(Followed, "a watch that is left in the middle again and again is given up") {
    const std::vector<CUdeviceptr> a = buffers(4);
    const executor::Sequence sequence = executor::make_sequence(loop_over(a, 1), 1, pager::test::granule, [this](std::uint64_t at) { return p.at(at); });
    executor::WriteWatch watch(*p.pager, sequence);
    executor::Follower follower(sequence);
    const auto runs = [&](std::size_t step) {
        pager::Op op;
        REQUIRE(p.begin(op, 1, {a[step]}) == CUDA_SUCCESS);
        watch.submitted(static_cast<std::int32_t>(step), op, follower, *p.device);
        p.pager->leave(op, CUDA_SUCCESS);
    };
    for (int round = 0; round < 16; ++round) {
        runs(0);
        REQUIRE(watch.at_work());
        runs(2);
        REQUIRE_FALSE(watch.gave_up());
    }
    runs(0);
    CHECK(watch.gave_up());
}

TEST_CASE("an op is watched by what it names, also if another of the same place came meanwhile") {
    Paged p({.device = 5, .host = 64, .lands = false});
    std::vector<CUdeviceptr> a, b;
    for (int i = 0; i < 4; ++i) a.push_back(p.allocate(2)), b.push_back(p.allocate(2));
    for (const auto& all : {a, b})
        for (CUdeviceptr at : all) REQUIRE(p.launch(1, {at}) == CUDA_SUCCESS);

    std::mutex mutex;
    int known = 0;
    Executor::Settings settings;
    settings.planner = policy::find_planner("udnn");
    settings.say = [&](const std::string& line) {
        std::lock_guard lock(mutex);
        known += line.ends_with("is known");
    };
    settings.note = [](const std::string&) {};
    Executor executor(*p.pager, settings);
    for (const int n : {1, 2}) {
        executor.learned(n == 1 ? loop_over(a, 1) : loop_over(b, 2));
        REQUIRE(Paged::soon([&] { std::lock_guard lock(mutex); return known == n; }));
    }

    // One thread is between placing and submitting its op; another one's is the first of the other loop, and waits for memory.
    pager::Op mine, other;
    REQUIRE(p.begin(mine, 1, {a[0]}) == CUDA_SUCCESS);
    const Executor::Place place = executor.before("op", 1, mine);
    REQUIRE(place.step == 0);
    other.name(p.at(b[0]));
    REQUIRE(p.where(b[0]) != pager::Residency::device);
    REQUIRE(executor.before("op", 2, other).step == 0);
    executor.submitted(place, mine);
    p.pager->leave(mine, CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
    executor.stop();
}
