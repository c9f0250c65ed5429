// The library's own kernels and copies on a stream: each goes through the pager as an op of the program's would, so that what
// it names is there and stays there. Nothing here throws but for want of memory; errors are CUresults and leave nothing undone
// that the program could notice.
//
// Called with the program's context current and no lease held. Not thread-safe but for different streams, and hash_rate().
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "shim/pager/pager.hpp"
#include "shim/replay/known.hpp"

namespace udnnmem::replay {

// Makes a context current for a while; null: leaves it as it is.
class InContext {
  public:
    InContext(const pager::Driver& driver, CUcontext context) : driver_(driver) {
        CUcontext current = nullptr;
        pushed_ = context && driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != context && driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    }
    ~InContext() {
        CUcontext popped;
        if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
    }
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;

  private:
    const pager::Driver& driver_;
    bool pushed_;
};

class OwnWork {
  public:
    OwnWork(pager::Pager& pager, pager::DevicePager& device) : pager_(pager), device_(device) {}

    // Slots for hashes and so on, in the current context. False: not to be had.
    bool start();
    // The context goes, and all in it.
    void context_destroying(CUcontext context);
    CUcontext context() const { return context_; }

    // Three words for each answer (a hash, and how many words look like addresses of managed memory), in memory that the host
    // reads; null: none. Of the pager's answer memory.
    std::uint64_t* answers(std::size_t count);

    // Whether `word` is an address of memory, managed or not.
    bool is_address(std::uint64_t word) const;
    // Whether what op.launch is given leads to memory that the first proof knew nothing of.
    bool leads_elsewhere(const KnownOp& op, const LaunchSource& source) const;

    // `dropped`: part of a replay, which may copy what it has made so far.
    CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream, bool dropped = false);
    CUresult fill(CUdeviceptr at, std::uint32_t word, std::size_t bytes, CUstream stream);
    // For tests: one bit of the byte at `at` changes; waits.
    CUresult flip(CUdeviceptr at, unsigned char bit, CUstream stream);
    CUresult hash(CUdeviceptr at, std::size_t bytes, std::uint64_t* answer, CUstream stream);
    // Bytes per second at which large pieces are hashed at best, by events around some; 0: not known. Any thread.
    double hash_rate() const { return hash_rate_.load(std::memory_order_relaxed); }
    // Hashes and stops the context unless the hash is `expected`; then `which` is in *report. `report`: answers(report_answers).
    static constexpr std::size_t slots = 512, report_answers = 1 + slots;   // a slot for each stream (StreamTable)
    CUresult expect(CUdeviceptr at, std::size_t bytes, const pager::Hash& expected, std::uint64_t* report, std::uint64_t which, CUstream stream);
    // `arguments` instead of its own. `addresses`: in each buffer that it names. `dropped`: those may be dropped ones.
    CUresult launch(const Launch& launch, std::span<char> arguments, std::span<const CUdeviceptr> addresses, bool dropped, CUstream stream);

    pager::Pager& pager() const { return pager_; }
    pager::DevicePager& device() const { return device_; }

  private:
    template <class Submit>
    CUresult run(std::span<const CUdeviceptr> addresses, bool dropped, const CUdeviceptr* overwritten, CUstream stream, Submit submit);
    template <class Submit>
    CUresult run_once(std::span<const CUdeviceptr> addresses, bool dropped, const CUdeviceptr* overwritten, CUstream stream, Submit& submit, bool& drivers);
    std::uint64_t slot_of(CUstream stream);
    template <class Submit>
    CUresult timed(std::size_t bytes, CUstream stream, Submit submit);

    pager::Pager& pager_;
    pager::DevicePager& device_;
    CUcontext context_ = nullptr;
    pager::DevicePager::Kernels kernels_;
    CUdeviceptr slots_ = 0;          // one for each of the streams that ops may be submitted to
    std::mutex timing_;              // what follows
    CUevent begin_ = nullptr, end_ = nullptr;   // of the context
    std::size_t timed_bytes_ = 0;    // of the piece that was timed last
    int timings_ = 0;
    bool timing_out_ = false;        // its events were not read
    std::atomic<double> hash_rate_{0};
};

}  // namespace udnnmem::replay
