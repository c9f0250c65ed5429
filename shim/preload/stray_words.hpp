// Words of kernels' parameters that cannot all be used as addresses: each has led to memory that had been freed. Libraries hand kernels
// structures whose padding and unused fields hold what lay there before, and that may be an old address; what memory it leads to
// changes from launch to launch. Where such a word leads to a buffer the op may still be using it, so the buffer has to be reachable;
// but it need not be on the device, and says nothing of what the program does next.
//
// Kernels of whose parameters many words are so are left alone: arrays, filled in part, whose entries count in other launches.
// Thread-safe; looking one up takes no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "interpose/handlers.hpp"

namespace udnnmem::preload {

class StrayWords {
  public:
    using Offsets = std::vector<std::uint32_t>;   // in the parameter buffer
    static constexpr std::size_t most = 4;        // of one kernel
    static constexpr std::size_t most_kernels = 128;

    // Of a kernel; null: none is known.
    const Offsets* of(const interpose::KernelLayout* kernel) const {
        const Table* const table = table_.load(std::memory_order_acquire);
        if (!table) [[likely]] return nullptr;
        const auto found = table->find(kernel);
        return found == table->end() || found->second.size() > most ? nullptr : &found->second;
    }
    // The word at that offset led to freed memory. How many words of the kernel have, if that is news; 0: it is not, or there is no room.
    std::size_t note(const interpose::KernelLayout* kernel, std::size_t offset);

  private:
    using Table = std::unordered_map<const interpose::KernelLayout*, Offsets>;
    std::atomic<const Table*> table_{nullptr};            // replaced as a whole
    std::vector<std::unique_ptr<const Table>> tables_;    // each that there was, for who is reading it
    std::mutex mutex_;
};

}  // namespace udnnmem::preload
