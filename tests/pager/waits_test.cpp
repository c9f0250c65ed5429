// What is worth waiting for: memory that comes by itself, of the device or of the host.
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

TEST_CASE("host memory that was not to be had for a moment is asked for again") {
    const bool lands = GENERATE(false, true);
    Paged p({.device = 6, .host = 16, .lands = lands});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    REQUIRE(p.launch(1, {a}) == CUDA_SUCCESS);
    p.gpu.fill_up();
    p.gpu.host_refusals = 1;
    REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    CHECK(p.where(a) == Residency::host);
    CHECK(p.device->memory().host_budget == 16 * granule);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("where host memory is not to be had for good, that is an error in the end") {
    const bool lands = GENERATE(false, true);
    Paged p({.device = 6, .host = 16, .lands = lands, .deadline_ns = 20'000'000});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    REQUIRE(p.launch(1, {a}) == CUDA_SUCCESS);
    p.gpu.fill_up();
    p.gpu.host_refusals = 1'000'000'000;
    for (int again = 0; again < 2; ++again) CHECK(p.launch(1, {b}) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(p.where(a) == Residency::device);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is freed on the legacy stream waits there for blocking streams alone") {
    const bool blocking = GENERATE(true, false), of_slab = GENERATE(false, true);
    Paged p({.device = 16, .host = 16, .small_below = granule / 2});
    if (!blocking) p.gpu.set_aside(2);
    const std::size_t bytes = of_slab ? granule / 4 : granule;
    CUdeviceptr x = 0, y = 0;
    REQUIRE(p.device->allocate(bytes, CU_STREAM_LEGACY, true, nullptr, x) == CUDA_SUCCESS);
    p.gpu.hold(2);
    REQUIRE(p.launch(2, {x}) == CUDA_SUCCESS);
    REQUIRE(p.device->free(x, CU_STREAM_LEGACY, true) == CUDA_SUCCESS);
    REQUIRE(p.device->allocate(bytes, CU_STREAM_LEGACY, true, nullptr, y) == CUDA_SUCCESS);
    CHECK((x == y) == !blocking);
    p.gpu.let_go(2);
}

TEST_CASE("what is not managed waits for ops that hold all memory on their way to the driver") {
    const bool everything = GENERATE(true, false);
    Paged p({.device = 9, .host = 24});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    for (const CUdeviceptr each : {a, b}) REQUIRE(p.launch(1, {each}) == CUDA_SUCCESS);
    if (everything) REQUIRE(p.out(a));
    p.gpu.fill_up();
    Op op;
    if (everything) {
        REQUIRE(p.begin(op, 2, {}, true) == CUDA_SUCCESS);
    } else {
        REQUIRE(p.out(a));
        REQUIRE(p.begin(op, 2, {a, b}) == CUDA_SUCCESS);   // one was brought for it: both are held
    }
    CUresult given = CUDA_ERROR_UNKNOWN;
    std::size_t lowered = 0;
    std::thread asks([&] {
        FakeGpu::set_context(1);
        given = p.device->yield(3 * granule, lowered);
    });
    a_while();
    p.pager->leave(op, CUDA_SUCCESS);
    asks.join();
    CHECK(given == CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is being brought and nobody holds is room to wait for, rather than to exceed the budget") {
    Paged p({.device = 10, .host = 24, .lands = false});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4), fresh = p.allocate(4);
    REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    REQUIRE(p.out(b));
    REQUIRE(p.launch(1, {a}) == CUDA_SUCCESS);
    p.gpu.hold_moves(true);
    const Order in{Order::Kind::fetch, p.at(b), p.at(b)->id, 0};
    p.device->order(&in, 1);
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::fetching; }));
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread waits([&] {
        FakeGpu::set_context(1);
        launched = p.launch(2, {a, fresh});
    });
    a_while();
    CHECK(launched == CUDA_ERROR_UNKNOWN);
    p.gpu.hold_moves(false);
    waits.join();
    CHECK(launched == CUDA_SUCCESS);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}
