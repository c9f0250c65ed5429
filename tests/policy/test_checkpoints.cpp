// Checkpoint subsets: optimal by exhaustive search on small chains, never worse than Chen's, and fast.
#include "tests/catch.hpp"

#include <chrono>

#include "policy/planners/checkpoint.hpp"
#include "tests/policy/networks.hpp"

using namespace udnnmem::policy;
using namespace udnnmem::tests;

namespace {

Chain random_chain(Random& random, std::size_t n) {
    Chain chain;
    const bool ties = chance(random, 20), inner = chance(random, 40);
    for (std::size_t l = 0; l < n; ++l) {
        chain.output.push_back(ties ? 8 : between(random, chance(random, 5) ? 0 : 1, 1000));
        if (inner) chain.inner.push_back(between(random, 0, 800));
    }
    return chain;
}

double seconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("both dynamic programmes equal exhaustive search for every n up to 14", "[checkpoints]") {
    Random random(11);
    for (int i = 0; i < 1000; ++i) {
        const std::size_t n = 1 + static_cast<std::size_t>(i) % 14;
        const Chain chain = random_chain(random, n);
        std::int64_t held = INT64_MAX, freed = INT64_MAX;
        for (std::uint32_t subset = 0; subset < (1u << n); ++subset) {
            Checkpoints kept;
            for (std::size_t l = 0; l < n; ++l)
                if (subset >> l & 1) kept.push_back(static_cast<std::int32_t>(l) + 1);
            held = std::min(held, peak_all_held(chain, kept));
            freed = std::min(freed, peak_freed_behind(chain, kept));
        }
        INFO("chain " << i << " of " << n);
        REQUIRE(peak_all_held(chain, best_all_held(chain)) == held);
        REQUIRE(peak_freed_behind(chain, best_freed_behind(chain)) == freed);
    }
}

TEST_CASE("the peaks by hand", "[checkpoints]") {
    const Chain chain{{10, 20, 30, 40}, {}};
    CHECK(peak_all_held(chain, {}) == 100);
    CHECK(peak_all_held(chain, {2}) == 20 + 70);
    CHECK(peak_all_held(chain, {1, 3}) == 40 + 40);
    CHECK(peak_freed_behind(chain, {}) == 100);
    CHECK(peak_freed_behind(chain, {2}) == 20 + 70);          // while layers 3 and 4 are back
    CHECK(peak_freed_behind(chain, {1, 3}) == 10 + 30 + 40);
    const Chain inner{{10, 20}, {5, 7}};
    CHECK(peak_all_held(inner, {}) == 42);
    CHECK(peak_all_held(inner, {1}) == 10 + 27);
    CHECK(chen(Chain{std::vector<std::int64_t>(9, 1), {}}) == Checkpoints{3, 6});
}

TEST_CASE("never worse than Chen's square root of n, whatever the number of segments", "[checkpoints]") {
    Random random(12);
    for (int i = 0; i < 200; ++i) {
        const Chain chain = random_chain(random, static_cast<std::size_t>(between(random, 1, 120)));
        const std::int64_t held = peak_all_held(chain, best_all_held(chain)), freed = peak_freed_behind(chain, best_freed_behind(chain));
        for (const std::size_t segments : {0, 1, 2, 5, 20}) {
            CHECK(held <= peak_all_held(chain, chen(chain, segments)));
            CHECK(freed <= peak_freed_behind(chain, chen(chain, segments)));
        }
    }
}

TEST_CASE("quick: O(n^2) at 2,000 layers, O(n^3) at 400", "[checkpoints]") {
    Random random(13);
    const Chain long_chain = random_chain(random, 2000), chain = random_chain(random, 400);
    CHECK(seconds([&] { best_freed_behind(long_chain); }) < 1);
    CHECK(seconds([&] { best_all_held(chain); }) < 10);
    CHECK(best_freed_behind(Chain{}).empty());
    CHECK(best_all_held(Chain{}).empty());
}
