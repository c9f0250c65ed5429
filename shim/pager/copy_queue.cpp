#include "shim/pager/copy_queue.hpp"

namespace udnnmem::pager {

void CopyQueue::added(CUstream stream, std::size_t bytes) {
    CUevent end = nullptr;
    if (!spare_.empty()) {
        end = spare_.back();
        spare_.pop_back();
    } else if (driver_.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return;
    }
    if (driver_.cuEventRecord(end, stream) != CUDA_SUCCESS) {
        spare_.push_back(end);
        return;
    }
    copies_.push_back({end, bytes});
    bytes_ += bytes;
}

std::size_t CopyQueue::waiting() {
    while (!copies_.empty() && driver_.cuEventQuery(copies_.front().end) != CUDA_ERROR_NOT_READY) {
        spare_.push_back(copies_.front().end);
        bytes_ -= copies_.front().bytes;
        copies_.pop_front();
    }
    return copies_.empty() ? 0 : bytes_ - copies_.front().bytes;
}

void CopyQueue::forget_context() {
    for (const Copy& c : copies_) spare_.push_back(c.end);
    for (CUevent e : spare_) driver_.cuEventDestroy_v2(e);
    copies_.clear();
    spare_.clear();
    bytes_ = 0;
}

}  // namespace udnnmem::pager
