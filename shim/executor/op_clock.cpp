#include "shim/executor/op_clock.hpp"

#include <algorithm>
#include <utility>

namespace udnnmem::executor {
namespace {

constexpr std::size_t kOut = 4 * OpClock::most_timed;   // pairs that have not ended; beyond them nothing is timed

Nanoseconds between(const pager::Driver& d, CUevent from, CUevent to) {
    float ms = 0;
    return d.cuEventElapsedTime(&ms, from, to) == CUDA_SUCCESS ? Nanoseconds(static_cast<std::int64_t>(static_cast<double>(ms) * 1e6)) : Nanoseconds(-1);
}

}  // namespace

bool OpClock::take(Pair& pair) {
    CUcontext current = nullptr;
    if (!driver_.cuEventElapsedTime || out_.size() >= kOut || driver_.cuCtxGetCurrent(&current) != CUDA_SUCCESS || (context_ && context_ != current)) return false;
    context_ = current;
    if (!spare_.empty()) {
        pair = spare_.back();
        spare_.pop_back();
        return true;
    }
    if (driver_.cuEventCreate(&pair.begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
    if (driver_.cuEventCreate(&pair.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS) return true;
    driver_.cuEventDestroy_v2(pair.begin);
    return false;
}

void OpClock::drop() {
    if (!std::exchange(timing_, false)) return;
    if (base_ == now_.begin) base_ = nullptr;
    spare_.push_back(now_);
}

void OpClock::begin(CUstream stream, std::uint64_t tag, std::int32_t step) {
    drop();   // another thread's, between the same two calls
    if (step == 0) {
        base_ = nullptr;
        ++phase_;
    } else if (!base_) {
        return;
    }
    Pair pair;
    if (!take(pair)) return;
    if (driver_.cuEventRecord(pair.begin, stream) != CUDA_SUCCESS) return spare_.push_back(pair);
    if (step == 0) base_ = pair.begin;
    now_ = pair;
    now_.tag = tag, now_.step = step, now_.base = base_;
    timing_ = true;
    stream_ = stream;
}

void OpClock::end(CUstream stream) {
    if (!timing_ || stream != stream_) return;
    if (driver_.cuEventRecord(now_.end, stream) != CUDA_SUCCESS) return drop();
    timing_ = false;
    out_.push_back(now_);
}

void OpClock::poll(const std::function<void(const Timed&)>& timed) {
    // A base is needed until the pairs of its iteration are told: those of a whole iteration end together.
    while (!out_.empty()) {
        std::size_t of_it = 1;
        while (of_it < out_.size() && out_[of_it].base == out_.front().base) ++of_it;
        if (out_.front().base == base_ || driver_.cuEventQuery(out_[of_it - 1].end) != CUDA_SUCCESS) return;
        const CUevent base = out_.front().begin;
        for (; of_it; --of_it) {
            const Pair& p = out_.front();
            const Nanoseconds since = p.base == base ? between(driver_, base, p.begin) : Nanoseconds(-1), took = between(driver_, p.begin, p.end);
            if (since.value >= 0 && took.value >= 0) timed({p.tag, p.step, since, took});
            spare_.push_back(p);
            out_.pop_front();
        }
    }
}

void OpClock::context_destroying(CUcontext context) {
    if (context != context_) return;
    context_ = nullptr;
    base_ = nullptr;
    timing_ = false;
    spare_.clear();
    out_.clear();
}

}  // namespace udnnmem::executor
