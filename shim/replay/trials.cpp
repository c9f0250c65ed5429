// Replayer: trials of slices whose code nobody has read, and what is denied.
#include <algorithm>

#include "shim/replay/replayer.hpp"

namespace udnnmem::replay {

// Where there is no memory for it, or nothing can be submitted, this trial counts for nothing, and the check after each replay has to do.
void Replayer::try_out(const Slice& slice, CUstream stream) {
    Targets targets;
    std::vector<std::int32_t> wanted;
    std::shared_ptr<Known> known;
    for (auto it = untried_.begin(); it != untried_.end();) {
        if (it->second.slice.get() != &slice) {
            ++it;
            continue;
        }
        const auto [b, entry] = *it;
        it = untried_.erase(it);
        if (b->id != entry.id || !b->live || b->dropped.load() || b->last_use.load() > entry.after) continue;
        known = entry.known;
        targets.emplace(entry.logical, Target{b, 0});
        wanted.push_back(entry.logical);
    }
    if (targets.empty() || !takes_replays(stream)) return;
    if (!trial_answers_) trial_answers_ = work_.answers(2 * kMostTried);
    const std::size_t first = trials_.empty() ? 0 : trials_.back().first + trials_.back().count;
    if (!trial_answers_ || first + targets.size() > kMostTried) return;
    Trial trial{known, part_for(*known, slice, wanted).ops, first, 0, lane_of(stream)};
    CUresult result = CUDA_SUCCESS;
    for (auto& [logical, target] : targets)
        if (result == CUDA_SUCCESS) result = device_.take_scratch((target.buffer->bytes + 7) / 8 * 8, stream, target.at);
    if (result == CUDA_SUCCESS) result = run_ops(*known, trial.ops, targets, trial.lane, stream);
    for (const auto& [logical, target] : targets) {
        std::uint64_t* const answer = trial_answers_ + 6 * (first + trial.count);
        const auto hashed = [&](CUdeviceptr at, std::uint64_t* to) {
            if (result == CUDA_SUCCESS) result = use(at, false, trial.lane, stream);
            if (result == CUDA_SUCCESS) result = work_.hash(at, target.buffer->bytes, to, stream);
        };
        hashed(target.at, answer);
        hashed(target.buffer->base, answer + 3);
        if (result == CUDA_SUCCESS) ++trial.count;
        if (target.at) device_.give_scratch(target.at, stream);
    }
    note_replayed(trial.lane, stream);
    if (result != CUDA_SUCCESS)
        for (const std::int32_t k : trial.ops) known->ops[static_cast<std::size_t>(k)].trials = std::max(0, known->ops[static_cast<std::size_t>(k)].trials - 1);
    if (!trial.count) return;
    trials_.push_back(std::move(trial));
    tries_.store(true);
}

Replayer::Trials Replayer::judge_trials(Known& known) {
    Trials all;
    std::lock_guard lock(mutex_);
    if (trials_.empty()) return all;
    {
        const InContext context(pager_.driver(), work_.context());
        const pager::Relaxed relaxed(pager_.driver());
        std::lock_guard done(done_mutex_);
        for (const Trial& t : trials_)
            if (pager_.driver().cuEventQuery(lanes_[t.lane].done) != CUDA_SUCCESS) return all;
    }
    std::set<std::int32_t> right, wrong;
    for (const Trial& t : trials_) {
        if (t.known.get() != &known) continue;
        bool same = true;
        for (std::size_t i = t.first; i < t.first + t.count; ++i) same &= std::equal(trial_answers_ + 6 * i, trial_answers_ + 6 * i + 2, trial_answers_ + 6 * i + 3);
        for (const std::int32_t k : t.ops)
            if (known.ops[static_cast<std::size_t>(k)].trials) (same ? right : wrong).insert(k);
    }
    std::erase_if(trials_, [&](const Trial& t) { return t.known.get() == &known; });
    tries_.store(!trials_.empty());
    std::set<std::uint64_t> codes;
    for (const std::int32_t k : wrong) {
        KnownOp& op = known.ops[static_cast<std::size_t>(k)];
        op.proven = false;
        op.refused = why_denied;
        if (std::find(all.wrong.begin(), all.wrong.end(), op.launch.name) == all.wrong.end()) all.wrong.emplace_back(op.launch.name);
        if (op.code) codes.insert(op.code);
    }
    deny(codes);
    for (const std::int32_t k : right)
        if (!wrong.count(k)) --known.ops[static_cast<std::size_t>(k)].trials, ++all.right;
    return all;
}

std::set<std::uint64_t> Replayer::denied() {
    std::lock_guard lock(words_mutex_);
    return denied_;
}

std::size_t Replayer::denials() {
    std::lock_guard lock(words_mutex_);
    return denied_.size();
}

void Replayer::deny(const std::set<std::uint64_t>& codes) {
    std::lock_guard lock(words_mutex_);
    denied_.insert(codes.begin(), codes.end());
}

}  // namespace udnnmem::replay
