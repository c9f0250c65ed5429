// Runs the threads of one block that stop for each other: a thread runs until it stops, then the next;
// the order is fixed, so results are too. Warp operations are answered when every thread of their
// mask that still lives has arrived, barriers when all have.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/softgpu/ptx/abi.hpp"

namespace softgpu::ptx {

class BlockRun {
  public:
    // `frames`: block_threads * frame_bytes bytes, kept by the caller until the block is done.
    BlockRun(abi::StepFunction* step, std::size_t frame_bytes, std::uint8_t* frames, const abi::Launch& launch, abi::Block& block);

    enum class Outcome : std::uint8_t { done, waiting, deadlock };
    // Runs until the block is done, or until all that could run wait in a loop for someone else.
    Outcome advance();
    std::string describe() const;  // of a deadlock

  private:
    enum class State : std::uint8_t { ready, barrier, warp, spin, done };
    abi::Thread& thread(unsigned t) const { return *reinterpret_cast<abi::Thread*>(frames_ + t * frame_bytes_); }
    void run_warp(unsigned warp);
    bool answer_warp(unsigned warp);
    void answer(unsigned warp, abi::u32 members);
    bool release_barriers();
    void arrive(unsigned t);

    abi::StepFunction* step_;
    std::size_t frame_bytes_;
    std::uint8_t* frames_;
    const abi::Launch& launch_;
    abi::Block& block_;
    unsigned threads_, living_;
    std::vector<State> state_;
    struct Barrier {
        unsigned waiting = 0, arrived = 0;  // threads stopped there; all arrivals
        unsigned expected = 0;              // 0: all living threads
        abi::u32 count = 0, all = 1, any = 0;
    };
    Barrier barriers_[16];
};

}  // namespace softgpu::ptx
