// The pager's rules by name, so that the tests can take out one at a time and see it missed (tests/e2e/traps/rules.py).
// In the library itself every rule holds, at no cost; a build with VARIANT=breakable reads UDNNMEM_BREAK once.
#pragma once

#ifdef UDNNMEM_BREAKABLE
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#endif

namespace udnnmem::pager {

#ifdef UDNNMEM_BREAKABLE
inline bool holds(std::string_view rule) {
    static const char* const broken = std::getenv("UDNNMEM_BREAK");
    return !broken || rule != broken;
}
// Widens the gap that a broken rule leaves open.
inline void dawdle(std::string_view rule) {
    if (!holds(rule)) usleep(1000);
}
#else
constexpr bool holds(const char*) { return true; }
constexpr void dawdle(const char*) {}
#endif

}  // namespace udnnmem::pager
