// Replayer: in which streams replays run, and what comes behind them.
#include "shim/replay/replayer.hpp"

namespace udnnmem::replay {

static std::uint32_t lanes_at(const pager::Buffer& b) { return b.replay_reads.load(std::memory_order_relaxed) | b.replay_writes.load(std::memory_order_relaxed); }

// Of an op that lists what it was given in slabs, those that use the very allocations: others' may be waiting for this op.
std::uint32_t Replayer::lanes_using(const pager::Op& op) {
    const bool listed = op.small_count <= pager::Op::kFewSmall;
    bool in_slab = false;
    std::uint32_t lanes = 0;
    for (std::uint32_t i = 0; i < op.count; ++i) {
        const std::uint32_t at = lanes_at(*op.buffers[i]);
        if (op.buffers[i]->slab && listed) in_slab |= at != 0;
        else lanes |= at;
    }
    for (const pager::Buffer* b : op.more) lanes |= lanes_at(*b);
    if (!in_slab) return lanes;
    std::lock_guard lock(done_mutex_);
    for (std::uint32_t i = 0; i < op.small_count; ++i) lanes |= lanes_of_small(op.small[i], false);
    return lanes;
}

// With done_mutex_ held. An allocation that is gone may lie across one that took its place, so all are asked; they are few.
std::uint32_t Replayer::lanes_of_small(CUdeviceptr at, bool writes_only) const {
    std::uint32_t lanes = 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        for (const auto& [begin, small] : lanes_[i].small)
            if (begin <= at && at < small.end && (small.writes || !writes_only)) lanes |= 1u << i;
    return lanes;
}

// Its replays have completed, as far as its event goes: of one within another that is being submitted it says nothing of the other.
// With done_mutex_ held.
void Replayer::done_with(std::size_t lane) {
    Lane& l = lanes_[lane];
    if (l.submitting) return;
    pending_.fetch_and(~(1u << lane));
    std::erase_if(l.small, [&](const auto& s) { return s.second.run <= l.runs; });
    std::erase_if(l.uses, [&](const auto& u) {
        if (u.second > l.runs) return false;   // one that is being submitted uses it again
        u.first->replay_reads.fetch_and(~(1u << lane));
        u.first->replay_writes.fetch_and(~(1u << lane));
        return true;
    });
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
    const auto allocation = b->slab ? device_.allocation_at(at) : std::nullopt;
    std::uint32_t others;
    {
        std::lock_guard lock(done_mutex_);
        Lane& l = lanes_[lane];
        (writes ? b->replay_writes : b->replay_reads).fetch_or(1u << lane);
        l.uses[b] = l.runs + 1;
        if (b->slab) {
            const CUdeviceptr begin = allocation ? allocation->base : CUdeviceptr{b->base};
            const std::size_t bytes = allocation ? allocation->bytes : std::size_t{b->capacity};
            Lane::Small& small = l.small.try_emplace(begin, Lane::Small{}).first->second;
            small = Lane::Small{begin + bytes, l.runs + 1, small.writes || writes};
            others = lanes_of_small(at, !writes);
        } else {
            others = writes ? lanes_at(*b) : b->replay_writes.load();
        }
    }
    return wait_for(others, stream);
}

CUresult Replayer::follow_users(CUdeviceptr at, CUstream stream) {
    const pager::Buffer* const b = pager_.find(at);
    if (!b || !lanes_at(*b)) return CUDA_SUCCESS;
    std::uint32_t lanes = lanes_at(*b);
    if (b->slab) {
        std::lock_guard lock(done_mutex_);
        lanes = lanes_of_small(at, false);
    }
    return wait_for(lanes, stream);
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
            done_with(i);
            continue;
        }
        result = d.cuStreamWaitEvent(stream, lane.done, 0);
        if (result == CUDA_SUCCESS) lane.follower = life, lane.followed = lane.runs;
    }
    return result;
}

}  // namespace udnnmem::replay
