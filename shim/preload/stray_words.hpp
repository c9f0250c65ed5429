// Words of kernels' parameters that cannot all be used as addresses. Libraries hand kernels structures whose padding and unused fields
// hold what lay there before, and that may be an old address; what memory it leads to changes from launch to launch. Where such a word
// leads to a buffer the op may still be using it, so the buffer has to be reachable; but it need not be on the device, and says nothing
// of what the program does next.
//
// A word is taken for one
//   - when it has led to freed memory. Kernels of whose parameters many words have are left alone: arrays, filled in part, whose
//     entries count in other launches;
//   - when it leads anywhere in no more than a quarter of the kernel's launches, and to other memory where the program does the same again
//     (IterationFinder). Launches are counted while somebody learns what the program does.
// A kernel goes by its name's place in memory. Thread-safe; looking one up takes no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace udnnmem::preload {

class StrayWords {
  public:
    using Offsets = std::vector<std::uint32_t>;   // in the parameter buffer
    static constexpr std::size_t most = 4;        // that have led to freed memory, of one kernel
    static constexpr std::size_t most_kernels = 1024;
    static constexpr std::size_t most_varying = 64;
    static constexpr std::uint32_t seldom = 4;    // one launch of so many

    // Of a kernel; null: none is known.
    const Offsets* of(const char* kernel) const {
        const Known* const known = look_up(kernel);
        return known ? &known->strays : nullptr;
    }
    // The word at that offset led to freed memory. How many words of the kernel have, if that is news; 0: it is not, or there is no room.
    std::size_t note(const char* kernel, std::size_t offset);
    // A launch in which the words at these offsets led somewhere.
    void count(const char* kernel, const Offsets& leading);
    // The word at that offset leads elsewhere each time. Whether it is taken for a stray one.
    bool varies(const char* kernel, std::uint32_t offset);

  private:
    struct Known {
        Offsets strays;
        bool many = false;   // words that have led to freed memory: more of them are no news
    };
    using Table = std::unordered_map<const char*, Known>;
    struct Kernel {
        Offsets freed, varying;
        std::uint32_t launches = 0;
        std::unordered_map<std::uint32_t, std::uint32_t> led;   // by offset
    };
    const Known* look_up(const char* kernel) const {
        const Table* const table = table_.load(std::memory_order_acquire);
        if (!table) [[likely]] return nullptr;
        const auto found = table->find(kernel);
        return found == table->end() ? nullptr : &found->second;
    }
    Kernel* find(const char* kernel);
    void publish(const char* kernel, const Kernel& is);

    std::atomic<const Table*> table_{nullptr};            // replaced as a whole
    std::vector<std::unique_ptr<const Table>> tables_;    // each that there was, for who is reading it
    std::mutex mutex_;
    std::unordered_map<const char*, Kernel> kernels_;
};

}  // namespace udnnmem::preload
