// Why a kernel must not be run again in the place of what it did: one phrase each, as reports have it.
#pragma once

namespace udnnmem::interpose {

inline constexpr const char* kClock = "reads a clock, or where on the device it runs";
inline constexpr const char* kFloatAtomic = "adds floating-point numbers in no fixed order";
inline constexpr const char* kSwap = "swaps by comparison, in no fixed order";
inline constexpr const char* kVariable = "uses variables of its module";
inline constexpr const char* kCall = "calls code outside of its module";
inline constexpr const char* kTexture = "reads textures or surfaces";
inline constexpr const char* kVolatile = "reads memory that others may be writing";

}  // namespace udnnmem::interpose
