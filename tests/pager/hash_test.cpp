// The hash that decides whether a buffer holds what it held: of changes as networks make them, each part of each sum differs as
// often as chance has it.
#include "shim/pager/hash_sums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "tests/catch.hpp"

using namespace udnnmem::pager;
using Word = HashSums::Word;

namespace {

constexpr int kTrials = 1 << 18, kBits = 16, kMostByChance = 6;   // times what chance has, which is kTrials >> kBits

HashSums sums_of(Word place, Word first, Word other_place, Word second) {
    HashSums s;
    s.add(first, place * HashSums::key, 0, 0);
    s.add(second, other_place * HashSums::key, 0, 0);
    return s;
}

using Two = std::pair<Word, Word>;

// How often a part of kBits bits of the sums is the same before and after `change`; the most that any part is.
int unnoticed(const std::function<Two(std::mt19937_64&)>& contents, const std::function<Two(Two, std::mt19937_64&)>& change) {
    std::mt19937_64 random(1);
    std::array<int, 128 / kBits> same{};
    for (int trial = 0; trial < kTrials; ++trial) {
        const Word place = random() % (1 << 20), other = place + 1 + random() % 1024;
        const Two before = contents(random), after = change(before, random);
        if (before == after) continue;
        const HashSums a = sums_of(place, before.first, other, before.second), b = sums_of(place, after.first, other, after.second);
        for (int part = 0; part < 64 / kBits; ++part) {
            const auto differs = [part](Word x, Word y) { return static_cast<std::uint16_t>((x - y) >> (kBits * part)) != 0; };
            same[static_cast<std::size_t>(part)] += !differs(a.low, b.low);
            same[static_cast<std::size_t>(64 / kBits + part)] += !differs(a.high, b.high);
        }
    }
    return *std::max_element(same.begin(), same.end());
}

Word floats(float a, float b) { return std::bit_cast<std::uint32_t>(a) | Word{std::bit_cast<std::uint32_t>(b)} << 32; }

constexpr Word kSigns = 0x8000'0000'8000'0000ull;

}  // namespace

TEST_CASE("changes of two words show in every part of the hash") {
    const std::pair<std::string, std::function<Two(std::mt19937_64&)>> contents[] = {
        {"zeros", [](auto&) { return Two(0, 0); }},
        {"few values", [](auto& random) {
             constexpr float values[] = {0, 1, -1, 0.5f, -0.5f, 2};
             const auto value = [&] { return values[random() % 6]; };
             const Word first = floats(value(), value());
             return Two(first, floats(value(), value()));
         }},
        {"any floats", [](auto& random) {
             std::normal_distribution<float> normal;
             const Word first = floats(normal(random), normal(random));
             return Two(first, floats(normal(random), normal(random)));
         }},
    };
    const std::pair<std::string, std::function<Two(Two, std::mt19937_64&)>> changes[] = {
        {"signs", [](Two w, auto&) { return Two(w.first ^ kSigns, w.second ^ kSigns); }},
        {"one sign each", [](Two w, auto&) { return Two(w.first ^ 1ull << 63, w.second ^ 1ull << 63); }},
        {"swapped", [](Two w, auto&) { return Two(w.second, w.first); }},
        {"one bit each", [](Two w, auto& random) { const Word bit = 1ull << random() % 64; return Two(w.first ^ bit, w.second ^ bit); }},
        {"one more, one less", [](Two w, auto&) { return Two(w.first + 1, w.second - 1); }},
    };
    for (const auto& [holds, make] : contents)
        for (const auto& [how, change] : changes) {
            INFO(holds << ", " << how);
            CHECK(unnoticed(make, change) <= kMostByChance * (kTrials >> kBits));
        }
}

TEST_CASE("a change of one word shows in both sums, and words that look like addresses are counted") {
    std::mt19937_64 random(2);
    for (int trial = 0; trial < 100'000; ++trial) {
        const Word place = random(), word = random(), other = trial % 2 ? random() : word ^ 1ull << random() % 64;
        HashSums a, b;
        a.add(word, place * HashSums::key, 4096, 64);
        b.add(other, place * HashSums::key, 4096, 64);
        REQUIRE((word == other || (a.low != b.low && a.high != b.high)));
    }
    HashSums s;
    for (const Word word : {4095u, 4096u, 4159u, 4160u}) s.add(word, 0, 4096, 64);
    CHECK(s.addresses == 2);
}
