// What the program's calls leave behind, on one device's pager: memory freed in an order, calls that are refused, tables in slabs.
#include <algorithm>
#include <thread>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

TEST_CASE("what a stream was made to wait for is waited for before others have the memory that it freed") {
    Paged p({.device = 9, .host = 16});
    const CUdeviceptr b = p.allocate(2), own = p.allocate(1);
    const bool newest = GENERATE(false, true);   // its last op is that of all
    REQUIRE(p.launch(newest ? 1 : 3, {own}) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    if (newest) REQUIRE(p.launch(3, {own}) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    p.gpu.hold(3);   // waits for an event of work that uses B by a way that nobody knows yet
    if (newest) p.pager->streams().event_waited();
    REQUIRE(p.device->free(b, stream_of(3), true) == CUDA_SUCCESS);
    const auto take = [&](CUstream stream) {
        CUdeviceptr at = 0;
        REQUIRE(p.device->allocate(2 * granule, stream, true, nullptr, at) == CUDA_SUCCESS);
        return at;
    };
    p.pager->streams().mark_tails();
    CHECK(take(stream_of(4)) != b);
    p.gpu.let_go(3);
    CHECK(take(stream_of(5)) == b);
}

TEST_CASE("memory that is freed right behind its stream's last op comes with it") {
    Paged p({.device = 9, .host = 16});
    const CUdeviceptr b = p.allocate(2);
    p.pager->streams().event_waited();
    REQUIRE(p.launch(3, {b}) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();   // as a plan does behind an op
    REQUIRE(p.device->free(b, stream_of(3), true) == CUDA_SUCCESS);
    CUdeviceptr at = 0;
    REQUIRE(p.device->allocate(2 * granule, stream_of(4), true, nullptr, at) == CUDA_SUCCESS);
    CHECK(at == b);
}

TEST_CASE("memory that is freed without anybody waiting is had by others once all streams have come so far") {
    Paged p({.device = 9, .host = 16});
    const CUdeviceptr b = p.allocate(2), other = p.allocate(1);
    REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    p.gpu.hold(2);
    REQUIRE(p.launch(2, {other}) == CUDA_SUCCESS);   // may use B, by a way that nobody knows yet
    REQUIRE(p.device->free(b, nullptr, false, false) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    CHECK(p.allocate(2) != b);
    p.gpu.let_go(2);
    CHECK(p.allocate(2) == b);
}

TEST_CASE("all of a slab is another thing than the allocation that it begins with") {
    constexpr std::size_t kSmall = granule / 2;
    Paged p({.device = 24, .host = 16, .small_below = kSmall});
    std::vector<CUdeviceptr> in_a, in_b;
    const auto take = [&] {
        CUdeviceptr at = 0;
        REQUIRE(p.device->allocate(kSmall / 2, nullptr, false, nullptr, at) == CUDA_SUCCESS);
        return at;
    };
    in_a.push_back(take());
    for (CUdeviceptr at = take();; at = take()) {
        (p.at(at) == p.at(in_a[0]) ? in_a : in_b).push_back(at);
        if (!in_b.empty()) break;
    }
    std::sort(in_a.begin(), in_a.end());
    REQUIRE(in_a.size() > 1);
    const CUdeviceptr x = p.allocate(2);
    Buffer *const a = p.at(in_a[0]), *const b = p.at(in_b[0]);
    p.device->wrote_pointers(a, {{in_a[1], 8}}, {{in_a[1], x, p.at(x)}});
    p.device->wrote_pointers(b, {{in_b[0], 8}}, {{in_b[0], in_a[0], a}});
    Op op;
    op.stream = stream_of(1);
    op.name(a);
    op.name(b);
    for (int i = 0; i < 33; ++i) op.name_in_slab(in_a[1]);   // more than are listed: all that the slabs hold counts
    REQUIRE(p.pager->enter(op) == CUDA_SUCCESS);
    CHECK(std::find(op.buffers, op.buffers + op.count, p.at(x)) != op.buffers + op.count);
    p.pager->leave(op, CUDA_SUCCESS);
}

TEST_CASE("an op that the driver has refused for want of a context keeps nothing waiting") {
    Paged p({.device = 9, .host = 16});
    const CUdeviceptr b = p.allocate(2);
    REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    std::uint64_t bit = 0;
    std::thread([&] {
        FakeGpu::set_context(0);
        Op op;
        op.stream = CU_STREAM_PER_THREAD;
        op.name(p.at(b));
        REQUIRE(p.pager->enter(op) == CUDA_SUCCESS);
        p.pager->leave(op, CUDA_ERROR_INVALID_CONTEXT);
        bit = op.slot->bit();
    }).join();
    p.pager->streams().mark_tails();
    CHECK(p.pager->streams().complete(bit, p.pager->streams().now()));
}

TEST_CASE("after a call that failed, an op that may touch anything looks again whether all is mapped") {
    Paged p({.device = 5, .host = 16, .lands = false, .deadline_ns = 20'000'000});
    const CUdeviceptr b = p.allocate(2), other = p.allocate(2);
    REQUIRE(p.launch(1, {b}, 5) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    const Order out{Order::Kind::evict, p.at(b), p.at(b)->id, p.at(b)->last_use.load()};
    p.device->order(&out, 1);
    REQUIRE(Paged::soon([&] { return p.where(b) == Residency::host; }));
    REQUIRE(p.launch(1, {other}) == CUDA_SUCCESS);
    Op over;
    p.begin_fill(over, 2, b);
    REQUIRE(p.pager->enter(over) == CUDA_SUCCESS);
    std::thread([&] {
        FakeGpu::set_context(1);
        CHECK(p.launch_everything(3) == CUDA_SUCCESS);   // past the deadline: the one above may wait for it
    }).join();
    p.pager->leave(over, CUDA_ERROR_INVALID_VALUE);
    Op everything;
    REQUIRE(p.begin(everything, 4, {}, true) == CUDA_SUCCESS);
    CHECK(p.gpu.mapped(b));
    p.pager->leave(everything, CUDA_SUCCESS);
    CHECK(p.gpu.word(b).load() == 5);
}

TEST_CASE("memory that others have given back is allocated again") {
    Paged p({.device = 9, .host = 0});
    REQUIRE(p.allocate(4));
    p.gpu.fill_up(3);
    std::size_t lowered = 0;
    REQUIRE(p.device->yield(3 * granule, lowered) == CUDA_SUCCESS);
    CHECK_FALSE(p.allocate(4));
    p.gpu.fill_up(100);
    CHECK(p.allocate(4));   // at once
}

TEST_CASE("peers are let in while memory is on its way out") {
    Paged p({.device = 9, .host = 16, .lands = false});
    const CUdeviceptr b = p.allocate(4);
    REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    std::atomic<bool> over{false};
    std::atomic<int> refused{0};
    std::thread peers([&] {
        FakeGpu::set_context(1);
        for (bool on = true; !over; on = !on) refused += p.device->peer_access(1, on) != CUDA_SUCCESS;
    });
    for (int i = 0; i < 200; ++i) {
        p.pager->streams().mark_tails();
        const Order out{Order::Kind::evict, p.at(b), p.at(b)->id, p.at(b)->last_use.load()};
        p.device->order(&out, 1);
        REQUIRE(Paged::soon([&] { return p.where(b) == Residency::host; }));
        REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    }
    over = true;
    peers.join();
    CHECK(refused == 0);
}

TEST_CASE("memory for answers is taken while the driver waits with freeing some") {
    Paged p({.device = 7, .host = 16});
    AnswerMemory& memory = p.pager->answer_memory();
    void* const first = memory.take(72);
    REQUIRE(first);
    memory.give_back(first);
    p.gpu.frees_wait = true;
    std::thread collects([&] { memory.collect(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<bool> taken{false};
    std::thread takes([&] {
        FakeGpu::set_context(1);
        taken = memory.take(72) != nullptr;
    });
    CHECK(Paged::soon([&] { return taken.load(); }));
    p.gpu.frees_wait = false;
    collects.join(), takes.join();
    CHECK(memory.blocks() == 1);
}
