// What every planner asks of a trace first: which buffers each op names, which ops name each buffer,
// when buffers hold frames, and how many bytes live at every op. Built once, linear in the trace.
//
// Invariants: ops of a buffer and buffers of an op ascend; a transient buffer that no op names and that
// states no alloc_op has no life (first = last = -1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

// One op's use of one buffer.
struct Use {
    std::int32_t op;
    bool reads, writes;
    bool dirties;   // writes it, and copies of it are stale after that
};

class Liveness {
public:
    explicit Liveness(const profiler::Trace& trace);

    // Buffers that op k names, reads and writes merged, ascending.
    std::span<const std::int32_t> buffers_of(std::size_t op) const { return {named_.data() + named_begin_[op], named_.data() + named_begin_[op + 1]}; }
    // Uses of buffer b, ascending by op.
    std::span<const Use> uses_of(std::size_t buffer) const { return {uses_.data() + uses_begin_[buffer], uses_.data() + uses_begin_[buffer + 1]}; }

    // Uses are numbered over all buffers: use i of buffer b is number use_offset(b) + i. A gap is named by the use before it.
    std::size_t use_offset(std::size_t buffer) const { return uses_begin_[buffer]; }
    std::size_t use_count() const { return uses_.size(); }

    // Frames are held from the start of op first(b) to the end of op last(b); persistent buffers: the whole iteration.
    std::int32_t first(std::size_t buffer) const { return first_[buffer]; }
    std::int32_t last(std::size_t buffer) const { return last_[buffer]; }

    // Position in uses_of(b) of the first use at or after op k; uses_of(b).size() if there is none.
    std::size_t use_at_or_after(std::size_t buffer, std::int32_t op) const;

    // Bytes at op k if nothing ever leaves the device: persistent, live transient, workspace.
    Bytes live(std::size_t op) const { return live_[op]; }
    // Bytes that op k cannot run without: what it names, what begins to live with it, and its workspace.
    Bytes working_set(std::size_t op) const { return working_[op]; }

    Bytes persistent() const { return persistent_; }
    Bytes peak() const { return peak_; }                // peak live: the largest live()
    Bytes largest_working_set() const { return largest_; }
    Nanoseconds ideal() const { return ideal_; }        // the sum of the durations

private:
    std::vector<std::int32_t> named_;
    std::vector<std::size_t> named_begin_;
    std::vector<Use> uses_;
    std::vector<std::size_t> uses_begin_;
    std::vector<std::int32_t> first_, last_;
    std::vector<Bytes> live_, working_;
    Bytes persistent_, peak_, largest_;
    Nanoseconds ideal_;
};

}  // namespace udnnmem::policy
