// Frame pools against a backing that only counts: the budget holds after every step, frames fit their buffers exactly,
// what is stranded in one size class is made again in another.
#include <rapidcheck.h>

#include <map>
#include <set>

#include "shim/pager/frames.hpp"
#include "tests/catch.hpp"

using namespace udnnmem::pager;

namespace {

struct CountingBacking final : Backing {
    std::size_t unit = 64 << 10, held = 0, physical = SIZE_MAX;
    CUdeviceptr next = 1;
    std::size_t granule() const override { return unit; }
    bool host_frames_can_be_mapped() const override { return true; }
    bool network_can_reach() const override { return true; }
    CUresult make(Place place, std::size_t bytes, Frame& out) override {
        if (held + bytes > physical) return CUDA_ERROR_OUT_OF_MEMORY;
        held += bytes;
        out = Frame{.place = place, .bytes = bytes, .handle = next, .alias = next++};
        return CUDA_SUCCESS;
    }
    void drop(Frame& f) override { held -= f.bytes; }
    CUresult map(CUdeviceptr, const std::vector<Frame*>&) override { return CUDA_SUCCESS; }
    CUresult allow_cpu(CUdeviceptr, const std::vector<Frame*>&) override { return CUDA_SUCCESS; }
    void share(CUdevice, bool) override {}
    CUresult allow_again(CUdeviceptr, std::size_t) override { return CUDA_SUCCESS; }
    CUresult share_frame(const Frame&, int&) override { return CUDA_ERROR_NOT_SUPPORTED; }
    CUresult unmap(CUdeviceptr, std::size_t) override { return CUDA_SUCCESS; }
    CUresult copy_out(const Frame&, const Frame&, Piece, CUstream) override { return CUDA_SUCCESS; }
    CUresult copy_in(const Frame&, const Frame&, Piece, CUstream) override { return CUDA_SUCCESS; }
};

std::size_t bytes_of(const std::vector<Frame*>& frames) {
    std::size_t n = 0;
    for (const Frame* f : frames) n += f->bytes;
    return n;
}

}  // namespace

TEST_CASE("frames are powers of two of the granule, largest first, at most 64 MiB") {
    CountingBacking backing;
    FramePool pool(backing, Place::device, std::size_t{1} << 30);
    std::vector<Frame*> frames;
    REQUIRE(pool.take((std::size_t{64} << 20) + 5 * backing.unit, frames));
    REQUIRE(frames.size() == 3);
    CHECK(frames[0]->bytes == std::size_t{64} << 20);
    CHECK(frames[1]->bytes == 4 * backing.unit);
    CHECK(frames[2]->bytes == backing.unit);
    pool.give_back(frames);
    CHECK(pool.in_use() == 0);
    CHECK(pool.made() == (std::size_t{64} << 20) + 5 * backing.unit);
}

TEST_CASE("free frames of another class give way within the budget") {
    CountingBacking backing;
    FramePool pool(backing, Place::device, 16 * backing.unit);
    std::vector<std::vector<Frame*>> small(16);
    for (auto& s : small) REQUIRE(pool.take(backing.unit, s));
    for (auto& s : small) pool.give_back(s);
    std::vector<Frame*> large;
    REQUIRE(pool.take(16 * backing.unit, large));
    CHECK(large.size() == 1);
    CHECK(backing.held == 16 * backing.unit);
    CHECK(pool.recreated() > 0);
    pool.give_back(large);
}

TEST_CASE("a device that has less than the budget shrinks it") {
    CountingBacking backing;
    backing.physical = 4 * backing.unit;
    FramePool pool(backing, Place::device, 8 * backing.unit);
    std::vector<Frame*> a, b;
    REQUIRE(pool.take(4 * backing.unit, a));
    CHECK_FALSE(pool.take(backing.unit, b));
    CHECK(b.empty());
    CHECK(pool.budget() == 4 * backing.unit);
    CHECK(pool.shrunk() == 1);
    pool.give_back(a);
}

TEST_CASE("what is written off stays with the driver, and the budget is the less for it") {
    CountingBacking backing;
    FramePool pool(backing, Place::device, 8 * backing.unit);
    std::vector<Frame*> lost, kept;
    REQUIRE(pool.take(3 * backing.unit, lost));
    REQUIRE(pool.take(2 * backing.unit, kept));
    const std::size_t frames = pool.frames();
    pool.write_off(lost);
    CHECK(lost.empty());
    CHECK(pool.frames() == frames);
    CHECK(pool.budget() == 5 * backing.unit);
    CHECK(pool.made() == 2 * backing.unit);
    CHECK(pool.available() == 3 * backing.unit);
    CHECK_FALSE(pool.take(4 * backing.unit, lost));
    pool.set_budget(16 * backing.unit);
    CHECK(pool.budget() == 13 * backing.unit);
    pool.set_budget(2 * backing.unit);
    CHECK(pool.budget() == 0);
    pool.give_back(kept);
    CHECK(backing.held == 3 * backing.unit);
}

TEST_CASE("free frames that something may still be looking at are not given to the driver") {
    CountingBacking backing;
    FramePool pool(backing, Place::device, 8 * backing.unit);
    std::vector<Frame*> frames;
    REQUIRE(pool.take(4 * backing.unit, frames));
    pool.give_back(frames);
    bool unseen = false;
    pool.before_drop = [&] { return unseen; };
    pool.trim(0);
    CHECK(backing.held == 4 * backing.unit);
    CHECK(pool.made() == 0);
    CHECK(pool.budget() == 4 * backing.unit);
    unseen = true;
    REQUIRE(pool.take(4 * backing.unit, frames));
    pool.give_back(frames);
    pool.trim(0);
    CHECK(backing.held == 4 * backing.unit);
    CHECK(pool.frames() == 1);
}

TEST_CASE("what is free in smaller frames is not made anew in a larger one") {
    CountingBacking backing;
    FramePool pool(backing, Place::device, 16 * backing.unit);
    std::vector<Frame*> four, two, two_more, small[8], large;
    REQUIRE(pool.take(4 * backing.unit, four));
    REQUIRE(pool.take(2 * backing.unit, two));
    REQUIRE(pool.take(2 * backing.unit, two_more));
    for (auto& f : small) REQUIRE(pool.take(backing.unit, f));
    for (auto* f : {&four, &two, &two_more}) pool.give_back(*f);
    REQUIRE(pool.take(8 * backing.unit, large));
    CHECK(pool.recreated() == 0);
    CHECK(large.size() == 3);
    CHECK(bytes_of(large) == 8 * backing.unit);
    CHECK(pool.is_valid() == "");
    pool.give_back(large);
    // Sixteen of the least are too many for one.
    std::vector<Frame*> all;
    for (auto& f : small) pool.give_back(f);
    CHECK(pool.lacking(16 * backing.unit) == 16 * backing.unit);
    REQUIRE(pool.take(16 * backing.unit, all));
    CHECK(pool.recreated() == 1);
    CHECK(all.size() == 1);
    pool.give_back(all);
}

TEST_CASE("what is lacking is the largest frame for which others would be given back") {
    CountingBacking backing;
    FramePool pool(backing, Place::device, 16 * backing.unit);
    std::vector<Frame*> eight, four, none;
    REQUIRE(pool.take(8 * backing.unit, eight));
    CHECK(pool.lacking(7 * backing.unit) == 0);   // within the budget
    REQUIRE(pool.take(4 * backing.unit, four));
    REQUIRE(pool.take(4 * backing.unit, none));
    pool.give_back(eight);
    CHECK(pool.lacking(8 * backing.unit) == 0);
    CHECK(pool.lacking(7 * backing.unit) == 4 * backing.unit);
    pool.give_back(four);
    CHECK(pool.lacking(12 * backing.unit) == 0);
    CHECK(pool.lacking(5 * backing.unit) == backing.unit);
    pool.give_back(none);
}

TEST_CASE("what comes and goes in the same way again and again is made once") {
    // As a plan has it: buffers of few sizes and odd remainders, of which the oldest goes for the next; a little is free at any time.
    CountingBacking backing;
    FramePool pool(backing, Place::device, 240 * backing.unit);
    std::vector<std::vector<Frame*>> held;
    std::size_t longest = 0;
    const auto iteration = [&] {
        for (const std::size_t granules : {49, 7, 25, 13, 25, 49, 7, 13, 49, 25, 13, 7, 98, 4, 25}) {
            while (pool.available() < (granules + 10) * backing.unit) {
                pool.give_back(held.front());
                held.erase(held.begin());
            }
            held.emplace_back();
            REQUIRE(pool.take(granules * backing.unit, held.back()));
            longest = std::max(longest, held.back().size());
        }
    };
    for (int i = 0; i < 20; ++i) iteration();
    const CUdeviceptr made = backing.next;
    for (int i = 0; i < 20; ++i) iteration();
    CHECK(backing.next == made);
    CHECK(longest <= 3 * FramePool::kFramesForOne);
    CHECK(backing.held <= 240 * backing.unit);
    for (auto& h : held) pool.give_back(h);
}

TEST_CASE("the budget holds though free frames are written off in the middle of a request") {
    CHECK(rc::check("written off at random", [] {
        CountingBacking backing;
        const auto budget = static_cast<std::size_t>(*rc::gen::inRange(1, 200)) * backing.unit;
        FramePool pool(backing, Place::device, budget);
        bool unseen = true;
        pool.before_drop = [&] { return unseen; };
        std::vector<std::vector<Frame*>> held;
        std::size_t in_use = 0;
        for (int step = 0; step < 60; ++step) {
            unseen = *rc::gen::inRange(0, 3) > 0;
            if (!held.empty() && *rc::gen::inRange(0, 2)) {
                const auto k = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(held.size())));
                in_use -= bytes_of(held[k]);
                pool.give_back(held[k]);
                held.erase(held.begin() + static_cast<std::ptrdiff_t>(k));
            } else {
                const auto capacity = static_cast<std::size_t>(*rc::gen::inRange(1, 80)) * backing.unit;
                std::vector<Frame*> frames;
                const bool got = pool.take(capacity, frames);
                const std::size_t lost = backing.held - pool.made();
                RC_ASSERT(got == (in_use + capacity + lost <= budget));
                RC_ASSERT(bytes_of(frames) == (got ? capacity : 0));
                if (got) in_use += capacity, held.push_back(frames);
            }
            RC_ASSERT(pool.in_use() == in_use);
            RC_ASSERT(backing.held <= budget);
            RC_ASSERT(pool.budget() + (backing.held - pool.made()) == budget);
            RC_ASSERT(pool.is_valid() == "");
        }
        for (auto& h : held) pool.give_back(h);
    }));
}

TEST_CASE("random takes and returns keep the books and the budget") {
    CHECK(rc::check("books and budget", [] {
        CountingBacking backing;
        const auto budget = static_cast<std::size_t>(*rc::gen::inRange(1, 200)) * backing.unit;
        FramePool pool(backing, Place::device, budget);
        std::vector<std::vector<Frame*>> held;
        std::size_t in_use = 0, lost = 0;
        for (int step = 0; step < 60; ++step) {
            if (!held.empty() && *rc::gen::inRange(0, 2)) {
                const auto k = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(held.size())));
                in_use -= bytes_of(held[k]);
                if (*rc::gen::inRange(0, 8) == 0) lost += bytes_of(held[k]), pool.write_off(held[k]);
                else pool.give_back(held[k]);
                held.erase(held.begin() + static_cast<std::ptrdiff_t>(k));
            } else {
                const auto capacity = static_cast<std::size_t>(*rc::gen::inRange(1, 80)) * backing.unit;
                std::vector<Frame*> frames;
                const bool got = pool.take(capacity, frames);
                RC_ASSERT(got == (in_use + capacity + lost <= budget));
                RC_ASSERT(bytes_of(frames) == (got ? capacity : 0));
                if (got) {
                    in_use += capacity;
                    held.push_back(frames);
                }
            }
            RC_ASSERT(pool.in_use() == in_use);
            RC_ASSERT(pool.made() + lost == backing.held);
            RC_ASSERT(backing.held <= budget);
            std::set<Frame*> distinct;
            std::size_t count = 0;
            for (auto& h : held)
                for (Frame* f : h) distinct.insert(f), ++count;
            RC_ASSERT(distinct.size() == count);
        }
        for (auto& h : held) pool.give_back(h);
    }));
}
