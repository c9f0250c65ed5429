// Which context is a device's primary one, and how often the program holds it: a release destroys it when it was the
// last, a reset does whatever the count. The library's own retains do not come through the hooks and do not count.
#pragma once

#include "interpose/internal.hpp"

#include <mutex>

namespace udnnmem::interpose {

class PrimaryContexts {
  public:
    static constexpr int max_devices = 64;

    void retained(CUdevice device, CUcontext context) {
        std::lock_guard lock(mutex_);
        if (device < 0 || device >= max_devices) return;
        entries_[device].context = context;
        ++entries_[device].holds;
    }
    // The context that this release ends, null if none.
    CUcontext released(CUdevice device) {
        std::lock_guard lock(mutex_);
        if (device < 0 || device >= max_devices || entries_[device].holds == 0) return nullptr;
        return --entries_[device].holds == 0 ? std::exchange(entries_[device].context, nullptr) : nullptr;
    }
    // The context that a reset ends. It stays retained: it comes back, under the same or another handle.
    CUcontext reset(CUdevice device) {
        std::lock_guard lock(mutex_);
        return device < 0 || device >= max_devices ? nullptr : entries_[device].context;
    }

  private:
    struct Entry {
        CUcontext context = nullptr;
        unsigned holds = 0;
    };
    std::mutex mutex_;
    Entry entries_[max_devices];
};

inline constinit PrimaryContexts primary_contexts;

}  // namespace udnnmem::interpose
