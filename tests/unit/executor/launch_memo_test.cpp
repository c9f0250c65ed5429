// Launches that are recalled instead of read.
#include "shim/executor/launch_memo.hpp"

#include <array>

#include "shim/executor/executor.hpp"
#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using executor::LaunchMemos;
using executor::LaunchWords;
using pager::test::Paged;

namespace {

struct Words final : LaunchWords {
    std::vector<std::uint64_t> words;
    bool says_all = true;
    explicit Words(std::vector<std::uint64_t> w) : words(std::move(w)) {}
    std::size_t count() const override { return words.size(); }
    bool copy(std::uint64_t* to) const override { return std::copy(words.begin(), words.end(), to), says_all; }
    bool match(const std::uint64_t* other) const override { return std::equal(words.begin(), words.end(), other); }
};

pager::Op naming(Paged& p, const std::vector<CUdeviceptr>& buffers) {
    pager::Op op;
    for (const CUdeviceptr at : buffers) op.name(p.at(at));
    return op;
}

// Of an op's n-th buffer: n + 5 steps until it is used next.
const auto every_use = [] {
    std::array<executor::Sequence::Use, pager::Lease::kMany> all{};
    for (std::uint32_t n = 0; n < all.size(); ++n) all[n].again = n + 5;
    return all;
}();
const executor::Sequence::Use* const uses = every_use.data();
const pager::Buffer* missing = nullptr;

std::vector<pager::Buffer*> listed(const pager::Op& op) { return {op.buffers, op.buffers + op.count}; }

}  // namespace

TEST_CASE("a launch like the one of the memo names what that named", "[memo]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1), b = p.allocate(1);
    LaunchMemos memos(3);
    const Words words({1, 2, 3}), others({1, 2, 4}), fewer({1});
    CHECK_FALSE(memos.has(1));
    pager::Op first = naming(p, {a, b});
    first.name_in_slab(77);
    memos.note(1, words, first, uses);
    memos.note(2, fewer, naming(p, {b}), uses);
    CHECK((memos.has(1) && memos.has(2) && !memos.has(0)));

    pager::Op op;
    REQUIRE(memos.recall(1, words, 0, op, missing));
    CHECK(listed(op) == listed(first));
    CHECK((op.small_count == 1 && op.small[0] == 77));
    op.name(p.at(b));
    CHECK(op.count == 2);   // it was there
    pager::Op other;
    CHECK_FALSE(memos.recall(1, others, 0, other, missing));
    CHECK((other.count == 0 && other.small_count == 0));
    REQUIRE(memos.recall(2, fewer, 0, other, missing));
    CHECK(listed(other) == std::vector{p.at(b)});

    // By a plan it is told when they are used next, and which is not there.
    CHECK(p.at(a)->next_use.load() == 0);
    for (const CUdeviceptr at : {a, b}) p.at(at)->residency.store(pager::Residency::device);
    pager::Op planned;
    REQUIRE(memos.recall(1, words, 100, planned, missing));
    CHECK((p.at(a)->next_use.load() == 105 && p.at(b)->next_use.load() == 106 && !missing));
    p.at(b)->residency.store(pager::Residency::fetching);
    pager::Op held;
    REQUIRE(memos.recall(1, words, 200, held, missing));
    CHECK((missing == p.at(b) && held.count == 2 && p.at(b)->next_use.load() == 206));
    for (const CUdeviceptr at : {a, b}) p.at(at)->residency.store(pager::Residency::unbacked);

    memos.note(1, others, naming(p, {b}), uses);   // in its place, with fewer buffers
    pager::Op anew;
    CHECK_FALSE(memos.recall(1, words, 0, anew, missing));
    REQUIRE(memos.recall(1, others, 0, anew, missing));
    CHECK(listed(anew) == std::vector{p.at(b)});
    CHECK(anew.small_count == 0);
}

TEST_CASE("what was freed is not recalled, whatever came in its place", "[memo]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1);
    LaunchMemos memos(1);
    const Words words({a});
    memos.note(0, words, naming(p, {a}), uses);
    pager::Op op;
    REQUIRE(memos.recall(0, words, 0, op, missing));
    REQUIRE(p.device->free(a, reinterpret_cast<CUstream>(1), false) == CUDA_SUCCESS);
    pager::Op freed;
    CHECK_FALSE(memos.recall(0, words, 0, freed, missing));
    CHECK(freed.count == 0);
    const CUdeviceptr again = p.allocate(1);
    CHECK(again == a);   // the same object, for another allocation
    CHECK_FALSE(memos.recall(0, words, 0, freed, missing));
}

TEST_CASE("a launch that its words do not tell all of has no memo", "[memo]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1);
    LaunchMemos memos(1);
    const auto noted = [&](const Words& words, pager::Op op) {
        memos.note(0, words, op, uses);
        return memos.has(0);
    };
    const Words words({a});
    CHECK(noted(words, naming(p, {a})));
    Words silent({a});
    silent.says_all = false;
    CHECK_FALSE(noted(silent, naming(p, {a})));
    CHECK_FALSE(noted(Words({}), naming(p, {a})));
    CHECK_FALSE(noted(Words(std::vector<std::uint64_t>(LaunchWords::most + 1)), naming(p, {a})));
    pager::Op anything = naming(p, {a}), stray = naming(p, {a}), many = naming(p, {a}), over = naming(p, {a}), small = naming(p, {a});
    anything.everything = true;
    CHECK_FALSE(noted(words, anything));
    stray.note_stray(a);
    CHECK_FALSE(noted(words, stray));
    many.more.push_back(p.at(a));
    CHECK_FALSE(noted(words, many));
    over.overwrites.push_back(p.at(a));
    CHECK_FALSE(noted(words, over));
    for (std::uint32_t i = 0; i <= pager::Op::kFewSmall; ++i) small.name_in_slab(i);
    CHECK_FALSE(noted(words, small));
    CHECK(noted(words, naming(p, {a})));
}

TEST_CASE("what never comes twice alike is given up", "[memo]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1);
    LaunchMemos memos(1);
    std::uint64_t n = 0;
    for (; memos.note(0, Words({a, n}), naming(p, {a}), uses), memos.has(0); ++n) REQUIRE(n < 1000);
    CHECK(n >= 8);
    pager::Op op;
    CHECK_FALSE(memos.recall(0, Words({a, n - 1}), 0, op, missing));
}
