// Launches that their plan holds back: what waits behind them goes on, and what has begun meanwhile is ended first.
#include <atomic>
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

namespace {
constexpr std::int64_t kForever = 300'000'000'000;   // ns; of which a launch is held back for an eighth at most

// A device that follows a plan, and a stream, 2, that is held with an op on it: launches of other threads wait for its end.
struct Following : Paged {
    explicit Following(Limits limits) : Paged(limits) {
        const CUdeviceptr own = allocate(1);
        device->plan_step(1, 1'000'000);
        gpu.hold(2);
        Op op;
        REQUIRE(begin(op, 2, {own}) == CUDA_SUCCESS);
        pager->leave(op, CUDA_SUCCESS);
        by = op.slot, number = at(own)->last_use;
    }
    // On a thread of its own; `paced`: held back until stream 2 is let go, which is for as long as `launched` is not set.
    std::thread launches(CUresult& launched, int stream, std::vector<CUdeviceptr> named, bool paced) {
        return std::thread([this, &launched, stream, named = std::move(named), paced] {
            FakeGpu::set_context(1);
            Op op;
            if (paced) op.paced_by = by, op.paced_number = number;
            launched = begin(op, stream, named);
            pager->leave(op, launched);
        });
    }
    StreamSlot* by = nullptr;
    std::uint64_t number = 0;
};

}  // namespace

TEST_CASE("a launch that its plan holds back keeps no other from its memory") {
    Following p({.device = 6, .host = 16, .lands = false, .deadline_ns = kForever});
    const CUdeviceptr full = p.allocate(4), later = p.allocate(4), now = p.allocate(4);
    REQUIRE(p.launch(1, {now}, 5) == CUDA_SUCCESS);
    REQUIRE(p.out(now));
    REQUIRE(p.launch(1, {full}) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    CUresult first = CUDA_ERROR_UNKNOWN, second = CUDA_ERROR_UNKNOWN;
    std::thread waits = p.launches(first, 3, {later}, true);
    a_while();
    std::thread goes = p.launches(second, 4, {now}, false);
    goes.join();   // while stream 2 is held
    CHECK(second == CUDA_SUCCESS);
    CHECK(p.gpu.word(now).load() == 5);
    CHECK(first == CUDA_ERROR_UNKNOWN);
    p.gpu.let_go(2);
    waits.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("who has begun while another was held back keeps what he has until he has all") {
    Following p({.device = 10, .host = 24, .lands = false, .deadline_ns = kForever});
    const CUdeviceptr x = p.allocate(2), y = p.allocate(2), busy = p.allocate(6), one = p.allocate(4), two = p.allocate(4);
    for (CUdeviceptr b : {x, y}) {
        REQUIRE(p.launch(1, {b}, 5) == CUDA_SUCCESS);
        REQUIRE(p.out(b));
    }
    Op open;
    REQUIRE(p.begin(open, 5, {busy}) == CUDA_SUCCESS);
    CUresult first = CUDA_ERROR_UNKNOWN, second = CUDA_ERROR_UNKNOWN;
    std::thread waits = p.launches(first, 3, {one, two}, true);
    a_while();
    std::thread begun = p.launches(second, 4, {x, y}, false);
    REQUIRE(Paged::soon([&] { return p.where(x) == Residency::device || p.where(y) == Residency::device; }));
    p.gpu.let_go(2);
    p.pager->streams().mark_tails();
    a_while();
    CHECK(p.device->stats().over_budget == 0);
    p.pager->leave(open, CUDA_SUCCESS);
    begun.join(), waits.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK(second == CUDA_SUCCESS);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what has been brought in without its contents is brought in once, also for a launch that was held back before") {
    const bool lands = GENERATE(false, true);
    Following p({.device = 11, .host = 24, .lands = lands, .deadline_ns = kForever});
    const CUdeviceptr b = p.allocate(2), c = p.allocate(5), busy = p.allocate(5);
    for (CUdeviceptr each : {b, c}) {
        REQUIRE(p.launch(1, {each}, 5) == CUDA_SUCCESS);
        REQUIRE(p.out(each));
    }
    Op open;
    REQUIRE(p.begin(open, 5, {busy}) == CUDA_SUCCESS);
    const std::uint64_t fetched = p.device->stats().fetches;
    CUresult first = CUDA_ERROR_UNKNOWN, second = CUDA_ERROR_UNKNOWN;
    std::thread waits = p.launches(first, 3, {b}, true);
    a_while();
    std::thread fills([&] {
        FakeGpu::set_context(1);
        Op op;
        p.begin_fill(op, 4, b);
        op.name(p.at(c));
        second = p.pager->enter(op);
        p.gpu.word(b) = 7;
        p.pager->leave(op, second);
    });
    REQUIRE(Paged::soon([&] { return p.device->stats().fetches > fetched; }));
    p.gpu.let_go(2);
    p.pager->streams().mark_tails();
    a_while();
    CHECK(p.device->stats().fetches == fetched + 1);
    p.pager->leave(open, CUDA_SUCCESS);
    fills.join(), waits.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK(second == CUDA_SUCCESS);
    CHECK(p.gpu.word(b).load() == 7);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("nothing begins to move while an op that may touch anything waits, also behind a launch that is held back") {
    Following p({.device = 8, .host = 24, .deadline_ns = kForever});
    const CUdeviceptr b = p.allocate(4), other = p.allocate(2), fresh = p.allocate(4);
    for (CUdeviceptr each : {b, other}) REQUIRE(p.launch(1, {each}) == CUDA_SUCCESS);
    REQUIRE(p.out(b));
    CUresult first = CUDA_ERROR_UNKNOWN, second = CUDA_ERROR_UNKNOWN;
    std::thread waits = p.launches(first, 3, {fresh}, true);
    a_while();
    Op over;   // B comes without its contents, and is no other's for now
    p.begin_fill(over, 5, b);
    REQUIRE(p.pager->enter(over) == CUDA_SUCCESS);
    std::thread anything([&] {
        FakeGpu::set_context(1);
        second = p.launch_everything(4);
    });
    a_while();
    const Order out{Order::Kind::evict, p.at(other), p.at(other)->id, p.pager->ops()};
    p.pager->streams().mark_tails();
    p.device->order(&out, 1);
    a_while();
    CHECK(p.where(other) == Residency::device);
    p.pager->leave(over, CUDA_SUCCESS);
    anything.join();
    p.gpu.let_go(2);
    waits.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK(second == CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is ordered in does not wait for room that a launch which is held back will want") {
    Following p({.device = 6, .host = 24, .lands = false, .deadline_ns = kForever});
    const CUdeviceptr ordered = p.allocate(4), fresh = p.allocate(4);
    REQUIRE(p.launch(1, {ordered}, 5) == CUDA_SUCCESS);
    REQUIRE(p.out(ordered));
    CUresult first = CUDA_ERROR_UNKNOWN;
    std::thread waits = p.launches(first, 3, {fresh}, true);
    a_while();
    const Order in{Order::Kind::fetch, p.at(ordered), p.at(ordered)->id, 0};
    p.device->order(&in, 1);
    CHECK(Paged::soon([&] { return p.where(ordered) == Residency::device; }));
    p.gpu.let_go(2);
    waits.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is ordered in pushes out nothing that a waiting launch names") {
    Following p({.device = 6, .host = 24, .lands = false, .deadline_ns = kForever});
    const CUdeviceptr ordered = p.allocate(4), named = p.allocate(4), fresh = p.allocate(1);
    REQUIRE(p.launch(1, {ordered}, 5) == CUDA_SUCCESS);
    REQUIRE(p.out(ordered));
    REQUIRE(p.launch(1, {named}, 6) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    p.at(ordered)->next_use = 5, p.at(named)->next_use = 9;   // as if the plan could not know
    CUresult first = CUDA_ERROR_UNKNOWN;
    std::thread waits = p.launches(first, 3, {named, fresh}, true);
    a_while();
    const Order in{Order::Kind::fetch, p.at(ordered), p.at(ordered)->id, 0};
    p.device->order(&in, 1);
    a_while();
    CHECK(p.where(named) == Residency::device);
    p.gpu.let_go(2);
    waits.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("an eviction that the waiting launch itself forbids is no room to wait for") {
    Following p({.device = 7, .host = 24, .lands = false, .deadline_ns = kForever});
    const CUdeviceptr named = p.allocate(2), idle = p.allocate(2), more = p.allocate(2);
    REQUIRE(p.launch(1, {idle}) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    REQUIRE(p.launch(2, {named}) == CUDA_SUCCESS);   // under way
    p.at(idle)->next_use = 9;
    const Order out{Order::Kind::evict, p.at(named), p.at(named)->id, p.at(named)->last_use.load()};
    p.device->order(&out, 1);
    CUresult first = CUDA_ERROR_UNKNOWN;
    std::thread goes = p.launches(first, 3, {named, more}, false);
    CHECK(Paged::soon([&] { return p.where(idle) == Residency::host; }));   // while stream 2 is held
    p.gpu.let_go(2);
    goes.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("by a plan, freed memory that comes with the end of an op is waited for, and nothing that is planned for leaves") {
    const bool lands = GENERATE(false, true), ends = GENERATE(true, false);
    Following p({.device = 6, .host = 16, .lands = lands, .deadline_ns = ends ? kForever : 50'000'000});
    const CUdeviceptr kept = p.allocate(2), freed = p.allocate(2), wanted = p.allocate(2);
    REQUIRE(p.launch(1, {kept}) == CUDA_SUCCESS);
    p.at(kept)->next_use = 9;   // the plan is at 1
    Op op;
    REQUIRE(p.begin(op, 2, {freed}) == CUDA_SUCCESS);
    p.pager->leave(op, CUDA_SUCCESS);
    p.device->give_scratch(freed, stream_of(2));
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread waits = p.launches(launched, 4, {wanted}, false);
    if (ends) {
        a_while();
        CHECK(p.where(kept) == Residency::device);
        CHECK(launched == CUDA_ERROR_UNKNOWN);
        p.gpu.let_go(2);
    }
    waits.join();   // where it does not end, something leaves for it after all, or it runs from host frames
    CHECK(launched == CUDA_SUCCESS);
    CHECK((p.where(wanted) == Residency::device && p.where(kept) == Residency::device) == ends);
    CHECK(p.device->stats().over_budget == 0);
    p.gpu.let_go(2);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is freed and given back while a launch waits that was given its address is no part of it") {
    Following p({.device = 6, .host = 16, .lands = false, .deadline_ns = kForever});
    const CUdeviceptr x = p.allocate(2), fresh = p.allocate(1), big = p.allocate(3);
    REQUIRE(p.launch(1, {x}) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    CUresult first = CUDA_ERROR_UNKNOWN, second = CUDA_ERROR_UNKNOWN;
    std::thread waits([&] {
        FakeGpu::set_context(1);
        Op op;
        op.paced_by = p.by, op.paced_number = p.number;
        first = p.begin(op, 3, {x, fresh});
        p.pager->leave(op, first);
    });
    a_while();
    REQUIRE(p.device->free(x, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    std::thread goes = p.launches(second, 4, {big}, false);
    goes.join();
    REQUIRE(second == CUDA_SUCCESS);
    REQUIRE_FALSE(p.at(x));
    p.gpu.let_go(2);
    waits.join();
    CHECK(first == CUDA_SUCCESS);
    CHECK_FALSE(p.gpu.mapped(x));
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what takes memory ahead of a launch that its plan holds back can wait as that does") {
    Following p({.device = 6, .host = 16, .lands = false, .deadline_ns = kForever});
    std::atomic<bool> passed = false;
    std::thread waits([&] {
        FakeGpu::set_context(1);
        p.device->wait_for_pace(p.by, p.number);
        passed = true;
    });
    a_while();
    CHECK(!passed);
    p.gpu.let_go(2);
    waits.join();
    p.device->wait_for_pace(p.by, p.number);   // at once
    p.device->wait_for_pace(nullptr, 0);
}
