// Which context is a device's primary one, and how often the program holds it: a release destroys it when it was the
// last, a reset does whatever the count. The library's own retains do not come through the hooks and do not count.
// And how often a context that the program made is held beyond that: what detaches from it destroys it when nobody else does.
#pragma once

#include "interpose/immortal.hpp"
#include "interpose/internal.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

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
    bool holds(CUcontext context) {
        std::lock_guard lock(mutex_);
        return std::any_of(std::begin(entries_), std::end(entries_), [context](const Entry& e) { return context && e.context == context; });
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

class Attachments {
  public:
    void attached(CUcontext context) {
        std::lock_guard lock(mutex_);
        held_.push_back(context);
    }
    // The context if this ends it, else null.
    CUcontext detached(CUcontext context) {
        std::lock_guard lock(mutex_);
        const auto one = std::find(held_.begin(), held_.end(), context);
        if (one == held_.end()) return primary_contexts.holds(context) ? nullptr : context;
        held_.erase(one);
        return nullptr;
    }
    // A context ends however often it is held; a device's primary one does not, the driver refuses: null.
    CUcontext ended(CUcontext context) {
        if (primary_contexts.holds(context)) return nullptr;
        std::lock_guard lock(mutex_);
        std::erase(held_, context);
        return context;
    }

  private:
    std::mutex mutex_;
    std::vector<CUcontext> held_;
};

inline constinit Immortal<Attachments> attachments;

}  // namespace udnnmem::interpose
