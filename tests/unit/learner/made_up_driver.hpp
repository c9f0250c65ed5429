// Events and contexts of a made-up driver, which says what became of them.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/interpose/scripted.hpp"

namespace udnnmem::preload {

struct MadeUpDriver {
    std::mutex mutex;
    std::set<CUevent> events;
    int made = 0, errors = 0;                  // errors: an event that is none
    std::atomic<bool> gate{false};             // open: an event can be recorded on `full`
    std::atomic<int> waiting{0};               // threads that wait for it
    std::atomic<bool> slow{false};             // a wait for an event is one for the gate
    static inline thread_local std::vector<CUcontext> contexts;

    static CUstream stream(std::uintptr_t n) { return reinterpret_cast<CUstream>(n); }
    static CUcontext context(std::uintptr_t n) { return reinterpret_cast<CUcontext>(n); }
    static inline const CUstream full = reinterpret_cast<CUstream>(99);
    static MadeUpDriver& one() {
        static MadeUpDriver d;
        return d;
    }
    void wait() {
        ++waiting;
        while (!gate) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    bool known(CUevent event) {
        std::lock_guard lock(mutex);
        return events.count(event) || (++errors, false);
    }
    std::size_t held() {
        std::lock_guard lock(mutex);
        return events.size();
    }

    static void play() {
        MadeUpDriver& d = one();
        d.events.clear(), d.errors = 0, d.gate = d.slow = false, d.waiting = 0;
        contexts = {context(1)};
        SCRIPT(cuCtxGetCurrent, [](CUcontext* c) { return *c = contexts.empty() ? nullptr : contexts.back(), CUDA_SUCCESS; });
        SCRIPT(cuCtxSetCurrent, [](CUcontext c) { return contexts.resize(1), contexts.back() = c, CUDA_SUCCESS; });
        SCRIPT(cuCtxPushCurrent_v2, [](CUcontext c) { return contexts.push_back(c), CUDA_SUCCESS; });
        SCRIPT(cuCtxPopCurrent_v2, [](CUcontext* c) { return *c = contexts.back(), contexts.pop_back(), CUDA_SUCCESS; });
        SCRIPT(cuEventCreate, [](CUevent* event, unsigned) {
            std::lock_guard lock(one().mutex);
            *event = reinterpret_cast<CUevent>(static_cast<std::uintptr_t>(++one().made) << 4);
            one().events.insert(*event);
            return CUDA_SUCCESS;
        });
        SCRIPT(cuEventDestroy_v2, [](CUevent event) {
            if (!one().known(event)) return CUDA_ERROR_INVALID_HANDLE;
            std::lock_guard lock(one().mutex);
            one().events.erase(event);
            return CUDA_SUCCESS;
        });
        SCRIPT(cuEventRecord, [](CUevent event, CUstream s) {
            if (s == full) one().wait();
            return one().known(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        });
        SCRIPT(cuEventQuery, [](CUevent event) { return one().known(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
        SCRIPT(cuEventSynchronize, [](CUevent event) {
            if (one().slow) one().wait();
            return one().known(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        });
        SCRIPT(cuEventElapsedTime, [](float* ms, CUevent, CUevent) { return *ms = 0.5f, CUDA_SUCCESS; });
        SCRIPT(cuStreamCreate, [](CUstream* s, unsigned) { return *s = stream(7), CUDA_SUCCESS; });
        SCRIPT(cuStreamDestroy_v2, [](CUstream) { return CUDA_SUCCESS; });
    }
};

// Whether it comes to hold within ten seconds.
template <class Holds>
bool soon(Holds holds) {
    for (int ms = 0; ms < 10000; ++ms) {
        if (holds()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

}  // namespace udnnmem::preload
