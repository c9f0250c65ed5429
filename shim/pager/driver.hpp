// The driver calls that the pager makes, as a table of pointers: the preload fills it with the real driver's
// own entry points, tests with whatever they like. Nothing in shim/pager calls CUDA in another way.
//
// Invariant: every required pointer is set before a Pager exists; optional ones may be null and are checked.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstddef>
#include <thread>

// The header of CUDA 13 calls by this name what drivers have only since 12.8. What a call is named here an old one must have.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent begin, CUevent end);

namespace udnnmem::pager {

// name of the exported symbol, required
#define UDNNMEM_PAGER_DRIVER_CALLS(X)                                                                              \
    X(cuCtxGetCurrent, 1) X(cuCtxSetCurrent, 1) X(cuCtxPushCurrent_v2, 1) X(cuCtxPopCurrent_v2, 1)                 \
    X(cuCtxGetDevice, 1) X(cuCtxSynchronize, 1) X(cuDeviceGetCount, 1) X(cuDeviceGetAttribute, 1)                  \
    X(cuDeviceTotalMem_v2, 1) X(cuMemGetInfo_v2, 1)                                                                \
    X(cuMemAddressReserve, 1) X(cuMemAddressFree, 1) X(cuMemCreate, 1) X(cuMemRelease, 1) X(cuMemMap, 1)           \
    X(cuMemUnmap, 1) X(cuMemSetAccess, 1) X(cuMemGetAllocationGranularity, 1)                                      \
    X(cuMemHostAlloc, 1) X(cuMemFreeHost, 1)                                                                       \
    X(cuMemcpyHtoDAsync_v2, 1) X(cuMemcpyDtoHAsync_v2, 1) X(cuMemcpyDtoDAsync_v2, 1) X(cuMemsetD8Async, 1)         \
    X(cuMemsetD32Async, 1)                                                                                         \
    X(cuStreamCreate, 1) X(cuStreamDestroy_v2, 1) X(cuStreamSynchronize, 1) X(cuStreamQuery, 1) X(cuStreamIsCapturing, 1) \
    X(cuStreamGetCtx, 1) X(cuStreamGetFlags, 0)                                                                    \
    X(cuStreamWaitEvent, 1) X(cuEventCreate, 1) X(cuEventDestroy_v2, 1) X(cuEventRecord, 1) X(cuEventQuery, 1)     \
    X(cuEventSynchronize, 1) X(cuThreadExchangeStreamCaptureMode, 1)                      \
    X(cuModuleLoadData, 1) X(cuModuleUnload, 1) X(cuModuleGetFunction, 1) X(cuLaunchKernel, 1)                     \
    X(cuMemsetD2D8Async, 0) X(cuMemsetD2D16Async, 0) X(cuMemsetD2D32Async, 0)                                      \
    X(cuLaunchKernelEx, 0) X(cuFuncGetAttribute, 0) X(cuFuncSetAttribute, 0) X(cuPointerGetAttribute, 0)             \
    X(cuDeviceCanAccessPeer, 0) X(cuEventElapsedTime, 0) X(cuStreamCreateWithPriority, 0) X(cuCtxGetStreamPriorityRange, 0) X(cuGetErrorName, 1) \
    X(cuMemExportToShareableHandle, 0) X(cuMemImportFromShareableHandle, 0)

struct Driver {
#define UDNNMEM_DECLARE(symbol, required) decltype(&::symbol) symbol = nullptr;
    UDNNMEM_PAGER_DRIVER_CALLS(UDNNMEM_DECLARE)
#undef UDNNMEM_DECLARE
};

// Makes a call again that failed: what gives something back must not be lost to a refusal that passes, and an error of a
// question is believed only when it stays (a context in an error state gives the same answer each time).
template <class Call>
CUresult insist(Call call) {
    CUresult result = call();
    for (int again = 0; again < 3 && result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY; ++again) result = call();
    return result;
}

// Likewise a call that makes, maps or allows memory. In a guest (WSL2) the driver may say of those that it is not ready while the device
// is busy. Waits for a second at most.
template <class Call>
CUresult insist_ready(Call call) {
    CUresult result = insist(call);
    for (int ms = 0; ms < 1000 && result == CUDA_ERROR_NOT_READY; ++ms) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        result = call();
    }
    return result;
}

// Whether the current context is in an error state, so that nothing will run there any more.
inline bool in_error_state(const Driver& driver) {
    std::size_t free, total;
    return insist([&] { return driver.cuMemGetInfo_v2(&free, &total); }) != CUDA_SUCCESS;
}

// Waits for what was queued on a stream of the current context that waits for nobody else. False: the driver does not say that it
// has ended, however often it is asked, so what it reads and writes is to be left alone for good.
inline bool drain(const Driver& driver, CUstream stream) {
    for (int asked = 0; asked < 10; ++asked)
        if (insist([&] { return driver.cuStreamSynchronize(stream); }) == CUDA_SUCCESS) return true;
    return in_error_state(driver);
}

// While it lives `context` is current, if the driver lets it be; null: whatever is.
class Within {
  public:
    Within(const Driver& driver, CUcontext context) : driver_(driver) {
        CUcontext current = nullptr;
        if (context) insist([&] { return driver_.cuCtxGetCurrent(&current); });
        if (context == current) return;
        pushed_ = insist([&] { return driver_.cuCtxPushCurrent_v2(context); }) == CUDA_SUCCESS;
        there_ = pushed_;
    }
    ~Within() {
        CUcontext popped;
        if (pushed_) insist([&] { return driver_.cuCtxPopCurrent_v2(&popped); });
    }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    explicit operator bool() const { return there_; }

  private:
    const Driver& driver_;
    bool pushed_ = false, there_ = true;
};

// While it lives this thread's driver calls are not counted towards stream captures: ours are not the program's, and those that
// CUDA calls potentially unsafe (queries of events, waits, allocations) would invalidate a capture of this thread or another.
class Relaxed {
  public:
    explicit Relaxed(const Driver& driver) : driver_(driver) { exchanged_ = exchange(); }
    ~Relaxed() {
        if (exchanged_) exchange();
    }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

  private:
    bool exchange() {
        return insist([&] { return driver_.cuThreadExchangeStreamCaptureMode(&mode_); }) == CUDA_SUCCESS;
    }
    const Driver& driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then what it was before
    bool exchanged_ = false;
};

// Whether the context is in an error state or gone, so that nothing will run there any more. The error of a question about an event
// does not say so alone: while a stream captures it is refused.
inline bool lost(const Driver& driver, CUcontext context) {
    if (insist([&] { return driver.cuCtxPushCurrent_v2(context); }) != CUDA_SUCCESS) return true;
    const bool error = in_error_state(driver);
    CUcontext popped;
    insist([&] { return driver.cuCtxPopCurrent_v2(&popped); });
    return error;
}

}  // namespace udnnmem::pager
