// A bounded queue of records from any number of threads to one: no lock, no allocation after construction,
// and a producer that meets a full ring drops its record rather than wait.
//
// Invariant: cell i holds turn t (t = i modulo the capacity) when its ticket is t + 1, and is free for
// turn t when its ticket is t. Only the producer that took turn t writes the cell then; only the consumer frees it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace udnnmem::profiler {

// T is copied in and out: trivially copyable.
template <class T>
class Ring {
  public:
    // `capacity` is a power of two.
    explicit Ring(std::size_t capacity) : mask_(capacity - 1), cells_(new Cell[capacity]) {
        for (std::size_t i = 0; i < capacity; ++i) cells_[i].ticket.store(i, std::memory_order_relaxed);
    }

    // False if the ring is full. Any thread. `turn` gets the record's number.
    bool push(const T& record, std::uint64_t& turn) noexcept {
        turn = next_.load(std::memory_order_relaxed);
        while (true) {
            Cell& cell = cells_[turn & mask_];
            const auto ahead = static_cast<std::int64_t>(cell.ticket.load(std::memory_order_acquire) - turn);
            if (ahead == 0) {
                if (!next_.compare_exchange_weak(turn, turn + 1, std::memory_order_relaxed)) continue;
                cell.record = record;
                cell.ticket.store(turn + 1, std::memory_order_release);
                return true;
            }
            if (ahead < 0) return false;
            turn = next_.load(std::memory_order_relaxed);
        }
    }

    // False if there is none. One thread only.
    bool pop(T& record) noexcept {
        Cell& cell = cells_[first_ & mask_];
        if (cell.ticket.load(std::memory_order_acquire) != first_ + 1) return false;
        record = cell.record;
        cell.ticket.store(first_ + mask_ + 1, std::memory_order_release);
        ++first_;
        return true;
    }

    std::uint64_t pushed() const { return next_.load(std::memory_order_acquire); }  // turns given out so far
    std::size_t capacity() const { return mask_ + 1; }

  private:
    struct Cell {
        std::atomic<std::uint64_t> ticket{0};
        T record;
    };
    const std::size_t mask_;
    std::unique_ptr<Cell[]> cells_;
    alignas(64) std::atomic<std::uint64_t> next_{0};
    alignas(64) std::uint64_t first_ = 0;
};

}  // namespace udnnmem::profiler
