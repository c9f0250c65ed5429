// Whether this build walks its invariants after every change: the sanitised ones and the one that the tests break
// (`make VARIANT=asan|tsan|breakable`). What does not hold ends the program with a line, there and then.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace udnnmem::pager {

#ifdef UDNNMEM_CHECKED
inline constexpr bool checked = true;
#else
inline constexpr bool checked = false;
#endif

// `wrong`: empty, or what does not hold.
inline void must_be_valid(const std::string& wrong) {
    if (wrong.empty()) return;
    std::fprintf(stderr, "udnnmem: error: an invariant does not hold: %s\n", wrong.c_str());
    std::abort();
}

}  // namespace udnnmem::pager
