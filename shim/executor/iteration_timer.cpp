#include "shim/executor/iteration_timer.hpp"

#include <algorithm>

namespace udnnmem::executor {

CUevent IterationTimer::take(CUcontext context) {
    for (std::size_t i = 0; i < spare_.size(); ++i) {
        if (spare_[i].context != context) continue;
        CUevent event = spare_[i].event;
        spare_.erase(spare_.begin() + static_cast<std::ptrdiff_t>(i));
        return event;
    }
    CUevent event = nullptr;
    return driver_.cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : nullptr;
}

// What is under way is not told. An event may be recorded anew before it has come.
void IterationTimer::forget() {
    spare_.insert(spare_.end(), marks_.begin(), marks_.end());
    marks_.clear();
}

void IterationTimer::context_destroying(CUcontext context) {
    const auto goes = [context](const Mark& m) { return m.context == context; };
    if (std::any_of(marks_.begin(), marks_.end(), goes)) forget();
    std::erase_if(spare_, goes);
}

void IterationTimer::begin(CUstream stream, std::uint64_t tag, bool whole) {
    CUcontext context = nullptr;
    if (!driver_.cuEventElapsedTime || marks_.size() >= kPending || driver_.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return forget();
    CUevent event = take(context);
    if (!event) return;
    if (driver_.cuEventRecord(event, stream) != CUDA_SUCCESS) {
        spare_.push_back({event, context, 0, false});
        return forget();
    }
    marks_.push_back({event, context, tag, whole && !marks_.empty()});
}

void IterationTimer::poll(const std::function<void(std::uint64_t, std::int64_t)>& ended) {
    while (marks_.size() >= 2) {
        const CUresult done = driver_.cuEventQuery(marks_[1].event);
        if (done == CUDA_ERROR_NOT_READY) return;
        float ms = 0;
        if (done == CUDA_SUCCESS && marks_[1].whole && driver_.cuEventElapsedTime(&ms, marks_[0].event, marks_[1].event) == CUDA_SUCCESS && ms > 0)
            ended(marks_[0].tag, static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
        spare_.push_back(marks_[0]);
        marks_.pop_front();
    }
}

}  // namespace udnnmem::executor
