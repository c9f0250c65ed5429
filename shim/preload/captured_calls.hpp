// Calls of mathematics libraries that were captured into graphs: which node is whose, so that what a graph computes is counted each
// time that it runs. A node is remembered when it is captured and looked up when its graph is read; handles of nodes are used
// again once a graph is gone, so a graph keeps what its nodes were then.
//
// Thread-safe; nothing throws.
#pragma once

#include <cuda.h>

#include "interpose/handlers.hpp"
#include "profiler/math/calls.hpp"

namespace udnnmem::preload::captured {

// A launch was captured on `stream`: its node belongs to the call that the thread is in, or to none.
void note(CUstream stream) noexcept;
// What GraphNode::tag shall be.
std::uint64_t tag_of(CUgraphNode) noexcept;

// The calls of a graph that is about to run, one after the other: `as_one` for an op that runs them all, `at` for each node's.
class Run {
  public:
    explicit Run(const interpose::GraphExec& graph) noexcept;
    profiler::math::Call as_one() const noexcept;
    profiler::math::Call at(const interpose::GraphNode& node) const noexcept;

  private:
    std::uint64_t first_ = 0;      // number of the first captured call in this run; 0: the graph has none
    profiler::math::Call whole_;
};

}  // namespace udnnmem::preload::captured
