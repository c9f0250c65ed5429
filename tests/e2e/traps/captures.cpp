// Traps: captures. While memory moves, beside others' work, given up, and with what may be done meanwhile.
#include "tests/e2e/traps/graph.hpp"

namespace traps {
namespace {

// Captured (no buffer needs to be there for that) while another thread pushes out what the graph names.
void capture_while_moving(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), y = w.stepped(), z = w.stepped();
  std::atomic<bool> stop{false};
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(w.context));
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&relaxed));
    const CUstream s = w.stream();
    while (!stop) w.press(s);
  });
  const CUstream s = w.stream();
  for (unsigned round = 0; round < 6; round++) {
    Graph g;
    g.capture(s, [&](CUstream c) {
      for (int i = 0; i < 40; i++) launch_wide(c, w.add, x, y, z, kWords);
      CHECK(cuMemsetD32Async(y, round, kWords, c));
      CHECK(cuMemcpyDtoDAsync(x, z, kWords * 4ul, c));
    }, round % 2 ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK(cuGraphLaunch(g.exec, s));
    CHECK(cuStreamSynchronize(s));
  }
  stop = true;
  other.join();
  tell("x", read(x, kWords));
  tell("y", read(y, kWords));
  tell("z", read(z, kWords));
}

// What a capture names is in nobody's use while it goes on: another stream may need all of the memory before the capture ends.
void capture_holds_nothing(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), y = w.stepped(), z = w.stepped();
  constexpr unsigned kLarge = kBudget / 4 * 11 / 16;  // words: there is no room for the three beside it
  const CUdeviceptr large = w.allocate(kLarge * 4ul);
  const CUstream s = w.stream(), other = w.stream();
  for (unsigned round = 0; round < 2; round++) {
    launch_wide(s, w.add, x, y, z, kWords);
    Graph g;
    g.capture(s, [&](CUstream c) {
      launch_wide(c, w.add, y, z, x, kWords);
      launch_wide(other, w.add, large, large, large, kLarge);
      launch_wide(c, w.add, x, x, y, kWords);
      CHECK(cuMemsetD32Async(large, seed + round, kLarge, other));
    });
    CHECK(cuGraphLaunch(g.exec, s));
    CHECK(cuCtxSynchronize());
  }
  for (const CUdeviceptr at : {x, y, z}) tell("words", read(at, kWords));
  tell("large", read(large, kLarge));
}

// Captured in the strictest mode while another thread, which knows nothing of it, submits to its own stream: what the library
// asks about that thread's work must not break the capture.
void capture_beside(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), y = w.stepped(), z = w.stepped(), u = w.stepped(), v = w.stepped();
  std::vector<CUdeviceptr> more;
  for (int i = 0; i < 6; i++) more.push_back(w.stepped());
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(w.context));
    const CUstream s = w.stream();
    while (!stop) {
      for (unsigned i = 0; i < 100; i++) CHECK(cuMemsetD32Async(i % 2 ? u : v, i, 1000, s));
      for (const CUdeviceptr at : more) launch_wide(s, w.add, u, at, at, kWords);
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // a wait of the program's own would be refused
      CHECK(cuThreadExchangeStreamCaptureMode(&mode));
      CHECK(cuStreamSynchronize(s));
      CHECK(cuThreadExchangeStreamCaptureMode(&mode));
      rounds++;
    }
  });
  const CUstream s = w.stream();
  for (unsigned round = 0; round < 6; round++) {
    Graph g;
    g.capture(s, [&](CUstream c) {
      for (const int until = rounds + 2; rounds < until;) std::this_thread::yield();
      for (int i = 0; i < 10; i++) launch_wide(c, w.add, x, y, z, kWords);
      CHECK(cuMemcpyDtoDAsync(x, z, kWords * 4ul, c));
    }, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuGraphLaunch(g.exec, s));
    CHECK(cuStreamSynchronize(s));
  }
  stop = true;
  other.join();
  for (const CUdeviceptr at : {x, y, z}) tell("words", read(at, kWords));
}

// Captures that nobody ends, and one that does not begin: afterwards cuMemFree waits for the device as ever.
void capture_abandoned(unsigned seed) {
  World w(seed);
  unsigned* flag;
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4, CU_MEMHOSTALLOC_DEVICEMAP));
  const CUdeviceptr y = w.stepped();
  const CUstream s = w.stream();
  const auto freed = [&](unsigned value) {
    const CUdeviceptr x = w.allocate(kWords * 4ul);
    launch(s, w.kernel("late_flag"), 1, flag, value, w.toil_ns());
    CHECK(cuMemFree(x));
    tell("flag", *static_cast<volatile unsigned*>(flag));
  };
  const auto begin = [&] {
    const CUstream c = w.stream();
    launch_wide(c, w.add, y, y, y, kWords);
    CHECK(cuStreamBeginCapture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD32Async(y, 5, kWords, c));
    return c;
  };
  CHECK(cuStreamDestroy(begin()));
  freed(1);
  CUcontext second;
  CHECK(cuCtxCreate(&second, nullptr, 0, w.device));
  const CUstream theirs = w.stream();
  CHECK(cuStreamBeginCapture(theirs, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuCtxDestroy(second));
  CHECK(cuCtxSetCurrent(w.context));
  freed(2);
  const CUstream c = begin();
  Graph g;
  tell("begun twice", cuStreamBeginCapture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuStreamEndCapture(c, &g.graph));
  freed(3);
  tell("ended twice", cuStreamEndCapture(c, &g.graph));
  freed(4);
  w.press(s);  // what ran before the captures is known to have ended
  w.press(s);
  tell("y", read(y, kWords));
}

// Allocated and freed while a stream captures, as it may, and another waits for what this thread does afterwards.
void capture_beside_a_gate(unsigned seed) {
  World w(seed);
  Gate gate;
  const CUstream a = w.stream(), s = w.stream();
  const CUdeviceptr x = w.stepped();
  for (const CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    gate.close(a);
    launch_wide(a, w.add, x, x, x, kWords);
    CUgraph graph;
    CHECK(cuStreamBeginCapture(s, mode));
    CUdeviceptr made = 0;
    std::thread other([&] {
      CHECK(cuCtxSetCurrent(w.context));
      CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
      CHECK(cuThreadExchangeStreamCaptureMode(&own));
      tell("allocated", cuMemAlloc(&made, 70'000));
    });
    other.join();
    CHECK(cuStreamEndCapture(s, &graph));
    gate.open();
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(made));
    CHECK(cuGraphDestroy(graph));
  }
  tell("x", read(x, kWords));
}

// The first allocation of all, stream-ordered, while another stream of the thread captures: that is allowed, and spoils nothing.
void first_under_capture(unsigned seed) {
  Program p;
  CUstream s, other;
  CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr x = 0;
  CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  tell("allocated", cuMemAllocAsync(&x, kWords * 4ul, other));
  tell("filled", cuMemsetD32Async(x, seed, kWords, other));
  CUgraph graph = nullptr;
  tell("captured", cuStreamEndCapture(s, &graph));
  CHECK(cuStreamSynchronize(other));
  tell("x", read(x, kWords));
  tell("freed", cuMemFreeAsync(x, other));
}

}  // namespace

const std::vector<Trap> capture_traps = {
    {"first-under-capture", Needs::nothing, first_under_capture},
    {"capture-while-moving", Needs::moves, capture_while_moving},
    {"capture-holds-nothing", Needs::moves, capture_holds_nothing},
    {"capture-beside", Needs::moves, capture_beside},
    {"capture-abandoned", Needs::moves, capture_abandoned},
    {"capture-beside-a-gate", Needs::nothing, capture_beside_a_gate},
};

}  // namespace traps
