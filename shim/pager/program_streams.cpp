#include "shim/pager/program_streams.hpp"

#include <algorithm>

namespace udnnmem::pager {

void ProgramStreams::made(CUstream stream, CUcontext context, CUdevice device) {
    const std::lock_guard lock(mutex_);
    streams_.push_back({stream, context, device});
}

void ProgramStreams::ending(CUstream stream, bool idle) {
    const std::lock_guard lock(mutex_);
    const auto lives = [&](const Stream& s) { return s.handle == stream && !s.ended; };
    const auto found = std::find_if(streams_.begin(), streams_.end(), lives);
    if (found == streams_.end()) return;
    Stream last = *found;
    std::erase_if(streams_, [&](const Stream& s) { return lives(s) || (!idle && s.ended && s.context == last.context); });
    if (idle) return;
    last.ended = ++ended_;
    streams_.push_back(last);
}

void ProgramStreams::context_ended(CUcontext context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const Stream& s) { return s.context == context; });
}

std::uint64_t ProgramStreams::mark() const {
    const std::lock_guard lock(mutex_);
    return ended_;
}

void ProgramStreams::waited_for_all(CUcontext context, std::uint64_t mark) {
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const Stream& s) { return s.context == context && s.ended && s.ended <= mark; });
}

// Whether all of the context's work that may be left is in streams that are here and live, in its legacy stream, or in the calling
// thread's own (`own`: that one has had some). Green contexts are waited for with that of their device. What computes dropped buffers
// again in streams of our own has ops, which the program may rely on to be over.
bool ProgramStreams::knows_all(const Driver& driver, StreamTable& table, CUcontext context, CUdevice device, bool& own) const {
    for (const Stream& s : streams_)
        if (!s.context || (s.device == device && (s.ended || s.context != context))) return false;
    const auto known = [&](CUstream stream) {
        return stream == CU_STREAM_LEGACY || std::any_of(streams_.begin(), streams_.end(), [&](const Stream& s) { return s.handle == stream && !s.ended; });
    };
    const auto elsewhere = [&](CUcontext other) {
        CUdevice its = device;
        const Within there(driver, other);
        return other && there && insist([&] { return driver.cuCtxGetDevice(&its); }) == CUDA_SUCCESS && its != device;
    };
    for (const StreamTable::Seen& s : table.seen()) {
        if (s.context != context && elsewhere(s.context)) continue;
        if (s.own) own = true;
        const bool waited_for = !s.ended && s.context == context && (s.per_thread ? s.own : known(s.stream));
        if (!waited_for && (!s.idle || (s.per_thread && !s.ended))) return false;
    }
    return true;
}

// An event at the end of each stream of the context that is not idle.
bool ProgramStreams::record_tails(const Driver& driver, CUcontext context, std::vector<CUevent>& tails) const {
    for (const Stream& s : streams_) {
        if (s.context != context) continue;
        const CUresult idle = insist([&] { return driver.cuStreamQuery(s.handle); });
        if (idle == CUDA_SUCCESS) continue;
        CUevent tail = nullptr;
        if (idle != CUDA_ERROR_NOT_READY || insist([&] { return driver.cuEventCreate(&tail, CU_EVENT_DISABLE_TIMING); }) != CUDA_SUCCESS) return false;
        tails.push_back(tail);
        if (insist([&] { return driver.cuEventRecord(tail, s.handle); }) != CUDA_SUCCESS) return false;
    }
    return true;
}

bool ProgramStreams::wait(const Driver& driver, StreamTable& table, CUcontext context) {
    const Within there(driver, context);
    const Relaxed ours(driver);
    CUdevice device = 0;
    if (!context || !there || insist([&] { return driver.cuCtxGetDevice(&device); }) != CUDA_SUCCESS) return false;
    table.mark_tails();
    std::vector<CUevent> tails;
    bool all = false, own = false;
    {
        const std::lock_guard none_ends(mutex_);
        table.unless_capturing([&] { all = knows_all(driver, table, context, device, own) && record_tails(driver, context, tails); });
    }
    const auto waited = [&](CUstream stream) { return insist([&] { return driver.cuStreamSynchronize(stream); }) == CUDA_SUCCESS; };
    all = all && waited(CU_STREAM_LEGACY) && (!own || waited(CU_STREAM_PER_THREAD));
    for (const CUevent tail : tails) {
        all = all && insist([&] { return driver.cuEventSynchronize(tail); }) == CUDA_SUCCESS;
        insist([&] { return driver.cuEventDestroy_v2(tail); });
    }
    return all;
}

}  // namespace udnnmem::pager
