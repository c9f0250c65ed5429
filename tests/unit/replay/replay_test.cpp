// Which ops of a slice a buffer needs, and how a plan's drops find the replay that brings them back: plain data, no device.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <map>

#include "shim/executor/rows.hpp"
#include "shim/replay/known.hpp"

using namespace udnnmem;
using namespace udnnmem::replay;

namespace {

// An op that is given buffers, each at an address of its own: 0x1000 times its number.
KnownOp op(std::vector<std::int32_t> reads, std::vector<std::int32_t> writes, std::vector<std::int32_t> both = {}) {
    KnownOp o;
    auto add = [&](std::int32_t b, bool r, bool w) {
        const std::uint64_t address = 0x1000u * static_cast<std::uint64_t>(b);
        o.operands.push_back({static_cast<std::uint32_t>(o.launch.arguments.size()), static_cast<std::uint32_t>(o.uses.size()), 0});
        o.uses.push_back({b, true, 64, r, w});
        o.launch.arguments.resize(o.launch.arguments.size() + 8);
        std::memcpy(o.launch.arguments.data() + o.launch.arguments.size() - 8, &address, 8);
    };
    for (const auto b : reads) add(b, true, false);
    for (const auto b : writes) add(b, false, true);
    for (const auto b : both) add(b, true, true);
    o.proven = true;
    return o;
}

// As find_versions() has it where all is proven.
Known known_of(std::vector<KnownOp> ops) {
    Known known;
    known.ops = std::move(ops);
    std::map<std::int32_t, std::int32_t> made;
    for (std::size_t k = 0; k < known.ops.size(); ++k) {
        for (KnownOp::Use& use : known.ops[k].uses) use.made_by = made.count(use.buffer) ? made[use.buffer] : -1;
        for (const KnownOp::Use& use : known.ops[k].uses)
            if (use.writes) made[use.buffer] = static_cast<std::int32_t>(k);
    }
    return known;
}

std::vector<CUdeviceptr> inputs(const Known& known, const Part& part) {
    std::vector<CUdeviceptr> v;
    for (const Part::Input& i : part.inputs) v.push_back(known.ops[static_cast<std::size_t>(i.op)].base(i.use));
    std::sort(v.begin(), v.end());
    return v;
}

}  // namespace

TEST_CASE("of a slice only what a buffer needs is run") {
    const Known known = known_of({op({1}, {2}), op({2, 9}, {3}), op({3}, {4}), op({2}, {5})});
    const Slice slice{{0, 1, 2, 3}, {2, 3, 4, 5}};
    CHECK(part_for(known, slice, {2}).ops == std::vector<std::int32_t>{0});
    CHECK(part_for(known, slice, {4}).ops == std::vector<std::int32_t>{0, 1, 2});
    CHECK(inputs(known, part_for(known, slice, {4})) == std::vector<CUdeviceptr>{0x1000, 0x9000});
    CHECK(part_for(known, slice, {5, 3}).ops == std::vector<std::int32_t>{0, 1, 3});
    CHECK(part_for(known, slice, {}).ops.empty());
}

TEST_CASE("a chain in place is run from its first writer on; what was saved is no input") {
    Known known = known_of({op({1}, {2}, {7}), op({}, {}, {2})});   // 7: running statistics
    CHECK(inputs(known, part_for(known, {{0, 1}, {2}, {}}, {2})) == std::vector<CUdeviceptr>{0x1000, 0x7000});
    known.ops[0].uses[2].saved = true;
    const Part part = part_for(known, {{0, 1}, {2}, {}}, {2});
    CHECK(part.ops == std::vector<std::int32_t>{0, 1});
    CHECK(inputs(known, part) == std::vector<CUdeviceptr>{0x1000});
    // Without it, the buffer itself would have to be there: it is an input.
    CHECK(inputs(known, part_for(known, {{1}, {2}, {}}, {2})) == std::vector<CUdeviceptr>{0x2000});
}

TEST_CASE("what an op changes beside its result is read in the version that it saw") {
    // 2 is made by op 0, changed by op 1, which makes 3 of it, and again by op 2.
    const Known known = known_of({op({1}, {2}), op({}, {3}, {2}), op({8}, {}, {2}), op({2}, {4})});
    CHECK(part_for(known, {{0, 1}, {3}, {}}, {3}).ops == std::vector<std::int32_t>{0, 1});
    CHECK(part_for(known, {{0, 1, 2, 3}, {4}, {}}, {4}).ops == std::vector<std::int32_t>{0, 1, 2, 3});
    // 4 is made of what op 2 has left: without it, the version of op 1 will not do.
    const Part part = part_for(known, {{0, 1, 3}, {3, 4}, {}}, {3, 4});
    CHECK(part.ops == std::vector<std::int32_t>{0, 1, 3});
    CHECK(inputs(known, part) == std::vector<CUdeviceptr>{0x1000, 0x2000});
}

TEST_CASE("operands name one buffer where they did when the op was proven, and several where they did") {
    KnownOp o = op({1, 1, 2}, {});
    o.operands[1].use = 0, o.operands[1].delta = 8;
    o.uses.erase(o.uses.begin() + 1);
    o.operands[2].use = 1;
    const auto given = [&](std::uint64_t a, std::uint64_t b, std::uint64_t c) {
        const std::uint64_t words[] = {a, b, c};
        std::memcpy(o.launch.arguments.data(), words, sizeof words);
        return o.named_alike();
    };
    CHECK(given(0x1000, 0x1008, 0x2000));
    CHECK(given(0x5000, 0x5008, 0x1000));
    CHECK_FALSE(given(0x1000, 0x3008, 0x2000));   // what was one is two
    CHECK_FALSE(given(0x1000, 0x1008, 0x1000));   // what were two are one
}

TEST_CASE("a drop belongs to the next replay that makes its buffer") {
    policy::Plan plan;
    auto drop = [&](int after, int buffer) {
        policy::Action a;
        a.what = policy::Do::drop, a.op = OpIndex(after), a.buffer = BufferId(buffer);
        plan.actions.push_back(a);
    };
    auto replay = [&](int before, std::vector<int> ops, std::vector<int> buffers) {
        policy::Action a;
        a.what = policy::Do::replay, a.op = OpIndex(before);
        for (const int k : ops) a.ops.push_back(OpIndex(k));
        for (const int b : buffers) a.buffers.push_back(BufferId(b));
        plan.actions.push_back(a);
    };
    drop(2, 1);
    replay(3, {0}, {5});
    replay(5, {0, 1}, {1});
    drop(6, 1);   // and never again in this iteration: it is not given up
    const executor::Rows rows = executor::make_rows(plan, 8);
    REQUIRE(rows.entries.size() == 1);
    CHECK(rows.entries[0].kind == pager::Order::Kind::drop);
    REQUIRE(rows.replays.size() == 2);
    CHECK(rows.replays[static_cast<std::size_t>(rows.entries[0].replay)].before == 5);
    CHECK(rows.first_replay == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 2, 2, 2});
    CHECK(rows.kept[0]);
    CHECK(rows.kept[1]);
    CHECK_FALSE(rows.kept[2]);
}

TEST_CASE("a tail is dropped, and computed again by the op that comes once it ought to have been freed") {
    policy::Plan plan;
    plan.actions = {{policy::Do::drop, OpIndex(2), BufferId(1), {}, {}}, {policy::Do::drop, OpIndex(3), BufferId(4), {}, {}}};
    const executor::Rows rows = executor::make_rows(plan, 6, {{BufferId(1), OpIndex(4), {OpIndex(0), OpIndex(1)}}, {BufferId(4), OpIndex(5), {OpIndex(3)}}});
    REQUIRE(rows.entries.size() == 2);
    REQUIRE(rows.replays.size() == 2);
    const executor::Rows::Replay& first = rows.replays[static_cast<std::size_t>(rows.entries[0].replay)];
    CHECK(first.before == 5);
    CHECK(first.slice->ops == std::vector<std::int32_t>{0, 1});
    CHECK(first.slice->buffers == std::vector<std::int32_t>{1});
    CHECK(rows.replays[static_cast<std::size_t>(rows.entries[1].replay)].before == 6);   // with the iteration
    CHECK(rows.first_replay == std::vector<std::uint32_t>{0, 0, 0, 0, 0, 0, 1});
    CHECK(rows.kept == std::vector<bool>{true, true, false, true, false, false});
}
