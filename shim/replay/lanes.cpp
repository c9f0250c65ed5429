// Replayer: in which streams replays run, and what comes behind them.
#include "shim/replay/replayer.hpp"

namespace udnnmem::replay {

static std::uint32_t lanes_at(const pager::Buffer& b) { return b.replay_reads.load(std::memory_order_relaxed) | b.replay_writes.load(std::memory_order_relaxed); }

std::uint32_t Replayer::lanes_using(const pager::Op& op) {
    std::uint32_t lanes = 0;
    for (std::uint32_t i = 0; i < op.count; ++i) lanes |= lanes_at(*op.buffers[i]);
    for (const pager::Buffer* b : op.more) lanes |= lanes_at(*b);
    return lanes;
}

// The lane of what is to be replayed on `stream`. Where all are taken, of one whose replays it then comes behind.
std::size_t Replayer::lane_of(CUstream stream) {
    const pager::Driver& d = pager_.driver();
    const std::uint64_t life = pager_.streams().slot(stream).life;
    std::lock_guard lock(done_mutex_);
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (lanes_[i].life == life) return i;
    const pager::Relaxed relaxed(d);
    std::size_t lane = life % lanes_.size();
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (!(pending_.load() >> i & 1) || d.cuEventQuery(lanes_[i].done) == CUDA_SUCCESS) lane = i;
    d.cuStreamWaitEvent(stream, lanes_[lane].done, 0);
    lanes_[lane].life = life;
    return lane;
}

// A replay in that lane is about to read or write the memory at `at`, on its stream: after those in others that do.
CUresult Replayer::use(CUdeviceptr at, bool writes, std::size_t lane, CUstream stream) {
    pager::Buffer* const b = pager_.find(at);
    if (!b) return CUDA_SUCCESS;
    (writes ? b->replay_writes : b->replay_reads).fetch_or(1u << lane);
    return wait_for(writes ? lanes_at(*b) : b->replay_writes.load(), stream);
}

CUresult Replayer::follow_users(CUdeviceptr at, CUstream stream) {
    const pager::Buffer* const b = pager_.find(at);
    return b ? wait_for(lanes_at(*b), stream) : CUDA_SUCCESS;
}

// Before anything that was computed again counts as there.
CUresult Replayer::note_replayed(std::size_t lane, CUstream stream) {
    std::lock_guard lock(done_mutex_);
    const CUresult result = pager_.driver().cuEventRecord(lanes_[lane].done, stream);
    ++lanes_[lane].runs;
    pending_.fetch_or(1u << lane, std::memory_order_release);
    return result;
}

CUresult Replayer::wait_for(std::uint32_t lanes, CUstream stream) {
    if (!(lanes & pending_.load(std::memory_order_acquire))) return CUDA_SUCCESS;
    const pager::Driver& d = pager_.driver();
    const std::uint64_t life = pager_.streams().slot(stream).life;
    std::lock_guard lock(done_mutex_);
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < lanes_.size() && result == CUDA_SUCCESS; ++i) {
        Lane& lane = lanes_[i];
        if (!(lanes & pending_.load() & 1u << i) || lane.life == life || (lane.follower == life && lane.followed == lane.runs)) continue;
        const pager::Relaxed relaxed(d);
        if (d.cuEventQuery(lane.done) == CUDA_SUCCESS) {
            pending_.fetch_and(~(1u << i));
            continue;
        }
        result = d.cuStreamWaitEvent(stream, lane.done, 0);
        if (result == CUDA_SUCCESS) lane.follower = life, lane.followed = lane.runs;
    }
    return result;
}

}  // namespace udnnmem::replay
