// Driver calls that the library makes on the program's threads and that a stream capture, of this thread or another, would
// refuse and be invalidated by (CUDA's "potentially unsafe" calls: queries of events, waits, allocations). While anything is
// captured each is made in the thread's relaxed capture mode; the program's own mode is back when it returns. A capture is
// known before it begins. Thread-safe.
#pragma once

#include "interpose/driver.hpp"
#include "shim/preload/session.hpp"

namespace udnnmem::preload {

// The mover's thread, which is in relaxed mode for good.
inline thread_local bool t_relaxed __attribute__((tls_model("initial-exec"))) = false;

template <class Pointer>
struct Uncaptured;

template <class... A>
struct Uncaptured<CUresult (*)(A...)> {
    template <auto Real>
    static CUresult call(A... arguments) {
        static const auto real = Real();   // looked up by its name
        Session* const session = Session::get();
        if (t_relaxed || !session || !session->pager().streams().capturing()) [[likely]] return real(arguments...);
        pager::Relaxed relaxed(session->pager().driver());
        return real(arguments...);
    }
};

}  // namespace udnnmem::preload

// The driver's `symbol`, for a table of driver calls that has it and cuThreadExchangeStreamCaptureMode.
#define UDNNMEM_UNCAPTURED(symbol) \
    (::udnnmem::preload::Uncaptured<decltype(&::symbol)>::call<[] { return UDNNMEM_REAL(symbol); }>)
