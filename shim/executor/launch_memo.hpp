// What a step's launch looked like and named, so that the next one like it need not be read again to find that out.
//
// A launch that matches the memo names the same buffers (and the same addresses in slabs), as long as each of them is there: words
// that lead into a buffer lead there until it is freed. The words are of the caller's choice (LaunchWords); here they are only kept.
//
// Not thread-safe: the executor's lock is around it. recall() allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shim/executor/sequence.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::executor {

// A launch as it comes. The preload's.
class LaunchWords {
  public:
    static constexpr std::size_t most = 512;   // words of a launch
    // How many words copy() writes; 0: they would not say all that it names.
    virtual std::size_t count() const = 0;
    // False: likewise.
    virtual bool copy(std::uint64_t* to) const = 0;
    // Whether it is the same kernel, launched in the same way, and each of its words that could lead anywhere is the one that copy() wrote.
    virtual bool match(const std::uint64_t* words) const = 0;

  protected:
    ~LaunchWords() = default;
};

class LaunchMemos {
  public:
    explicit LaunchMemos(std::size_t steps) : memos_(steps + ahead) {}

    bool has(std::int32_t step) const { return memos_[static_cast<std::size_t>(step)].there; }
    // Brings into the caches what recall() of that step and the next ones will look at: since they came last, a program has left
    // nothing of it there. Each thing while what leads to it is there already: the memo some steps ahead, the words of the next step
    // and the buffers of this one. Inlined, or GCC leaves the calls out: to it, what only prefetches has no effect.
    [[gnu::always_inline]] void fetch(std::int32_t step) const {
        const Memo* const m = memos_.data() + step;
        __builtin_prefetch(m + ahead);
        fetch_lines(words_.data() + m[1].word, m[1].words * sizeof words_[0]);
        fetch_lines(named_.data() + m[1].buffer, m[1].buffers * sizeof named_[0]);
        const Named* const named = named_.data() + m->buffer;
        for (std::uint32_t i = 0; i < m->buffers; ++i) __builtin_prefetch(named[i].buffer);
    }
    static constexpr std::size_t ahead = 4;   // steps
    // Lists in `op`, which names nothing so far, what the launch names, and tells each buffer that can move when it is used next, in a
    // plan's count in which the step is at `clock` (0: there is no plan). `missing`: the first buffer that is not on the device; null:
    // there is none. False: the launch is not as it was when the memo was made, and `op` names nothing.
    bool recall(std::int32_t step, const LaunchWords& launch, std::uint64_t clock, pager::Op& op, const pager::Buffer*& missing) const;
    // The step came as a launch that names what `op` lists and that its memo, if it has one, is not of; `uses`: of what can move of
    // that, in its order. What never comes twice alike is given up.
    void note(std::int32_t step, const LaunchWords& launch, const pager::Op& op, const Sequence::Use* uses) noexcept;

  private:
    static constexpr std::uint16_t kTries = 16;
    static constexpr std::size_t kMostWords = std::size_t{1} << 20;   // 8 MiB of them, and no more of the others than of them
    struct Named {
        pager::Buffer* buffer;
        std::uint32_t id;
        std::uint32_t again;   // as Sequence::Use has it
    };
    struct Memo {
        std::uint32_t word = 0, buffer = 0, small = 0;   // the first of each
        std::uint16_t words = 0, buffers = 0, smalls = 0, tries = 0;
        bool there = false;
    };
    [[gnu::always_inline]] static void fetch_lines(const void* from, std::size_t bytes) {
        constexpr std::size_t line = 64;
        const char* const begin = static_cast<const char*>(from);
        for (std::size_t at = 0; at < bytes + line; at += line) __builtin_prefetch(begin + at);
    }
    std::vector<Memo> memos_;                // per step, and for fetch() `ahead` empty ones
    std::vector<std::uint64_t> words_;       // of all, in the order in which they were made
    std::vector<Named> named_;
    std::vector<CUdeviceptr> small_;
};

}  // namespace udnnmem::executor
