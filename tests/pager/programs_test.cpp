// Random programs against a model without paging; a failing one is shrunk and printed, call by call.
#include <rapidcheck.h>

#include "tests/catch.hpp"
#include "tests/pager/programs.hpp"

using namespace udnnmem::pager::test;

namespace rc {
template <>
struct Arbitrary<Call> {
    static Gen<Call> arbitrary() {
        const auto small = [] { return gen::inRange<std::uint8_t>(0, 20); };
        return gen::build<Call>(gen::set(&Call::kind, gen::map(gen::arbitrary<std::uint8_t>(), Call::drawn)),
                                gen::set(&Call::stream, gen::inRange<std::uint8_t>(0, 3)), gen::set(&Call::a, small()), gen::set(&Call::b, small()), gen::set(&Call::c, small()));
    }
};
}  // namespace rc

TEST_CASE("random programs compute what they would with all memory on the device") {
    const bool lands = GENERATE(true, false);
    CHECK(rc::check(lands ? "where kernels reach host frames" : "where they do not", [lands] {
        const std::string wrong = wrong_with(*rc::gen::arbitrary<std::vector<Call>>(), lands);
        RC_LOG() << wrong;
        RC_ASSERT(wrong.empty());
    }));
}
