// beside ITERATIONS: a graph of ten kernels on one stream, and beside it the next batch's copy on another. Prints the shortest
// time of the graph, in ns, as the program's own events have it.
#include <algorithm>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

int main(int argc, char** argv) {
  const unsigned long iterations = argument(argc, argv, 1, 14);
  const unsigned words = 1 << 18;
  Program p;
  CUdeviceptr a = p.allocate(words * 4ul), b = p.allocate(words * 4ul), c = p.allocate(words * 4ul), batch = p.allocate(1 << 16);
  CUstream work, copy;
  CHECK(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&copy, CU_STREAM_NON_BLOCKING));
  unsigned n = words;
  void* arguments[] = {&a, &b, &c, &n};
  CUgraph graph;
  CUgraphExec ready;
  CHECK(cuStreamBeginCapture(work, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 10; i++) CHECK(cuLaunchKernel(p.add, 1, 1, 1, 32, 1, 1, 0, work, arguments, nullptr));
  CHECK(cuStreamEndCapture(work, &graph));
  CHECK(cuGraphInstantiate(&ready, graph, 0));
  std::vector<char> host(1 << 16);
  CUevent begin, end;
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  float shortest = 1e9f;
  for (unsigned long i = 0; i < iterations; i++) {
    CHECK(cuEventRecord(begin, work));
    CHECK(cuGraphLaunch(ready, work));
    CHECK(cuEventRecord(end, work));
    CHECK(cuMemcpyHtoDAsync(batch, host.data(), host.size(), copy));
    CHECK(cuStreamSynchronize(copy));
    CHECK(cuStreamSynchronize(work));
    float ms;
    CHECK(cuEventElapsedTime(&ms, begin, end));
    shortest = std::min(shortest, ms);
  }
  printf("%.0f\n", shortest * 1e6);
}
