// random SEED [OPS [LIVE_BYTES]]: a random but correctly ordered program of allocations, frees, pools, launches, copies,
// memsets, streams, events, graphs, host functions and threads, beside a model of every buffer in host memory. Whatever
// reads device memory back is compared with the model. Prints a checksum; exit code 1 and the op's number at the first
// difference. With RANDOM_PRINT=1 each op is printed before it is made; RANDOM_ONLY=3,17 makes those ops alone. Each op draws
// from its own number, so that a program without some of its ops is one as well: that is how a failing one is shrunk.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include "tests/workloads/small/driver_program.hpp"

namespace {

struct Pair {
  unsigned tag;
  CUdeviceptr from, to;
  unsigned count;
  CUdeviceptr stray;   // nothing that the kernel uses
};

struct Item {
  CUdeviceptr at = 0;
  unsigned number = 0;    // the op that made it
  std::vector<unsigned> model;
  bool ordered = false;   // stream-ordered allocation
  CUevent last = nullptr; // after the newest op that named it
  unsigned words() const { return static_cast<unsigned>(model.size()); }
};

struct Random : Program {
  std::mt19937 rng;
  const unsigned seed;
  std::vector<std::unique_ptr<Item>> items;
  CUdeviceptr freed = 0;
  unsigned shifts = 0;
  std::vector<CUstream> streams;
  CUfunction gather, shift;
  CUmemoryPool pool, own;
  CUdeviceptr table = 0;
  unsigned *staging = nullptr, *landing = nullptr;
  size_t live = 0, most;
  unsigned op = 0, checksum = 0;
  bool print = getenv("RANDOM_PRINT") != nullptr;

  Random(unsigned seed, size_t most) : rng(seed), seed(seed), most(most) {
    CHECK(cuModuleGetFunction(&gather, module, "gather"));
    CHECK(cuModuleGetFunction(&shift, module, "shift"));
    CHECK(cuDeviceGetDefaultMemPool(&pool, device));
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CHECK(cuMemPoolCreate(&own, &props));
    for (int i = 0; i < 3; i++) {
      CUstream s;
      CHECK(cuStreamCreate(&s, i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
      streams.push_back(s);
    }
    streams.push_back(nullptr);
    table = allocate(64);
    CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&staging), 1 << 20, 0));
    CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&landing), 2 << 20, 0));
  }

  unsigned below(unsigned n) { return static_cast<unsigned>(rng() % n); }
  CUstream stream() { return streams[below(static_cast<unsigned>(streams.size()))]; }
  Item& any() { return *items[below(static_cast<unsigned>(items.size()))]; }
  // "17: add #3 #5 -> #5, 4000 words, stream 2"
  void say(const char* what, std::initializer_list<const Item*> named, unsigned words, CUstream s = CU_STREAM_LEGACY) {
    if (!print) return;
    printf("%u: %s", op, what);
    for (const Item* i : named) printf(" #%u", i->number);
    printf(", %u words, stream %d\n", words, static_cast<int>(std::find(streams.begin(), streams.end(), s) - streams.begin()));
    fflush(stdout);
  }

  // Orders what follows on `s` after everything that named the items, and notes the op when it was queued.
  void begin(CUstream s, std::initializer_list<Item*> named) {
    for (Item* i : named) CHECK(cuStreamWaitEvent(s, i->last, 0));
  }
  void end(CUstream s, std::initializer_list<Item*> named) {
    for (Item* i : named) CHECK(cuEventRecord(i->last, s));
  }
  void wait(Item& i) { CHECK(cuEventSynchronize(i.last)); }

  // Threads with a few words each: on a CPU those of a block then read one cache line after the other.
  static unsigned blocks(unsigned words) { return words / 256 + 1; }
  template <class... A>
  void launch_on(CUstream s, unsigned words, CUfunction f, A... arguments) {
    void* list[] = {&arguments...};
    CHECK(cuLaunchKernel(f, blocks(words), 1, 1, 64, 1, 1, 0, s, list, nullptr));
  }
  // The same through a parameter buffer.
  template <class T>
  void launch_packed(CUstream s, unsigned words, CUfunction f, T packed) {
    size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(f, blocks(words), 1, 1, 64, 1, 1, 0, s, nullptr, extra));
  }

  void allocate_one() {
    static const unsigned sizes[] = {5, 64, 4000, 16384, 16385, 50000, 131072, 300000};
    const unsigned words = sizes[below(8)] + below(3);
    if (live + words * 4ul > most) return free_one();
    auto item = std::make_unique<Item>();
    CHECK(cuEventCreate(&item->last, CU_EVENT_DISABLE_TIMING));
    item->ordered = below(2);
    item->number = op;
    const CUstream s = stream();
    say(item->ordered ? "allocate in order" : "allocate", {item.get()}, words, s);
    if (item->ordered) {
      if (below(2)) CHECK(cuMemAllocAsync(&item->at, words * 4ul, s));
      else CHECK(cuMemAllocFromPoolAsync(&item->at, words * 4ul, below(2) ? pool : own, s));
    } else {
      item->at = allocate(words * 4ul);
    }
    item->model.assign(words, 0);
    CHECK(cuMemsetD32Async(item->at, op, words, s));
    std::fill(item->model.begin(), item->model.end(), op);
    end(s, {item.get()});
    live += words * 4ul;
    items.push_back(std::move(item));
  }

  void free_one() {
    if (items.size() < 3) return;
    const unsigned k = below(static_cast<unsigned>(items.size()));
    Item& i = *items[k];
    say(i.ordered ? "free what was allocated in order" : "free", {&i}, i.words());
    live -= i.words() * 4ul;
    if (i.ordered && below(3)) {
      const CUstream s = stream();
      begin(s, {&i});
      CHECK(cuMemFreeAsync(i.at, s));
    } else {
      if (i.ordered) wait(i);  // a plain free does not wait for pool memory; else it waits for the device
      CHECK(cuMemFree(i.at));
    }
    CHECK(cuEventDestroy(i.last));
    freed = i.at;
    items.erase(items.begin() + k);
  }

  void fill_one() {
    Item& i = any();
    const CUstream s = stream();
    say("fill", {&i}, i.words(), s);
    begin(s, {&i});
    const unsigned seed = rng();
    launch_on(s, i.words(), fill, i.at, seed, i.words());
    for (unsigned k = 0; k < i.words(); k++) i.model[k] = fill_word(k, seed);
    end(s, {&i});
  }

  void add_some() {
    Item &a = any(), &b = any(), &c = any();
    const unsigned n = std::min({a.words(), b.words(), c.words()});
    const CUstream s = stream();
    say("add", {&a, &b, &c}, n, s);
    begin(s, {&a, &b, &c});
    launch_on(s, n, add, a.at, b.at, c.at, n);
    for (unsigned k = 0; k < n; k++) c.model[k] = a.model[k] + b.model[k];
    end(s, {&a, &b, &c});
  }

  void shift_some() {
    Item &a = any(), &b = any();
    if (&a == &b) return;
    const unsigned from = below(a.words()), to = below(b.words());
    const unsigned n = std::min(a.words() - from, b.words() - to), tag = rng();
    const CUstream s = stream();
    say("shift", {&a, &b}, n, s);
    begin(s, {&a, &b});
    // An old address: of what was freed last, or of whatever is there.
    const CUdeviceptr old = ++shifts % 3 ? items[shifts % items.size()]->at : freed;
    const Pair p{tag, a.at + from * 4ul, b.at + to * 4ul, n, old};
    if (below(2)) launch_packed(s, n, shift, p);
    else launch_on(s, n, shift, p);
    for (unsigned k = 0; k < n; k++) b.model[to + k] = a.model[from + k] * 3 + tag;
    end(s, {&a, &b});
  }

  void gather_some() {
    Item &a = any(), &b = any(), &out = any();
    if (&out == &a || &out == &b) return;
    const unsigned n = std::min({a.words(), b.words(), out.words()});
    say("gather", {&a, &b, &out}, n);
    CHECK(cuCtxSynchronize());
    const CUdeviceptr addresses[2] = {a.at, b.at};
    CHECK(cuMemcpyHtoD(table, addresses, sizeof addresses));
    launch_on(nullptr, n, gather, table, 2u, out.at, n);
    CHECK(cuCtxSynchronize());
    for (unsigned k = 0; k < n; k++) out.model[k] = a.model[k] + b.model[k];
  }

  void set_some() {
    Item& i = any();
    const unsigned from = below(3) ? 0 : below(i.words()), n = below(3) ? i.words() - from : 1 + below(i.words() - from), v = rng();
    const CUstream s = stream();
    say("memset", {&i}, n, s);
    begin(s, {&i});
    CHECK(cuMemsetD32Async(i.at + from * 4ul, v, n, s));
    std::fill_n(i.model.begin() + from, n, v);
    end(s, {&i});
  }

  void copy_in() {
    Item& i = any();
    const bool whole = below(2);
    const unsigned from = whole ? 0 : below(i.words()), n = whole ? i.words() : 1 + below(i.words() - from);
    say("copy in", {&i}, n);
    std::vector<unsigned> data(n);
    for (unsigned& v : data) v = rng();
    if (below(2) && n <= (1u << 18)) {  // from pinned memory, asynchronously
      const CUstream s = stream();
      CHECK(cuCtxSynchronize());
      memcpy(staging, data.data(), n * 4ul);
      begin(s, {&i});
      CHECK(cuMemcpyHtoDAsync(i.at + from * 4ul, staging, n * 4ul, s));
      end(s, {&i});
      wait(i);
    } else {
      wait(i);
      CHECK(cuMemcpyHtoD(i.at + from * 4ul, data.data(), n * 4ul));
    }
    std::copy(data.begin(), data.end(), i.model.begin() + from);
  }

  void copy_between() {
    Item &a = any(), &b = any();
    if (&a == &b) return;
    const unsigned n = std::min(a.words(), b.words());
    const CUstream s = stream();
    say("copy between", {&a, &b}, n, s);
    begin(s, {&a, &b});
    CHECK(below(2) ? cuMemcpyDtoDAsync(b.at, a.at, n * 4ul, s) : cuMemcpyAsync(b.at, a.at, n * 4ul, s));
    std::copy_n(a.model.begin(), n, b.model.begin());
    end(s, {&a, &b});
  }

  void compare(Item& i) {
    say("compare", {&i}, i.words());
    wait(i);
    std::vector<unsigned> got(i.words());
    CHECK(cuMemcpyDtoH(got.data(), i.at, got.size() * 4));
    for (unsigned k = 0; k < i.words(); k++) {
      if (got[k] != i.model[k]) {
        printf("WRONG at op %u: word %u of %u at %llx is %08x, should be %08x\n", op, k, i.words(), static_cast<unsigned long long>(i.at), got[k], i.model[k]);
        exit(1);
      }
      checksum = checksum * 31 + got[k];
    }
  }

  // A captured pair of ops, launched twice.
  void graph_some() {
    Item &a = any(), &b = any(), &c = any();
    if (&a == &c || &b == &c) return;
    const unsigned n = std::min({a.words(), b.words(), c.words()});
    const CUstream s = streams[below(3)];
    say("graph", {&a, &b, &c}, n, s);
    CHECK(cuCtxSynchronize());
    CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_on(s, n, add, a.at, b.at, c.at, n);
    CHECK(cuMemsetD32Async(b.at, op, b.words(), s));
    launch_on(s, n, add, c.at, b.at, c.at, n);
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamEndCapture(s, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 2; round++) {
      CHECK(cuGraphLaunch(exec, s));
      for (unsigned k = 0; k < n; k++) c.model[k] = a.model[k] + b.model[k];
      std::fill(b.model.begin(), b.model.end(), op);
      for (unsigned k = 0; k < n; k++) c.model[k] += b.model[k];
    }
    end(s, {&a, &b, &c});
    CHECK(cuStreamSynchronize(s));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
  }

  // A buffer whose first touch is captured: a memset, and a copy over a part of it.
  void graph_first_touch() {
    Item& a = any();
    const unsigned words = a.words() + below(40000);
    if (live + words * 4ul > most) return free_one();
    CHECK(cuCtxSynchronize());
    auto item = std::make_unique<Item>();
    CHECK(cuEventCreate(&item->last, CU_EVENT_DISABLE_TIMING));
    item->at = allocate(words * 4ul);
    item->model.assign(words, op);
    std::copy(a.model.begin(), a.model.end(), item->model.begin());
    const CUstream s = streams[below(3)];
    item->number = op;
    say("graph of a first touch", {&a, item.get()}, words, s);
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD32Async(item->at, op, words, s));
    CHECK(cuMemcpyDtoDAsync(item->at, a.at, a.words() * 4ul, s));
    CHECK(cuStreamEndCapture(s, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, s));
    end(s, {&a, item.get()});
    CHECK(cuStreamSynchronize(s));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    live += words * 4ul;
    items.push_back(std::move(item));
  }

  // Two threads launch on streams of their own at the same time, on different halves of the items.
  void thread_some() {
    if (items.size() < 4) return;
    say("threads over all", {}, 0);
    CHECK(cuCtxSynchronize());
    const unsigned seed = rng(), half = static_cast<unsigned>(items.size()) / 2;
    auto body = [&](unsigned first, unsigned last, CUstream s) {
      CHECK(cuCtxSetCurrent(context));
      for (unsigned k = first; k < last; k++) {
        Item& i = *items[k];
        launch_on(s, i.words(), fill, i.at, seed + k, i.words());
        launch_on(s, i.words(), add, i.at, i.at, i.at, i.words());
        for (unsigned w = 0; w < i.words(); w++) i.model[w] = 2 * fill_word(w, seed + k);
      }
      CHECK(cuStreamSynchronize(s));
    };
    std::thread other(body, half, static_cast<unsigned>(items.size()), below(2) ? streams[1] : CU_STREAM_PER_THREAD);
    body(0, half, streams[2]);
    other.join();
  }

  // A host function in the stream's order: it sums what a copy before it has brought, and another copy takes its sum back.
  void host_some() {
    Item& i = any();
    const unsigned n = std::min(i.words(), 1u << 18);
    const CUstream s = stream();
    say("host function", {&i}, n, s);
    struct Job {
      unsigned* words;
      unsigned count;
    } job{landing, n};
    CHECK(cuCtxSynchronize());
    begin(s, {&i});
    CHECK(cuMemcpyDtoHAsync(landing, i.at, n * 4ul, s));
    CHECK(cuLaunchHostFunc(s, [](void* p) {
      const Job& j = *static_cast<Job*>(p);
      unsigned sum = 0;
      for (unsigned k = 0; k < j.count; k++) sum = sum * 31 + j.words[k];
      j.words[0] = sum;
    }, &job));
    CHECK(cuMemcpyHtoDAsync(i.at, landing, 4, s));
    end(s, {&i});
    unsigned sum = 0;
    for (unsigned k = 0; k < n; k++) sum = sum * 31 + i.model[k];
    i.model[0] = sum;
    CHECK(cuStreamSynchronize(s));  // before `job` and `landing` serve again
  }

  void step() {
    rng.seed(seed * 1000003u + op);
    if (items.size() < 3) return allocate_one();
    switch (below(18)) {
      case 0: case 1: return allocate_one();
      case 2: return free_one();
      case 3: case 4: return fill_one();
      case 5: case 6: case 7: return add_some();
      case 8: return shift_some();
      case 9: return set_some();
      case 10: return copy_in();
      case 11: return copy_between();
      case 12: return gather_some();
      case 13: return graph_some();
      case 14: return thread_some();
      case 15: return graph_first_touch();
      case 16: return host_some();
      default: return compare(any());
    }
  }
};

// The numbers in RANDOM_ONLY; empty: all.
std::set<unsigned> chosen() {
  std::set<unsigned> numbers;
  const char* text = getenv("RANDOM_ONLY");
  while (text && *text) {
    char* end;
    numbers.insert(static_cast<unsigned>(strtoul(text, &end, 10)));
    text = *end ? end + 1 : end;
  }
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned seed = argument(argc, argv, 1, 1), ops = argument(argc, argv, 2, 200);
  Random r(seed, argument(argc, argv, 3, 6 << 20));
  const std::set<unsigned> only = chosen();
  for (r.op = 1; r.op <= ops; r.op++)
    if (only.empty() || only.contains(r.op)) r.step();
  for (auto& i : r.items) r.compare(*i);
  printf("checksum %08x\n", r.checksum);
  for (auto& i : r.items) CHECK(cuMemFree(i->at));
}
