// What an op may be using by a word that is an address perhaps (Op::loose): it is reachable, and stays where it is meanwhile, but the op
// does not wait for it to be brought.
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

namespace {

CUresult begin(Paged& p, Op& op, int stream, const std::vector<CUdeviceptr>& firm, CUdeviceptr loose) {
    op.stream = stream_of(stream);
    op.kernel = true;
    op.by_cpu = false;
    for (const CUdeviceptr at : firm) op.name(p.at(at));
    op.name_loosely(p.at(loose));
    return p.pager->enter(op);
}

}  // namespace

TEST_CASE("what is named loosely is used where it is") {
    Paged p({.device = 10, .host = 24});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    REQUIRE(p.launch(1, {a, b}, 5) == CUDA_SUCCESS);
    REQUIRE(p.out(b));
    Op op;
    REQUIRE(begin(p, op, 1, {a}, b) == CUDA_SUCCESS);
    CHECK(p.where(b) == Residency::host);
    CHECK(p.gpu.word(b) == 5);
    p.gpu.word(b) = 6;   // it was an address
    p.pager->leave(op, CUDA_SUCCESS);
    CHECK(p.device->stats().served_from_host == 0);
    REQUIRE(p.launch(1, {b}, 7) == CUDA_SUCCESS);
    CHECK(p.where(b) == Residency::device);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("named both ways, or without a way to host memory, it is brought") {
    const bool lands = GENERATE(true, false);
    Paged p({.device = 10, .host = 24, .lands = lands});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    REQUIRE(p.launch(1, {a, b}) == CUDA_SUCCESS);
    REQUIRE(p.out(b));
    Op op;
    REQUIRE(begin(p, op, 1, {lands ? b : a}, b) == CUDA_SUCCESS);
    CHECK(p.where(b) == Residency::device);
    p.pager->leave(op, CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is about to go stays until such an op has ended, and the op does not wait") {
    Paged p({.device = 10, .host = 24});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4), c = p.allocate(5);
    p.gpu.hold(1);
    REQUIRE(p.launch(1, {b}, 5) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {a}) == CUDA_SUCCESS);
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread needs_room([&] {
        FakeGpu::set_context(1);
        launched = p.launch(2, {c});   // b begins to go, once the op before has ended
    });
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::evicting; }));
    Op op;
    REQUIRE(begin(p, op, 3, {a}, b) == CUDA_SUCCESS);
    p.gpu.hold(3);
    CHECK(p.where(b) == Residency::evicting);
    p.gpu.let_go(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(p.where(b) == Residency::evicting);
    p.gpu.word(b) = 6;
    p.pager->leave(op, CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(p.where(b) == Residency::evicting);   // submitted, and not over
    p.gpu.let_go(3);
    needs_room.join();
    CHECK(launched == CUDA_SUCCESS);
    CHECK(p.where(b) == Residency::host);
    CHECK(p.gpu.word(b) == 6);
    CHECK(p.device->is_valid() == "");
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is about to go stays for an op that was let through and has no lease so far") {
    Paged p({.device = 6, .host = 24});
    const CUdeviceptr b = p.allocate(4);
    p.gpu.hold(1);
    REQUIRE(p.launch(1, {b}, 5) == CUDA_SUCCESS);
    const CUdeviceptr c = p.allocate(4);
    std::thread needs_room([&] {
        FakeGpu::set_context(1);
        p.launch(2, {c});
    });
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::evicting; }));
    Request r;
    r.need = r.loose = {p.at(b)};
    REQUIRE(p.device->acquire(r) == CUDA_SUCCESS);
    p.gpu.let_go(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(p.where(b) == Residency::evicting);
    CHECK(p.gpu.bytes_out() == 0);
    p.device->release(r, true);
    needs_room.join();
    CHECK(p.where(b) == Residency::host);
    CHECK(p.gpu.violations().empty());
}
