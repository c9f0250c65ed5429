// One device's pager against a GPU that only keeps count: what is rare on a real one, made to happen.
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

TEST_CASE("a large need pushes out more buffers than there are hashes at a time, and all of them can move again") {
    constexpr std::size_t kSmall = 120;
    Paged p({.device = 2 * kSmall + 1, .host = 4 * kSmall});
    std::vector<CUdeviceptr> small;
    for (std::size_t i = 0; i < kSmall; ++i) {
        small.push_back(p.allocate(2));
        REQUIRE(p.launch(1, {small.back()}, i) == CUDA_SUCCESS);
    }
    const CUdeviceptr large = p.allocate(2 * kSmall);
    REQUIRE(p.launch(1, {large}) == CUDA_SUCCESS);
    CHECK(p.device->stats().evictions == kSmall);
    for (std::size_t i = 0; i < kSmall; ++i) {
        CHECK_FALSE(p.pinned(small[i]));
        CHECK(p.gpu.word(small[i]) == i);
    }
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("a full host budget does not keep a buffer on the device for good") {
    Paged p({.device = 5, .host = 4});
    const CUdeviceptr a = p.allocate(2), b = p.allocate(2), c = p.allocate(2);
    for (CUdeviceptr at : {a, b, c, a}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    // The host holds B, and a copy of A, which the op needs on the device.
    REQUIRE(p.launch(1, {a, b}, 5) == CUDA_SUCCESS);
    CHECK_FALSE(p.pinned(c));
    for (CUdeviceptr at : {c, b, a}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    CHECK(p.where(a) == Residency::device);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}
