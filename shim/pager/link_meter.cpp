#include "shim/pager/link_meter.hpp"

#include <algorithm>

namespace udnnmem::pager {

LinkMeter::Sample& LinkMeter::smallest() {
    return *std::min_element(timed_.begin(), timed_.end(), [](const Sample& a, const Sample& b) { return a.bytes < b.bytes; });
}

void LinkMeter::begin(CUstream stream, std::size_t bytes) {
    if (state_ == State::ended || !driver_.cuEventElapsedTime) return;
    if (samples_ == kSamples && bytes <= smallest().bytes) return;
    pending_ = bytes;
    if (!begin_ && driver_.cuEventCreate(&begin_, CU_EVENT_DEFAULT) != CUDA_SUCCESS) begin_ = nullptr;
    if (!end_ && driver_.cuEventCreate(&end_, CU_EVENT_DEFAULT) != CUDA_SUCCESS) end_ = nullptr;
    if (begin_ && end_ && driver_.cuEventRecord(begin_, stream) == CUDA_SUCCESS) state_ = State::begun;
}

void LinkMeter::end(CUstream stream) {
    if (state_ != State::begun) return;
    state_ = driver_.cuEventRecord(end_, stream) == CUDA_SUCCESS ? State::ended : State::idle;
}

void LinkMeter::poll() {
    if (state_ != State::ended) return;
    const CUresult now = driver_.cuEventQuery(end_);
    if (now == CUDA_ERROR_NOT_READY) return;
    state_ = State::idle;
    float ms = 0;
    if (now != CUDA_SUCCESS || driver_.cuEventElapsedTime(&ms, begin_, end_) != CUDA_SUCCESS || !(ms > 0)) return;
    const Sample sample{static_cast<double>(pending_) / ms * 1e3, pending_};
    if (samples_ < kSamples) timed_[static_cast<std::size_t>(samples_++)] = sample;
    else smallest() = sample;
    rate_ = rate_of_half();
}

double LinkMeter::rate_of_half() const {
    auto timed = timed_;
    const auto end = timed.begin() + samples_;
    std::sort(timed.begin(), end, [](const Sample& a, const Sample& b) { return a.rate > b.rate; });
    std::size_t all = 0, faster = 0;
    for (auto s = timed.begin(); s != end; ++s) all += s->bytes;
    for (auto s = timed.begin(); s != end; ++s)
        if (faster += s->bytes; 2 * faster >= all) return s->rate;
    return 0;
}

void LinkMeter::forget_context() {
    begin_ = end_ = nullptr;
    state_ = State::idle;
}

}  // namespace udnnmem::pager
