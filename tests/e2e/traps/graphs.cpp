// Traps: graphs. Launched after memory has moved, changed between launches, larger than the device, made node by node of buffers that
// nothing has touched.
#include "tests/e2e/traps/graph.hpp"

#include <cstring>

namespace traps {
namespace {

// Host functions of a graph that tell whether another launch's came between those of one.
struct Steps {
  unsigned seen = 0, count = 0;
  void add(CUstream c) {
    CHECK(cuLaunchHostFunc(c, [](void* p) {
      auto* steps = static_cast<Steps*>(p);
      steps->seen = steps->seen * 2 + steps->count;
      std::this_thread::sleep_for(std::chrono::milliseconds(12));
    }, this));
    CHECK(cuLaunchHostFunc(c, [](void* p) { static_cast<Steps*>(p)->count++; }, this));
  }
};

// Buffers of `words` words, each full of its own number.
std::vector<CUdeviceptr> numbered(World& w, unsigned count, unsigned words, unsigned from) {
  std::vector<CUdeviceptr> all;
  for (unsigned i = 0; i < count; i++) {
    all.push_back(w.allocate(words * 4ul));
    CHECK(cuMemsetD32(all.back(), from + i, words));
  }
  CHECK(cuCtxSynchronize());
  return all;
}

// Between its launches all of the graph's buffers are pushed out; its addresses are what they were.
void frozen_addresses(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUstream press = w.stream();
  Graph g;
  const CUfunction toil = w.kernel("toil");
  const CUdeviceptr lost = w.allocate(4);
  CHECK(cuMemsetD32(lost, 0, 1));
  CHECK(cuCtxSynchronize());
  g.capture(w.stream(), [&](CUstream c) { launch(c, toil, 1, x, w.toil_words(), kStride, w.long_enough(250'000'000), lost); });
  while_pushed(w, x, [&](CUstream s, CUdeviceptr) { CHECK(cuGraphLaunch(g.exec, s)); });
  tell("in graph", read(lost, 1)[0]);
  (void)press;
}

// Launched, changed while the first launch runs, launched again.
void updated(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), y = w.stepped(kWords, 50), z = w.stepped(kWords, 60);
  const CUstream s = w.stream(), press = w.stream();
  Graph g, h;
  unsigned words = kWords;
  CUdeviceptr a = x, b = y, out = z;
  CHECK(cuGraphCreate(&g.graph, 0));
  CUDA_KERNEL_NODE_PARAMS p{};
  void* arguments[] = {&a, &b, &out, &words};
  p.func = w.add;
  p.gridDimX = 8, p.gridDimY = p.gridDimZ = 1, p.blockDimX = 64, p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = arguments;
  CUgraphNode node;
  CHECK(cuGraphAddKernelNode(&node, g.graph, nullptr, 0, &p));
  CHECK(cuGraphInstantiate(&g.exec, g.graph, 0));
  for (unsigned round = 0; round < 4; round++) {
    CHECK(cuGraphLaunch(g.exec, s));
    a = z, b = x, out = round % 2 ? x : y;
    CHECK(cuGraphExecKernelNodeSetParams(g.exec, node, &p));
    w.press(press);
    CHECK(cuGraphLaunch(g.exec, s));
    a = x, b = y, out = z;
    CHECK(cuGraphExecKernelNodeSetParams(g.exec, node, &p));
    w.press(press);
    CHECK(cuStreamSynchronize(s));
  }
  // And by another graph of the same shape.
  a = y, b = y, out = x;
  CHECK(cuGraphCreate(&h.graph, 0));
  CUgraphNode other;
  CHECK(cuGraphAddKernelNode(&other, h.graph, nullptr, 0, &p));
  CUgraphExecUpdateResultInfo info;
  CHECK(cuGraphExecUpdate(g.exec, h.graph, &info));
  w.press(press);
  CHECK(cuGraphLaunch(g.exec, s));
  CHECK(cuStreamSynchronize(s));
  tell("x", read(x, kWords));
  tell("y", read(y, kWords));
  tell("z", read(z, kWords));
}

// Its buffers do not fit together: kernels, memsets, copies and host functions one by one, in order, on two streams.
void in_pieces(unsigned seed) {
  World w(seed);
  constexpr unsigned kBig = kBudget / 4 / 5 * 2;  // words: two fifths of the budget
  const std::vector<CUdeviceptr> big = numbered(w, 5, kBig, 3);
  std::atomic<unsigned> ran{0};
  Graph g;
  g.capture(w.stream(), [&](CUstream c) {
    for (int i = 0; i < 5; i++) launch_wide(c, w.add, big[i], big[(i + 1) % 5], big[i], kBig);
    CHECK(cuMemcpyDtoDAsync(big[0], big[3], kBig * 2ul, c));
    CHECK(cuMemsetD32Async(big[1] + 4000, seed, kBig / 2, c));
    CHECK(cuLaunchHostFunc(c, [](void* p) { ++*static_cast<std::atomic<unsigned>*>(p); }, &ran));
    for (int i = 4; i >= 0; i--) launch_wide(c, w.add, big[i], big[(i + 2) % 5], big[i], kBig);
  });
  // One graph launched on two streams: the second launch comes after the first.
  const CUstream a = w.stream(), b = w.stream();
  for (int round = 0; round < 3; round++) {
    CHECK(cuGraphLaunch(g.exec, a));
    CHECK(cuGraphLaunch(g.exec, b));
  }
  CHECK(cuCtxSynchronize());
  tell("ran", ran);
  for (CUdeviceptr at : big) tell("big", read(at, kBig));
}

// One graph on two streams, too large for the device at once: host functions that count in two steps tell whether the
// second launch began before the first had ended.
void pieces_in_order(unsigned seed) {
  World w(seed);
  constexpr unsigned kBig = kBudget / 4 * 3 / 10;  // words: three of four fit
  const std::vector<CUdeviceptr> all = numbered(w, 4, kBig, 0);
  Steps steps;
  Graph g;
  g.capture(w.stream(), [&](CUstream c) {
    for (CUdeviceptr at : all) launch_wide(c, w.add, at, at, at, 100u);
    for (int i = 0; i < 40; i++) launch_wide(c, w.add, all[3], all[3], all[3], 100u);
    for (int i = 0; i < 3; i++) steps.add(c);
  });
  const CUstream a = w.stream(), b = w.stream();
  for (int round = 0; round < 3; round++) {
    CHECK(cuGraphLaunch(g.exec, a));
    CHECK(cuGraphLaunch(g.exec, b));
  }
  CHECK(cuCtxSynchronize());
  tell("seen", steps.seen);
  tell("count", steps.count);
  for (CUdeviceptr at : all) tell("ordered", read(at, kBig));
}

// Destroyed while its pieces wait for what this thread does next: the call does not.
void destroyed_early(unsigned seed) {
  World w(seed);
  constexpr unsigned kBig = kBudget / 4 * 3 / 10;
  const std::vector<CUdeviceptr> all = numbered(w, 4, kBig, 0);
  const CUstream s = w.stream();
  const Gate gate;
  for (int round = 0; round < 2; round++) {
    {
      Graph g;
      g.capture(s, [&](CUstream c) {
        for (CUdeviceptr at : all) launch_wide(c, w.add, at, at, at, 100u);
      });
      gate.close(s);
      CHECK(cuGraphLaunch(g.exec, s));
    }
    gate.open();
    CHECK(cuStreamSynchronize(s));
  }
  for (CUdeviceptr at : all) tell("added", read(at, kBig));
}

// As graph-pieces-in-order, for one that fits or does not as two of its nodes are off or on: launches whole and in pieces come after each other, also
// after another graph was destroyed and a context has ended.
void whole_and_pieces(unsigned seed) {
  World w(seed);
  constexpr unsigned kBig = kBudget / 4 * 3 / 8;  // words: two of three fit at most
  const std::vector<CUdeviceptr> all = numbered(w, 3, kBig, 0);
  Steps steps;
  Graph g;
  const auto body = [&](CUstream c) {  // kernels between, so that either end can meet another launch's
    for (int i = 0; i < 4; i++) {
      if (i == 2)
        for (CUdeviceptr at : all) launch_wide(c, w.add, at, at, at, 100u);
      steps.add(c);
    }
  };
  g.capture(w.stream(), body);
  size_t count = 0;
  CHECK(cuGraphGetNodes(g.graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  CHECK(cuGraphGetNodes(g.graph, nodes.data(), &count));
  const CUstream a = w.stream(), b = w.stream();
  for (unsigned round = 0; round < 4; round++) {
    for (int i : {4, 5}) CHECK(cuGraphNodeSetEnabled(g.exec, nodes[i], round % 2));
    CHECK(cuGraphLaunch(g.exec, a));
    for (int i : {4, 5}) CHECK(cuGraphNodeSetEnabled(g.exec, nodes[i], 1 - round % 2));
    CHECK(cuGraphLaunch(g.exec, b));
    Graph other;
    other.capture(w.stream(), body);
    CUcontext second;
    CHECK(cuCtxCreate(&second, nullptr, 0, w.device));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(w.context));
  }
  CHECK(cuCtxSynchronize());
  tell("seen", steps.seen);
  tell("count", steps.count);
  for (CUdeviceptr at : all) tell("ordered", read(at, kBig));
}

// Its buffers do not fit together, and it copies from and to memory of the host that is not pinned: what is there when the copy's
// turn comes counts, not what was there when the graph was launched, and the launch waits for nothing.
void pageable(unsigned seed) {
  World w(seed);
  constexpr unsigned kBig = kBudget / 4 / 5 * 2;  // words: two fifths of the budget
  const std::vector<CUdeviceptr> big = numbered(w, 4, kBig, 3);
  struct Words {
    std::vector<unsigned> in, out, seen;
    unsigned turn = 0;
  } host;
  host.in.assign(kWords, 0), host.out = host.seen = host.in;
  Graph g;
  g.capture(w.stream(), [&](CUstream c) {
    CHECK(cuLaunchHostFunc(c, [](void* p) {
      auto* h = static_cast<Words*>(p);
      for (unsigned i = 0; i < kWords; i++) h->in[i] += i * ++h->turn;
    }, &host));
    CHECK(cuMemcpyHtoDAsync(big[0], host.in.data(), kWords * 4ul, c));
    for (unsigned i = 0; i < 4; i++) launch_wide(c, w.add, big[i], big[(i + 1) % 4], big[i], kBig);
    CHECK(cuMemcpyDtoHAsync(host.out.data(), big[3], kWords * 4ul, c));
    CHECK(cuLaunchHostFunc(c, [](void* p) {
      auto* h = static_cast<Words*>(p);
      h->seen = h->out;
    }, &host));
  });
  const Gate gate;
  const CUstream s = w.stream();
  for (int round = 0; round < 3; round++) {
    gate.close(s);
    CHECK(cuGraphLaunch(g.exec, s));
    host.in[round] = 1000;
    gate.open();
    CHECK(cuStreamSynchronize(s));
    tell("seen", host.seen);
  }
  for (CUdeviceptr at : big) tell("pageable", read(at, kBig));
}

// Nodes made and changed by hand, of buffers that nothing has touched: the driver looks at their addresses.
void by_hand(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  const unsigned words = kWords;
  CUdeviceptr a = w.allocate(words * 4ul), b = w.allocate(words * 4ul), c = w.allocate(words * 4ul), d = w.allocate(words * 4ul);
  Graph g;
  CHECK(cuGraphCreate(&g.graph, 0));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = a, fill.value = seed, fill.elementSize = 4, fill.width = words, fill.height = 1;
  CUgraphNode first, second, third, fourth;
  CHECK(cuGraphAddMemsetNode(&first, g.graph, nullptr, 0, &fill, w.context));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a, copy.dstDevice = b;
  copy.WidthInBytes = words * 4ul, copy.Height = copy.Depth = 1;
  CHECK(cuGraphAddMemcpyNode(&second, g.graph, &first, 1, &copy, w.context));
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_MEMSET;
  any.memset.dst = c, any.memset.value = 9, any.memset.elementSize = 4, any.memset.width = words, any.memset.height = 1;
  any.memset.ctx = w.context;
  CHECK(cuGraphAddNode(&third, g.graph, &second, nullptr, 1, &any));
  unsigned count = words;
  void* arguments[] = {&a, &c, &d, &count};
  CUDA_KERNEL_NODE_PARAMS k{};
  k.func = w.add;
  k.gridDimX = 8, k.gridDimY = k.gridDimZ = 1, k.blockDimX = 64, k.blockDimY = k.blockDimZ = 1;
  k.kernelParams = arguments;
  CHECK(cuGraphAddKernelNode(&fourth, g.graph, &third, 1, &k));
  CHECK(cuGraphInstantiate(&g.exec, g.graph, 0));
  CHECK(cuGraphLaunch(g.exec, s));
  CHECK(cuStreamSynchronize(s));
  for (CUdeviceptr at : {a, b, c, d}) tell("made", read(at, words));

  // Changed in the graph, then in the executable, each time to buffers that nothing has touched.
  const CUdeviceptr e = w.allocate(words * 4ul), f = w.allocate(words * 4ul), h = w.allocate(words * 4ul);
  fill.dst = e;
  CHECK(cuGraphMemsetNodeSetParams(first, &fill));
  copy.srcDevice = e, copy.dstDevice = f;
  CHECK(cuGraphMemcpyNodeSetParams(second, &copy));
  any.memset.dst = e;
  CHECK(cuGraphNodeSetParams(third, &any));
  Graph again;
  CHECK(cuGraphInstantiate(&again.exec, g.graph, 0));
  w.press(s);
  CHECK(cuGraphLaunch(again.exec, s));
  CHECK(cuStreamSynchronize(s));
  for (CUdeviceptr at : {e, f, d}) tell("changed", read(at, words));
  fill.dst = h;
  CHECK(cuGraphExecMemsetNodeSetParams(g.exec, first, &fill, w.context));
  const CUdeviceptr i = w.allocate(words * 4ul);
  copy.srcDevice = h, copy.dstDevice = i;
  CHECK(cuGraphExecMemcpyNodeSetParams(g.exec, second, &copy, w.context));
  w.press(s);
  CHECK(cuGraphLaunch(g.exec, s));
  CHECK(cuStreamSynchronize(s));
  for (CUdeviceptr at : {h, i, d}) tell("exec", read(at, words));
}

// Executables are made of copies and fills, and changed to them, whose memory has gone out since they were captured.
void looked_at_again(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream(), press = w.stream();
  const std::vector<CUdeviceptr> all = numbered(w, 14, kWords, seed);   // twice the budget
  const auto capture = [&](Graph& g, std::size_t from, std::size_t to, std::size_t copies = 1) {
    CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (std::size_t i = 0; i < copies; i++) {
      CHECK(cuMemcpyDtoDAsync(all[to + i], all[from + i], kWords * 4ul, s));
      CHECK(cuMemsetD32Async(all[from + i], seed + 9, kWords / 2, s));
    }
    CHECK(cuStreamEndCapture(s, &g.graph));
    w.press(press);
  };
  const auto run = [&](const Graph& g) {
    w.press(press);
    CHECK(cuGraphLaunch(g.exec, s));
    CHECK(cuStreamSynchronize(s));
    for (const CUdeviceptr at : all) tell("run", read(at, kWords));
  };
  Graph made, changed, outer, large;
  capture(large, 0, 7, 7);
  CHECK(cuGraphInstantiate(&large.exec, large.graph, 0));
  run(large);
  capture(made, 0, 1);
  CHECK(cuGraphInstantiate(&made.exec, made.graph, 0));
  run(made);
  capture(changed, 2, 3);
  CUgraphExecUpdateResultInfo info;
  CHECK(cuGraphExecUpdate(made.exec, changed.graph, &info));
  run(made);
  CUgraphNode child;
  CHECK(cuGraphCreate(&outer.graph, 0));
  CHECK(cuGraphAddChildGraphNode(&child, outer.graph, nullptr, 0, made.graph));
  CHECK(cuGraphInstantiate(&outer.exec, outer.graph, 0));
  run(outer);
  Graph other;
  capture(other, 4, 5);
  CHECK(cuGraphExecChildGraphNodeSetParams(outer.exec, child, other.graph));
  run(outer);
}

// A graph within a graph, and memory that the graph itself allocates and frees.
void nested(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), y = w.stepped(), z = w.stepped();
  const CUstream s = w.stream(), press = w.stream();
  Graph inner, outer;
  inner.capture(s, [&](CUstream c) {
    launch_wide(c, w.add, x, x, y, kWords);
    CHECK(cuMemsetD32Async(x, 5, 1000, c));
  });
  CHECK(cuGraphCreate(&outer.graph, 0));
  CUgraphNode child, after;
  CHECK(cuGraphAddChildGraphNode(&child, outer.graph, nullptr, 0, inner.graph));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = y, fill.value = seed, fill.elementSize = 4, fill.width = 10, fill.height = 1;
  CHECK(cuGraphAddMemsetNode(&after, outer.graph, &child, 1, &fill, w.context));
  CHECK(cuGraphInstantiate(&outer.exec, outer.graph, 0));
  Graph temporary;
  temporary.capture(s, [&](CUstream c) {
    CUdeviceptr t;
    CHECK(cuMemAllocAsync(&t, kWords * 4ul, c));
    launch_wide(c, w.add, x, y, t, kWords);
    launch_wide(c, w.add, t, y, x, kWords);
    CHECK(cuMemcpyDtoDAsync(z, t, kWords * 4ul, c));
    CHECK(cuMemFreeAsync(t, c));
  });
  for (int round = 0; round < 3; round++) {
    w.press(press);
    CHECK(cuGraphLaunch(outer.exec, s));
    w.press(press);
    CHECK(cuGraphLaunch(temporary.exec, s));
    CHECK(cuStreamSynchronize(s));
  }
  tell("x", read(x, kWords));
  tell("y", read(y, kWords));
  tell("z", read(z, kWords));
}

// A graph brings addresses, which differ from launch to launch, to a table or to a module's variable; a kernel, of the graph too,
// goes there.
template <bool variable>
void brings_addresses(unsigned seed) {
  World w(seed);
  constexpr unsigned kEntries = 3 * 8192;
  const std::vector<CUdeviceptr> xs{w.stepped(), w.stepped(), w.stepped()};
  const CUdeviceptr table = w.allocate(kEntries * 8ul), lost = w.allocate(4);
  CUdeviceptr in_global, *pinned;
  CHECK(cuModuleGetGlobal(&in_global, nullptr, w.more, "in_global"));
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kEntries * 8ul, 0));
  memset(pinned, 1, kEntries * 8ul);
  CHECK(cuMemsetD32(lost, 0, 1));
  CHECK(cuMemsetD8(table, 1, kEntries * 8ul));
  CHECK(cuCtxSynchronize());
  const std::uint64_t ns = w.toil_ns();
  Graph g;
  g.capture(w.stream(), [&](CUstream c) {
    if (variable) CHECK(cuMemcpyHtoDAsync(in_global, pinned + 1, 32, c));
    else CHECK(cuMemcpyHtoDAsync(table, pinned, kEntries * 8ul, c));
    if (variable) launch(c, w.kernel("toil_global"), 1, w.toil_words(), kStride, ns, lost);
    else launch(c, w.kernel("toil_table"), 1, table, 3u, 1u, w.toil_words(), kStride, ns, lost);
  });
  const CUstream s = w.stream(), theirs = w.stream();
  std::atomic<bool> stop{false};
  std::atomic<CUdeviceptr> now{xs[0]};
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(w.context));
    constexpr unsigned kFrom = kWords / 2 + 1;
    void* landing;
    CHECK(cuMemHostAlloc(&landing, (kWords - kFrom) * 4ul, 0));
    while (!stop) {
      w.press(theirs);
      CHECK(cuMemcpyDtoHAsync(landing, now + kFrom * 4ul, (kWords - kFrom) * 4ul, theirs));
      CHECK(cuStreamSynchronize(theirs));
    }
  });
  for (unsigned round = 0; round < 6; round++) {
    pinned[3] = xs[round % 3];
    now = xs[round % 3];
    CHECK(cuGraphLaunch(g.exec, s));
    CHECK(cuStreamSynchronize(s));
  }
  stop = true;
  other.join();
  tell("lost", read(lost, 1)[0]);
  for (const CUdeviceptr x : xs) tell("x", read(x, kWords));
}

constexpr unsigned kThird = kBudget / 4 * 3 / 8;   // words: three of them are more than there is

// What a graph's first node copies from: pinned memory, or such as keeps the graph from being launched in pieces.
struct Sources {
  static constexpr std::size_t kBytes = 4000;
  std::vector<unsigned> pageable = std::vector<unsigned>(kBytes / 4, 5);
  void* pinned;
  Sources() {
    CHECK(cuMemHostAlloc(&pinned, kBytes, 0));
    memset(pinned, 3, kBytes);
  }
  void now(const World& w, const Graph& g, const void* source) const {
    std::size_t count = 1;
    CUgraphNode first;
    CHECK(cuGraphGetNodes(g.graph, &first, &count));
    CUDA_MEMCPY3D copy{};
    CHECK(cuGraphMemcpyNodeGetParams(first, &copy));
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcDevice = 0, copy.srcHost = source;
    CHECK(cuGraphExecMemcpyNodeSetParams(g.exec, first, &copy, w.context));
  }
};

// Launched in pieces, then changed so that it cannot be any more, and launched on another stream: one comes after the other.
void whole_after_pieces(unsigned seed) {
  World w(seed);
  const auto all = numbered(w, 3, kThird, seed);
  Steps steps;
  const Sources from;
  Graph g;
  g.capture(w.stream(), [&](CUstream c) {
    CHECK(cuMemcpyHtoDAsync(all[0], from.pinned, Sources::kBytes, c));
    for (const CUdeviceptr at : all) launch_wide(c, w.add, at, at, at, 100u);
    for (int i = 0; i < 4; i++) steps.add(c);
  });
  CHECK(cuGraphLaunch(g.exec, w.stream()));
  from.now(w, g, from.pageable.data());
  CHECK(cuGraphLaunch(g.exec, w.stream()));
  CHECK(cuCtxSynchronize());
  tell("steps", steps.seen);
  for (const CUdeviceptr at : all) tell("words", read(at, kThird));
}

// The other way round: what is launched first cannot be in pieces, and still waits on its stream when the second, which can, comes on
// another one.
void pieces_after_whole(unsigned seed) {
  World w(seed);
  const auto all = numbered(w, 3, kThird, seed);
  const Sources from;
  Graph g;
  g.capture(w.stream(), [&](CUstream c) {
    CHECK(cuMemcpyHtoDAsync(all[0], from.pageable.data(), Sources::kBytes, c));
    for (const CUdeviceptr at : all) launch_wide(c, w.add, at, at, at, 100u);
  });
  const Gate gate;
  const CUstream first = w.stream();
  gate.close(first);
  CHECK(cuGraphLaunch(g.exec, first));
  from.now(w, g, from.pinned);
  CHECK(cuGraphLaunch(g.exec, w.stream()));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  gate.open();
  CHECK(cuCtxSynchronize());
  for (const CUdeviceptr at : all) tell("words", read(at, kThird));
}

// One branch waits for what the other writes.
void branch_waits(unsigned seed) {
  World w(seed);
  const auto all = numbered(w, 3, kThird, seed);
  unsigned* word;
  CUdeviceptr at;
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&word), 4, CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK(cuMemHostGetDevicePointer(&at, word, 0));
  *word = 0;
  const CUstream a = w.stream(), b = w.stream();
  CUevent forked, joined;
  CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
  Graph g;
  g.capture(a, [&](CUstream c) {
    CHECK(cuEventRecord(forked, c));
    CHECK(cuStreamWaitEvent(b, forked, 0));
    CHECK(cuStreamWaitValue32(c, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (const CUdeviceptr x : all) launch_wide(c, w.add, x, x, x, 100u);
    CHECK(cuStreamWriteValue32(b, at, 1, 0));
    CHECK(cuEventRecord(joined, b));
    CHECK(cuStreamWaitEvent(c, joined, 0));
  });
  CHECK(cuGraphLaunch(g.exec, a));
  CHECK(cuStreamSynchronize(a));
  for (const CUdeviceptr x : all) tell("words", read(x, kThird));
}

// What does not fit together on one device, and a fill and a copy on another.
void on_two_devices(unsigned seed) {
  World w(seed);
  const auto all = numbered(w, 3, kThird, seed);
  CUdevice device;
  CUcontext there;
  CHECK(cuDeviceGet(&device, 1));
  CHECK(cuDevicePrimaryCtxRetain(&there, device));
  CHECK(cuCtxSetCurrent(there));
  const CUstream b = w.stream();
  const CUdeviceptr y = w.allocate(400000);
  CUevent forked, joined;
  CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
  CHECK(cuMemsetD32(y, 1, 100000));
  CHECK(cuCtxSynchronize());
  CHECK(cuCtxSetCurrent(w.context));
  CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  const CUstream a = w.stream();
  Graph g;
  g.capture(a, [&](CUstream c) {
    for (const CUdeviceptr x : all) launch_wide(c, w.add, x, x, x, 100u);
    CHECK(cuEventRecord(forked, c));
    CHECK(cuStreamWaitEvent(b, forked, 0));
    CHECK(cuCtxSetCurrent(there));
    CHECK(cuMemsetD32Async(y + 8000, 9, 1000, b));
    CHECK(cuMemcpyDtoDAsync(y, y + 8000, 400, b));
    CHECK(cuEventRecord(joined, b));
    CHECK(cuCtxSetCurrent(w.context));
    CHECK(cuStreamWaitEvent(c, joined, 0));
  }, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(cuGraphLaunch(g.exec, a));
  CHECK(cuStreamSynchronize(a));
  CHECK(cuCtxSetCurrent(there));
  tell("y", read(y, 100000));
}

// What a graph's own nodes allocate is the driver's, and the device is full of what we hold: it is there all the same.
template <bool uploaded>
void needs_memory(unsigned seed) {
  constexpr std::size_t kChunk = 512 << 10, kLeft = 3;
  World w(seed);
  std::vector<CUdeviceptr> all;
  for (unsigned i = 0; i < 8; i++) all.push_back(w.stepped(kWords, i));
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  std::vector<CUmemGenericAllocationHandle> taken;
  for (CUmemGenericAllocationHandle h; cuMemCreate(&h, kChunk, &p, 0) == CUDA_SUCCESS;) taken.push_back(h);
  for (std::size_t i = 0; i < kLeft; i++) {
    CHECK(cuMemRelease(taken.back()));
    taken.pop_back();
  }
  for (const CUdeviceptr x : all) launch_wide(nullptr, w.add, x, x, x, kWords);
  CHECK(cuCtxSynchronize());
  Graph g;
  CUDA_MEM_ALLOC_NODE_PARAMS own{};
  own.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  own.poolProps.location = p.location;
  own.bytesize = 2 * kChunk;
  CUgraphNode allocates, fills;
  CHECK(cuGraphCreate(&g.graph, 0));
  CHECK(cuGraphAddMemAllocNode(&allocates, g.graph, nullptr, 0, &own));
  CUDA_MEMSET_NODE_PARAMS fill{own.dptr, 0, seed, 4, own.bytesize / 4, 1};
  CHECK(cuGraphAddMemsetNode(&fills, g.graph, &allocates, 1, &fill, w.context));
  CHECK(cuGraphInstantiate(&g.exec, g.graph, 0));
  const CUstream s = w.stream();
  if (uploaded) tell("uploaded", cuGraphUpload(g.exec, s));
  tell("launched", cuGraphLaunch(g.exec, s));
  CHECK(cuStreamSynchronize(s));
  tell("own", read(own.dptr, own.bytesize / 4));
  for (const CUdeviceptr x : all) tell("words", read(x, kWords));
}

}  // namespace

const std::vector<Trap> graph_traps = {
    {"graph-frozen", Needs::moves, frozen_addresses},
    {"graph-updated", Needs::moves, updated},
    {"graph-in-pieces", Needs::moves, in_pieces},
    {"graph-pieces-in-order", Needs::moves, pieces_in_order},
    {"graph-destroyed-early", Needs::moves, destroyed_early},
    {"graph-whole-and-pieces", Needs::moves, whole_and_pieces},
    {"graph-pageable", Needs::nothing, pageable},
    {"graph-by-hand", Needs::moves, by_hand},
    {"graph-looked-at-again", Needs::moves, looked_at_again},
    {"graph-nested", Needs::moves, nested},
    {"graph-brings-a-table", Needs::moves, brings_addresses<false>},
    {"graph-brings-a-variable", Needs::moves, brings_addresses<true>},
    {"graph-whole-after-pieces", Needs::moves, whole_after_pieces},
    {"graph-pieces-after-whole", Needs::moves, pieces_after_whole},
    {"graph-branch-waits", Needs::nothing, branch_waits},
    {"graph-on-two-devices", Needs::nothing, on_two_devices},
    {"graph-needs-memory", Needs::moves, needs_memory<false>},
    {"graph-uploaded-needs-memory", Needs::moves, needs_memory<true>},
};

}  // namespace traps
