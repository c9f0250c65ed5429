// Catch2's main, and the closing line that tests/run.py reads. Compiled once, linked into every unit test.
#define CATCH_CONFIG_MAIN
#include "tests/catch.hpp"

#include <cstdio>

namespace {
struct ClosingLine : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;
    void testRunEnded(Catch::TestRunStats const& stats) override {
        auto const& cases = stats.totals.testCases;
        closing = {static_cast<unsigned long>(cases.passed), static_cast<unsigned long>(cases.failed)};
        std::atexit([] { std::printf("%lu passed, %lu failed\n", closing.passed, closing.failed); });
    }
    struct Counts { unsigned long passed, failed; };
    static inline Counts closing{};
};
CATCH_REGISTER_LISTENER(ClosingLine)
}  // namespace
