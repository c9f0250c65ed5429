// Replayer: trials of slices whose code nobody has read, and what is denied.
#include <algorithm>
#include <map>

#include "shim/replay/replayer.hpp"

namespace udnnmem::replay {

bool deny(Known& known, const std::set<std::uint64_t>& codes) {
    bool any = false;
    for (KnownOp& op : known.ops)
        if (op.proven && op.code && codes.count(op.code)) op.proven = false, op.refused = why_denied, any = true;
    return any;
}

void Replayer::refuse(Known& known, const std::vector<std::int32_t>& steps, const char* why) {
    std::lock_guard lock(mutex_);
    for (const std::int32_t k : steps) known.ops[static_cast<std::size_t>(k)].proven = false, known.ops[static_cast<std::size_t>(k)].refused = why;
}

// Where there is no trial to be had, the check after each replay has to do: it counts as one.
void Replayer::not_tried(const Entry& entry) {
    if (trials_.size() < kMostTried / 2)   // the rest is for those that are compared
        trials_.push_back({entry.known, entry.slice, entry.logical});
    tries_.store(true);
}

void Replayer::try_out(const Slice& slice, CUstream stream) {
    Targets targets;
    std::vector<Entry> entries;
    std::vector<std::int32_t> wanted;
    if (!trial_answers_) trial_answers_ = work_.answers(2 * kMostTried);
    const pager::StreamSlot& slot = pager_.streams().slot(stream);
    for (auto it = untried_.begin(); it != untried_.end();) {
        if (it->second.slice.get() != &slice) {
            ++it;
            continue;
        }
        pager::Buffer* const b = it->first;
        Entry entry = std::move(it->second);
        it = untried_.erase(it);
        // As it would be dropped only once nothing uses it.
        const bool there = b->id == entry.id && b->live && !b->dropped.load() && !pager::leased(b) && b->last_use.load() <= entry.after && pager_.streams().complete(b->streams.load() & ~slot.bit(), b->last_use.load());
        if (!there || !takes_replays(stream) || !trial_answers_ || trials_.size() + targets.size() >= kMostTried - 1) {
            not_tried(entry);
            continue;
        }
        targets.emplace(entry.logical, Target{b, 0});
        wanted.push_back(entry.logical);
        entries.push_back(std::move(entry));
    }
    if (targets.empty()) return;
    const std::shared_ptr<Known> known = entries.front().known;
    const Submits submits(*this);
    const std::size_t lane = lane_of(stream);
    const InLane in_lane(*this, lane);
    CUresult result = CUDA_SUCCESS;
    for (auto& [logical, target] : targets)
        if (result == CUDA_SUCCESS) result = device_.take_scratch((target.buffer->bytes + 7) / 8 * 8, stream, target.at);
    if (result == CUDA_SUCCESS) result = run_ops(*known, part_for(*known, slice, wanted).ops, targets, lane, stream);
    for (const Entry& entry : entries) {
        const Target& target = targets.at(entry.logical);
        std::uint64_t* const answer = trial_answers_ + 6 * trials_.size();
        const auto hashed = [&](CUdeviceptr at, std::uint64_t* to) {
            if (result == CUDA_SUCCESS) result = use(at, false, lane, stream);
            if (result == CUDA_SUCCESS) result = work_.hash(at, target.buffer->bytes, to, stream);
        };
        hashed(target.at, answer);
        hashed(target.buffer->base, answer + 3);
        trials_.push_back({entry.known, entry.slice, entry.logical, result == CUDA_SUCCESS, lane});
        if (target.at) device_.give_scratch(target.at, stream);
    }
    tries_.store(true);
    note_replayed(lane, stream);
}

std::vector<Replayer::Trials> Replayer::judge_trials() {
    std::vector<Trials> all;
    std::lock_guard lock(mutex_);
    if (trials_.empty()) return all;
    {
        const InContext context(pager_.driver(), work_.context());
        const pager::Relaxed relaxed(pager_.driver());
        std::lock_guard done(done_mutex_);
        for (const Trial& t : trials_)
            if (t.compared && pager_.driver().cuEventQuery(lanes_[t.lane].done) != CUDA_SUCCESS) return all;
    }
    struct Ops {
        std::set<std::int32_t> right, wrong, untested;
    };
    std::map<std::shared_ptr<Known>, Ops> found;
    for (std::size_t i = 0; i < trials_.size(); ++i) {
        const Trial& t = trials_[i];
        const std::uint64_t* const answer = trial_answers_ + 6 * i;
        Ops& of = found[t.known];
        const std::vector<std::int32_t>& ops = t.slice->parts.at(t.logical).ops;
        (!t.compared ? of.untested : std::equal(answer, answer + 2, answer + 3) ? of.right : of.wrong).insert(ops.begin(), ops.end());
    }
    trials_.clear();
    tries_.store(false);
    for (auto& [known, of] : found) all.push_back(judge(known, of.right, of.wrong, of.untested));
    return all;
}

// Of a wrong buffer's ops those are denied that no right one needed, if there are any, and whose code was not read.
Replayer::Trials Replayer::judge(const std::shared_ptr<Known>& known, const std::set<std::int32_t>& right, const std::set<std::int32_t>& wrong, const std::set<std::int32_t>& untested) {
    Trials found{known};
    const auto op_of = [&](std::int32_t k) -> KnownOp& { return known->ops[static_cast<std::size_t>(k)]; };
    std::vector<std::int32_t> suspects(wrong.begin(), wrong.end());
    const auto narrow = [&](auto innocent) {
        if (!std::all_of(suspects.begin(), suspects.end(), innocent)) std::erase_if(suspects, innocent);
    };
    narrow([&](std::int32_t k) { return op_of(k).inspected; });
    narrow([&](std::int32_t k) { return right.count(k) > 0; });
    std::set<std::uint64_t> codes;
    for (const std::int32_t k : suspects) {
        KnownOp& op = op_of(k);
        op.proven = false;
        op.refused = why_denied;
        if (std::find(found.wrong.begin(), found.wrong.end(), op.launch.name) == found.wrong.end()) found.wrong.emplace_back(op.launch.name);
        if (op.code) codes.insert(op.code);
    }
    deny(codes);
    std::set<std::int32_t> tried = right;
    tried.insert(untested.begin(), untested.end());
    for (const std::int32_t k : tried)
        if (KnownOp& op = op_of(k); op.trials > 0 && op.proven) --op.trials, found.right += right.count(k);
    return found;
}

bool Replayer::refuse_denied(Known& known) {
    const std::set<std::uint64_t> codes = denied();
    std::lock_guard lock(mutex_);
    return replay::deny(known, codes);
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
