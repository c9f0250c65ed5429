// Memory pools whose memory must stay the driver's own: shared with other processes, imported, on the host, managed.
// Few, rarely made, asked about at every pool allocation: an atomic count keeps the usual question to one load.
#pragma once

#include "interpose/internal.hpp"

#include <mutex>
#include <vector>

namespace udnnmem::interpose {

class ForeignPools {
  public:
    void add(CUmemoryPool pool) {
        std::lock_guard lock(mutex_);
        pools_.push_back(pool);
        count_.store(pools_.size());
    }
    void remove(CUmemoryPool pool) {
        std::lock_guard lock(mutex_);
        std::erase(pools_, pool);
        count_.store(pools_.size());
    }
    bool contains(CUmemoryPool pool) {
        if (count_.load(std::memory_order_acquire) == 0) return false;
        std::lock_guard lock(mutex_);
        for (CUmemoryPool p : pools_)
            if (p == pool) return true;
        return false;
    }
    // A device was given a pool as its current one.
    void made_current(CUmemoryPool pool) {
        if (contains(pool)) may_be_current_.store(true, std::memory_order_release);
    }
    // Whether the current pool of the current context's device is foreign.
    bool current_is_foreign() {
        if (!may_be_current_.load(std::memory_order_acquire)) return false;
        CUdevice device;
        CUmemoryPool pool = nullptr;
        return OWN(cuCtxGetDevice)(&device) == CUDA_SUCCESS && OWN(cuDeviceGetMemPool)(&pool, device) == CUDA_SUCCESS &&
               contains(pool);
    }

  private:
    std::mutex mutex_;
    std::vector<CUmemoryPool> pools_;
    std::atomic<std::size_t> count_{0};
    std::atomic<bool> may_be_current_{false};
};

inline constinit ForeignPools foreign_pools;

}  // namespace udnnmem::interpose
