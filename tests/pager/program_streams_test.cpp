// What the program has put into its streams is waited for, and our copies are not.
#include "shim/pager/program_streams.hpp"

#include <atomic>
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

namespace {

CUcontext context(int number) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(number)); }

// A program of two streams in context 1, and work of the stream that is held, if there is one.
struct Program {
    explicit Program(int held = 0) : p({.device = 16, .host = 16}) {
        for (int s : {1, 2}) streams.made(stream_of(s), context(1), 0);
        a = p.allocate(2), b = p.allocate(2);
        if (held) p.gpu.hold(held);
        for (int s : {1, 2}) REQUIRE(p.launch(s, {s == 1 ? a : b}) == CUDA_SUCCESS);
    }
    bool wait(int of = 1, ProgramStreams::PerThread named = {}) { return streams.wait(p.pager->driver(), p.pager->streams(), context(of), named); }
    Paged p;
    ProgramStreams streams;
    CUdeviceptr a, b;
};

}  // namespace

TEST_CASE("a context is waited for stream by stream, whatever is being moved") {
    const int held = GENERATE(1, 2);
    Program program(held);
    Paged& p = program.p;
    const CUdeviceptr moved = p.allocate(2);
    REQUIRE(p.launch(3 - held, {moved}) == CUDA_SUCCESS);
    REQUIRE(p.out(moved));
    p.gpu.hold_moves(true);
    p.order(Order::Kind::fetch, moved);
    REQUIRE(Paged::soon([&] { return p.where(moved) == Residency::fetching; }));
    CHECK(p.device->moves());

    std::atomic<bool> waited{false}, all{false};
    std::thread waits([&] {
        FakeGpu::set_context(1);
        all = program.wait();
        waited = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(waited);
    p.gpu.let_go(held);
    waits.join();
    CHECK(all);
    CHECK(p.where(moved) == Residency::fetching);
    p.gpu.hold_moves(false);
    CHECK(Paged::soon([&] { return p.where(moved) == Residency::device && !p.device->moves(); }));
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("a stream of which more may be left than can be told is no stream to wait for") {
    Program program;
    Paged& p = program.p;
    REQUIRE(program.wait());
    SECTION("nobody said that it was made") {   // as those of our own
        p.gpu.hold(3);
        REQUIRE(p.launch(3, {program.a}) == CUDA_SUCCESS);
        CHECK_FALSE(program.wait());
        p.gpu.let_go(3);
        CHECK(program.wait());
    }
    SECTION("nobody said that it was made, and an op is on its way there") {
        REQUIRE(p.launch(3, {program.a}) == CUDA_SUCCESS);
        REQUIRE(Paged::soon([&] { return program.wait(); }));
        Op op;
        op.stream = stream_of(3);
        op.kernel = true;
        op.name(p.at(program.a));
        REQUIRE(p.pager->enter(op) == CUDA_SUCCESS);
        CHECK_FALSE(program.wait());
        p.pager->leave(op, CUDA_SUCCESS);
        CHECK(Paged::soon([&] { return program.wait(); }));
    }
    SECTION("so full that whoever records there may have to wait") {
        p.gpu.hold(2);
        for (std::size_t i = 0; i < (StreamTable::kRoomForMarks + 2) * StreamTable::kMarkEvery; ++i) REQUIRE(p.launch(2, {program.a}) == CUDA_SUCCESS);
        CHECK_FALSE(program.wait());
        p.gpu.let_go(2);
        CHECK(program.wait());
    }
    SECTION("a green context's") {
        program.streams.made(stream_of(3), nullptr, 0);
        CHECK_FALSE(program.wait());
        program.streams.ending(stream_of(3), true);
        CHECK(program.wait());
    }
    SECTION("another context's of the device, not of another device") {
        program.streams.made(stream_of(3), context(3), 1);
        CHECK(program.wait());
        program.streams.made(stream_of(4), context(2), 0);
        CHECK_FALSE(program.wait());
        CHECK_FALSE(program.wait(2));
        program.streams.context_ended(context(2));
        CHECK(program.wait());
    }
    SECTION("ended with work left, until somebody has waited for all") {
        program.streams.made(stream_of(3), context(1), 0);
        const std::uint64_t before = program.streams.mark();
        program.streams.ending(stream_of(3), false);
        program.streams.made(stream_of(3), context(1), 0);   // a handle may mean another stream
        program.streams.ending(stream_of(3), true);
        program.streams.waited_for_all(context(1), before);
        CHECK_FALSE(program.wait());
        program.streams.waited_for_all(context(1), program.streams.mark());
        CHECK(program.wait());
    }
    SECTION("another thread's own, while that lives") {
        std::atomic<bool> ends{false}, launched{false};
        std::thread other([&] {
            FakeGpu::set_context(1);
            Op op;
            op.stream = CU_STREAM_PER_THREAD;
            op.kernel = true;
            op.name(p.at(program.a));
            if (p.pager->enter(op) == CUDA_SUCCESS) p.pager->leave(op, CUDA_SUCCESS);
            launched = true;
            while (!ends) std::this_thread::yield();
        });
        REQUIRE(Paged::soon([&] { return launched.load(); }));
        CHECK_FALSE(program.wait());
        ends = true;
        other.join();
        CHECK(Paged::soon([&] { return program.wait(); }));   // its last mark is complete
    }
    SECTION("another thread's own, of which nobody knows whether it has work") {
        CHECK(program.wait(1, {true, false}));
        CHECK_FALSE(program.wait(1, {true, true}));
    }
    SECTION("one that captures, or any other") {
        p.pager->streams().capture_beginning(stream_of(2));
        CHECK_FALSE(program.wait());
        p.pager->streams().capture_ended(stream_of(2));
        CHECK(program.wait());
    }
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("no context is waited for where none is") {
    Program program;
    CHECK_FALSE(program.streams.wait(program.p.pager->driver(), program.p.pager->streams(), nullptr, {}));
}
