// What a trace would be with another batch size. With one trace, each buffer and op scales with the batch
// or does not, by what it is; with several traces of one network, sizes and times are fitted op by op.
#pragma once

#include <span>

#include "profiler/trace/error.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

class BatchModel {
public:
    // Traces of one network (the same ops and buffers in the same order), with known, different batch
    // sizes. Error: what does not match, one line.
    static Expected<BatchModel> fit(std::span<const profiler::Trace> traces);

    // The trace for a batch size; times and sizes at least 0, sizes of scaling buffers at least 1.
    //
    // One trace. Sizes: activations grow with the batch; weights, their gradients (what an update reads beside
    // a weight of its size) and optimiser state do not, save for persistent buffers that a forward op reads to
    // write a transient one of just their size: those are broadcast to the batch. Times: an op's own cost of
    // starting stays; ops of the update, and ops that touch nothing that grows, stay.
    // Several traces. Each size and time is a line through the two traces with batches nearest to the asked one.
    profiler::Trace at(std::int64_t batch) const;

private:
    std::vector<profiler::Trace> traces_;  // ascending batch
    std::vector<char> grows_;              // by buffer, with one trace
};

}  // namespace udnnmem::policy
