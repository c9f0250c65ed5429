// Words of parameters that have led to freed memory, and such that lead somewhere now and then.
#include "shim/preload/stray_words.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using preload::StrayWords;

TEST_CASE("a word that led to freed memory is known for its kernel alone") {
    StrayWords words;
    const char *const a = "a", *const b = "b";
    CHECK_FALSE(words.of(a));
    CHECK(words.note(a, 96));
    CHECK_FALSE(words.note(a, 96));
    CHECK(words.note(a, 8));
    REQUIRE(words.of(a));
    CHECK(*words.of(a) == StrayWords::Offsets{96, 8});
    CHECK_FALSE(words.of(b));
}

TEST_CASE("a kernel with many such words is one of arrays that are filled in part: none counts") {
    StrayWords words;
    const char* const kernel = "kernel";
    for (std::size_t i = 0; i < StrayWords::most; ++i) CHECK(words.note(kernel, 8 * i));
    CHECK(words.of(kernel));
    CHECK(words.note(kernel, 800) == StrayWords::most + 1);
    REQUIRE(words.of(kernel));
    CHECK(words.of(kernel)->empty());
    CHECK_FALSE(words.note(kernel, 808));
}

TEST_CASE("no more kernels are remembered than there is room for") {
    StrayWords words;
    const std::vector<char> names(StrayWords::most_kernels + 1);
    for (std::size_t i = 0; i < StrayWords::most_kernels; ++i) CHECK(words.note(&names[i], 8));
    CHECK_FALSE(words.note(&names.back(), 8));
    CHECK_FALSE(words.of(&names.back()));
    CHECK(words.of(&names[0]));
    words.count(&names.back(), {8});
    CHECK_FALSE(words.varies(&names.back(), 8));
}

TEST_CASE("a word that varies is a stray one where it leads somewhere in few launches") {
    StrayWords words;
    const char *const kernel = "kernel", *const other = "other";
    CHECK_FALSE(words.varies(kernel, 40));   // of which nothing is known
    for (int i = 0; i < 8; ++i) words.count(kernel, i == 3 ? StrayWords::Offsets{8, 40} : i % 2 ? StrayWords::Offsets{8, 48} : StrayWords::Offsets{8});
    CHECK_FALSE(words.of(kernel));
    CHECK_FALSE(words.varies(kernel, 8));
    CHECK_FALSE(words.varies(kernel, 48));
    CHECK_FALSE(words.varies(kernel, 56));
    CHECK_FALSE(words.varies(other, 40));
    CHECK(words.varies(kernel, 40));
    REQUIRE(words.of(kernel));
    CHECK(*words.of(kernel) == StrayWords::Offsets{40});
    CHECK(words.varies(kernel, 40));
    CHECK_FALSE(words.of(other));
}

TEST_CASE("what varies stays known when many words have led to freed memory") {
    StrayWords words;
    const char* const kernel = "kernel";
    for (int i = 0; i < 8; ++i) words.count(kernel, i ? StrayWords::Offsets{} : StrayWords::Offsets{16});
    CHECK(words.varies(kernel, 16));
    for (std::size_t i = 0; i <= StrayWords::most; ++i) CHECK(words.note(kernel, 800 + 8 * i));
    REQUIRE(words.of(kernel));
    CHECK(*words.of(kernel) == StrayWords::Offsets{16});
}
