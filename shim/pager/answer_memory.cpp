#include "shim/pager/answer_memory.hpp"

#include <algorithm>
#include <cstring>

#include "shim/pager/lease.hpp"

namespace udnnmem::pager {

void* AnswerMemory::take(std::size_t bytes) {
    CUcontext context = nullptr;
    if (driver_.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) return nullptr;
    std::lock_guard lock(mutex_);
    blocks_.reserve(blocks_.size() + 1);
    void* memory = nullptr;
    if (driver_.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS) return nullptr;
    std::memset(memory, 0, bytes);
    blocks_.push_back({memory, context});
    return memory;
}

void AnswerMemory::give_back(void* memory) noexcept {
    std::lock_guard lock(mutex_);
    for (Block& b : blocks_)
        if (b.memory == memory) b.given_back = true;
}

void AnswerMemory::collect() {
    std::unique_lock lock(mutex_);
    for (std::size_t i = 0; i < blocks_.size();) {
        Block& b = blocks_[i];
        // An op that a kernel of ours was queued with has its number once its lease is closed.
        if (b.given_back && !b.until && !any_lease_open()) b.until = std::max<std::uint64_t>(1, streams_.now());
        if (!b.until || !streams_.complete(streams_.all_streams(), b.until)) {
            ++i;
            continue;
        }
        const Block done = b;
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
        ++freeing_;
        lock.unlock();   // the driver may wait for the device, which may wait for a launch that takes memory here
        {
            Within there(driver_, done.context);
            Relaxed relaxed(driver_);
            if (there) insist([&] { return driver_.cuMemFreeHost(done.memory); });
        }
        lock.lock();
        --freeing_;
        freed_.notify_all();
    }
}

void AnswerMemory::context_destroying(CUcontext context) {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return freeing_ == 0; });
    std::erase_if(blocks_, [&](const Block& b) { return b.context == context; });
}

std::size_t AnswerMemory::blocks() {
    std::lock_guard lock(mutex_);
    return blocks_.size();
}

}  // namespace udnnmem::pager
