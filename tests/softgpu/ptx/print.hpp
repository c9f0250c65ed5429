// Device printf.
#pragma once

#include "tests/softgpu/ptx/abi.hpp"

namespace softgpu::ptx {

// Prints to stdout as the format says; arguments lie as CUDA packs them (4 bytes, or 8 aligned to 8).
// Returns the number of conversions. Strings are device addresses.
abi::u32 print_formatted(abi::Block*, const char* format, const abi::u8* arguments, abi::u64 view_offset);

}  // namespace softgpu::ptx
