// The library in one process: options, log, trace, the pager, and whether any of it is at work. Made at the program's
// first managed call, never in a constructor; left alone (leaked) at exit, because libraries call the driver from
// their own destructors.
//
// Invariants: a process that was forked after the session started passes everything through; what cannot work passes
// everything through and has said why in one line.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "interpose/handlers.hpp"
#include "profiler/trace/writer/trace_writer.hpp"
#include "shim/executor/executor.hpp"
#include "shim/ipc/sharing.hpp"
#include "shim/live/publisher.hpp"
#include "shim/options/options.hpp"
#include "shim/pager/pager.hpp"
#include "shim/preload/learner.hpp"
#include "shim/preload/refusal.hpp"

namespace udnnmem::preload {

class Session final : public pager::Sink {
  public:
    // Null while there is none or it has ended: then everything passes through. Starts it if `start`.
    static Session* get(bool start = false) noexcept;
    // What is allocated from now on is the driver's; buffers that exist are paged as before. Before there is a session everything passes
    // through.
    static void end_paging(const std::string& why) noexcept;

    pager::Pager& pager() { return *pager_; }
    ipc::Sharing& sharing() { return *sharing_; }
    const Options& options() const { return options_; }
    bool accepts_new() const { return accepting_.load(std::memory_order_relaxed); }
    // While the run's iteration is being learned, rests of the search included; null before and after.
    Learner* learning() { return learner_ && learner_->recorder.on() ? learner_.get() : nullptr; }
    // While ops are to be told to it. One load.
    Learner* listening() { return learner_ && learner_->recorder.hears_ops() ? learner_.get() : nullptr; }
    // Whether it is or not: what it has of a context has to go before that does.
    Learner* learner() { return learner_.get(); }
    // While the program runs by a plan, or is about to; null before and after.
    executor::Executor* executing() { return executor_ && executor_->on() ? executor_.get() : nullptr; }
    // Whether it does or not: buffers that a plan dropped may not be computed again yet.
    executor::Executor* executor() { return executor_.get(); }
    // The first managed allocation of a device says how it is managed.
    void allocated(pager::DevicePager& device) {
        allocations_.fetch_add(1, std::memory_order_relaxed);
        if (!told_[device.device() & 63].load(std::memory_order_relaxed)) introduce(device);
    }
    // A launch was made: from the first one on there is a trace.
    void launched() {
        if (!launched_.load(std::memory_order_relaxed)) [[unlikely]] first_launch();
    }
    // The program is told CUDA_ERROR_OUT_OF_MEMORY.
    void refused(pager::DevicePager& device, const char* what, std::size_t wanted, bool op) noexcept {
        if (refusals_.enough_told()) return;
        refusals_.note(device, what, wanted, op, learner_ ? learner_->largest_op() : profiler::Recorder::LargestOp());
        if (trace_) trace_->start();  // also before the first launch
    }
    void end();

    void line(Level, const std::string&) override;
    void event(const profiler::RunEvent&) override;
    std::uint64_t move_began(const char* what, BufferId buffer, Bytes bytes) override;
    void move_ended(std::uint64_t move) override;
    pager::LinkSpeeds link_before(CUdevice device) override;
    void link_measured(CUdevice device, const pager::LinkSpeeds& speeds, std::int64_t took_ns) override;
    void thread_started() override;
    std::size_t share_of(CUdevice device, std::size_t free) override;

  private:
    bool start();
    void first_launch() noexcept;
    void open_trace();
    void start_learning();
    void introduce(pager::DevicePager&);
    void summary();
    profiler::RunSummary figures();
    std::string live_figures();

    Options options_;
    std::mutex lines_mutex_;
    std::string lines_;                              // of the executor's, for the trace
    std::unique_ptr<pager::Pager> pager_;
    std::unique_ptr<ipc::Sharing> sharing_;
    std::unique_ptr<profiler::TraceWriter> trace_;
    std::unique_ptr<executor::Executor> executor_;   // none on demand
    std::unique_ptr<Learner> learner_;               // none without a trace and on demand
    std::unique_ptr<live::Publisher> live_;
    Refusals refusals_;
    std::atomic<bool> accepting_{true}, launched_{false};
    std::atomic<bool> told_[64] = {};
    int ranks_on_[64] = {};   // that share the device, where the budget depends on it; written before the device is known
    std::atomic<std::int64_t> allocations_{0};
    std::int64_t started_ns_ = 0;
};

extern const interpose::Handlers handlers;

}  // namespace udnnmem::preload
