// The replayer on a GPU that does what it is told: which memory it takes, what comes behind its work, which launches it keeps.
#include <cstring>
#include <memory>

#include "shim/replay/replayer.hpp"
#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using namespace udnnmem::pager::test;
using namespace udnnmem::replay;

namespace {

constexpr std::size_t kSmall = 16384;   // bytes of an allocation that lies in a slab
constexpr std::uint64_t kIteration = 1;

CUdeviceptr small(Paged& p, std::size_t bytes, CUstream stream) {
    CUdeviceptr at = 0;
    REQUIRE(p.device->allocate(bytes, stream, true, nullptr, at) == CUDA_SUCCESS);
    return at;
}

// A fill over all of buffer 0, at `at`, as the program launched it.
KnownOp fill_of(CUdeviceptr at, std::size_t bytes, unsigned element) {
    const FillArguments arguments{at, 0, 0, element, bytes / element, 1};
    KnownOp op;
    op.kind = op.launch.kind = Launch::Kind::fill;
    op.launch.arguments.resize(sizeof arguments);
    std::memcpy(op.launch.arguments.data(), &arguments, sizeof arguments);
    op.uses = {{.buffer = 0, .movable = true, .bytes = bytes, .reads = false, .writes = true}};
    op.operands = {{offsetof(FillArguments, dst), 0, 0}};
    op.proven = op.inspected = true;
    op.captured = kIteration;
    op.note_submitted(kIteration);
    return op;
}

// A buffer that two fills have made and that is dropped. The driver has no such fill as the second one.
struct Dropped {
    Dropped() : p({.device = 8, .host = 8}), at(p.allocate(2)), replayer(*p.pager, *p.device, 0) {
        known = std::make_shared<Known>();
        for (const unsigned element : {1u, 2u}) known->ops.push_back(fill_of(at, 2 * granule, element));
        REQUIRE(p.launch(1, {at}, 5) == CUDA_SUCCESS);
        p.pager->streams().mark_tails();
        pager::Buffer* const b = p.at(at);
        REQUIRE(replayer.may_drop(known, slice, 0, b, b->last_use, kIteration, {{at, 1}}) == Replayer::Drop::no);   // a stray word led an op there, after the launches that make it
        REQUIRE(replayer.may_drop(known, slice, 0, b, b->last_use, kIteration, {{at, 0}}) == Replayer::Drop::yes);
        const pager::Order order{pager::Order::Kind::drop, b, b->id, b->last_use};
        p.device->order(&order, 1);
        REQUIRE(Paged::soon([&] { return b->dropped.load(); }));
    }
    Paged p;
    CUdeviceptr at;
    Replayer replayer;
    std::shared_ptr<Known> known;
    std::shared_ptr<const Slice> slice = std::make_shared<const Slice>(Slice{{0, 1}, {0}, {}});
};

// A kernel that is given one address.
struct OneAddress final : LaunchSource {
    CUdeviceptr address = 0;
    const char* refused() const override { return nullptr; }
    const char* tied() const override { return nullptr; }
    bool may_write(std::uint32_t) const override { return false; }
    bool may_steer(std::uint32_t) const override { return false; }
    bool may_leave_out(std::uint32_t) const override { return false; }
    bool stray(std::uint32_t) const override { return false; }
    bool inspected() const override { return false; }
    std::uint64_t code() const override { return 7; }
    mutable int copies = 0;
    bool again(const Launch& launch) const override { return std::memcmp(launch.arguments.data(), &address, sizeof address) == 0; }
    bool copy(Launch& out) const override {
        ++copies;
        out.function = reinterpret_cast<CUfunction>(1);
        out.arguments.resize(sizeof address);
        std::memcpy(out.arguments.data(), &address, sizeof address);
        return true;
    }
};

}  // namespace

TEST_CASE("hashes of replays are summed in no memory that a stream is still to use") {
    Paged p({.device = 8, .host = 8, .small_below = granule / 2});
    const int legacy = static_cast<int>(reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY) - reinterpret_cast<std::uintptr_t>(stream_of(0)));
    const CUdeviceptr read = small(p, OwnWork::slots * 32, CU_STREAM_LEGACY);
    p.gpu.hold(legacy);
    REQUIRE(p.launch(legacy, {read}) == CUDA_SUCCESS);
    REQUIRE(p.device->free(read, CU_STREAM_LEGACY, true) == CUDA_SUCCESS);
    OwnWork work(*p.pager, *p.device);
    REQUIRE(work.start());
    CHECK_FALSE(p.device->allocation_at(read));
    CHECK(small(p, OwnWork::slots * 32, CU_STREAM_LEGACY) == read);   // for that stream it would do
}

TEST_CASE("what a replay has submitted that failed half-way comes before what is done next with its memory") {
    Dropped d;
    d.p.gpu.hold(1);
    REQUIRE(d.replayer.replay(*d.slice, stream_of(1)) == CUDA_ERROR_NOT_SUPPORTED);
    pager::Op op;
    op.stream = stream_of(2);
    op.name(d.p.at(d.at));
    REQUIRE(d.replayer.follow_replays(op) == CUDA_SUCCESS);
    CHECK(d.p.gpu.waits(2, 1));
}

TEST_CASE("a restore that failed is owed until one does not") {
    Dropped d;
    CHECK_FALSE(d.replayer.owes());
    REQUIRE(d.replayer.restore_all(false, kIteration + 1) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(d.replayer.owes());
    CHECK(d.p.at(d.at)->dropped.load());
    SECTION("or nothing is dropped any more") {
        CHECK_FALSE(d.replayer.freed(d.at));
        CHECK_FALSE(d.replayer.owes());
        return;
    }
    d.known->ops[1] = d.known->ops[0];
    REQUIRE(d.replayer.restore_all(false, kIteration + 2) == CUDA_SUCCESS);
    CHECK_FALSE(d.replayer.owes());
    CHECK_FALSE(d.p.at(d.at)->dropped.load());
}

TEST_CASE("a launch is kept that is given small memory as it was when it was proven, be it only read") {
    Paged p({.device = 8, .host = 8, .small_below = granule / 2});
    const CUdeviceptr whole = small(p, kSmall, stream_of(1)), shorter = small(p, kSmall / 2, stream_of(1));
    auto known = std::make_shared<Known>();
    KnownOp& op = known->ops.emplace_back();
    OneAddress given;
    given.address = whole;
    given.copy(op.launch);
    op.proved = op.launch.function, op.proved_with = op.launch.arguments, op.varies.assign(sizeof whole, 0);
    op.uses = {{.buffer = 0, .bytes = kSmall}};
    op.operands = {{0, 0, 0}};
    op.proven = true;
    given.copies = 0;
    Replayer replayer(*p.pager, *p.device, 1);
    const auto kept = [&](CUdeviceptr at) {
        given.address = at;
        return replayer.keep(known, 0, kIteration, 1, true, &given, stream_of(1));
    };
    CHECK(kept(whole) == Replayer::Kept::yes);
    CHECK(kept(whole) == Replayer::Kept::yes);
    CHECK(given.copies == 1);   // the same launch again is not read again
    CHECK(kept(whole + 64) == Replayer::Kept::another);
    CHECK(kept(shorter) == Replayer::Kept::another);
}
