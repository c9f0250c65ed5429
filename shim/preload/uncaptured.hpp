// Driver calls that the library makes on the program's threads and that a stream capture, of this thread or another, would
// refuse and be invalidated by (CUDA's "potentially unsafe" calls: queries of events, waits, allocations). Each is made in the
// thread's relaxed capture mode, whatever is captured at the time; the program's own mode is back when it returns.
// Two exchanges of a value that is the thread's own; thread-safe.
#pragma once

#include "interpose/driver.hpp"

namespace udnnmem::preload {

template <class Pointer>
struct Uncaptured;

template <class... A>
struct Uncaptured<CUresult (*)(A...)> {
    template <auto Real>
    static CUresult call(A... arguments) {
        const auto exchange = UDNNMEM_REAL(cuThreadExchangeStreamCaptureMode);
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        const bool relaxed = exchange(&mode) == CUDA_SUCCESS;
        const CUresult result = Real()(arguments...);
        for (int again = 0; relaxed && exchange(&mode) != CUDA_SUCCESS && again < 3; ++again) {
        }
        return result;
    }
};

}  // namespace udnnmem::preload

// The driver's `symbol`, for a table of driver calls that has it and cuThreadExchangeStreamCaptureMode.
#define UDNNMEM_UNCAPTURED(symbol) \
    (::udnnmem::preload::Uncaptured<decltype(&::symbol)>::call<[] { return UDNNMEM_REAL(symbol); }>)
