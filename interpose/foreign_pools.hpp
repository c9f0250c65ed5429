// Memory pools whose memory must stay the driver's own: shared with other processes, imported, on the host, managed, of limited size.
// Few, rarely made, asked about at every pool allocation: an atomic count keeps the usual question to one load.
// And which device's memory is in the others: the driver cannot be asked.
#pragma once

#include "interpose/immortal.hpp"
#include "interpose/internal.hpp"

#include <algorithm>
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
    // Whether the current pool of the stream's device is foreign.
    bool current_is_foreign(CUstream stream) {
        if (!may_be_current_.load(std::memory_order_acquire)) return false;
        CUdevice device;
        CUmemoryPool pool = nullptr;
        CUcontext context = nullptr;
        const bool pushed = OWN(cuStreamGetCtx)(stream, &context) == CUDA_SUCCESS && OWN(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
        const bool known = OWN(cuCtxGetDevice)(&device) == CUDA_SUCCESS && OWN(cuDeviceGetMemPool)(&pool, device) == CUDA_SUCCESS;
        if (pushed) OWN(cuCtxPopCurrent_v2)(&context);
        return known && contains(pool);
    }

  private:
    std::mutex mutex_;
    std::vector<CUmemoryPool> pools_;
    std::atomic<std::size_t> count_{0};
    std::atomic<bool> may_be_current_{false};
};

inline constinit Immortal<ForeignPools> foreign_pools;

class PoolDevices {
  public:
    void made(CUmemoryPool pool, CUdevice device) {
        std::lock_guard lock(mutex_);
        pools_.push_back({pool, device});
    }
    void destroyed(CUmemoryPool pool) {
        std::lock_guard lock(mutex_);
        std::erase_if(pools_, [pool](const Pool& p) { return p.pool == pool; });
    }
    // -1: nobody knows.
    CUdevice of(CUmemoryPool pool) {
        std::lock_guard lock(mutex_);
        if (const CUdevice device = find(pool); device >= 0) return device;
        // A device's default pool is there from the start and for good.
        int count = 0;
        OWN(cuDeviceGetCount)(&count);
        for (CUdevice d = 0; d < count; ++d)
            if (CUmemoryPool p; OWN(cuDeviceGetDefaultMemPool)(&p, d) == CUDA_SUCCESS && find(p) < 0) pools_.push_back({p, d});
        return find(pool);
    }

  private:
    struct Pool {
        CUmemoryPool pool;
        CUdevice device;
    };
    CUdevice find(CUmemoryPool pool) const {
        const auto found = std::find_if(pools_.begin(), pools_.end(), [pool](const Pool& p) { return p.pool == pool; });
        return found == pools_.end() ? -1 : found->device;
    }
    std::mutex mutex_;
    std::vector<Pool> pools_;
};

inline constinit Immortal<PoolDevices> pool_devices;

}  // namespace udnnmem::interpose
