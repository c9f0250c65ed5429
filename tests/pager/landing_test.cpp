// What a followed plan has evicted is mapped nowhere until something needs it in host memory.
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

namespace {

constexpr int kForGood = 1'000'000;

struct Planned : Paged {
    explicit Planned(Limits limits) : Paged(limits) { device->plan_step(1, 1'000'000); }
    // One that an op has written `value` to and that is out.
    CUdeviceptr one_out(std::uint64_t value) {
        const CUdeviceptr b = allocate(2);
        REQUIRE(launch(1, {b}, value) == CUDA_SUCCESS);
        REQUIRE(out(b));
        return b;
    }
    // The same, but its copy does not end until moves are let go on.
    CUdeviceptr one_halfway(std::uint64_t value) {
        const CUdeviceptr b = allocate(2);
        REQUIRE(launch(1, {b}, value) == CUDA_SUCCESS);
        gpu.hold_moves(true);
        order(Order::Kind::evict, b);
        REQUIRE(soon([&] { return gpu.bytes_out() > 0; }));
        return b;
    }
    // All of the device is in use by an op on stream 2 that does not end.
    CUdeviceptr fill_device(std::size_t granules) {
        const CUdeviceptr busy = allocate(granules);
        gpu.hold(2);
        REQUIRE(launch(2, {busy}) == CUDA_SUCCESS);
        return busy;
    }
    // Nothing else is wrong either.
    void right() {
        CHECK(device->is_valid() == "");
        CHECK(gpu.violations().empty());
        CHECK(lines.empty());
    }
};
}  // namespace

TEST_CASE("what a plan evicts and fetches is never mapped to host memory, unless that is asked for") {
    const bool always = GENERATE(false, true);
    Planned p({.device = 6, .host = 16, .always_land = always});
    const CUdeviceptr b = p.one_out(5);
    CHECK(p.gpu.mapped(b) == always);
    CHECK(p.pager->peer_access(0, 1, true) == CUDA_SUCCESS);   // of what is mapped
    p.order(Order::Kind::fetch, b);
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::device; }));
    CHECK(p.gpu.word(b).load() == 5);
    CHECK(p.gpu.times_mapped(b) == (always ? 3 : 2));
    REQUIRE(p.out(b));   // without a copy this time
    CHECK(p.gpu.mapped(b) == always);
    REQUIRE(p.launch(1, {b}, 6) == CUDA_SUCCESS);
    CHECK(p.gpu.times_mapped(b) == (always ? 5 : 3));
    p.right();
}

TEST_CASE("what is evicted on demand lands at once, by a plan, too") {
    Planned p({.device = 6, .host = 16});
    const CUdeviceptr b = p.allocate(3), other = p.allocate(3);
    for (const CUdeviceptr each : {b, other}) REQUIRE(p.launch(1, {each}, 5) == CUDA_SUCCESS);
    CHECK(p.where(b) == Residency::host);
    CHECK(p.gpu.word(b).load() == 5);
    p.right();
}

TEST_CASE("what a plan has evicted lands where an op has to work from host memory") {
    const bool copies = GENERATE(false, true);
    Planned p({.device = 5, .host = 24, .deadline_ns = 50'000'000});
    const CUdeviceptr b = p.one_out(5);
    const CUdeviceptr busy = p.fill_device(4);
    p.gpu.hold(3);
    Op op;
    op.by_cpu = copies;
    REQUIRE(p.begin(op, 3, {b}) == CUDA_SUCCESS);
    CHECK(p.device->stats().deadline_firings == 1);
    CHECK(p.where(b) == Residency::host);
    CHECK(p.gpu.word(b).load() == 5);
    CHECK(p.gpu.cpu_reaches(b) == copies);
    p.pager->leave(op, CUDA_SUCCESS);
    p.gpu.let_go(2);
    REQUIRE(p.out(busy));
    p.order(Order::Kind::fetch, b);   // which the op still uses
    a_while();
    CHECK(p.where(b) == Residency::fetching);
    p.gpu.word(b) = 8;
    p.gpu.let_go(3);
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::device; }));
    CHECK(p.gpu.word(b).load() == 8);
    p.right();
}

TEST_CASE("an op that may touch anything finds all of it mapped") {
    const bool copies = GENERATE(false, true);
    Planned p({.device = 8, .host = 16});
    const CUdeviceptr a = p.one_out(5), b = p.one_out(6);
    for (int again = 0; again < 2; ++again) {
        Op op;
        op.by_cpu = copies;
        REQUIRE(p.begin(op, 1, {}, true) == CUDA_SUCCESS);
        for (const CUdeviceptr each : {a, b}) CHECK(p.gpu.cpu_reaches(each) == copies);
        CHECK(p.gpu.word(a).load() == 5);
        CHECK(p.gpu.word(b).load() == 6);
        p.pager->leave(op, CUDA_SUCCESS);
    }
    p.right();
}

TEST_CASE("once no plan is followed any more, all that it has evicted lands") {
    Planned p({.device = 8, .host = 16});
    const CUdeviceptr a = p.one_out(5), b = p.one_out(6);
    a_while();
    for (const CUdeviceptr each : {a, b}) CHECK_FALSE(p.gpu.mapped(each));
    p.device->forget_orders();
    for (const CUdeviceptr each : {a, b}) CHECK(Paged::soon([&] { return p.gpu.mapped(each); }));
    CHECK(p.gpu.word(a).load() == 5);
    CHECK(p.gpu.word(b).load() == 6);
    CHECK(p.where(a) == Residency::host);
    p.right();
}

TEST_CASE("an eviction that ends when its plan is followed no more lands") {
    Planned p({.device = 8, .host = 16});
    const CUdeviceptr b = p.one_halfway(5);
    p.device->forget_orders();
    p.gpu.hold_moves(false);
    CHECK(Paged::soon([&] { return p.where(b) == Residency::host; }));
    CHECK(p.gpu.word(b).load() == 5);
    p.right();
}

TEST_CASE("what somebody wrote unseen while a plan evicted it is there for him again") {
    Planned p({.device = 8, .host = 16});
    const CUdeviceptr b = p.one_halfway(5);
    p.gpu.word(b) = 9;
    p.gpu.hold_moves(false);
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::host; }));
    CHECK(p.pinned(b));
    CHECK(p.gpu.word(b).load() == 9);
    p.right();
}

TEST_CASE("what does not land is an error of the op that needs it, and nothing is lost") {
    Planned p({.device = 5, .host = 24, .deadline_ns = 50'000'000});
    const CUdeviceptr b = p.one_out(5);
    const bool everything = GENERATE(false, true);
    p.fill_device(4);
    p.gpu.refuse_to_map(b, granule, kForGood);
    for (int again = 0; again < 2; ++again) CHECK((everything ? p.launch_everything(1) : p.launch(1, {b})) == CUDA_ERROR_UNKNOWN);
    CHECK(p.where(b) == Residency::host);
    CHECK_FALSE(p.gpu.mapped(b));
    p.gpu.refuse_to_map(0, 0, 0);
    Op op;
    REQUIRE(p.begin(op, 1, {b}, everything) == CUDA_SUCCESS);
    CHECK(p.gpu.word(b).load() == 5);
    p.pager->leave(op, CUDA_SUCCESS);
    p.gpu.let_go(2);
    p.right();
}

TEST_CASE("what the driver does not map is no work without an end, nor in the way of others") {
    Planned p({.device = 8, .host = 16});
    const CUdeviceptr a = p.one_out(5), b = p.one_out(6);
    p.gpu.refuse_to_map(a, granule, kForGood);
    p.device->forget_orders();
    CHECK(Paged::soon([&] { return p.gpu.mapped(b); }));
    a_while();
    const int left = p.gpu.refusals_left();
    CHECK(left < kForGood);
    a_while();
    CHECK(p.gpu.refusals_left() == left);
    p.gpu.refuse_to_map(0, 0, 0);
    Op op;
    REQUIRE(p.begin(op, 1, {a, b}) == CUDA_SUCCESS);
    CHECK(p.gpu.word(a).load() == 5);
    CHECK(p.gpu.word(b).load() == 6);
    p.pager->leave(op, CUDA_SUCCESS);
    p.right();
}

TEST_CASE("a fetch that fails leaves what was mapped nowhere as it was") {
    Planned p({.device = 8, .host = 16});
    const CUdeviceptr b = p.one_out(5);
    p.gpu.refuse_to_map(b, granule, kForGood);
    p.order(Order::Kind::fetch, b);
    REQUIRE(Paged::soon([&] { return p.gpu.refusals_left() < kForGood; }));
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::host; }));
    p.gpu.refuse_to_map(0, 0, 0);
    CHECK_FALSE(p.gpu.mapped(b));
    REQUIRE(p.fill(1, b, 6) == CUDA_SUCCESS);
    CHECK(p.where(b) == Residency::device);
    CHECK(p.gpu.word(b).load() == 6);
    p.right();
}

TEST_CASE("what is freed while it is mapped nowhere serves again, and goes") {
    Planned p({.device = 8, .host = 16});
    const CUdeviceptr b = p.one_out(5);
    REQUIRE(p.device->free(b, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    SECTION("it serves again") {
        const CUdeviceptr again = p.allocate(2);
        REQUIRE(again == b);
        REQUIRE(p.launch(1, {again}, 6) == CUDA_SUCCESS);
        CHECK(p.gpu.word(again).load() == 6);
    }
    SECTION("it goes") {
        REQUIRE(p.launch(1, {p.allocate(4)}) == CUDA_SUCCESS);
        REQUIRE(p.launch(1, {p.allocate(4)}) == CUDA_SUCCESS);   // for want of room
        CHECK_FALSE(p.at(b));
    }
    p.right();
}
