#include "shim/pager/arena.hpp"

#include <sys/mman.h>

#include <bit>
#include <iterator>

namespace udnnmem::pager {
namespace {

// Where data seldom looks like an address: the upper half of one there is no small integer, as sizes and labels are, and as a float it
// is next to nothing. Left alone, drivers begin low: at 2^40 on an H200, where any two integers of which the second is 256 to 511
// are an address.
constexpr CUdeviceptr kPlaces[] = {0x6d0000000000, 0x5b0000000000, 0x3d0000000000, 0x2d0000000000};
constexpr CUdeviceptr kHigh = CUdeviceptr{1} << 44;

CUdeviceptr reserve(const Driver& driver, std::size_t granule, std::size_t bytes) {
    CUdeviceptr at = 0;
    for (const CUdeviceptr place : kPlaces) {
        if (driver.cuMemAddressReserve(&at, bytes, granule, place, 0) != CUDA_SUCCESS) continue;
        if (at >= kHigh) return at;
        driver.cuMemAddressFree(at, bytes);
    }
    return driver.cuMemAddressReserve(&at, bytes, granule, 0, 0) == CUDA_SUCCESS ? at : 0;
}

}  // namespace

bool Arena::start(const Driver& driver, std::size_t granule, std::size_t bytes) {
    CUdeviceptr at = 0;
    while (!(at = reserve(driver, granule, bytes))) {
        bytes /= 2;
        if (bytes < (std::size_t{1} << 30)) return false;
    }
    const std::size_t entries = bytes / granule;
    // Untouched pages of the table cost nothing.
    void* table = mmap(nullptr, entries * sizeof(std::atomic<Buffer*>), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) {
        driver.cuMemAddressFree(at, bytes);
        return false;
    }
    table_ = static_cast<std::atomic<Buffer*>*>(table);
    shift_ = static_cast<unsigned>(std::countr_zero(granule));
    free_[at] = bytes;
    begin_.store(at, std::memory_order_relaxed);
    bytes_.store(bytes, std::memory_order_release);
    return true;
}

void Arena::mark(CUdeviceptr at, std::size_t bytes, Buffer* owner) {
    const std::size_t first = (at - begin_) >> shift_, count = bytes >> shift_;
    for (std::size_t i = 0; i < count; ++i) table_[first + i].store(owner, std::memory_order_release);
}

CUdeviceptr Arena::take_range(std::size_t bytes, Buffer* owner) {
    bytes += 2 * granule();
    std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        if (it->second < bytes) continue;
        const CUdeviceptr at = it->first;
        const std::size_t left = it->second - bytes;
        free_.erase(it);
        if (left) free_[at + bytes] = left;
        mark(at, bytes, owner);
        return at + granule();
    }
    return 0;
}

void Arena::free_range(CUdeviceptr at, std::size_t bytes) {
    at -= granule(), bytes += 2 * granule();
    std::lock_guard lock(mutex_);
    mark(at, bytes, nullptr);
    auto [it, fresh] = free_.emplace(at, bytes);
    (void)fresh;
    if (auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
        it->second += next->second;
        free_.erase(next);
    }
    if (it != free_.begin()) {
        auto previous = std::prev(it);
        if (previous->first + previous->second == it->first) {
            previous->second += it->second;
            free_.erase(it);
        }
    }
}

}  // namespace udnnmem::pager
