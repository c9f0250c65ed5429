// A graph and what is made of it, for the traps of graphs and of captures.
#pragma once
#include <functional>

#include "tests/e2e/traps/traps.hpp"

namespace traps {

struct Graph {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ~Graph() {
    if (exec) CHECK(cuGraphExecDestroy(exec));
    if (graph) CHECK(cuGraphDestroy(graph));
  }
  void capture(CUstream s, const std::function<void(CUstream)>& body, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    CHECK(cuStreamBeginCapture(s, mode));
    body(s);
    CHECK(cuStreamEndCapture(s, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
  }
};

}  // namespace traps
