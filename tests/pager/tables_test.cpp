// Memory that holds addresses: what they lead to comes along, and does not move while an op may use it by them.
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

TEST_CASE("a table's targets come with it once it was seen to hold their addresses") {
    Paged p({.device = 10, .host = 24});
    const CUdeviceptr table = p.allocate(1), target = p.allocate(4);
    REQUIRE(p.launch(1, {target}, 5) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {table}, target) == CUDA_SUCCESS);
    REQUIRE(p.out(table));   // that is looked at as it goes
    REQUIRE(p.out(target));
    Op op;
    REQUIRE(p.begin(op, 1, {table}) == CUDA_SUCCESS);
    CHECK((p.where(table) == Residency::device && p.where(target) == Residency::device));
    CHECK(p.gpu.word(target) == 5);
    p.pager->leave(op, CUDA_SUCCESS);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("nothing moves while an op is on its way by which a table was reached that leads anywhere") {
    Paged p({.device = 12, .host = 24});
    const CUdeviceptr anything = p.allocate(1), way = p.allocate(1), other = p.allocate(4);
    p.gpu.each_counts = 1u << 20;   // more addresses than can be listed
    REQUIRE(p.launch(1, {anything}, other) == CUDA_SUCCESS);
    REQUIRE(p.out(anything));
    REQUIRE(p.at(anything)->opaque.load());
    p.gpu.each_counts = 1;
    // A kernel writes its address where nobody has looked so far, and the next op, which reads that, is not submitted yet.
    REQUIRE(p.launch(1, {way}, anything) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {other}, 7) == CUDA_SUCCESS);
    Op op;
    REQUIRE(p.begin(op, 1, {way}) == CUDA_SUCCESS);
    const FakeGpu::Place was = p.gpu.behind(other);
    p.order(Order::Kind::evict, other);
    REQUIRE(Paged::soon([&] { return p.at(way)->table.load(); }));   // it was found meanwhile
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(p.gpu.behind(other) == was);
    p.gpu.hold(1);
    p.pager->leave(op, CUDA_SUCCESS);   // now it runs, and may use any buffer
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(p.gpu.behind(other) == was);
    p.gpu.let_go(1);
    p.pager->streams().mark_tails();
    CHECK(Paged::soon([&] { return p.where(other) == Residency::host; }));
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}
