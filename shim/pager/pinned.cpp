// DevicePager: what moves no more, for its address or its frames are known elsewhere.
#include <algorithm>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {

CUresult DevicePager::pin(Buffer* b) {
    Request request;
    const auto ask = [&] {
        request = Request();
        request.need = {b};
        request.by_cpu = true;   // nobody sees what comes
        return acquire(request);
    };
    pager_.streams().mark_tails();
    CUresult result = ask();
    while (request.dropped) {
        result = pager_.restore(b, nullptr, true);
        if (result != CUDA_SUCCESS) return result;
        result = ask();
    }
    if (result != CUDA_SUCCESS) return result;
    if (request.need.empty()) return CUDA_ERROR_INVALID_VALUE;   // freed meanwhile
    Lock lock(mutex_);
    b->pinned = true;
    --b->holds, --b->granted;
    mover_wake_.notify_one();
    return CUDA_SUCCESS;
}

bool DevicePager::escape(Buffer* b, CUdeviceptr at) {
    Lock lock(mutex_);
    if (!b->slab) return !b->escaped.exchange(true);
    if (!slabs_.escape(at)) return false;
    b->escaped = true;
    return true;
}

bool DevicePager::escaped(Buffer* b, CUdeviceptr at) {
    if (!b->escaped.load(std::memory_order_acquire) || !b->slab) return b->escaped.load();
    Lock lock(mutex_);
    return slabs_.escaped(at);
}

CUresult DevicePager::share(Buffer* b, std::vector<Shared>& out) {
    if (const CUresult result = pin(b); result != CUDA_SUCCESS) return result;
    Lock lock(mutex_);
    CUresult result = b->device_frames.empty() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    for (const Frame* f : b->device_frames) {
        int descriptor = -1;
        if (result == CUDA_SUCCESS) result = backing_->share_frame(*f, descriptor);
        if (result == CUDA_SUCCESS) out.push_back({descriptor, f->bytes});
    }
    if (result != CUDA_SUCCESS) {
        for (const Shared& s : out) close(s.descriptor);
        out.clear();
    }
    if (!holds("shared")) b->pinned = false;
    return result;
}

CUresult DevicePager::peer_access(CUdevice reader, bool on) {
    Lock lock(mutex_);
    if (!holds("peers")) return CUDA_SUCCESS;
    coming_in_.fetch_add(1, std::memory_order_relaxed);
    while (away_) granted_.wait_for(lock, std::chrono::microseconds(100));
    coming_in_.fetch_sub(1, std::memory_order_relaxed);
    backing_->share(reader, on);
    CUresult result = CUDA_SUCCESS;
    for (const Buffer* b : buffers_) {
        // Between places it is still mapped where it was, or already where it goes: moves remap within one step. The frames that it has
        // left are still there until they were hashed once more.
        const bool left = std::ranges::any_of(moves_, [b](const Move& m) { return m.buffer == b && m.kind == Move::Kind::evict && m.stage > Move::Stage::copy; });
        const bool mapped = b->landed || (!b->device_frames.empty() && !left);
        if (mapped && b->residency != Residency::unbacked && result == CUDA_SUCCESS) result = backing_->allow_again(b->base, b->capacity);
    }
    return result;
}

}  // namespace udnnmem::pager
