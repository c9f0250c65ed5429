// What the library does, as NVTX ranges of the domain "udnnmem": for a tool that listens (nsys). Where none does, a call
// costs one load.
#pragma once

#include <cstdint>

namespace udnnmem::profiler::nvtx {

// A range begins: "evict 12", with the bytes as its payload. 0: nobody listens. Thread-safe; nothing throws. Not to be called
// on a launch path before the first range of the process: that one may load the tool.
std::uint64_t begin(const char* what, std::int64_t buffer, std::uint64_t bytes) noexcept;
void end(std::uint64_t range) noexcept;   // on any thread; 0: nothing

}  // namespace udnnmem::profiler::nvtx
