// Memory outside the arena that the host writes and the device reaches: pinned, registered, managed. What it holds
// when a kernel looks at it nobody knows beforehand, so an op that is given a pointer into it may touch any buffer.
//
// Thread-safe. The launch path asks with two loads and a compare; only words within the bounds of all ranges take the
// lock.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace udnnmem::preload {

class HostRanges {
  public:
    void add(CUdeviceptr at, std::size_t bytes) {
        std::lock_guard lock(mutex_);
        if (!ranges_) ranges_ = new std::map<CUdeviceptr, std::size_t>;
        (*ranges_)[at] = bytes;
        set_bounds();
    }
    // `at` need not be known.
    void remove(CUdeviceptr at) {
        if (!may_contain(at)) return;
        std::lock_guard lock(mutex_);
        if (ranges_->erase(at)) set_bounds();
    }
    bool may_contain(CUdeviceptr word) const {
        return word - begin_.load(std::memory_order_relaxed) < bytes_.load(std::memory_order_relaxed);
    }
    // For a word that may_contain() says yes to.
    bool contains(CUdeviceptr word) {
        std::lock_guard lock(mutex_);
        auto it = ranges_->upper_bound(word);
        return it != ranges_->begin() && (--it, word - it->first < it->second);
    }

  private:
    // Wider before narrower: a reader between the two stores sees a range that covers both.
    void set_bounds() {
        if (ranges_->empty()) return bytes_.store(0);
        const CUdeviceptr begin = ranges_->begin()->first;
        const CUdeviceptr end = ranges_->rbegin()->first + ranges_->rbegin()->second;
        const CUdeviceptr old = begin_.load(), old_end = old + bytes_.load();
        bytes_.store(std::max(end, old_end) - std::min(begin, old));
        begin_.store(begin);
        bytes_.store(end - begin);
    }
    std::mutex mutex_;
    std::map<CUdeviceptr, std::size_t>* ranges_ = nullptr;  // never deleted: asked from static destructors too
    std::atomic<CUdeviceptr> begin_{0};
    std::atomic<std::size_t> bytes_{0};
};

inline constinit HostRanges host_ranges;

}  // namespace udnnmem::preload
