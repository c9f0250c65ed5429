// Words of parameters that have led to freed memory.
#include "shim/preload/stray_words.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using preload::StrayWords;

TEST_CASE("a word that led to freed memory is known for its kernel alone") {
    StrayWords words;
    const interpose::KernelLayout a, b;
    CHECK_FALSE(words.of(&a));
    CHECK(words.note(&a, 96));
    CHECK_FALSE(words.note(&a, 96));
    CHECK(words.note(&a, 8));
    REQUIRE(words.of(&a));
    CHECK(*words.of(&a) == StrayWords::Offsets{96, 8});
    CHECK_FALSE(words.of(&b));
}

TEST_CASE("a kernel with many such words is one of arrays that are filled in part: none counts") {
    StrayWords words;
    const interpose::KernelLayout kernel;
    for (std::size_t i = 0; i < StrayWords::most; ++i) CHECK(words.note(&kernel, 8 * i));
    CHECK(words.of(&kernel));
    CHECK(words.note(&kernel, 800) == StrayWords::most + 1);
    CHECK_FALSE(words.of(&kernel));
    CHECK_FALSE(words.note(&kernel, 808));
}

TEST_CASE("no more kernels are remembered than there is room for") {
    StrayWords words;
    const std::vector<interpose::KernelLayout> kernels(StrayWords::most_kernels + 1);
    for (std::size_t i = 0; i < StrayWords::most_kernels; ++i) CHECK(words.note(&kernels[i], 8));
    CHECK_FALSE(words.note(&kernels.back(), 8));
    CHECK_FALSE(words.of(&kernels.back()));
    CHECK(words.of(&kernels[0]));
}
