// The mover's copies: pieces, few at a time.
#include <chrono>
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

namespace {

// 4 MiB, 4 ms over a link that nobody has measured, whose eviction has begun and whose copy does not go on.
struct Halfway : Paged {
    static constexpr std::size_t kGranules = 64, kBytes = kGranules * granule;
    Halfway() : Paged({.device = 2 * kGranules, .host = 4 * kGranules}) {
        REQUIRE(launch(1, {large}, 5) == CUDA_SUCCESS);
        gpu.hold_moves(true);
        order(Order::Kind::evict, large);
        REQUIRE(soon([&] { return gpu.bytes_out() > 0; }));
    }
    CUdeviceptr large = allocate(kGranules);
};

void wait_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

}  // namespace

TEST_CASE("of a large copy few pieces are queued at a time, and all of them come") {
    Halfway p;
    wait_a_little();
    CHECK(p.gpu.bytes_out() <= p.kBytes / 4);
    p.gpu.hold_moves(false);
    CHECK(p.soon([&] { return p.where(p.large) == Residency::host; }));
    CHECK(p.gpu.bytes_out() == p.kBytes);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("an eviction that is called off between two pieces ends where it began") {
    Halfway p;
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread needs_it([&] {
        FakeGpu::set_context(1);
        launched = p.launch(1, {p.large}, 6);
    });
    wait_a_little();
    p.gpu.hold_moves(false);
    needs_it.join();
    CHECK(launched == CUDA_SUCCESS);
    CHECK(p.where(p.large) == Residency::device);
    CHECK(p.gpu.bytes_out() < p.kBytes);
    p.order(Order::Kind::evict, p.large);
    CHECK(p.soon([&] { return p.where(p.large) == Residency::host; }));
    CHECK(p.launch(1, {p.large}, 7) == CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
}
