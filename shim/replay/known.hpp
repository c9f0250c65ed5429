// What is known of the ops of a learned iteration: where their arguments name buffers, what they read and write, and
// whether running them again gives the same bits. Buffers are logical ones, numbered as in the plan's trace.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "profiler/trace/units.hpp"
#include "shim/replay/launch.hpp"

namespace udnnmem::replay {

// The learned iteration: the buffers that each op names, in its order; those that can be moved and those in slabs apart.
struct Program {
    struct Step {
        std::uint32_t first = 0, movable = 0, small = 0;   // of `uses`: the movable ones, then the small ones
    };
    std::vector<Step> steps;
    std::vector<std::int32_t> uses;
    std::vector<char> lasts;   // per buffer: it outlives the iteration
};

struct Operand {
    std::uint32_t at = 0;         // bytes into the arguments: an address there ...
    std::uint32_t use = 0;        // ... of this one of KnownOp::uses ...
    std::uint64_t delta = 0;      // ... so far behind its start
};

struct KnownOp {
    struct Use {
        std::int32_t buffer = -1;
        bool movable = false;
        std::uint64_t bytes = 0;             // of the allocation
        bool reads = true, writes = false;   // both: it works on what is there; writes alone: whatever was there
        bool filled = false;                 // tried with something else there
        bool may_write = false;              // says its code ...
        bool changed = false;                // ... and that was seen
        std::int32_t made_by = -1;           // the last op before this one that writes it; -1: none in the iteration
        bool saved = false;                  // it is small, read, and written by this op or a later one: what it holds is kept with the launch ...
        CUdeviceptr copy = 0;                // ... here (Replayer)
    };
    const char* refused = nullptr;   // why it may not be run again; null while it is being proved, or once it is proven
    bool looked_at = false, proven = false;
    bool inspected = false;          // its code was read, and says all that it may write, and what steers it
    int trials = 0;                  // proven; but so many times yet a replay of it is compared with what is there, and no more (Replayer)
    Nanoseconds takes{0};            // as the iteration was timed
    std::vector<Use> uses;
    std::vector<Operand> operands;
    std::vector<char> varies;        // per byte of the arguments: differed between proofs
    Launch::Kind kind = Launch::Kind::kernel;
    CUfunction proved = nullptr;     // the kernel that was tried: another one of its name and shape is not proven. Null: that was in ...
    std::uint64_t code = 0;          // ... an earlier run, and it ran this (LaunchSource::code()); of what is not proven, too
    std::vector<char> proved_with;   // the arguments of the first proof
    Launch launch;                   // of the iteration `captured`
    bool compared = false;           // that is the op that was proven, and none of its other words lies where managed memory may be
    std::uint64_t captured = 0, frees_then = 0;   // when `launch` was kept: the iteration, and frees so far ...
    std::uint64_t number = 0;        // ... and the op's, of all that were told
    std::uint64_t submitted = 0;     // the last iteration in which the driver has the op: not yet, though kept, while it waits for memory
    void note_submitted(std::uint64_t iteration) { std::atomic_ref(submitted).store(iteration, std::memory_order_relaxed); }
    bool was_submitted(std::uint64_t iteration) { return std::atomic_ref(submitted).load(std::memory_order_relaxed) == iteration; }

    // Whether a replay is given a copy of what is there: its code was not read, and nobody knows what it writes at other times,
    // if only for a moment.
    bool borrows(const Use& use) const { return !inspected && kind == Launch::Kind::kernel && !use.writes; }
    // Whether body(offset, word) says so of a word of the launch's arguments that is no operand, but could be an address.
    template <class Body>
    bool any_word_beside(Body body) const {
        auto operand = operands.begin();
        for (const auto& [offset, size] : launch.parameters)
            for (std::size_t at = (offset + 7) / 8 * 8; at + 8 <= offset + size; at += 8) {
                if (operand != operands.end() && operand->at == at) {
                    ++operand;
                    continue;
                }
                std::uint64_t word;
                std::memcpy(&word, launch.arguments.data() + at, sizeof word);
                if (body(static_cast<std::uint32_t>(at), word)) return true;
            }
        return false;
    }
    // Where use `u` lies by the launch's arguments.
    CUdeviceptr base(std::uint32_t u) const;
    // Whether the launch's operands lie in one buffer where those of the first proof did, and in several where they did.
    bool named_alike() const;
    static constexpr std::uint64_t most_saved = 65536;   // bytes of one buffer that is kept with a launch
    static constexpr int most_trials = 3;
};

struct Known {
    // Of an earlier run: ops whose code is still to be compared with what is run now (Replayer::is_as_stored()).
    std::size_t unseen = 0;
    std::vector<char> seen, others;  // per op: it was; it was another one once
    bool needed = false;             // the program would not run at all without what is dropped: nothing is tried first, nor run on demand
    Program program;
    std::vector<KnownOp> ops;        // one for each step
};

// Kernels of these codes (KnownOp::code) are proven no more: one of each gave other bits in the place of a replay, now or in an earlier
// run. True: some were.
bool deny(Known& known, const std::set<std::uint64_t>& codes);
inline constexpr const char* why_denied = "gave other bits when it was run again later";
inline constexpr const char* why_another = "is too often given what it was not proven with";

// Allocations (by their base) that ops may have written to without being known to: where stray words led them (pager::Op::strays), what
// ops named that were others than those that were proven. Each with the last such op, by its number.
using Led = std::unordered_map<CUdeviceptr, std::uint64_t>;

// Of the ops of a slice those, in order, that some of its buffers need; and what they read that none of them makes.
struct Part {
    struct Input {
        std::int32_t op;
        std::uint32_t use;   // of KnownOp::uses
    };
    std::vector<std::int32_t> ops;
    std::vector<Input> inputs;
};

// A run of proven ops that makes `buffers` what they were.
struct Slice {
    std::vector<std::int32_t> ops, buffers;
    mutable std::unordered_map<std::int32_t, Part> parts;   // by buffer, once it was dropped: Replayer's, under its lock
};
Part part_for(const Known& known, const Slice& slice, const std::vector<std::int32_t>& buffers);

}  // namespace udnnmem::replay
