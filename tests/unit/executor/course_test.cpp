// Whether a plan stays: what was measured of it, of what came before it, and of memory paged on demand. No device.
#include <catch2/catch.hpp>

#include "shim/executor/course.hpp"

using namespace udnnmem;
using executor::Course;
using executor::Rows;

namespace {

// A course and its iterations: the first `on_demand` of them so, `us` each, then by a plan that promised `promised` us.
struct Runs {
    explicit Runs(std::int64_t promised, int on_demand = 0, std::int64_t us = 0, bool by_itself = true) : course(0, executor::Sequence(), {}, nullptr, nullptr) {
        take(on_demand, us, by_itself);
        course.offer(plan(promised));
        course.begin(last_tag);
    }
    static std::shared_ptr<const Rows> plan(std::int64_t promised) {
        const auto rows = std::make_shared<Rows>();
        rows->promised = Nanoseconds(promised * 1000);
        return rows;
    }
    // So many iterations take `us` each. True: a plan was given up at the begin of one.
    bool take(int iterations, std::int64_t us, bool by_itself = true) {
        bool given_up = false;
        for (int i = 0; i < iterations; ++i) {
            given_up |= course.judge().instead.value > 0;
            if (course.to_be_improved()) ++asked;   // nothing comes of it
            compared += course.compares_with_demand(last_tag);
            course.begin(last_tag);
            CHECK(course.measured(course.tag(by_itself), Nanoseconds(us * 1000)));
        }
        return given_up;
    }
    std::uint64_t last_tag = 0;
    Course course;
    int asked = 0, compared = 0;
};

}  // namespace

TEST_CASE("a plan that takes much longer than it promised is compared with demand paging, once") {
    Runs runs(100);
    CHECK_FALSE(runs.take(10, 150));
    CHECK(runs.asked == 0);
    CHECK(runs.course.rows());
    CHECK_FALSE(runs.take(1, 150));   // where ten are known, it is looked at: first improved, where that is possible, then compared
    CHECK(runs.asked == 1);
    REQUIRE(runs.compared == 1);
    CHECK_FALSE(runs.course.rows());
    CHECK_FALSE(runs.course.worth_storing() == nullptr);   // nothing is decided

    SECTION("and given up where demand paging is faster") {
        CHECK_FALSE(runs.take(4, 120));
        CHECK(runs.take(1, 120));
        CHECK_FALSE(runs.course.rows());
        CHECK(runs.course.figures().given_up == 1);
        CHECK(runs.course.worth_storing() == nullptr);
        CHECK(runs.course.figures().demand == Nanoseconds(120'000));
        REQUIRE(runs.course.adaptations().size() == 1);
        CHECK(runs.course.adaptations()[0].kept);
        CHECK(runs.course.adaptations()[0].before == Nanoseconds(150'000));
    }
    SECTION("and stays where that is slower, or little faster") {
        const std::int64_t us = GENERATE(200, 145);
        CHECK_FALSE(runs.take(5, us));
        CHECK(runs.course.rows());
        CHECK(runs.course.figures().given_up == 0);
        CHECK(runs.course.figures().demand == Nanoseconds(us * 1000));
        CHECK_FALSE(runs.course.adaptations()[0].kept);
    }
    runs.take(40, 150);
    CHECK(runs.compared == 1);
}

TEST_CASE("a plan is compared by iterations of its own kind: those after another course where there are no others") {
    Runs alone(100);
    CHECK_FALSE(alone.take(23, 150, false));
    CHECK(alone.asked + alone.compared == 0);       // it may be watched, or proved
    CHECK_FALSE(alone.take(2, 150, false));
    CHECK(alone.asked == 1);
    CHECK(alone.compared == 1);

    Runs once(100, 1, 130, false);   // on demand, while its ops were watched
    once.take(11, 150);
    CHECK(once.compared == 1);
}

TEST_CASE("a plan that keeps its promise, or came after demand paging that was measured, is not given up for a comparison") {
    Runs kept(100);
    CHECK_FALSE(kept.take(40, 109));
    CHECK(kept.compared == 0);

    Runs known(100, 2, 160);
    CHECK_FALSE(known.take(40, 150));
    CHECK(known.compared == 0);
    CHECK(known.course.rows());
}

TEST_CASE("a plan is given up if it measures worse than what came before it") {
    Runs runs(100);
    runs.take(6, 100);
    runs.course.offer(Runs::plan(90));
    CHECK_FALSE(runs.take(5, 103));
    CHECK(runs.take(1, 103));
    CHECK(runs.course.rows()->promised == Nanoseconds(100'000));
    CHECK(runs.course.figures().given_up == 1);
}

TEST_CASE("the buffer that held a step back has a number that a record can hold, after 2^31 allocations too") {
    executor::Sequence one;
    one.steps.push_back({"op", 1, 0, 0});
    one.plan_trace.ops.emplace_back();
    Course course(0, std::move(one), {}, nullptr, nullptr);
    const auto rows = std::make_shared<Rows>();
    rows->start.push_back(Nanoseconds(0));
    course.offer(rows);
    std::uint64_t last_tag = 0;
    course.begin(last_tag);
    pager::Buffer b;
    b.id = 0x80000007u;
    course.held(0, b, pager::Residency::host, Nanoseconds(1));
    std::vector<profiler::RunStep> steps;
    course.tell_steps(steps);
    REQUIRE(steps.size() == 1);
    CHECK(steps[0].buffer == BufferId(7));
}

TEST_CASE("what an iteration takes with everything resident is the shortest that each op was ever seen to take") {
    executor::Sequence two;
    for (const std::int64_t ns : {100, 50}) {
        two.steps.push_back({"op", 1, 0, 0, 0, true});
        two.plan_trace.ops.emplace_back().duration = Nanoseconds(ns);
        two.plan_trace.header.ideal += Nanoseconds(ns);
    }
    Course course(0, std::move(two), {}, nullptr, nullptr);
    CHECK(course.ideal() == Nanoseconds(150));
    std::uint64_t last_tag = 0;
    const auto timed = [&](std::int32_t step, std::int64_t ns) { course.timed({course.way(), step, Nanoseconds(0), Nanoseconds(ns)}); };
    course.offer(Runs::plan(1));
    course.begin(last_tag);
    timed(0, 70), timed(0, 80), timed(1, 60);
    course.offer(Runs::plan(1));
    course.begin(last_tag);
    timed(0, 90);
    CHECK(course.ideal() == Nanoseconds(120));
    CHECK(course.shortest().ops == std::vector<std::int64_t>{70, 50});
}

TEST_CASE("what an op is guessed to take counts for nothing once it is measured") {
    executor::Sequence three;
    for (const std::int64_t ns : {100, 0, 50}) {
        three.steps.push_back({"op", 1, 0, 0, 0, three.steps.empty()});
        three.plan_trace.ops.emplace_back().duration = Nanoseconds(ns);
    }
    Course course(0, std::move(three), {}, nullptr, nullptr);
    std::uint64_t last_tag = 0;
    course.offer(Runs::plan(1));
    course.begin(last_tag);
    const auto timed = [&](std::int32_t step, std::int64_t ns) { course.timed({course.way(), step, Nanoseconds(0), Nanoseconds(ns)}); };
    timed(0, 130), timed(1, 40), timed(0, 120), timed(1, 30), timed(1, 60), timed(2, 80);
    CHECK(course.shortest().ops == std::vector<std::int64_t>{100, 30, 80});
}

TEST_CASE("an op is believed to take less at once, and longer after a few timings, or where its time was a guess") {
    using Longer = Course::Actual::Longer;
    const Nanoseconds planned(100), less(80), more(130);
    const auto seen = [](Nanoseconds took, std::uint32_t timings) { return Course::Actual{.took = took, .sum = Nanoseconds(2 * took.value * timings), .timings = timings}; };
    for (std::uint32_t timings = 1; timings < 5; ++timings) {
        const bool sure = timings >= Course::Actual::kSure;
        for (const Longer longer : {Longer::no, Longer::least}) {
            CHECK(seen(less, timings).believed(planned, false, longer) == less);
            CHECK(seen(more, timings).believed(planned, true, longer) == more);
        }
        CHECK(seen(more, timings).believed(planned, false, Longer::no) == planned);
        CHECK(seen(more, timings).believed(planned, false, Longer::least) == (sure ? more : planned));
        CHECK(seen(more, timings).believed(planned, false, Longer::average) == Nanoseconds(260));
        CHECK(seen(less, timings).believed(planned, false, Longer::average) == Nanoseconds(160));
    }
    CHECK(Course::Actual().believed(planned, true, Longer::average) == planned);
}
