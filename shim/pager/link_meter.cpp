#include "shim/pager/link_meter.hpp"

namespace udnnmem::pager {

void LinkMeter::begin(CUstream stream) {
    if (samples_ >= kSamples || state_ == State::ended || !driver_.cuEventElapsedTime) return;
    if (!begin_ && driver_.cuEventCreate(&begin_, CU_EVENT_DEFAULT) != CUDA_SUCCESS) begin_ = nullptr;
    if (!end_ && driver_.cuEventCreate(&end_, CU_EVENT_DEFAULT) != CUDA_SUCCESS) end_ = nullptr;
    if (begin_ && end_ && driver_.cuEventRecord(begin_, stream) == CUDA_SUCCESS) state_ = State::begun;
}

void LinkMeter::end(CUstream stream, std::size_t bytes) {
    if (state_ != State::begun) return;
    pending_ = bytes;
    state_ = driver_.cuEventRecord(end_, stream) == CUDA_SUCCESS ? State::ended : State::idle;
}

void LinkMeter::poll() {
    if (state_ != State::ended) return;
    const CUresult now = driver_.cuEventQuery(end_);
    if (now == CUDA_ERROR_NOT_READY) return;
    state_ = State::idle;
    float ms = 0;
    if (now != CUDA_SUCCESS || driver_.cuEventElapsedTime(&ms, begin_, end_) != CUDA_SUCCESS || !(ms > 0)) return;
    bytes_ += pending_;
    seconds_ += static_cast<double>(ms) / 1e3;
    if (++samples_ == kSamples) {
        driver_.cuEventDestroy_v2(begin_);
        driver_.cuEventDestroy_v2(end_);
        begin_ = end_ = nullptr;
    }
}

void LinkMeter::forget_context() {
    begin_ = end_ = nullptr;
    state_ = State::idle;
}

}  // namespace udnnmem::pager
