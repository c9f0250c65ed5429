// The arena: ranges never overlap, the table names the owner of every granule, and neighbours merge when they come back.
#include <rapidcheck.h>

#include <map>

#include "shim/pager/arena.hpp"
#include "shim/pager/buffer.hpp"
#include "tests/catch.hpp"

using namespace udnnmem::pager;

namespace {

constexpr std::size_t kGranule = 2 << 20;
constexpr std::size_t kMost = std::size_t{4} << 30;

Driver reserving_driver() {
    Driver d;
    d.cuMemAddressReserve = [](CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
        if (bytes > kMost) return CUDA_ERROR_OUT_OF_MEMORY;
        *at = 0x7000'0000'0000;
        return CUDA_SUCCESS;
    };
    d.cuMemAddressFree = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
    return d;
}

// A driver that begins where an H200's does, and puts a range where it is asked to if it `obliges`.
struct Low {
    static inline bool obliges;
    static inline int held;
    static CUresult reserve(CUdeviceptr* at, std::size_t, std::size_t, CUdeviceptr hint, unsigned long long) {
        *at = hint && obliges ? hint : 0x100'0400'0000;
        ++held;
        return CUDA_SUCCESS;
    }
};

}  // namespace

TEST_CASE("the reservation is halved until the driver agrees") {
    Arena arena;
    REQUIRE(arena.start(reserving_driver(), kGranule, std::size_t{1} << 40));
    CHECK(arena.bytes() == kMost);
    CHECK(arena.contains(arena.begin()));
    CHECK(arena.contains(arena.begin() + kMost - 1));
    CHECK_FALSE(arena.contains(arena.begin() + kMost));
    CHECK_FALSE(arena.contains(arena.begin() - 1));
    CHECK_FALSE(arena.contains(0));
}

TEST_CASE("ranges do not overlap and the table knows their owners") {
    CHECK(rc::check("ranges", [] {
        static const Driver driver = reserving_driver();
        Arena arena;
        RC_ASSERT(arena.start(driver, kGranule, kMost));
        Buffer owners[8];
        std::map<CUdeviceptr, std::pair<std::size_t, Buffer*>> held;
        for (int step = 0; step < 80; ++step) {
            if (!held.empty() && *rc::gen::inRange(0, 2)) {
                auto it = std::next(held.begin(), *rc::gen::inRange(0, static_cast<int>(held.size())));
                arena.free_range(it->first, it->second.first);
                for (const CUdeviceptr at : {it->first - kGranule, it->first, it->first + it->second.first}) RC_ASSERT(arena.find(at) == nullptr);
                held.erase(it);
            } else {
                const auto bytes = static_cast<std::size_t>(*rc::gen::inRange(1, 300)) * kGranule;
                Buffer* owner = &owners[*rc::gen::inRange(0, 8)];
                const CUdeviceptr at = arena.take_range(bytes, owner);
                if (!at) continue;
                auto next = held.lower_bound(at);
                RC_ASSERT((next == held.end() || at + bytes + 2 * kGranule <= next->first));
                RC_ASSERT((next == held.begin() || std::prev(next)->first + std::prev(next)->second.first + 2 * kGranule <= at));
                for (const CUdeviceptr word : {at - 4, at, at + bytes - 1, at + bytes}) RC_ASSERT(arena.find(word) == owner);
                held[at] = {bytes, owner};
            }
        }
        for (auto& [at, range] : held) arena.free_range(at, range.first);
        RC_ASSERT(arena.take_range(kMost - 2 * kGranule, &owners[0]) == arena.begin() + kGranule);  // all of it again, in one piece
    }));
}

TEST_CASE("the arena lies where small integers in pairs are no addresses, if the driver lets it choose") {
    Low::obliges = GENERATE(true, false);
    Low::held = 0;
    Driver d = reserving_driver();
    d.cuMemAddressReserve = Low::reserve;
    d.cuMemAddressFree = [](CUdeviceptr, std::size_t) { return --Low::held, CUDA_SUCCESS; };
    Arena arena;
    REQUIRE(arena.start(d, kGranule, std::size_t{1} << 40));
    CHECK(Low::held == 1);
    CHECK(arena.contains((CUdeviceptr{256} << 32) + 0x400'0000) != Low::obliges);
    if (Low::obliges)
        for (CUdeviceptr upper = 0; upper < 4096; ++upper) REQUIRE_FALSE(arena.contains(upper << 32 | upper << 16));
}
