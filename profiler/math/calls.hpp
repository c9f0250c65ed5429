// The call of a mathematics library that a thread is in, and the FLOPs that it asks for: 2 for each multiply-add of real
// numbers, 8 for one of complex ones.
//
// Only outermost calls count: cuBLAS calls cuBLASLt.
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

// While it lives, the thread is in that call: what a captured one has left in a graph runs.
class As {
  public:
    explicit As(const Call& call) noexcept;
    ~As();
    As(const As&) = delete;
    As& operator=(const As&) = delete;

  private:
    Call before_;
};
// The first of so many numbers for calls.
std::uint64_t take_numbers(std::uint64_t count) noexcept;

// Off at first: calls are then handed on, and not counted (cuDNN's descriptors are always followed, for what they describe
// may be run later).
void watch(bool on) noexcept;

// The exported names, for who stands before the loader: our functions, and whether there is one behind them to hand calls on to.
struct Export {
    const char* name;
    std::span<void* const> functions;            // one for each version; the first is for references without one
    bool (*backed)() noexcept;                   // the first
    void* (*in_front_of)(void* found) noexcept;   // what a look-up has found: which of ours calls that; null: none
};
std::span<const Export> exports() noexcept;

}  // namespace udnnmem::profiler::math
