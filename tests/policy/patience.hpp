// What a search reaches in a time is promised of an optimised build: a sanitised one gets ten times as much.
#pragma once

namespace udnnmem::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double patience = 10;
#else
inline constexpr double patience = 1;
#endif

}  // namespace udnnmem::tests
