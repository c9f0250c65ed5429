// Small allocations against a model of what may be used again, by whom and when.
#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "tests/catch.hpp"
#include "tests/pager/fake_gpu.hpp"

using namespace udnnmem::pager;
using namespace udnnmem::pager::test;

namespace {

constexpr int kStreamsUsed = 4;
constexpr std::size_t kSmall = granule / 2;

std::size_t units_of(std::size_t bytes) { return bytes / SlabAllocator::kUnit + 1; }

struct Freed {
    CUdeviceptr at;
    std::size_t units;
    int stream;              // 0: of none
    std::vector<int> after;  // streams whose work before the free has not completed
};

// What is freed is free once the streams that were held and had work then were let go.
struct Model {
    Paged p{{.device = 512, .host = 16, .small_below = kSmall}};
    CUdeviceptr word = p.allocate(1);
    std::map<CUdeviceptr, std::size_t> live;   // units
    std::vector<Freed> freed;                  // oldest first
    bool busy[kStreamsUsed + 1] = {};

    CUdeviceptr take(std::size_t bytes, int stream) {
        CUdeviceptr at = 0;
        REQUIRE(p.device->allocate(bytes, stream ? stream_of(stream) : nullptr, stream != 0, nullptr, at) == CUDA_SUCCESS);
        const std::size_t units = units_of(bytes);
        const auto overlaps = [&](CUdeviceptr begin, std::size_t size) { return begin < at + units * SlabAllocator::kUnit && at < begin + size * SlabAllocator::kUnit; };
        for (const auto& [begin, size] : live) REQUIRE_FALSE(overlaps(begin, size));
        const auto own = std::find_if(freed.begin(), freed.end(), [&](const Freed& f) { return f.stream == stream && stream && f.units == units && pending(f); });
        // One of its own, the oldest, or an older one of which it is not known yet that others could have it.
        if (own != freed.end()) CHECK(std::any_of(freed.begin(), std::next(own), [&](const Freed& f) { return f.at == at && f.stream == stream && f.units == units; }));
        for (const Freed& f : freed)
            if (overlaps(f.at, f.units) && pending(f)) REQUIRE((f.stream == stream && stream && f.at == at && f.units == units));
        std::erase_if(freed, [&](const Freed& f) { return overlaps(f.at, f.units); });
        live[at] = units;
        return at;
    }
    bool pending(const Freed& f) const { return !f.after.empty(); }
    void free(CUdeviceptr at, int stream) {
        Freed f{at, live.at(at), stream, {}};
        for (int s = 1; s <= kStreamsUsed; ++s)
            if (busy[s]) f.after.push_back(s);
        live.erase(at);
        freed.push_back(f);
        REQUIRE(p.device->free(at, stream ? stream_of(stream) : nullptr, stream != 0) == CUDA_SUCCESS);
    }
    void work(int stream) {
        p.gpu.hold(stream);
        REQUIRE(p.launch(stream, {word}) == CUDA_SUCCESS);
        busy[stream] = true;
    }
    void let_go(int stream) {
        p.gpu.let_go(stream);
        busy[stream] = false;
        for (Freed& f : freed) std::erase(f.after, stream);
        p.pager->streams().mark_tails();
    }
};

}  // namespace

TEST_CASE("small allocations are used again by their own stream at once, by others once what came before has completed") {
    const auto seed = GENERATE(range(1u, 9u));
    Model m;
    std::mt19937 draw(seed);
    const std::size_t sizes[] = {1, 255, 256, 300, 700, 1000, 4096, 9000, kSmall - 1};
    for (int i = 0; i < 1500; ++i) {
        const int stream = static_cast<int>(draw() % (kStreamsUsed + 1));
        const unsigned what = draw() % 100;
        if (what < 48) m.take(sizes[draw() % std::size(sizes)], stream);
        else if (what < 94 && !m.live.empty()) m.free(std::next(m.live.begin(), static_cast<std::ptrdiff_t>(draw() % m.live.size()))->first, stream);
        else if (what < 97) m.work(stream + (stream == 0));
        else m.let_go(stream + (stream == 0));
        if (i % 10 == 0) REQUIRE(m.p.device->is_valid() == "");
    }
    // All of it comes back, and each slab is whole again: one that has given nothing yet has room for the largest.
    for (int s = 1; s <= kStreamsUsed; ++s) m.let_go(s);
    while (!m.live.empty()) m.free(m.live.begin()->first, 0);
    const std::size_t made = m.p.device->memory().frames;
    const std::size_t slabs = made / granule - 2;   // beside the hasher's and the word's
    for (std::size_t i = 0; i < slabs; ++i) m.take(kSmall - 1, 0);
    CHECK(m.p.device->memory().frames == made);
    CHECK(m.p.device->is_valid() == "");
    CHECK(m.p.gpu.violations().empty());
}

TEST_CASE("slabs in which nothing lives give way to what would not fit beside them") {
    // What is let in leaves room to exchange the largest buffer; the hasher has a granule.
    Paged p({.device = 12, .host = 16, .small_below = kSmall});
    const auto take = [&](CUstream stream) {
        CUdeviceptr at = 0;
        REQUIRE(p.device->allocate(kSmall - 1, stream, stream != nullptr, nullptr, at) == CUDA_SUCCESS);
        return at;
    };
    const auto slabs = [&] {
        const auto all = p.device->held_buffers();
        return std::count_if(all.begin(), all.end(), [](const auto& held) { return held.slab; });
    };
    const bool ordered = GENERATE(false, true);
    const CUstream stream = ordered ? stream_of(2) : nullptr;
    std::vector<CUdeviceptr> small;
    for (int i = 0; i < 16; ++i) small.push_back(take(stream));
    REQUIRE(slabs() == 8);
    CHECK(p.device->held_buffers()[1].bytes == 2 * (kSmall - 1));
    const CUdeviceptr kept = ordered ? 0 : small.back();
    if (kept) small.pop_back();

    if (ordered) {
        p.gpu.hold(2);
        REQUIRE(p.launch(2, {small.front()}) == CUDA_SUCCESS);
    }
    for (CUdeviceptr at : small) REQUIRE(p.device->free(at, stream, ordered) == CUDA_SUCCESS);
    CHECK(p.device->is_valid() == "");
    CHECK(slabs() == 8);   // nobody wants it yet
    const CUdeviceptr large = p.allocate(10);
    REQUIRE(large != 0);
    CHECK(slabs() == (kept ? 1 : 0));
    CHECK(p.device->is_valid() == "");
    // Its memory comes once what used the slabs has ended; until then it is the host's.
    CHECK(p.allocate(14) == 0);
    const CUdeviceptr fits = p.allocate(1);
    REQUIRE(p.launch(3, {fits}, 5) == CUDA_SUCCESS);
    p.gpu.let_go(2);
    REQUIRE(p.launch(3, {large}, 6) == CUDA_SUCCESS);
    CHECK(p.gpu.word(fits).load() == 5);
    if (kept) REQUIRE(p.launch(2, {kept}) == CUDA_SUCCESS);
    CHECK(take(stream) != 0);
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.device->is_valid() == "");
    CHECK(p.lines.empty());
    CHECK(p.gpu.violations().empty());
}

TEST_CASE("a slab is no longer one while something lives in it, is being used, or is wanted") {
    Paged p({.device = 6, .host = 20, .small_below = kSmall});
    const auto take = [&] {
        CUdeviceptr at = 0;
        REQUIRE(p.device->allocate(kSmall - 1, nullptr, false, nullptr, at) == CUDA_SUCCESS);
        return at;
    };
    std::size_t lowered = 0;
    const CUdeviceptr a = take();
    SECTION("it lives") {
        REQUIRE(p.device->yield(0, lowered) == CUDA_SUCCESS);
        CHECK(p.at(a)->slab);
    }
    SECTION("an op on it is on its way") {
        Op op;
        REQUIRE(p.begin(op, 3, {a}) == CUDA_SUCCESS);
        REQUIRE(p.device->free(a, nullptr, false) == CUDA_SUCCESS);
        REQUIRE(p.device->yield(0, lowered) == CUDA_SUCCESS);
        CHECK(p.gpu.mapped(a));
        p.pager->leave(op, CUDA_SUCCESS);
    }
    SECTION("an op on it runs") {
        p.gpu.hold(2);
        REQUIRE(p.launch(2, {a}) == CUDA_SUCCESS);
        REQUIRE(p.device->free(a, nullptr, false) == CUDA_SUCCESS);
        REQUIRE(p.device->yield(0, lowered) == CUDA_SUCCESS);
        CHECK(p.gpu.mapped(a));
        p.gpu.let_go(2);
    }
    SECTION("it is free, and its memory goes back") {
        REQUIRE(p.device->free(a, nullptr, false) == CUDA_SUCCESS);
        CHECK(p.gpu.mapped(a));
        REQUIRE(p.device->yield(0, lowered) == CUDA_SUCCESS);
        CHECK_FALSE(p.gpu.mapped(a));
        const CUdeviceptr b = take();
        REQUIRE(p.launch(3, {b}, 4) == CUDA_SUCCESS);
    }
    SECTION("what allocates and frees in turn keeps the first, while others go") {
        const CUdeviceptr beside = take(), more = take();
        for (CUdeviceptr at : {a, beside, more}) REQUIRE(p.device->free(at, nullptr, false) == CUDA_SUCCESS);
        const CUdeviceptr large = p.allocate(3), other = p.allocate(2);
        for (CUdeviceptr at : {large, other, large, other}) REQUIRE(p.launch(3, {at}) == CUDA_SUCCESS);
        CHECK(p.at(a)->slab);
        CHECK_FALSE((p.at(more) && p.at(more)->slab));
    }
    CHECK(p.device->is_valid() == "");
    CHECK(p.device->stats().over_budget == 0);
    CHECK(p.gpu.violations().empty());
}
