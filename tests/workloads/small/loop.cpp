// loop SEED ITERATIONS [LIST]: a random iteration, made as often as asked: allocations of every kind, small and large, some of which
// outlive it; kernels with pointers in plain arguments, in a struct, in a parameter buffer and in a table in memory; copies and
// memsets, whole and in part; several streams; a graph. What is written changes from iteration to iteration. Prints a checksum.
// LIST: what it asks of the device goes there, in the lines of tests/softgpu/driver/listing.hpp: what each op is given, and what
// it writes (*), as the program knows it.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

namespace {

struct Pair {
  unsigned tag;
  CUdeviceptr from, to;
  unsigned count;
  CUdeviceptr stray = 0;   // an old address: freed memory at first, then whatever is there
};
struct Slot {          // of a buffer; a transient one is made and freed by steps
  unsigned words;
  bool persistent;
  CUdeviceptr at = 0;
  int number = -1;     // in the list, while it is there
  bool ordered = false;
};
enum class Do { make, drop, fill, blend, shift, gather, set, in, out, between, block, graph, sync };
struct Step {
  Do what;
  std::vector<int> slot;
  unsigned from = 0, to = 0, count = 0;   // words
  unsigned kind = 0, stream = 0;
};

struct Loop : Program {
  std::mt19937 rng;
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<CUstream> streams{nullptr};
  CUfunction blend, shift, gather;
  CUevent last;
  CUmemoryPool own;
  CUgraphExec graph = nullptr;
  std::vector<int> in_graph;   // three slots
  int table = -1, tabled[2];
  FILE* list = nullptr;
  int made = 0;
  unsigned salt = 0;
  unsigned shifted = 0;
  std::vector<unsigned> host;

  unsigned below(unsigned n) { return static_cast<unsigned>(rng() % n); }

  explicit Loop(unsigned seed) : rng(seed), host(1 << 18) {
    CHECK(cuModuleGetFunction(&blend, module, "blend"));
    CHECK(cuModuleGetFunction(&shift, module, "shift"));
    CHECK(cuModuleGetFunction(&gather, module, "gather"));
    for (unsigned i = below(3); i > 0; i--) {
      CUstream s;
      CHECK(cuStreamCreate(&s, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
      streams.push_back(s);
    }
    CHECK(cuEventCreate(&last, CU_EVENT_DISABLE_TIMING));
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CHECK(cuMemPoolCreate(&own, &props));
  }

  // ---- the iteration is drawn

  unsigned size() {
    static const unsigned sizes[] = {5, 64, 4000, 16384, 16385, 50000, 131072};
    return sizes[below(7)] + below(3);
  }
  void draw() {
    std::vector<int> there;
    for (unsigned i = 3 + below(4); i > 0; i--) there.push_back(static_cast<int>(slots.size())), slots.push_back({size(), true});
    if (below(2)) {
      table = static_cast<int>(slots.size());
      slots.push_back({16, true});
      for (int& t : tabled) t = there[below(static_cast<unsigned>(there.size()))];
    }
    if (below(2))
      for (int i = 0; i < 3; i++) in_graph.push_back(there[(below(2) + static_cast<unsigned>(i)) % there.size()]);
    std::vector<int> open;   // made in this iteration, not freed yet
    const auto any = [&] { return there[below(static_cast<unsigned>(there.size()))]; };
    for (unsigned i = 14 + below(30); i > 0; i--) {
      Step s{static_cast<Do>(below(13)), {}};
      s.stream = below(static_cast<unsigned>(streams.size()));
      s.kind = below(3);
      if (s.what == Do::make) {
        s.slot = {static_cast<int>(slots.size())};
        slots.push_back({size(), false});
        there.push_back(s.slot[0]), open.push_back(s.slot[0]);
      } else if (s.what == Do::drop) {
        if (open.empty()) continue;
        const unsigned k = below(static_cast<unsigned>(open.size()));
        s.slot = {open[k]};
        open.erase(open.begin() + k);
        std::erase(there, s.slot[0]);
      } else if ((s.what == Do::graph && in_graph.empty()) || (s.what == Do::gather && table < 0)) {
        continue;
      } else if (s.what != Do::graph && s.what != Do::sync) {
        const int parts = s.what == Do::blend ? 3 : s.what == Do::shift || s.what == Do::between ? 2 : 1;
        for (int p = 0; p < parts; p++) s.slot.push_back(any());
        if (parts == 2 && s.slot[0] == s.slot[1]) continue;
        if (s.what == Do::gather && (s.slot[0] == tabled[0] || s.slot[0] == tabled[1] || s.slot[0] == table)) continue;
        unsigned most = slots[static_cast<std::size_t>(s.slot[0])].words;
        for (const int b : s.slot) most = std::min(most, slots[static_cast<std::size_t>(b)].words);
        if (s.what == Do::gather)
          for (const int b : tabled) most = std::min(most, slots[static_cast<std::size_t>(b)].words);
        s.count = most;
        if ((s.what == Do::shift || s.what == Do::set || s.what == Do::in || s.what == Do::out || s.what == Do::between) && below(2)) {
          s.count = 1 + below(most);
          s.from = below(slots[static_cast<std::size_t>(s.slot[0])].words - s.count + 1);
          s.to = below(slots[static_cast<std::size_t>(s.slot.back())].words - s.count + 1);
        }
      }
      steps.push_back(std::move(s));
    }
    // What is still there is freed at the end, or in the next iteration before it is made anew.
    for (const int b : open) {
      Step s{Do::drop, {b}};
      s.kind = below(3);
      if (below(3)) steps.push_back(s);
      else steps.insert(steps.begin(), s);
    }
  }

  // ---- and made

  void say(const char* what, std::initializer_list<std::string> uses) {
    if (!list) return;
    fprintf(list, "%s", what);
    for (const std::string& u : uses) fprintf(list, " %s", u.c_str());
    fputc('\n', list);
  }
  std::string use(const Slot& s, const char* mode) const { return std::to_string(s.number) + ":" + mode; }

  void make(Slot& s, unsigned kind, CUstream stream) {
    s.ordered = kind > 0;
    if (kind == 0) s.at = allocate(s.words * 4ul);
    else if (kind == 1) CHECK(cuMemAllocAsync(&s.at, s.words * 4ul, stream));
    else CHECK(cuMemAllocFromPoolAsync(&s.at, s.words * 4ul, own, stream));
    s.number = made++;
    if (list) fprintf(list, "a %d %lu\n", s.number, s.words * 4ul);
  }
  void drop(Slot& s, unsigned kind, CUstream stream) {
    if (list) fprintf(list, "f %d\n", s.number);
    if (s.ordered && kind) {
      CHECK(cuMemFreeAsync(s.at, stream));
    } else {
      CHECK(cuCtxSynchronize());
      CHECK(cuMemFree(s.at));
    }
    s.number = -1;
  }
  // Words that nobody has written would differ from device to device.
  void clear(Slot& s, CUstream stream) {
    CHECK(cuMemsetD32Async(s.at, 1 + salt, s.words, stream));
    say("o Memset", {use(s, "w")});
  }

  template <class... A>
  void launch_on(CUstream s, unsigned words, CUfunction f, A... arguments) {
    void* params[] = {&arguments...};
    CHECK(cuLaunchKernel(f, words / 256 + 1, 1, 1, 64, 1, 1, 0, s, params, nullptr));
  }
  void shift_by(unsigned kind, CUstream stream, Pair p) {
    if (kind) {
      // Not what the iteration is drawn by.
      const auto k = ++shifted * 7 % slots.size();
      p.stray = static_cast<int>(k) == table ? 0 : slots[k].at;   // where a table leads the kernel might go
      if (shifted <= 3) {
        CHECK(cuMemAlloc(&p.stray, 1 << 20));
        CHECK(cuMemFree(p.stray));
      }
      return launch_on(stream, p.count, shift, p);
    }
    size_t bytes = sizeof p;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(shift, p.count / 256 + 1, 1, 1, 64, 1, 1, 0, stream, nullptr, extra));
  }
  Slot& slot(int i) { return slots[static_cast<std::size_t>(i)]; }
  Slot& slot(const Step& s, std::size_t i) { return slot(s.slot[i]); }

  void make_graph() {
    if (in_graph.empty()) return;
    CUstream s;
    CUgraph captured;
    const Slot &a = slot(in_graph[0]), &b = slot(in_graph[1]), &c = slot(in_graph[2]);
    const unsigned n = std::min({a.words, b.words, c.words});
    CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_on(s, n, blend, a.at, b.at, c.at, n, 7u);
    launch_on(s, n, blend, c.at, b.at, c.at, n, 9u);
    CHECK(cuStreamEndCapture(s, &captured));
    CHECK(cuGraphInstantiate(&graph, captured, 0));
    CHECK(cuGraphDestroy(captured));
  }
  void launch_graph(CUstream stream) {
    const Slot &a = slot(in_graph[0]), &b = slot(in_graph[1]), &c = slot(in_graph[2]);
    launch_on(stream, a.words, fill, a.at, salt, a.words);   // its kernels' numbers are the same each time
    say("o fill", {use(a, "x*")});
    CHECK(cuGraphLaunch(graph, stream));
    say("g 2", {use(a, "x"), use(b, "x"), use(c, "x*")});
    say("o blend", {use(a, "x"), use(b, "x"), use(c, "x*")});
    say("o blend", {use(c, "x*"), use(b, "x")});
  }

  void run(const Step& s) {
    const CUstream stream = streams[s.stream];
    const bool all = s.slot.size() && s.count == slot(s.slot.back()).words;
    salt += 3;
    CHECK(cuStreamWaitEvent(stream, last, 0));
    switch (s.what) {
      case Do::make: make(slot(s, 0), s.kind, stream), clear(slot(s, 0), stream); break;
      case Do::drop:
        if (slot(s, 0).number >= 0) drop(slot(s, 0), s.kind, stream);
        break;
      case Do::fill:
        launch_on(stream, s.count, fill, slot(s, 0).at, salt, s.count);
        say("o fill", {use(slot(s, 0), "x*")});
        break;
      case Do::blend:
        launch_on(stream, s.count, blend, slot(s, 0).at, slot(s, 1).at, slot(s, 2).at, s.count, salt);
        say("o blend", {use(slot(s, 0), "x"), use(slot(s, 1), "x"), use(slot(s, 2), "x*")});
        break;
      case Do::shift:
        shift_by(s.kind, stream, {salt, slot(s, 0).at + s.from * 4ul, slot(s, 1).at + s.to * 4ul, s.count});
        say("o shift", {use(slot(s, 0), "x"), use(slot(s, 1), "x*")});
        break;
      case Do::gather:   // what it writes may be what was there
        CHECK(cuMemsetD32Async(slot(s, 0).at, salt, s.count, stream));
        say("o Memset", {use(slot(s, 0), all ? "w" : "x")});
        launch_on(stream, s.count, gather, slot(table).at, 2u, slot(s, 0).at, s.count);
        say("o gather", {use(slot(table), "x"), use(slot(tabled[0]), "x@"), use(slot(tabled[1]), "x@"), use(slot(s, 0), "x*")});
        break;
      case Do::set:
        CHECK(cuMemsetD32Async(slot(s, 0).at + s.to * 4ul, salt, s.count, stream));
        say("o Memset", {use(slot(s, 0), all ? "w" : "x")});
        break;
      case Do::in:
        std::fill_n(host.begin(), s.count, salt);
        CHECK(cuMemcpyHtoDAsync(slot(s, 0).at + s.to * 4ul, host.data(), s.count * 4ul, stream));
        say("o HtoD", {use(slot(s, 0), all ? "w" : "x")});
        break;
      case Do::out:
        CHECK(cuMemcpyDtoHAsync(host.data(), slot(s, 0).at + s.from * 4ul, s.count * 4ul, stream));
        say("o DtoH", {use(slot(s, 0), "r")});
        break;
      case Do::between:
        CHECK(s.kind ? cuMemcpyDtoDAsync(slot(s, 1).at + s.to * 4ul, slot(s, 0).at + s.from * 4ul, s.count * 4ul, stream)
                     : cuMemcpyAsync(slot(s, 1).at + s.to * 4ul, slot(s, 0).at + s.from * 4ul, s.count * 4ul, stream));
        say("o DtoD", {use(slot(s, 0), "r"), use(slot(s, 1), all ? "w" : "x")});
        break;
      case Do::block: {   // two rows of one word, a word apart
        if (slot(s, 0).words < 4) break;
        CUDA_MEMCPY2D c{};
        c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = host.data(), c.srcPitch = 8;
        c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = slot(s, 0).at, c.dstPitch = 8;
        c.WidthInBytes = 4, c.Height = 2;
        CHECK(cuMemcpy2DAsync(&c, stream));
        say("o HtoD", {use(slot(s, 0), "x")});
        break;
      }
      case Do::graph: launch_graph(stream); break;
      case Do::sync: CHECK(cuCtxSynchronize()); break;
    }
    CHECK(cuEventRecord(last, stream));
  }
};

}  // namespace

int main(int argc, char** argv) {
  Loop l(static_cast<unsigned>(argument(argc, argv, 1, 1)));
  const unsigned long iterations = argument(argc, argv, 2, 8);
  if (argc > 3 && !(l.list = fopen(argv[3], "w"))) return 2;
  l.draw();
  for (Slot& s : l.slots)
    if (s.persistent) l.make(s, 0, nullptr), l.clear(s, nullptr);
  if (l.table >= 0) {
    const CUdeviceptr addresses[2] = {l.slot(l.tabled[0]).at, l.slot(l.tabled[1]).at};
    CHECK(cuMemcpyHtoD(l.slot(l.table).at, addresses, sizeof addresses));
    l.say("o HtoD", {l.use(l.slot(l.table), "x")});
  }
  l.make_graph();
  for (unsigned long i = 0; i < iterations; i++) {
    for (const Step& s : l.steps) l.run(s);
    CHECK(cuCtxSynchronize());
  }
  unsigned sum = 0;
  for (Slot& s : l.slots) {
    if (!s.persistent || (l.table >= 0 && &s == &l.slot(l.table))) continue;   // it holds addresses
    std::vector<unsigned> words(s.words);
    CHECK(cuMemcpyDtoH(words.data(), s.at, words.size() * 4));
    l.say("o DtoH", {l.use(s, "r")});
    for (const unsigned v : words) sum = sum * 31 + v;
  }
  printf("checksum %08x\n", sum);
  return 0;
}
