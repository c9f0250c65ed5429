// One device's pager against a GPU that only keeps count: what is rare on a real one, made to happen.
#include <algorithm>
#include <chrono>
#include <optional>
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
        CHECK(p.gpu.word(small[i]).load() == i);
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
    CHECK(p.device->stats().served_from_host == 0);
    for (CUdeviceptr at : {c, b, a}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    CHECK(p.where(a) == Residency::device);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what an overwriting call is granted on host frames stays there") {
    Paged p({.device = 5, .host = 16, .deadline_ns = 100'000'000});
    const CUdeviceptr b = p.allocate(4);
    CUdeviceptr large = p.allocate(4);
    for (CUdeviceptr at : {b, large}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    REQUIRE(p.where(b) == Residency::host);
    const bool fails = GENERATE(false, true);
    Op op;

    SECTION("because a kernel still uses them") {
        p.gpu.hold(2), p.gpu.hold(3);
        REQUIRE(p.launch(2, {large}) == CUDA_SUCCESS);
        REQUIRE(p.launch(3, {b}, 5) == CUDA_SUCCESS);
        REQUIRE(p.where(b) == Residency::host);
        p.gpu.let_go(2);
        REQUIRE(p.device->free(large, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
        p.begin_fill(op, 4, b);
        REQUIRE(p.pager->enter(op) == CUDA_SUCCESS);
        p.gpu.refuse_to_map(b, granule, 100);   // nothing is mapped anew under the kernel
    }
    SECTION("because the driver does not map the others") {
        REQUIRE(p.device->free(large, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
        p.gpu.refuse_to_map(b, granule, 4);
        p.begin_fill(op, 4, b);
        REQUIRE(p.pager->enter(op) == CUDA_SUCCESS);
    }
    REQUIRE(p.where(b) == Residency::host);
    const std::uint64_t before = p.gpu.word(b);
    if (!fails) p.gpu.word(b) = 7;
    p.pager->leave(op, fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    CHECK(p.device->is_valid() == "");
    p.gpu.let_go(3);
    p.gpu.refuse_to_map(0, 0, 0);
    // What others put into host memory meanwhile is not where B is.
    for (int i = 0; i < 2; ++i) REQUIRE(p.launch(1, {p.allocate(4)}, 9) == CUDA_SUCCESS);
    Op next;
    REQUIRE(p.begin(next, 4, {b}) == CUDA_SUCCESS);
    CHECK(p.gpu.word(b).load() == (fails ? before : 7));
    p.pager->leave(next, CUDA_SUCCESS);
    CHECK(p.lines.empty());
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is brought in without its contents is nobody else's until it was written over") {
    Paged p({.device = 5, .host = 16});
    const CUdeviceptr b = p.allocate(2), c = p.allocate(2), busy = p.allocate(2), gone = p.allocate(2);
    for (CUdeviceptr at : {b, c}) REQUIRE(p.launch(1, {at}, 5) == CUDA_SUCCESS);
    p.gpu.hold(2);
    REQUIRE(p.launch(2, {busy}) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {gone}) == CUDA_SUCCESS);
    REQUIRE(p.device->free(gone, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    const bool fails = GENERATE(false, true);
    const std::uint64_t fetched = p.device->stats().fetches;

    // One thread writes over B with what it computes of C, for which there is no room yet ...
    Op op;
    std::atomic<bool> entered{false}, leaves{false}, used{false};
    std::thread first([&] {
        p.begin_fill(op, 4, b);
        op.name(p.at(c));
        entered = p.pager->enter(op) == CUDA_SUCCESS;
        while (!leaves) std::this_thread::yield();
        if (!fails) p.gpu.word(b) = 7;
        p.pager->leave(op, fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    });
    REQUIRE(Paged::soon([&] { return p.device->stats().fetches > fetched; }));
    // ... another wants it as it is, and a plan wants it copied.
    const Order clean{Order::Kind::clean, p.at(b), p.at(b)->id, p.pager->ops()};
    p.device->order(&clean, 1);
    std::uint64_t seen = 0;
    std::thread second([&] {
        Op own;
        used = p.begin(own, 4, {b}) == CUDA_SUCCESS;
        seen = p.gpu.word(b);
        p.gpu.word(b) = 8;
        p.pager->leave(own, CUDA_SUCCESS);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK_FALSE(used);
    p.gpu.let_go(2);
    REQUIRE(Paged::soon([&] { return entered.load(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK_FALSE(used);
    leaves = true;
    first.join(), second.join();
    CHECK(seen == (fails ? 5 : 7));
    CHECK(p.gpu.word(b).load() == 8);
    CHECK(p.device->is_valid() == "");
    CHECK(p.lines.empty());
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("an op that may touch anything waits for no move that waits for an op") {
    Paged p({.device = 5, .host = 16, .deadline_ns = 100'000'000});
    const CUdeviceptr c = p.allocate(2), x = p.allocate(2), y = p.allocate(2);
    REQUIRE(p.launch(1, {c}) == CUDA_SUCCESS);
    p.gpu.hold(2);
    REQUIRE(p.launch(2, {x, y}) == CUDA_SUCCESS);   // until what is launched last has run
    REQUIRE(p.launch(3, {c}) == CUDA_SUCCESS);      // wanted the memory of one of them
    REQUIRE(p.where(c) == Residency::host);
    std::atomic<bool> launched{false};
    std::thread last([&] { launched = p.launch_everything(4) == CUDA_SUCCESS; });
    CHECK(Paged::soon([&] { return launched.load(); }));
    p.gpu.let_go(2);
    last.join();
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("nothing begins to move while an op that may touch anything waits") {
    Paged p({.device = 7, .host = 16});
    const CUdeviceptr b = p.allocate(4), other = p.allocate(2), large = p.allocate(4);
    for (CUdeviceptr at : {b, large, other}) REQUIRE(p.launch(1, {at}) == CUDA_SUCCESS);
    REQUIRE(p.device->free(large, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    Op over;   // B comes without its contents, and is no other's for now
    p.begin_fill(over, 2, b);
    REQUIRE(p.pager->enter(over) == CUDA_SUCCESS);
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread waits([&] { launched = p.launch_everything(3); });
    std::this_thread::sleep_for(std::chrono::milliseconds(150));   // so that it does
    const Order out{Order::Kind::evict, p.at(other), p.at(other)->id, p.pager->ops()};
    p.device->order(&out, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(p.where(other) == Residency::device);
    p.pager->leave(over, CUDA_SUCCESS);
    waits.join();
    CHECK(launched == CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("an op that may touch anything takes what was freed, then more than the budget, and says so") {
    Paged p({.device = 7, .host = 16, .lands = false});
    const CUdeviceptr a = p.allocate(4);
    REQUIRE(p.launch(1, {a}, 5) == CUDA_SUCCESS);
    SECTION("memory that was freed is in the way") {
        REQUIRE(p.device->free(a, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
        const CUdeviceptr other = p.allocate(6);
        REQUIRE(p.launch_everything(1) == CUDA_SUCCESS);
        CHECK(p.where(other) == Residency::device);
        CHECK(p.lines.empty());
    }
    SECTION("what was never used has no room") {
        const CUdeviceptr other = p.allocate(4);
        REQUIRE(p.launch_everything(1) == CUDA_SUCCESS);
        CHECK(p.gpu.mapped(other));
        CHECK(p.device->stats().over_budget == 1);
        CHECK(p.lines.size() == 1);
    }
    SECTION("what is out has no room") {
        REQUIRE(p.launch(1, {p.allocate(4)}) == CUDA_SUCCESS);
        REQUIRE(p.where(a) == Residency::host);
        REQUIRE(p.launch_everything(1) == CUDA_SUCCESS);
        CHECK(p.gpu.word(a).load() == 5);
        CHECK(p.device->stats().over_budget == 1);
        CHECK(p.lines.size() == 1);
    }
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("launches that went ahead in vain do not keep later ones from getting their memory") {
    Paged p({.device = 9, .host = 32, .deadline_ns = 20'000'000});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    for (CUdeviceptr at : {a, b, p.allocate(4), p.allocate(4)}) REQUIRE(p.launch(1, {at}, 1) == CUDA_SUCCESS);
    REQUIRE((p.where(a) == Residency::host && p.where(b) == Residency::host));
    Op all;
    REQUIRE(p.begin(all, 2, {}, true) == CUDA_SUCCESS);   // on its way to the driver: nothing moves
    std::thread other([&] {
        FakeGpu::set_context(1);
        for (int i = 0; i < 40; ++i) CHECK(p.launch(1, {i % 2 ? a : b}, 2) == CUDA_SUCCESS);
    });
    other.join();
    CHECK(p.device->stats().served_from_host == 40);
    p.pager->leave(all, CUDA_SUCCESS);
    for (int i = 0; i < 100; ++i) REQUIRE(p.launch(1, {i % 2 ? a : b}, 3) == CUDA_SUCCESS);
    CHECK(p.device->stats().served_from_host < 50);
    CHECK((p.where(a) == Residency::device && p.where(b) == Residency::device));
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("a copy that takes longer than the deadline is not called off, but one that does not end is") {
    constexpr std::size_t kLarge = 4096;   // 256 MiB: a second's copy, to be patient, over a link that nobody has measured
    std::optional<Paged> made;
    CUdeviceptr a = 0, b = 0;
    for (int tries = 0; !made || made->device->stats().deadline_firings; ++tries) {   // a busy machine takes more than that second at times: then b is where this does not begin
        REQUIRE(tries < 50);
        made.emplace(Limits{.device = kLarge + 1, .host = 4 * kLarge, .deadline_ns = 80'000'000});
        a = made->allocate(kLarge), b = made->allocate(kLarge);
        for (CUdeviceptr at : {a, b}) REQUIRE(made->launch(1, {at}, at) == CUDA_SUCCESS);
    }
    Paged& p = *made;
    REQUIRE(p.where(a) == Residency::host);
    p.gpu.hold_moves(true);
    const bool ends = GENERATE(true, false);
    CUresult result = CUDA_ERROR_UNKNOWN;
    const auto begin = std::chrono::steady_clock::now();
    std::thread other([&] {
        FakeGpu::set_context(1);
        result = p.launch(1, {a}, 7);
    });
    if (ends) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        p.gpu.hold_moves(false);
    }
    other.join();
    CHECK(result == CUDA_SUCCESS);
    const bool fired = p.device->stats().deadline_firings > 0;
    if (!ends || std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) CHECK(fired == !ends);
    CHECK(p.where(a) == (fired ? Residency::host : Residency::device));
    p.gpu.hold_moves(false);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("why the budget is exceeded is said: too much for one op, or ops that do not end") {
    Paged p({.device = 5, .host = 16, .lands = false, .deadline_ns = 20'000'000});   // who waits 20 of them is told so too
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    SECTION("ops that do not end") {
        p.gpu.hold(2);
        REQUIRE(p.launch(2, {a}) == CUDA_SUCCESS);
        REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
        CHECK(p.said("device 0: all of the budget of 327680 bytes is in use by ops that do not end, and one waits for 262144 bytes that host memory cannot stand in for: the budget is exceeded by them") == 1);
        p.gpu.let_go(2);
    }
    SECTION("too much for one op") {
        REQUIRE(p.launch(1, {a, b}) == CUDA_SUCCESS);
        CHECK(p.said("device 0: an op needs more device memory than the budget of 327680 bytes and host memory cannot stand in: the budget is exceeded; raise UDNNMEM_BUDGET") == 1);
    }
    CHECK(p.lines.size() == 1);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("room that is held only until an op is submitted is waited for") {
    Paged p({.device = 5, .host = 16, .lands = false});
    const CUdeviceptr one = p.allocate(2), two = p.allocate(2);
    Op open;
    SECTION("by several small buffers of its own") { REQUIRE(p.begin(open, 1, {one, two}) == CUDA_SUCCESS); }
    SECTION("by an op that may touch anything") { REQUIRE(p.begin(open, 1, {}, true) == CUDA_SUCCESS); }
    CUresult launched = CUDA_ERROR_UNKNOWN;
    const CUdeviceptr large = p.allocate(4);
    std::thread waits([&] { launched = p.launch(2, {large}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(p.device->stats().over_budget == 0);
    p.pager->leave(open, CUDA_SUCCESS);
    waits.join();
    CHECK(launched == CUDA_SUCCESS);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("who waits for long for the memory of ops that do not end is told so, once") {
    Paged p({.device = 5, .host = 16, .lands = false, .deadline_ns = 1'000'000});
    p.gpu.hold(2);
    const CUdeviceptr a = p.allocate(4);
    REQUIRE(p.launch(2, {a}) == CUDA_SUCCESS);
    p.gpu.fill_up();   // there is none beyond the budget either
    std::thread waits([&] { CHECK(p.launch(1, {p.allocate(4)}) == CUDA_SUCCESS); });
    CHECK(Paged::soon([&] { return p.said("an op has waited for 0 s for the memory of ops that do not end; it uses 262144 bytes") == 1; }));
    p.gpu.let_go(2);
    waits.join();
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("who waits for ops that wait for him gets an error in the end") {
    Paged p({.device = 5, .host = 16, .lands = false, .deadline_ns = 1'000'000});
    p.gpu.hold(2);
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    REQUIRE(p.launch(2, {a}, 5) == CUDA_SUCCESS);
    p.gpu.fill_up();
    CHECK(p.launch(1, {b}) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(p.launch(1, {a}, 6) == CUDA_SUCCESS);
    p.gpu.let_go(2);
    CHECK(p.launch(1, {b}) == CUDA_SUCCESS);
    CHECK((p.gpu.word(b) == 1 && p.gpu.violations().empty()));
}

TEST_CASE("what is called off for one buffer of an op is not set off again for the next one") {
    Paged p({.device = 4, .host = 16});
    const CUdeviceptr small = p.allocate(1), large = p.allocate(2), idle = p.allocate(1), busy = p.allocate(2);
    for (CUdeviceptr at : {small, large, idle}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    p.gpu.hold(2);
    REQUIRE(p.launch(2, {busy}) == CUDA_SUCCESS);
    REQUIRE(p.where(small) == Residency::host);
    REQUIRE(p.where(large) == Residency::host);
    // What is idle is on its way out, and enough for the small one alone; what is busy has to wait for its op.
    p.gpu.hold_moves(true);
    const std::uint64_t before = p.moves_begun;
    std::thread waits([&] { CHECK(p.launch(3, {small, large}, 5) == CUDA_SUCCESS); });
    CHECK(Paged::soon([&] { return p.moves_begun >= before + 2; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(p.moves_begun == before + 2);
    p.gpu.hold_moves(false);
    p.gpu.let_go(2);
    waits.join();
    CHECK(p.where(small) == Residency::device);
    CHECK(p.where(large) == Residency::device);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("an op that may touch anything gets the driver's error where it will not bring a buffer") {
    Paged p({.device = 5, .host = 16, .lands = false});
    const CUdeviceptr a = p.allocate(2);
    REQUIRE(p.launch(1, {a}, 5) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {p.allocate(4)}) == CUDA_SUCCESS);
    REQUIRE(p.where(a) == Residency::host);
    p.gpu.refuse_to_map(a, granule, 1'000'000);
    CHECK(p.launch_everything(1) != CUDA_SUCCESS);
    p.gpu.refuse_to_map(0, 0, 0);
    CHECK(p.launch_everything(1) == CUDA_SUCCESS);
    CHECK(p.gpu.word(a).load() == 5);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("by a plan room is waited for that its evictions will make, though something is there that nobody uses again") {
    Paged p({.device = 7, .host = 16, .lands = false});
    const CUdeviceptr kept = p.allocate(2), used = p.allocate(4), more = p.allocate(4);
    p.device->plan_step(1, 1'000'000);
    REQUIRE(p.launch(1, {kept}, 5) == CUDA_SUCCESS);
    p.gpu.hold(2);
    REQUIRE(p.launch(2, {used}, 6) == CUDA_SUCCESS);
    p.at(kept)->next_use = Buffer::never_again;   // to the plan it stays until it is freed
    p.at(used)->next_use = 5;
    const Order out{Order::Kind::evict, p.at(used), p.at(used)->id, p.at(used)->last_use.load()};
    p.device->order(&out, 1);
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread waits([&] {
        FakeGpu::set_context(1);
        launched = p.launch(1, {more}, 7);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(p.where(kept) == Residency::device);
    p.gpu.let_go(2);
    waits.join();
    CHECK(launched == CUDA_SUCCESS);
    CHECK(p.where(kept) == Residency::device);
    CHECK(p.where(used) == Residency::host);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is ordered in needs room for itself once, also where a launch that is held back waits for it") {
    Paged p({.device = 8, .host = 16, .lands = false, .deadline_ns = 300'000'000'000});   // a launch is held back for an eighth of it
    const CUdeviceptr used = p.allocate(3), busy = p.allocate(2);
    p.device->plan_step(1, 1'000'000);
    REQUIRE(p.launch(1, {used}, 5) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    const Order out{Order::Kind::evict, p.at(used), p.at(used)->id, p.at(used)->last_use.load()};
    p.device->order(&out, 1);
    REQUIRE(Paged::soon([&] { return p.where(used) == Residency::host; }));
    p.gpu.hold(2);
    Op before;
    REQUIRE(p.begin(before, 2, {busy}) == CUDA_SUCCESS);
    p.pager->leave(before, CUDA_SUCCESS);
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread waits([&] {
        FakeGpu::set_context(1);
        Op op;
        op.paced_by = before.slot;
        op.paced_number = p.at(busy)->last_use;
        launched = p.begin(op, 1, {used});
        p.pager->leave(op, launched);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(p.where(used) == Residency::host);
    const Order in{Order::Kind::fetch, p.at(used), p.at(used)->id, 0};
    p.device->order(&in, 1);
    CHECK(Paged::soon([&] { return p.where(used) == Residency::device; }));
    p.gpu.let_go(2);
    waits.join();
    CHECK(launched == CUDA_SUCCESS);
    CHECK(p.gpu.word(used).load() == 5);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what never leaves the device counts once where an op is asked whether it fits") {
    Paged p({.device = 9, .host = 16});   // one granule of them is the pager's own
    const CUdeviceptr fixed = p.allocate(4), other = p.allocate(4), third = p.allocate(4);
    for (CUdeviceptr at : {other, fixed}) REQUIRE(p.launch(1, {at}) == CUDA_SUCCESS);
    const auto together = [&](const std::vector<CUdeviceptr>& named) {
        Op op;
        for (CUdeviceptr at : named) op.name(p.at(at));
        return p.pager->fits_together(op);
    };
    CHECK(together({other, third}));
    REQUIRE(p.device->pin(p.at(fixed)) == CUDA_SUCCESS);
    CHECK(together({fixed, other}));
    CHECK_FALSE(together({other, third}));
    CHECK_FALSE(together({fixed, other, third}));
    REQUIRE(p.device->free(fixed, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);   // its memory can be had
    CHECK(together({other, third}));
}

TEST_CASE("what is pinned to host frames is not brought in by a plan") {
    Paged p({.device = 8, .host = 16});
    const CUdeviceptr used = p.allocate(2);
    REQUIRE(p.launch(1, {used}, 5) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    const Order out{Order::Kind::evict, p.at(used), p.at(used)->id, p.at(used)->last_use.load()};
    p.device->order(&out, 1);
    REQUIRE(Paged::soon([&] { return p.where(used) == Residency::host; }));
    const bool pinned = GENERATE(true, false);
    p.at(used)->pinned = pinned;
    const Order in{Order::Kind::fetch, p.at(used), p.at(used)->id, 0};
    p.device->order(&in, 1);
    if (pinned) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    else REQUIRE(Paged::soon([&] { return p.where(used) == Residency::device; }));
    CHECK(p.where(used) == (pinned ? Residency::host : Residency::device));
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("an op with parts on several streams is done when all of them are") {
    Paged p({.device = 5, .host = 16, .lands = false, .deadline_ns = 60'000'000'000});
    const CUdeviceptr used = p.allocate(4), other = p.allocate(4);
    Op op;
    p.gpu.hold(3);
    op.also.push_back(&p.pager->streams().slot(stream_of(3)));
    REQUIRE(p.begin(op, 2, {used}) == CUDA_SUCCESS);
    p.pager->leave(op, CUDA_SUCCESS);
    std::atomic<bool> launched{false};
    std::thread waits([&] {
        FakeGpu::set_context(1);
        CHECK(p.launch(1, {other}) == CUDA_SUCCESS);
        launched = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK_FALSE(launched);   // the first part has ended, the other has not
    CHECK((p.where(used) == Residency::device || p.where(used) == Residency::evicting));
    p.gpu.let_go(3);
    waits.join();
    CHECK(p.where(used) == Residency::host);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is used after all while it is dropped stays, though no op named it") {
    for (const bool used : {true, false}) {
        Paged p({.device = 8, .host = 16});
        const CUdeviceptr made = p.allocate(2);
        REQUIRE(p.launch(1, {made}, 5) == CUDA_SUCCESS);
        p.pager->streams().mark_tails();
        p.gpu.hold_moves(true);
        const Order drop{Order::Kind::drop, p.at(made), p.at(made)->id, p.at(made)->last_use.load()};
        p.device->order(&drop, 1);
        REQUIRE(Paged::soon([&] { return p.where(made) == Residency::evicting; }));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (used) ++p.at(made)->last_use;   // through a table of addresses that was found meanwhile
        p.gpu.hold_moves(false);
        REQUIRE(Paged::soon([&] { return p.where(made) != Residency::evicting; }));
        CHECK(p.where(made) == (used ? Residency::device : Residency::unbacked));
        CHECK(p.at(made)->dropped.load() == !used);
        CHECK(p.gpu.violations().empty());
    }
}

TEST_CASE("host memory that a copy may read for good is not given to the driver") {
    Paged p({.device = 9, .host = 12, .lands = false, .deadline_ns = 50'000'000});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(8);
    REQUIRE(p.launch(1, {a}) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
    REQUIRE(p.where(a) == Residency::host);
    REQUIRE(p.device->free(b, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    p.gpu.copies_in_never_end();
    p.gpu.refuse_to_map(a, 4 * granule, 1'000'000);   // after the copy
    CHECK(p.launch(1, {a}) != CUDA_SUCCESS);
    p.gpu.refuse_to_map(0, 0, 0);
    REQUIRE(p.device->free(a, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    std::vector<CUdeviceptr> small;
    for (int i = 0; i < 7; ++i) {
        small.push_back(p.allocate(2));
        REQUIRE(small.back());
        p.launch(1, {small.back()}, small.back());   // the last needs what a's frame takes, in frames of another size
    }
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what a stream freed is its own to have at once, not the next one's of that slot") {
    Paged p({.device = 7, .host = 16, .small_below = 1024});
    const std::size_t bytes = GENERATE(as<std::size_t>(), 64 << 10, 256);   // a buffer's, a slab's
    const auto take = [&](CUstream stream) {
        CUdeviceptr at = 0;
        REQUIRE(p.device->allocate(bytes, stream, true, nullptr, at) == CUDA_SUCCESS);
        return at;
    };
    p.gpu.hold(2);
    CUdeviceptr freed = 0, again = 0;
    std::thread([&] {
        const CUdeviceptr at = take(CU_STREAM_PER_THREAD);
        REQUIRE(p.launch(2, {at}) == CUDA_SUCCESS);
        // The stream waits for that work's event, which is no op of its own, and frees; with the thread it ends.
        freed = at;
        REQUIRE(p.device->free(at, CU_STREAM_PER_THREAD, true) == CUDA_SUCCESS);
        again = take(CU_STREAM_PER_THREAD);
        REQUIRE(p.device->free(again, CU_STREAM_PER_THREAD, true) == CUDA_SUCCESS);
    }).join();
    CHECK(again == freed);
    CHECK(take(stream_of(5)) != freed);
    p.gpu.let_go(2);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("memory for answers goes back to the driver once nothing can write there any more") {
    Paged p({.device = 7, .host = 16});
    AnswerMemory& memory = p.pager->answer_memory();
    const CUdeviceptr a = p.allocate(2);
    std::uint64_t* const words = static_cast<std::uint64_t*>(memory.take(72));
    REQUIRE(words);
    CHECK(std::all_of(words, words + 9, [](std::uint64_t w) { return w == 0; }));
    memory.collect();
    CHECK(memory.blocks() == 1);
    SECTION("after what was submitted has completed") {
        p.gpu.hold(2);
        REQUIRE(p.launch(2, {a}) == CUDA_SUCCESS);
        memory.give_back(words);
        p.pager->streams().mark_tails();
        memory.collect();
        CHECK(memory.blocks() == 1);
        p.gpu.let_go(2);
    }
    SECTION("after the op has its number that writes there") {
        Op op;
        REQUIRE(p.begin(op, 2, {a}) == CUDA_SUCCESS);
        memory.give_back(words);
        memory.collect();
        CHECK(memory.blocks() == 1);
        p.pager->leave(op, CUDA_SUCCESS);
        p.pager->streams().mark_tails();
    }
    SECTION("or with its context") { p.pager->context_destroying(reinterpret_cast<CUcontext>(1), true); }
    memory.collect();
    CHECK(memory.blocks() == 0);
    memory.give_back(words);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("the mover outlives its context") {
    Paged p({.device = 7, .host = 16});
    REQUIRE(p.allocate(2));   // its context is the first that allocates
    FakeGpu::set_context(2);
    const CUdeviceptr c = p.allocate(4), x = p.allocate(2), z = p.allocate(4), gone = p.allocate(4);
    for (CUdeviceptr at : {c, x, gone}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    REQUIRE(p.where(c) == Residency::host);
    REQUIRE(p.device->free(gone, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    p.pager->streams().mark_tails();
    SECTION("while a plan goes on") {
        p.pager->context_destroying(reinterpret_cast<CUcontext>(1), true);
        const Order out{Order::Kind::evict, p.at(x), p.at(x)->id, p.pager->ops()};
        p.device->order(&out, 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK(p.where(x) == Residency::device);
        CHECK(p.launch(1, {c}, 5) == CUDA_SUCCESS);
        CHECK(Paged::soon([&] { return p.where(x) == Residency::host; }));
    }
    SECTION("while a launch waits") {
        Op op;   // holds all there is
        REQUIRE(p.begin(op, 1, {x, z}) == CUDA_SUCCESS);
        CUresult launched = CUDA_ERROR_UNKNOWN;
        std::thread waits([&] {
            FakeGpu::set_context(2);
            launched = p.launch(2, {c}, 5);
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        p.pager->context_destroying(reinterpret_cast<CUcontext>(1), true);
        p.pager->leave(op, CUDA_SUCCESS);
        waits.join();
        CHECK(launched == CUDA_SUCCESS);
        CHECK(p.where(c) == Residency::device);
    }
    CHECK_FALSE(p.pinned(x));
    CHECK_FALSE(p.pinned(z));
    CHECK(p.gpu.word(x).load() == x);
    CHECK(p.gpu.word(c).load() == 5);
    CHECK(p.gpu.contexts_of_streams() == std::vector{1, 1, 1, 1, 2, 2, 2});   // one that tries host memory, and three at work, twice
    CHECK(p.lines.empty());
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("a device's mover works in a context of that device") {
    Paged p({.device = 7, .host = 16});
    const CUdeviceptr a = p.allocate(2);
    REQUIRE(p.launch(1, {a}) == CUDA_SUCCESS);
    FakeGpu::set_context(3);
    REQUIRE(p.pager->current_device() != p.device);   // asked about its memory, and no more
    SECTION("not in that of an op that may touch anything, where it has nothing") {
        FakeGpu::set_context(1);
        REQUIRE(p.launch_everything(1) == CUDA_SUCCESS);
        CHECK(p.gpu.contexts_of_streams() == std::vector{1, 1, 1, 1, 3});
    }
    SECTION("not in that of another device's op, when its own is gone") {
        FakeGpu::set_context(2);
        const CUdeviceptr b = p.allocate(2);
        REQUIRE(p.launch(1, {b}) == CUDA_SUCCESS);
        p.pager->context_destroying(reinterpret_cast<CUcontext>(1), true);
        FakeGpu::set_context(3);
        REQUIRE(p.launch_everything(3) == CUDA_SUCCESS);
        CHECK(p.gpu.contexts_of_streams() == std::vector{1, 1, 1, 1, 3, 2, 2, 2});
    }
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("what is not managed gets the memory that it needs") {
    Paged p({.device = 9, .host = 16});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    REQUIRE(p.launch(1, {a}, 5) == CUDA_SUCCESS);
    REQUIRE(p.launch(1, {b}, 6) == CUDA_SUCCESS);
    p.gpu.fill_up();
    std::size_t lowered = 0;
    const auto budget = [&] { return p.device->memory().device_budget / granule; };
    SECTION("of what was freed") {
        REQUIRE(p.device->free(b, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
        CHECK(p.device->yield(3 * granule, lowered) == CUDA_SUCCESS);
        CHECK((p.gpu.left() == 4 && budget() == 6 && lowered == 3 * granule));
        CHECK(p.where(a) == Residency::device);
        p.device->reclaim(lowered);
        CHECK(budget() == 9);
    }
    SECTION("or goes out for it") {
        CHECK(p.device->yield(3 * granule, lowered) == CUDA_SUCCESS);
        CHECK((p.gpu.left() == 4 && budget() == 6));
        CHECK((p.where(a) == Residency::host && p.where(b) == Residency::device));
        p.gpu.fill_up(1);   // it is taken
        REQUIRE(p.launch(1, {a}, 7) == CUDA_SUCCESS);
        CHECK((p.where(a) == Residency::device && p.where(b) == Residency::host));
    }
    SECTION("or of what nothing needs, when asked to") {
        REQUIRE(p.device->free(a, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
        CHECK(p.device->yield(0, lowered) == CUDA_SUCCESS);
        CHECK((p.gpu.left() == 4 && budget() == 9 && lowered == 0));
    }
    SECTION("and whoever needs room has it again when that is given back") {
        CHECK(p.device->yield(3 * granule, lowered) == CUDA_SUCCESS);
        p.gpu.fill_up(4);   // what is left to others
        REQUIRE(p.launch(1, {a}, 7) == CUDA_SUCCESS);
        CHECK((budget() == 6 && p.where(b) == Residency::host));
        p.gpu.fill_up(16);
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        REQUIRE(p.launch(1, {b}, 8) == CUDA_SUCCESS);
        CHECK((budget() == 9 && p.where(a) == Residency::device && p.where(b) == Residency::device));   // no more than was promised
    }
    SECTION("but not more than there is") {
        CHECK(p.device->yield(9 * granule, lowered) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK((budget() == 9 && lowered == 0));
    }
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("a device's budget is of its own memory") {
    Paged p({.host = 16});
    CHECK(p.device->memory().device_budget > 7000 * granule);
    CHECK_FALSE(p.pager->device(1));   // nothing says what it has
    FakeGpu::set_context(3);
    REQUIRE(p.pager->device(1));
    CHECK(p.pager->device(1)->memory().device_budget <= 2048 * granule);
    CHECK(p.lines.empty());
    // Records name buffers of all devices by one number.
    const CUdeviceptr there = p.allocate(2);
    FakeGpu::set_context(1);
    const CUdeviceptr here = p.allocate(2);
    REQUIRE((there && here && p.at(there)->device != p.at(here)->device));
    CHECK(p.at(there)->id != p.at(here)->id);
}

TEST_CASE("where nothing is mapped no op can be: what is brought in waits for none, whatever was said of ops that were refused") {
    Paged p({.device = 5, .host = 16, .lands = false, .deadline_ns = 1'000'000});
    const CUdeviceptr a = p.allocate(4), b = p.allocate(4);
    for (CUdeviceptr at : {a, b}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    REQUIRE(p.where(a) == Residency::host);
    Op refused;
    p.begin_fill(refused, 2, a);
    REQUIRE(p.pager->enter(refused) == CUDA_SUCCESS);
    p.gpu.hold(2);   // for a while nobody can tell whether its ops have completed
    p.pager->leave(refused, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(p.where(a) == Residency::host);
    Op op;
    REQUIRE(p.begin(op, 1, {a}) == CUDA_SUCCESS);
    CHECK(p.gpu.word(a).load() == a);
    p.pager->leave(op, CUDA_SUCCESS);
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("buffers of more than 2 GiB are counted whole") {
    constexpr std::size_t kLarge = (3ull << 30) / granule;
    Paged p({.device = 16, .host = 2 * kLarge + kLarge / 2});
    const CUdeviceptr a = p.allocate(kLarge);
    CHECK(p.device->memory().live == kLarge * granule);
    CHECK(p.allocate(kLarge) == 0);   // two and a half, and one that moves
    REQUIRE(p.device->free(a, CU_STREAM_LEGACY, false) == CUDA_SUCCESS);
    CHECK(p.device->memory().live == 0);
    CHECK(p.allocate(kLarge) != 0);
}

TEST_CASE("what was freed is given back rather than that a frame is made anew") {
    Paged p({.device = 1 + 15, .host = 32});
    const CUdeviceptr eight = p.allocate(8), six = p.allocate(6), one = p.allocate(1);
    for (CUdeviceptr at : {eight, six, one}) REQUIRE(p.launch(1, {at}, at) == CUDA_SUCCESS);
    for (CUdeviceptr at : {eight, six, one}) REQUIRE(p.device->free(at, stream_of(1), true) == CUDA_SUCCESS);
    // Those of six are room enough, but come in four and two.
    const CUdeviceptr five = p.allocate(5);
    REQUIRE(p.launch(1, {five}) == CUDA_SUCCESS);
    CHECK(p.device->stats().recreated_frames == 0);
    CHECK(p.gpu.mapped(eight));
    CHECK_FALSE(p.gpu.mapped(one));
    CHECK(p.gpu.violations().empty());
}
