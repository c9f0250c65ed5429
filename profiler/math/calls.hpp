// The call of a mathematics library that a thread is in, and the FLOPs that it asks for: 2 for each multiply-add of real
// numbers, 8 for one of complex ones.
//
// Only outermost calls count: cuBLAS calls cuBLASLt. Work that a call captures into a graph is not counted when the graph runs.
// Nothing throws; thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace udnnmem::profiler::math {

struct Call {
    const char* name = "";
    double flops = 0;
    std::uint64_t number = 0;   // of the call in this process, from 1; 0: the thread is in none
};
// Of the calling thread.
Call current() noexcept;

// Off at first: calls are then handed on, and not counted (cuDNN's descriptors are always followed, for what they describe
// may be run later).
void watch(bool on) noexcept;

// The exported names, for who stands before the loader: our function, and whether there is one behind it to hand calls on to.
struct Export {
    const char* name;
    void* function;
    bool (*backed)() noexcept;
};
std::span<const Export> exports() noexcept;

}  // namespace udnnmem::profiler::math
