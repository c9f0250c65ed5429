// When a launch counts as the one that is remembered.
#include "shim/preload/launch_words.hpp"

#include "shim/preload/accesses.hpp"
#include "shim/preload/unmanaged_ranges.hpp"
#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem;
using pager::test::Paged;
using preload::WorkWords;

namespace {

// A kernel that is given a count, an address and a structure of `in_structure` words at an offset that is none of theirs.
struct Kernel {
    explicit Kernel(std::size_t in_structure) : structure(in_structure) {
        layout.known = true;
        layout.params = {{0, 4}, {8, 8}, {16, static_cast<std::uint32_t>(8 * in_structure)}};
        launch.layout = &layout;
        launch.params = pointers;
        work.kind = interpose::WorkKind::kernel;
        work.launch = &launch;
        work.proven = true;
    }
    std::uint32_t count = 1;
    std::uint64_t address = 0;
    std::vector<std::uint64_t> structure;
    void* pointers[3] = {&count, &address, structure.data()};
    interpose::KernelLayout layout;
    interpose::Launch launch;
    interpose::Work work;
};

struct Remembered {
    const pager::Pager& pager;
    std::vector<std::uint64_t> words;
    bool of(const Kernel& k) {
        const WorkWords w(pager, k.work);
        words.resize(w.count());
        return !words.empty() && w.copy(words.data());
    }
    bool is(const Kernel& k) const { return WorkWords(pager, k.work).match(words.data()); }
};

}  // namespace

TEST_CASE("a launch is the one that is remembered if what leads anywhere is the same", "[words]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1), b = p.allocate(1);
    Remembered known{*p.pager, {}};
    Kernel k(3);
    k.address = a + 8, k.structure = {5, b, 6}, k.pointers[2] = k.structure.data();
    REQUIRE(known.of(k));
    CHECK(known.is(k));
    k.count = 2, k.structure[0] = 7;   // sizes, as far as anybody can say
    CHECK(known.is(k));
    const auto differs = [&](auto& what, auto to) {
        const auto was = what;
        what = to;
        const bool same = known.is(k);
        what = was;
        REQUIRE(known.is(k));
        return !same;
    };
    CHECK(differs(k.address, a + 16));
    CHECK(differs(k.address, std::uint64_t{9}));
    CHECK(differs(k.structure[1], b + 8));
    CHECK(differs(k.structure[1], std::uint64_t{9}));
    CHECK(differs(k.structure[2], a));
    CHECK(differs(k.launch.grid[0], 2u));
    CHECK(differs(k.launch.grid[1], 2u));
    CHECK(differs(k.launch.grid[2], 2u));
    CHECK(differs(k.launch.block[0], 2u));
    CHECK(differs(k.launch.block[1], 2u));
    CHECK(differs(k.launch.block[2], 2u));
    CHECK(differs(k.launch.shared_bytes, 2u));
    const Kernel other(3);
    CHECK(differs(k.launch.layout, &other.layout));
    CHECK(differs(k.launch.params, static_cast<void* const*>(nullptr)));
}

TEST_CASE("a kernel that is given nothing but words", "[words]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1);
    Remembered known{*p.pager, {}};
    Kernel k(1);
    k.layout.params = {{0, 8}, {8, 8}};
    k.layout.words = true;
    std::uint64_t number = 3;
    k.pointers[0] = &k.address, k.pointers[1] = &number;
    k.address = a;
    REQUIRE(known.of(k));
    number = 4;
    CHECK(known.is(k));
    number = a;
    CHECK_FALSE(known.is(k));
    number = 3, k.address = 0;
    CHECK_FALSE(known.is(k));
}

TEST_CASE("launches that say more than their words are not remembered", "[words]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1);
    Remembered known{*p.pager, {}};
    const auto remembered = [&](auto change) {
        Kernel k(2);
        k.address = a, k.structure = {1, 2}, k.pointers[2] = k.structure.data();
        change(k);
        return known.of(k);
    };
    CHECK(remembered([](Kernel&) {}));
    CHECK_FALSE(remembered([](Kernel& k) { k.layout.known = false; }));
    CHECK_FALSE(remembered([](Kernel& k) { k.layout.follows_variables = true; }));
    CHECK_FALSE(remembered([](Kernel& k) { k.launch.params = nullptr; }));
    CHECK_FALSE(remembered([](Kernel& k) { k.launch.buffer = &k; }));
    CHECK_FALSE(remembered([](Kernel& k) { k.work.proven = false; }));
    CHECK_FALSE(remembered([](Kernel& k) { k.work.part_count = 1; }));
    CHECK_FALSE(remembered([](Kernel& k) { k.work.span_count = 1; }));
    CHECK_FALSE(remembered([&](Kernel& k) { k.structure[0] = p.pager->arena().begin() + p.pager->arena().bytes() - 8; }));   // nothing is there so far

    // Memory that is not managed: what it leads to changes without the word.
    Kernel k(2);
    k.address = a;
    REQUIRE(known.of(k));
    REQUIRE(known.is(k));
    const CUdeviceptr outside = 4096;
    preload::unmanaged_ranges.add(outside, 4096, interpose::Outside::device);
    CHECK_FALSE(known.is(k));   // any of its words may be there
    REQUIRE(known.of(k));
    CHECK(known.is(k));
    k.structure[0] = outside + 8;
    CHECK_FALSE(known.is(k));
    CHECK_FALSE(known.of(k));
    preload::unmanaged_ranges.remove(outside);
}

TEST_CASE("a structure that may hold a tensor map is read once there are any", "[words]") {
    Paged p{{.device = 8, .host = 16}};
    const CUdeviceptr a = p.allocate(1);
    Remembered known{*p.pager, {}};
    Kernel k(16), small(15);
    k.address = small.address = a;
    REQUIRE(known.of(k));
    REQUIRE(known.is(k));
    const char descriptor[128] = {1};
    preload::remember_tensor_map(*p.pager, descriptor, a);
    CHECK_FALSE(known.is(k));
    CHECK_FALSE(known.of(k));
    REQUIRE(known.of(small));
    CHECK(known.is(small));
}
