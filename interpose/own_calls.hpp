// The driver calls that the library makes for itself, told apart from those that it makes for the program: in a build of
// the tests (VARIANT=breakable) each of them can be made to fail, in the library itself they are the driver's functions.
//
//   UDNNMEM_FAIL=NAME:N[:ERROR[:TIMES]]  the N-th call of NAME (* for any), counted from 1, answers ERROR (default 2), and
//                                        so do those after it, TIMES in all; several with commas between
//   UDNNMEM_FAIL_SHARE=K:SEED[:ERROR]    one in K, drawn from SEED
//   UDNNMEM_FAIL_COUNT=1                 at exit says how often each was called
// A call that fails is not made.
#pragma once

#include <cuda.h>

#ifdef UDNNMEM_BREAKABLE
#include <algorithm>
#include <cstddef>

namespace udnnmem::interpose {

// CUDA_SUCCESS: the call is to be made.
CUresult injected_fault(const char* symbol) noexcept;

template <std::size_t n>
struct SymbolName {
    char text[n];
    constexpr SymbolName(const char (&given)[n]) { std::copy_n(given, n, text); }
};

// The same function, with a fault in front.
template <SymbolName name, class Function>
struct OwnCall;
template <SymbolName name, class... A>
struct OwnCall<name, CUresult (*)(A...)> {
    using Function = CUresult (*)(A...);
    static inline Function real = nullptr;
    static CUresult call(A... arguments) {
        const CUresult fault = injected_fault(name.text);
        return fault != CUDA_SUCCESS ? fault : real(arguments...);
    }
    static Function of(Function function) {
        real = function;
        return function ? call : nullptr;
    }
};

}  // namespace udnnmem::interpose

#define UDNNMEM_OWN_CALL(name, function) (::udnnmem::interpose::OwnCall<name, decltype(function)>::of(function))
#else
#define UDNNMEM_OWN_CALL(name, function) (function)
#endif
