#include "shim/executor/write_watch.hpp"

#include <algorithm>
#include <cstring>

namespace udnnmem::executor {

WriteWatch::WriteWatch(pager::Pager& pager, const Sequence& sequence)
    : pager_(pager), driver_(pager.driver()), sequence_(sequence), again_(sequence.uses.size(), 0), answers_(static_cast<std::uint32_t>(sequence.uses.size())) {
    std::vector<bool> seen(sequence.persistent.size());
    for (std::size_t k = 0; k < sequence.steps.size(); ++k) {
        const Sequence::Step& step = sequence.steps[k];
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) {
            const auto b = static_cast<std::size_t>(sequence.uses[i].buffer);
            if (!sequence.lasts(b) || seen[b]) continue;
            seen[b] = true;
            again_[i] = answers_++;
            last_first_ = static_cast<std::int32_t>(k);
        }
    }
}

void WriteWatch::context_destroying(CUcontext context) {
    if (context != context_) return;
    memory_ = nullptr;
    context_ = nullptr;
    round_ = kGaveUp;
}

bool WriteWatch::begin() {
    CUcontext current = nullptr;
    if (driver_.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current || (context_ && context_ != current)) return false;
    context_ = current;
    const std::size_t bytes = (kStreams + std::size_t{answers_}) * sizeof(Words);
    if (!memory_) memory_ = static_cast<Words*>(pager_.answer_memory().take(bytes));   // later rounds find the slots as the kernel leaves them: zero
    return memory_;
}

bool WriteWatch::hash(std::uint32_t answer, const pager::Buffer& b, const pager::Op& op, CUfunction kernel) {
    CUdeviceptr data = b.base, slot = reinterpret_cast<CUdeviceptr>(memory_[op.slot->index]), out = reinterpret_cast<CUdeviceptr>(memory_[kStreams + answer]);
    std::uint64_t words = (b.bytes + 7) / 8, first = 0, none = 0;
    std::uint64_t blocks = std::clamp<std::uint64_t>(words / (256 * 16), 1, 1024);
    void* arguments[] = {&data, &words, &first, &none, &none, &slot, &blocks, &out};
    return driver_.cuLaunchKernel(kernel, static_cast<unsigned>(blocks), 1, 1, 256, 1, 1, 0, op.stream, arguments, nullptr) == CUDA_SUCCESS;
}

void WriteWatch::submitted(std::int32_t step, const pager::Op& op, const Follower& follower, pager::DevicePager& device) {
    if (round_ >= kQueued) return;
    if (step == 0) {
        if (round_ == kWhole && next_ == static_cast<std::int32_t>(sequence_.steps.size())) round_ = kFirst;
        else round_ = ++rounds_ <= kMostRounds && begin() ? kWhole : kGaveUp;
        next_ = 0;
        if (round_ == kWhole) streams_ = 0;
    }
    if (!at_work()) return;
    CUcontext current = nullptr;
    const CUfunction kernel = device.kernels(context_).hash;
    const bool here = kernel && op.slot && op.slot->index < kStreams && driver_.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context_;
    if (step != next_ || !here) {
        round_ = here ? kWaits : kGaveUp;
        return;
    }
    ++next_;
    streams_ |= op.slot->bit();
    const Sequence::Step& known = sequence_.steps[static_cast<std::size_t>(step)];
    for (std::uint32_t i = known.first; i < known.first + known.count; ++i) {
        if (round_ == kFirst && !again_[i]) continue;
        const pager::Buffer* b = follower.bound(sequence_.uses[i].buffer);
        if (b && hash(round_ == kFirst ? again_[i] : i, *b, op, kernel)) continue;
        round_ = kGaveUp;   // the slot may be half used
        return;
    }
    const std::int32_t end = round_ == kFirst ? last_first_ : static_cast<std::int32_t>(sequence_.steps.size()) - 1;
    if (step == end && (round_ == kFirst || last_first_ < 0)) round_ = kQueued;
}

bool WriteWatch::same(std::uint32_t a, std::uint32_t b) const { return !std::memcmp(memory_[kStreams + a], memory_[kStreams + b], 16); }

WriteWatch::Seen WriteWatch::apply(profiler::Trace& trace) const {
    Seen seen;
    if (!memory_) return seen;
    constexpr std::uint32_t none = UINT32_MAX;
    std::vector<std::uint32_t> before(sequence_.persistent.size(), none);
    for (std::size_t i = 0; i < sequence_.uses.size(); ++i)
        if (sequence_.lasts(static_cast<std::size_t>(sequence_.uses[i].buffer))) before[static_cast<std::size_t>(sequence_.uses[i].buffer)] = static_cast<std::uint32_t>(i);
    for (std::size_t k = 0; k < sequence_.steps.size(); ++k) {
        const Sequence::Step& step = sequence_.steps[k];
        auto &reads = trace.ops[k].reads, &writes = trace.ops[k].writes;
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) {
            const BufferId b(sequence_.uses[i].buffer);
            std::uint32_t& former = before[static_cast<std::size_t>(b.value)];
            const bool kept = former != none && same(again_[i] ? again_[i] : i, former);
            former = i;
            ++seen.all;
            const auto written = std::find(writes.begin(), writes.end(), b);
            if (kept && written != writes.end() && std::binary_search(reads.begin(), reads.end(), b)) writes.erase(written);
            else if (written != writes.end()) ++seen.writes;
        }
    }
    return seen;
}

}  // namespace udnnmem::executor
