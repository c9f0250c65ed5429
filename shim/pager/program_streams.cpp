#include "shim/pager/program_streams.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "shim/pager/lease.hpp"

namespace udnnmem::pager {

void ProgramStreams::made(CUstream stream, CUcontext context, CUdevice device) {
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const Stream& s) { return s.handle == stream && !s.ended; });   // told twice; or its end was not
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
// thread's own. Green contexts are waited for with that of their device. What computes dropped buffers again in streams of our own has
// ops, which the program may rely on to be over: one that is not told yet has its lease open.
bool ProgramStreams::knows_all(StreamTable& table, CUcontext context, CUdevice device) const {
    for (const Stream& s : streams_)
        if (!s.context || (s.device == device && (s.ended || s.context != context))) return false;
    const auto known = [&](CUstream stream) {
        return stream == CU_STREAM_LEGACY || std::any_of(streams_.begin(), streams_.end(), [&](const Stream& s) { return s.handle == stream && !s.ended; });
    };
    const bool being_told = any_lease_open();
    for (const StreamTable::Seen& s : table.seen()) {
        if (s.context != context && s.device >= 0 && s.device != device) continue;
        const bool waited_for = !s.ended && s.context == context && (s.per_thread ? s.own : known(s.stream));
        if (!waited_for && !(s.idle && (s.ended || !(s.per_thread || being_told)))) return false;
    }
    return true;
}

// An event at the end of each stream of the context that is not idle.
bool ProgramStreams::record_tails(const Driver& driver, StreamTable& table, CUcontext context, std::vector<CUevent>& tails) const {
    for (const Stream& s : streams_) {
        if (s.context != context) continue;
        const CUresult idle = insist([&] { return driver.cuStreamQuery(s.handle); });
        if (idle == CUDA_SUCCESS) continue;
        CUevent tail = nullptr;
        if (idle != CUDA_ERROR_NOT_READY || !table.has_room(s.handle) || insist([&] { return driver.cuEventCreate(&tail, CU_EVENT_DISABLE_TIMING); }) != CUDA_SUCCESS)
            return false;
        tails.push_back(tail);
        if (insist([&] { return driver.cuEventRecord(tail, s.handle); }) != CUDA_SUCCESS) return false;
    }
    return true;
}

namespace {

// Where captures come and go the stream is asked, not waited for: no capture that begins on a blocking stream survives that.
bool legacy_is_over(const Driver& driver, StreamTable& table) {
    if (!table.has_captured()) return insist([&] { return driver.cuStreamSynchronize(CU_STREAM_LEGACY); }) == CUDA_SUCCESS;
    constexpr std::chrono::seconds patience(2);          // others may go on and on, on blocking streams
    constexpr std::chrono::microseconds between(20);     // in which a capture may begin
    for (const auto begun = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begun < patience; std::this_thread::sleep_for(between)) {
        CUresult idle = CUDA_ERROR_UNKNOWN;
        table.unless_capturing([&] { idle = insist([&] { return driver.cuStreamQuery(CU_STREAM_LEGACY); }); });
        if (idle != CUDA_ERROR_NOT_READY) return idle == CUDA_SUCCESS;
    }
    return false;
}

}  // namespace

bool ProgramStreams::wait(const Driver& driver, StreamTable& table, CUcontext context, PerThread per_thread) {
    const Within there(driver, context);
    const Relaxed ours(driver);
    CUdevice device = 0;
    if (per_thread.others || !context || !there || insist([&] { return driver.cuCtxGetDevice(&device); }) != CUDA_SUCCESS) return false;
    table.mark_tails();
    std::vector<CUevent> tails;
    bool all = false;
    {
        const std::lock_guard none_ends(mutex_);
        table.unless_capturing([&] { all = knows_all(table, context, device) && record_tails(driver, table, context, tails); });
    }
    for (const CUevent tail : tails) {
        all = all && insist([&] { return driver.cuEventSynchronize(tail); }) == CUDA_SUCCESS;
        insist([&] { return driver.cuEventDestroy_v2(tail); });
    }
    return all && legacy_is_over(driver, table) && (!per_thread.own || insist([&] { return driver.cuStreamSynchronize(CU_STREAM_PER_THREAD); }) == CUDA_SUCCESS);
}

}  // namespace udnnmem::pager
