#include "shim/executor/launch_memo.hpp"

#include <algorithm>

namespace udnnmem::executor {

[[gnu::hot]] bool LaunchMemos::recall(std::int32_t step, const LaunchWords& launch, std::uint64_t clock, pager::Op& op, const pager::Buffer*& missing) const {
    const Memo& m = memos_[static_cast<std::size_t>(step)];
    if (!m.there || !launch.match(words_.data() + m.word)) return false;
    const Named* const named = named_.data() + m.buffer;
    const pager::Buffer* away = nullptr;
    const std::uint32_t buffers = m.buffers;
    for (std::uint32_t i = 0; i < buffers; ++i) {
        const Named n = named[i];
        op.buffers[i] = n.buffer;
        if (clock) n.buffer->next_use.store(clock + n.again, std::memory_order_relaxed);   // a wish: another's, if it is that by now
        if (pager::BufferState(n.buffer).ready_as(n.id)) [[likely]] continue;
        if (n.buffer->id != n.id || !n.buffer->live) return false;
        if (clock && !away && n.buffer->residency.load(std::memory_order_relaxed) != pager::Residency::device) away = n.buffer;
    }
    missing = away;
    op.count = buffers;
    op.marks = ~std::uint64_t{0};   // what else is named is compared with all of them
    std::copy_n(small_.data() + m.small, m.smalls, op.small);
    op.small_count = m.smalls;
    return true;
}

void LaunchMemos::note(std::int32_t step, const LaunchWords& launch, const pager::Op& op, const Sequence::Use* uses) noexcept {
    Memo& m = memos_[static_cast<std::size_t>(step)];
    m.there = false;
    if (m.tries == kTries) return;
    ++m.tries;
    const bool listed = !op.everything && op.more.empty() && op.overwrites.empty() && !op.stray_count && op.small_count <= pager::Op::kFewSmall;
    if (!listed || !std::all_of(op.buffers, op.buffers + op.count, [](const pager::Buffer* b) { return bool{b->live}; })) return;
    const std::size_t words = launch.count();
    if (!words || words > LaunchWords::most) return;
    if (words != m.words || op.count != m.buffers || op.small_count != m.smalls) {
        if (words_.size() + words > kMostWords || named_.size() + op.count > kMostWords || small_.size() + op.small_count > kMostWords) return;
        const auto word = static_cast<std::uint32_t>(words_.size()), buffer = static_cast<std::uint32_t>(named_.size()), small = static_cast<std::uint32_t>(small_.size());
        try {
            words_.resize(word + words);
            named_.resize(buffer + op.count);
            small_.resize(small + op.small_count);
        } catch (...) {
            return;   // no memory for it
        }
        m.word = word, m.words = static_cast<std::uint16_t>(words);
        m.buffer = buffer, m.buffers = static_cast<std::uint16_t>(op.count);
        m.small = small, m.smalls = static_cast<std::uint16_t>(op.small_count);
    }
    if (!launch.copy(words_.data() + m.word)) return;
    std::transform(op.buffers, op.buffers + op.count, named_.begin() + m.buffer, [&](pager::Buffer* b) { return Named{b, b->id, b->slab ? 0 : uses++->again}; });
    std::copy_n(op.small, op.small_count, small_.begin() + m.small);
    m.there = true;
}

}  // namespace udnnmem::executor
