// DevicePager: device memory that goes back to the driver, for what is not managed.
#include <algorithm>

#include "shim/pager/pager.hpp"
#include "shim/pager/rules.hpp"

namespace udnnmem::pager {
namespace {
constexpr std::int64_t kRegainEach = 100'000'000;   // ns between questions how much memory there is
constexpr std::int64_t kRegainHostEach = 60'000'000'000;   // ... and at most between trials whether there is host memory
}  // namespace

CUresult DevicePager::yield(std::size_t bytes, std::size_t& lowered) {
    Request request;
    request.yields = true;
    request.bytes = bytes;
    pager_.streams().mark_tails();
    const CUresult result = acquire(request);
    lowered = request.lowered;
    return result;
}

CUresult DevicePager::yield_some(std::size_t& lowered) {
    std::size_t bytes;
    {
        Lock lock(mutex_);
        bytes = left_to_others(device_pool_->promised());
    }
    return yield(bytes, lowered);
}

void DevicePager::reclaim(std::size_t lowered) {
    Lock lock(mutex_);
    device_pool_->set_budget_for_now(device_pool_->budget() + lowered);
}

// Others take memory for a while, and give it back: the driver is asked now and then while somebody waits for room, and before an
// allocation is refused. What a new process' share leaves to contexts and libraries stays theirs.
bool DevicePager::regain_budget() {
    FramePool& pool = *device_pool_;
    if (pool.budget() >= pool.promised()) return false;
    if (std::ranges::any_of(requests_, [](const Request* r) { return r->yields; })) return false;
    regain_from_ns_ = now_ns() + kRegainEach;
    std::size_t free = 0, total = 0;
    if (insist([&] { return driver_.cuMemGetInfo_v2(&free, &total); }) != CUDA_SUCCESS) return false;
    const std::size_t before = pool.budget(), theirs = left_to_others(pool.promised());
    const std::size_t ours = pool.made() + (free - std::min(free, theirs)) / granule() * granule();
    if (ours <= before) return false;
    pool.set_budget_for_now(ours);
    pager_.sink().line(Sink::Level::info, "device " + std::to_string(device_) + ": there is more memory again; the budget is now " + std::to_string(pool.budget()) + " bytes");
    return true;
}

// The same of host memory, for a waiting request: nobody says how much there is, the next frame will tell. In vain it looks like
// progress, so deadlines pass between one time and the next, more and more.
bool DevicePager::regain_host() {
    if (host_pool_->budget() >= host_pool_->promised() || now_ns() < regain_host_from_ns_) return false;
    regain_host_each_ns_ = std::clamp(2 * regain_host_each_ns_, 2 * deadline_ns(), kRegainHostEach);
    regain_host_from_ns_ = now_ns() + regain_host_each_ns_;
    host_pool_->set_budget_for_now(host_pool_->promised());
    return true;
}

// As every request: true if something changed. It holds nothing.
bool DevicePager::serve_yield(Request& r) {
    if (release_parked(SIZE_MAX)) return true;
    FramePool& pool = *device_pool_;
    pool.trim(pool.in_use());
    std::size_t free = 0, total = 0;
    if (insist([&] { return driver_.cuMemGetInfo_v2(&free, &total); }) != CUDA_SUCCESS) return grant(r, CUDA_ERROR_OUT_OF_MEMORY), true;
    if (free < r.bytes) {
        const std::size_t lacks = r.bytes - free;
        if (lacks <= pool.in_use() && make_room(pool.available() + lacks, pool.available() + lacks)) return true;
        const bool held = holds("submission") && (frozen_ || bytes_granted() >= lacks);
        const bool coming = lacks <= pool.in_use() && (moves_of(Move::Kind::evict, Move::Kind::evict) || freed_in_use() || held);
        if (coming && !past_deadline(r)) return false;
        return grant(r, CUDA_ERROR_OUT_OF_MEMORY), true;
    }
    const std::size_t left = pool.in_use() + (free - r.bytes) / granule() * granule();
    if (r.bytes && left < pool.budget()) {
        r.lowered = pool.budget() - left;
        pool.set_budget_for_now(left);
        pager_.sink().line(Sink::Level::info, "device " + std::to_string(device_) + ": memory that is not managed takes " + std::to_string(r.bytes) +
                                                  " bytes; the budget is now " + std::to_string(left) + " bytes");
    }
    return grant(r, CUDA_SUCCESS), true;
}

}  // namespace udnnmem::pager
