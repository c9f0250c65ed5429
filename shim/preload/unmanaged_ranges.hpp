// Memory outside the arena that ops reach: the host's (pinned, registered, managed), and the device's own where the program
// maps it, shares its pool, or a graph allocates it. Its contents are not followed, so it may hold the address of any buffer
// when a kernel looks at it: an op that is given a pointer into it may touch any buffer. So may a copy out of the device's own; what
// a copy brings from the host's is looked at as it is submitted. A variable of a module is no such memory until a kernel that may write
// there by an address was given one (compilers put constants there, and give them to kernels).
//
// Thread-safe. The launch path asks with two loads and a compare; only words within the bounds of all ranges so far take
// the lock.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "interpose/handlers.hpp"

namespace udnnmem::preload {

class UnmanagedRanges {
  public:
    using Kind = interpose::Outside;

    // A graph's memory stays, whatever is removed or added in its place: it is there again at each launch.
    void add(CUdeviceptr at, std::size_t bytes, Kind kind) {
        std::lock_guard lock(mutex_);
        if (!ranges_) ranges_ = new std::map<CUdeviceptr, Range>;
        if (kind == Kind::variable && at_locked(at)) return;   // asked for again
        CUdeviceptr end = at + bytes;
        auto first = ranges_->lower_bound(at);
        if (first != ranges_->begin() && std::prev(first)->first + std::prev(first)->second.bytes > at) --first;
        // Ranges of a context that has ended may be in its place.
        while (first != ranges_->end() && first->first < end) {
            if (first->second.kind == Kind::graph) {
                kind = Kind::graph;
                at = std::min(at, first->first);
                end = std::max(end, first->first + first->second.bytes);
            }
            first = ranges_->erase(first);
        }
        (*ranges_)[at] = {end - at, kind};
        widen(at, end);
    }
    // `at` need not be known.
    void remove(CUdeviceptr at) {
        if (!may_contain(at)) return;
        std::lock_guard lock(mutex_);
        if (const auto found = ranges_->find(at); found != ranges_->end() && found->second.kind != Kind::graph) ranges_->erase(found);
    }
    bool may_contain(CUdeviceptr word) const {
        const CUdeviceptr begin = begin_.load(std::memory_order_acquire);
        return word - begin < bytes_.load(std::memory_order_relaxed);
    }
    // Of all ranges so far. Where a range was added that lies outside, it is another.
    std::pair<CUdeviceptr, std::size_t> bounds() const { return {begin_.load(std::memory_order_acquire), bytes_.load(std::memory_order_relaxed)}; }
    // What a word that may_contain() says yes to points to.
    std::optional<Kind> at(CUdeviceptr word) {
        std::lock_guard lock(mutex_);
        const Range* const found = at_locked(word);
        return found ? std::optional(found->kind) : std::nullopt;
    }
    // A kernel may write to the variable that the word points into.
    void written(CUdeviceptr word) {
        std::lock_guard lock(mutex_);
        if (Range* const found = at_locked(word); found && found->kind == Kind::variable) found->kind = Kind::device;
    }

  private:
    // The bounds never become narrower: a reader sees old ones, new ones, or the old begin with the new length, all of which hold
    // every range that was there before.
    void widen(CUdeviceptr begin, CUdeviceptr end) {
        if (const std::size_t bytes = bytes_.load()) {
            begin = std::min(begin, begin_.load());
            end = std::max(end, begin_.load() + bytes);
        } else {
            begin_.store(begin);
        }
        bytes_.store(end - begin, std::memory_order_release);
        begin_.store(begin, std::memory_order_release);
    }
    struct Range {
        std::size_t bytes;
        Kind kind;
    };
    Range* at_locked(CUdeviceptr word) {
        auto it = ranges_->upper_bound(word);
        return it != ranges_->begin() && (--it, word - it->first < it->second.bytes) ? &it->second : nullptr;
    }
    std::mutex mutex_;
    std::map<CUdeviceptr, Range>* ranges_ = nullptr;  // never deleted: asked from static destructors too
    std::atomic<CUdeviceptr> begin_{0};
    std::atomic<std::size_t> bytes_{0};
};

inline constinit UnmanagedRanges unmanaged_ranges;

}  // namespace udnnmem::preload
