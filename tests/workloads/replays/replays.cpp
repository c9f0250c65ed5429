// replays KIND ITERATIONS [WORDS [SEED]]: a chain of activations, each made from the one before by a kernel of that kind and read again on
// the way back, as a training iteration would. Prints a checksum of its state after each iteration. What a kind needs beside
// its activations (state, statistics, variables, tables) is part of the checksum. REPLAYS_COMMENT is added to the kernels' PTX;
// with REPLAYS_UNREAD that is longer than the library reads. REPLAYS_MACHINE_CODE: no PTX is to be seen; 1: nor variables.
// The kind `random` is a network drawn by SEED: each activation is made by kernels of another kind, from one of the last four
// before it, in whole or in part, and read on the way back once or more, in an order that is drawn too; `random_streams`: in three
// streams or twelve, each op behind those that it has to come after and no others.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"
#include "tests/workloads/small/machine_code.hpp"

extern "C" const char replays_ptx[];

namespace {

constexpr int kLayers = 16;
unsigned g_words = 8192;               // of an activation
constexpr unsigned kSmall = 128;       // of what lies in a slab

// What the program still does when main() is over.
struct Last {
  std::function<void()> run;
  ~Last() { run(); }
};

struct Chain {
  CUcontext context;
  CUmodule module, again = nullptr;
  CUstream stream, beside = nullptr;
  CUevent made = nullptr, read = nullptr;
  std::string kind, image;
  std::vector<CUgraphExec> graphs;
  const unsigned seed;
  int iteration = 0;
  unsigned salt = 0;                   // differs between launches, the same in each iteration unless a kind says so
  CUdeviceptr state, gradient, input, extra, wide, few, loaded, pinned_at = 0;
  unsigned* pinned = nullptr;
  std::thread loader, reaper;
  CUdeviceptr x[kLayers + 1], left = 0;
  std::vector<CUstream> lanes;         // `random_streams`; what follows too, of this iteration
  struct Uses {
    std::vector<CUevent> read, written;
  };
  std::map<CUdeviceptr, Uses> uses;
  std::vector<CUevent> events;
  std::size_t ended = 0;               // ops that have an event

  CUfunction function(const char* name) {
    CUfunction f;
    CHECK(cuModuleGetFunction(&f, module, name));
    return f;
  }
  template <class... A>
  void launch(const char* name, A... arguments) {
    void* list[] = {&arguments...};
    CHECK(cuLaunchKernel(function(name), 16, 1, 1, 128, 1, 1, 0, stream, list, nullptr));
  }
  void activation(const char* name, CUdeviceptr in, CUdeviceptr out) { launch(name, in, out, extra, g_words, salt); }

  Chain(const char* k, unsigned drawn_by) : kind(k), seed(drawn_by) {
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    const char* comment = getenv("REPLAYS_COMMENT");
    image = std::string(replays_ptx) + (comment && *comment ? "\n// " + std::string(comment) + "\n" : "");
    if (getenv("REPLAYS_UNREAD")) image += "\n// " + std::string(17 << 20, '-') + "\n";
    if (const char* how = getenv("REPLAYS_MACHINE_CODE")) image = machine_code(image, atoi(how) > 1);
    CHECK(cuModuleLoadData(&module, image.c_str()));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* p : {&state, &gradient, &input, &wide}) CHECK(cuMemAlloc(p, g_words * 4));
    CHECK(cuMemAlloc(&few, kSmall * 4));
    if (gated()) CHECK(cuMemAlloc(&loaded, loaded_bytes()));
    CHECK(cuMemAlloc(&extra, 2 * kSmall * 4));
    CHECK(cuMemsetD32(few, 5, kSmall));
    CHECK(cuMemsetD32(extra + kSmall * 4, 9, kSmall));
    for (CUdeviceptr p : {state, gradient, wide}) CHECK(cuMemsetD32(p, 5, g_words));
    CHECK(cuMemsetD32(extra, 3, kSmall));
    if (in_streams() || kind == "helper" || kind == "told_early" || gated()) CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    if (kind == "random_streams") lanes.resize(seed % 4 == 1 ? 12 : 3);
    for (CUstream& lane : lanes) CHECK(cuStreamCreate(&lane, CU_STREAM_NON_BLOCKING));
    if (in_streams() || kind == "helper" || kind == "told_early") {
      for (CUevent* event : {&made, &read}) CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    }
    if (kind == "pinned" || kind == "told_early" || gated()) {
      CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kSmall * 4, CU_MEMHOSTALLOC_DEVICEMAP));
      CHECK(cuMemHostGetDevicePointer(&pinned_at, pinned, 0));
    }
    if (kind == "lasting_graphs")
      for (int l = 0; l < kLayers; l++) CHECK(cuMemAlloc(&x[l + 1], g_words * 4));
    if (kind == "branch") CHECK(cuMemsetD32(wide, 1, g_words));
    if (kind == "append" || kind == "turns" || kind == "rare_sum") CHECK(cuMemsetD32(wide, 0, g_words));
    if (kind == "beside_table") CHECK(cuMemcpyHtoD(few, &wide, 8));
    if (kind == "pointer_table") CHECK(cuMemcpyHtoD(extra, &wide, 8));
    if (kind == "escaped") tell_elsewhere(input);
    if (kind == "escaped_small") tell_elsewhere(extra);
    CUipcMemHandle handle;
    if (kind == "exported") CHECK(cuIpcGetMemHandle(&handle, input));
  }

  // A kernel finds the address there.
  void tell_elsewhere(CUdeviceptr address) {
    CUdeviceptr at;
    CHECK(cuModuleGetGlobal(&at, nullptr, module, "elsewhere"));
    CHECK(cuMemcpyHtoD(at, &address, 8));
  }

  // What activations are made of is overwritten by a kernel that is not given it.
  void write_elsewhere() {
    if (kind == "escapes" && iteration == 25) {
      CHECK(cuStreamSynchronize(stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));   // what is to be dropped is
      tell_elsewhere(input);
    }
    launch("write_elsewhere", kind == "escaped_small" ? kSmall : g_words, static_cast<unsigned>(iteration));
  }

  void variable(const char* name, unsigned value) {
    CUdeviceptr at;
    size_t bytes;
    CHECK(cuModuleGetGlobal(&at, &bytes, module, name));
    CHECK(cuMemsetD32Async(at, value, bytes / 4, stream));
  }

  // Beside the two an old address, of freed memory first; from some iteration on now and then of memory that is there, and at times the
  // kernel works on that.
  struct Led {
    CUdeviceptr other = 0;
    bool works = false;
  };
  Led draw_led(int l, unsigned back, int first) {
    const unsigned n = 64 * static_cast<unsigned>(iteration) + 2 * static_cast<unsigned>(l) + back;
    Led led;
    if (iteration == 0) CHECK(cuMemAlloc(&led.other, g_words * 4)), CHECK(cuMemFree(led.other));
    if (iteration < first || drawn(11, n, 8)) return led;
    const unsigned which = drawn(12, n, static_cast<unsigned>(l) + 2);
    return {which ? x[which - 1] : extra, which && drawn(13, n, 2)};
  }
  void launch_led(CUdeviceptr from, CUdeviceptr to, const Led& led, unsigned count) {
    launch("led", std::array<unsigned long long, 4>{3, from, led.other, to}, count, salt + (led.works ? 4096 : 0));
  }

  void forward(int l) {
    const CUdeviceptr in = x[l], out = x[l + 1];
    salt = static_cast<unsigned>(l);
    if (kind == "varying") salt += static_cast<unsigned>(iteration) * 100;
    if (kind == "counter") salt += 244 + static_cast<unsigned>(iteration);   // carries after its proof
    if ((kind == "rare_write" || kind == "rare_keep" || kind == "rare_scalar") && iteration > 24) salt += 5000;
    if (kind == "rare_sum") salt += static_cast<unsigned>(iteration > 24 && iteration % 6 == 5 ? 5000 + iteration : iteration);
    if (kind == "larger") salt += iteration > 24 ? 4096 : drawn(6, static_cast<unsigned>(iteration), 2) * 512;
    if (kind == "branch" && iteration == 25 && l == 0) CHECK(cuMemsetD32Async(wide, 0, g_words / 3, stream));
    if (kind == "branch") activation("zero", in, out), launch("branch", in, out, wide, g_words, salt);
    else if (kind == "in_place") activation("pure", in, out), activation("in_place", in, out);
    else if (kind == "update") activation("zero", in, out), activation("update", in, out);
    else if (kind == "integer_atomics") activation("zero", in, out), activation("integer_atomics", in, out);
    else if (kind == "copied") CHECK(cuMemcpyDtoDAsync(out, in, g_words * 4, stream));
    else if (kind == "filled") CHECK(cuMemsetD32Async(out, salt, g_words, stream)), launch("update", in, out, extra, g_words, salt);
    else if (kind == "varying" || kind == "rare_scalar" || kind == "evaluated" || kind == "captured" || kind == "streams" || kind == "two_streams" || kind == "second_device" || kind == "counter" || kind == "exiting" || kind == "outlived" || kind == "bursts" || kind == "held" || kind == "held_longer" || kind == "reaper" || kind == "escaped" || kind == "escapes" || kind == "exported" || gated()) activation("pure", in, out);
    else if (kind == "helper" || kind == "told_early") activation("pure", input, out);
    else if (kind == "chosen") activation("pure", iteration > 24 && l == 6 ? x[3] : in, out);
    else if (kind == "ends") activation("with_state", in, out), launch("over", few, few + kSmall * 4, salt);
    // What activations are made of is overwritten by an op that looks like one that overwrites something else.
    else if (kind == "exchanged") activation("with_state", in, out), launch("advance", in, out, iteration > 24 && iteration % 4 == 1 && l == 9 ? extra : few, g_words, salt);
    else if (kind == "beside_table" || kind == "escaped_small") activation("with_state", in, out);
    else if (kind == "optional") launch("optional", in, out, iteration > 4 && drawn(5, salt + 16 * static_cast<unsigned>(iteration), 2) ? extra : 0, g_words, salt);
    else if (kind == "larger") {
      CUdeviceptr aside;
      CHECK(cuMemAllocAsync(&aside, (iteration > 24 ? 3 : 1) * g_words * 4, stream));
      launch("larger", in, out, aside, g_words, salt);
      CHECK(cuMemFreeAsync(aside, stream));
    }
    else if (kind == "partial") activation("partial", in, out);
    else if (kind == "with_state") activation("with_state", in, out), activation("advance", in, out);
    else if (kind == "pinned") pinned[0] = static_cast<unsigned>(iteration * kLayers + l), launch("with_state", in, out, pinned_at, g_words, salt), CHECK(cuStreamSynchronize(stream));
    else if (kind == "module_variable") variable("scale", static_cast<unsigned>(iteration + l)), activation("module_variable", in, out);
    else if (kind == "constant") variable("table", static_cast<unsigned>(iteration + l)), activation("constant", in, out);
    else if (kind == "mask" || kind == "rare_sum" || kind == "append" || kind == "turns") launch(kind.c_str(), in, out, wide, g_words, salt);
    else if (kind == "struct") launch("by_struct", std::array<unsigned long long, 4>{3, in, 0, out}, g_words, salt);
    else if (kind == "stray") {   // an old address lies where the kernel uses nothing: of freed memory first, much later of memory that is there
      CUdeviceptr old = iteration > 24 ? input : 0;
      if (iteration == 0 && l == 0) CHECK(cuMemAlloc(&old, g_words * 4)), CHECK(cuMemFree(old));
      launch("by_struct", std::array<unsigned long long, 4>{3, in, old, out}, g_words, salt);
    }
    else if (kind == "garbage") {   // likewise, but now and then, and of memory that is there
      const int n = iteration * kLayers + l;
      const CUdeviceptr others[] = {input, in, out};
      launch("by_struct", std::array<unsigned long long, 4>{3, in, n % (kLayers + 1) == 5 ? others[n / 7 % 3] : n % 3 ? 0x1234567 : 0, out}, g_words, salt);
    }
    else if (kind == "led") launch_led(in, out, draw_led(l, 0, 25), g_words);
    else if (kind == "aliasing") launch("aliasing", out, in, in, out, g_words, salt);
    else if (kind == "address") activation(l ? "undo_address" : "address", in, out);
    else if (kind == "much_shared") {
      // It is allowed as much for as long as it is launched.
      const CUfunction f = function("pure");
      void* list[] = {const_cast<CUdeviceptr*>(&in), const_cast<CUdeviceptr*>(&out), &extra, &g_words, &salt};
      CHECK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60 << 10));
      CHECK(cuLaunchKernel(f, 16, 1, 1, 128, 1, 1, 60 << 10, stream, list, nullptr));
      CHECK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50 << 10));
    } else if (kind == "cooperative") {
      void* list[] = {const_cast<CUdeviceptr*>(&in), const_cast<CUdeviceptr*>(&out), &extra, &g_words, &salt};
      CHECK(cuLaunchCooperativeKernel(function("pure"), 16, 1, 1, 128, 1, 1, 0, stream, list));
    } else if (kind == "buffer") {
      struct { CUdeviceptr in, out, extra; unsigned count, salt; } packed{in, out, extra, g_words, salt};
      size_t bytes = sizeof packed;
      void* more[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
      CHECK(cuLaunchKernel(function("pure"), 16, 1, 1, 128, 1, 1, 0, stream, nullptr, more));
    } else if (kind == "attributes") {
      CUlaunchAttribute attribute{};
      attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
      CUlaunchConfig config{16, 1, 1, 128, 1, 1, 0, stream, &attribute, 1};
      void* list[] = {const_cast<CUdeviceptr*>(&in), const_cast<CUdeviceptr*>(&out), &extra, &g_words, &salt};
      CHECK(cuLaunchKernelEx(&config, function("pure"), list, nullptr));
    } else if (kind == "unloaded") {
      // Unloaded in the middle of an iteration, when activations that it made may have been dropped.
      if (again && iteration == 30 && l == kLayers / 2) {
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuModuleUnload(again));
        again = nullptr;
      }
      if (!again) CHECK(cuModuleLoadData(&again, image.c_str()));
      CUfunction f;
      CHECK(cuModuleGetFunction(&f, again, "pure"));
      void* list[] = {const_cast<CUdeviceptr*>(&in), const_cast<CUdeviceptr*>(&out), &extra, &g_words, &salt};
      CHECK(cuLaunchKernel(f, 16, 1, 1, 128, 1, 1, 0, stream, list, nullptr));
    } else activation(kind.c_str(), in, out);
  }

  // Launches what `record` submits as a graph, which is made the first time, or (`fresh`) each time.
  template <class Record>
  void as_graph(std::size_t which, bool fresh, Record record) {
    if (graphs.size() <= which) graphs.resize(which + 1);
    if (fresh && graphs[which]) {
      CHECK(cuGraphExecDestroy(graphs[which]));
      graphs[which] = nullptr;
    }
    if (!graphs[which]) {
      CUgraph graph;
      CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      record();
      CHECK(cuStreamEndCapture(stream, &graph));
      CHECK(cuGraphInstantiateWithFlags(&graphs[which], graph, 0));
      CHECK(cuGraphDestroy(graph));
    }
    CHECK(cuGraphLaunch(graphs[which], stream));
  }

  // Two layers, forward or back, are a graph. `lasting_graphs`: made once, on activations that are never freed.
  void iterate_by_graphs() {
    const bool fresh = kind == "graphs";
    std::size_t which = 0;
    for (int l = 0; l < kLayers; l += 2) {
      for (int i = l; i < l + 2 && fresh; i++) CHECK(cuMemAllocAsync(&x[i + 1], g_words * 4, stream));
      as_graph(which++, fresh, [&] {
        for (int i = l; i < l + 2; i++) {
          CHECK(cuMemsetD32Async(x[i + 1], static_cast<unsigned>(i), g_words, stream));
          salt = static_cast<unsigned>(i);
          activation("update", x[i], x[i + 1]);
        }
      });
    }
    for (int l = kLayers; l > 0; l -= 2) {
      as_graph(which++, fresh, [&] {
        for (int i = l; i > l - 2; i--) launch("back", gradient, x[i], g_words, static_cast<unsigned>(i));
      });
      for (int i = l; i > l - 2 && fresh; i--) CHECK(cuMemFreeAsync(x[i], stream));
    }
  }

  // While another stream captures, what activations are made of is overwritten.
  void overwrite_beside_capture() {
    CUstream other;
    CUgraph graph;
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemsetD32Async(input, 77, g_words, stream));
    CHECK(cuStreamEndCapture(other, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy(other));
  }

  bool in_streams() const { return kind == "streams" || kind == "two_streams"; }

  // What follows goes to the other stream, behind all so far in this one.
  void turn() {
    CHECK(cuEventRecord(made, stream));
    std::swap(stream, beside);
    CHECK(cuStreamWaitEvent(stream, made, 0));
  }

  // Read once more, from some iteration on by another stream, which waits for the way forward and no more.
  void back_beside(int l) {
    const CUstream first = stream;
    const bool other = iteration > 24 || kind == "two_streams";
    if (other) {
      CHECK(cuStreamWaitEvent(beside, made, 0));
      stream = beside;
    }
    launch("back", wide, x[l], g_words, static_cast<unsigned>(l));
    stream = first;
    if (!other) return;
    CHECK(cuEventRecord(read, beside));
    CHECK(cuStreamWaitEvent(stream, read, 0));
  }

  // While this thread launches the last op of the way back, another one overwrites by another stream what activations are made of:
  // nothing but their replays reads it any more. Up to some iteration it waits for the launch.
  void back_with_helper() {
    std::atomic<int> reached{0};
    CHECK(cuStreamWaitEvent(beside, made, 0));
    std::thread helper([&] {
      CHECK(cuCtxSetCurrent(context));
      reached.wait(0);
      if (iteration <= 24) reached.wait(1);
      CHECK(cuMemsetD32Async(input, 77, g_words, beside));
      CHECK(cuEventRecord(read, beside));
    });
    reached = 1;
    reached.notify_one();
    launch("back", gradient, x[1], g_words, 1u);
    reached = 2;
    reached.notify_one();
    helper.join();
    CHECK(cuStreamWaitEvent(stream, read, 0));
  }

  // What all activations are made of is overwritten behind a gate that opens when they are made: told before them, done after them.
  void overwrite_behind_gate() {
    CHECK(cuEventRecord(made, stream));
    CHECK(cuStreamWaitEvent(beside, made, 0));
    CHECK(cuStreamWaitValue32(beside, pinned_at, static_cast<unsigned>(iteration) + 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuMemsetD32Async(input, 77, g_words, beside));
    CHECK(cuEventRecord(read, beside));
  }

  size_t loaded_bytes() const { return (kind == "gated_small" ? kSmall : g_words) * 4; }
  bool gated() const { return kind == "gated" || kind == "gated_wait" || kind == "gated_small" || kind == "gated_capture" || kind == "loader"; }

  // On the way back the stream stands still, with work queued behind, until this thread lets it go; before it does, somebody loads
  // something by another stream: the thread itself (`gated`), which may wait for it (`gated_wait`; `gated_small`: of few bytes), also while a third stream captures
  // (`gated_capture`), or another thread (`loader`), and the way back is submitted meanwhile.
  void gate(int l) {
    const auto load = [this] {
      static const std::vector<unsigned> some(g_words, 1);
      CHECK(cuCtxSetCurrent(context));
      CUstream captures = nullptr;
      CUgraph graph;
      if (kind == "gated_capture") CHECK(cuStreamCreate(&captures, CU_STREAM_NON_BLOCKING)), CHECK(cuStreamBeginCapture(captures, CU_STREAM_CAPTURE_MODE_RELAXED));
      CHECK(cuMemcpyHtoDAsync(loaded, some.data(), loaded_bytes(), beside));
      if (kind == "gated_wait" || kind == "gated_small" || captures) CHECK(cuStreamSynchronize(beside));
      if (captures) CHECK(cuStreamEndCapture(captures, &graph)), CHECK(cuGraphDestroy(graph)), CHECK(cuStreamDestroy(captures));
    };
    if (l == kLayers) {
      CHECK(cuStreamSynchronize(stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));   // what is to be dropped is
      pinned[0] = 0;
      CHECK(cuStreamWaitValue32(stream, pinned_at, 1, CU_STREAM_WAIT_VALUE_EQ));
    } else if (l == kLayers / 2) {
      if (kind != "loader") load();
      else loader = std::thread(load), std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (l != (kind == "loader" ? 0 : kLayers / 2)) return;
    *static_cast<volatile unsigned*>(pinned) = 1;
    if (loader.joinable()) loader.join();
  }

  // Another device is used for a while, and what activations are made of is overwritten.
  void use_another_device() {
    CUdevice device;
    CUcontext there;
    CUdeviceptr at;
    CHECK(cuDeviceGet(&device, 1));
    CHECK(cuCtxCreate(&there, nullptr, 0, device));
    CHECK(cuMemAlloc(&at, g_words * 4));
    CHECK(cuMemsetD32(at, 1, g_words));
    CHECK(cuCtxSetCurrent(context));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));   // somebody may have noticed
    CHECK(cuMemsetD32Async(input, 77, g_words, stream));
  }

  // The same number for the same question, in each iteration.
  unsigned drawn(unsigned what, unsigned which, unsigned below) const {
    unsigned v = (seed * 2654435761u) ^ (what * 40503u + which) * 2246822519u;
    v ^= v >> 15, v *= 3266489917u, v ^= v >> 13;
    return v % below;
  }

  bool at_random() const { return kind == "random" || kind == "random_streams"; }

  // `submit` submits an op that reads and writes these, where there are lanes to one of them.
  template <class Submit>
  void ordered(const std::vector<CUdeviceptr>& reads, const std::vector<CUdeviceptr>& writes, Submit submit) {
    if (lanes.empty()) return submit();
    stream = lanes[drawn(7, static_cast<unsigned>(ended), static_cast<unsigned>(lanes.size()))];
    const auto after = [this](const std::vector<CUevent>& others) {
      for (CUevent e : others) CHECK(cuStreamWaitEvent(stream, e, 0));
    };
    for (CUdeviceptr at : reads) after(uses[at].written);
    for (CUdeviceptr at : writes) after(uses[at].written), after(uses[at].read);
    submit();
    if (ended == events.size()) CHECK(cuEventCreate(&events.emplace_back(), CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(events[ended], stream));
    for (CUdeviceptr at : reads) uses[at].read.push_back(events[ended]);
    for (CUdeviceptr at : writes) uses[at] = {{}, {events[ended]}};
    ++ended;
  }

  // Every lane's ops so far are followed by what comes next, on one of them.
  void join_lanes() {
    for (CUevent e : events) CHECK(cuStreamWaitEvent(stream, e, 0));
    uses.clear();
    ended = 0;
  }

  void make_at_random(unsigned what, CUdeviceptr in, CUdeviceptr& out, unsigned count, const Led& led) {
    CHECK(cuMemAllocAsync(&out, g_words * 4, stream));
    const auto kernel = [&](const char* name, CUdeviceptr also) { launch(name, in, out, also, count, salt); };
    switch (what) {
      case 0: kernel("pure", extra), kernel("in_place", extra); break;
      case 1: CHECK(cuMemsetD32Async(out, salt, g_words, stream)), kernel("update", extra); break;
      case 2: CHECK(cuMemsetD8Async(out, 3, g_words * 4, stream)), kernel("integer_atomics", extra); break;
      case 3: CHECK(cuMemcpyDtoDAsync(out, in, count * 4, stream)); break;
      case 4: kernel("with_state", extra), launch("advance", in, out, extra, count, salt); break;
      case 5: kernel("statistics", extra); break;
      case 6: kernel("mask", wide); break;
      case 7: kernel("pure", extra), launch("aliasing", out, in, in, out, count, salt); break;
      case 8: kernel("self_modifying", extra); break;
      case 9: CHECK(cuMemsetD32Async(out, salt, g_words, stream)), kernel("partial", extra); break;
      case 10: launch_led(in, out, led, count); break;
      default: kernel("pure", extra); break;
    }
  }

  void free_at(CUdeviceptr at) {
    ordered({}, {at}, [&] { CHECK(cuMemFreeAsync(at, stream)); });
  }

  void iterate_at_random() {
    unsigned good[kLayers + 1] = {g_words};   // words of each activation that hold something
    for (unsigned l = 0; l < kLayers; l++) {
      const unsigned from = l - drawn(0, l, std::min(l, 3u) + 1), what = drawn(2, l, 12);
      const unsigned count = drawn(1, l, 4) ? good[from] : std::max(good[from] / 2, 1024u);
      good[l + 1] = what == 1 || what == 2 || what == 9 ? g_words : count;
      salt = l;
      std::vector<CUdeviceptr> reads, writes;
      (what == 8 ? writes : reads).push_back(x[from]);
      (what == 4 || what == 5 ? writes : reads).push_back(extra);
      if (what == 6) writes.push_back(wide);
      const Led led = what == 10 ? draw_led(static_cast<int>(l), 0, 4) : Led();
      if (led.works) writes.push_back(led.other);
      ordered(reads, writes, [&] { make_at_random(what, x[from], x[l + 1], count, led); });
      if (ended) uses[x[l + 1]].written = {events[ended - 1]};
    }
    for (unsigned l = kLayers; l > 0; l--) {
      const unsigned also = 1 + drawn(3, l, l);
      ordered({x[also]}, {gradient}, [&] { launch("back", gradient, x[also], good[also], l); });
      if (also != l) ordered({x[l]}, {gradient}, [&] { launch("back", gradient, x[l], good[l], l + 1); });
      if (!drawn(4, l, 3)) ordered({x[l]}, {wide}, [&] { launch("back", wide, x[l], std::min(good[l], kSmall), l); });
      if (seed % 3 != 2) free_at(x[l]);
    }
    for (unsigned i = 0; i < kLayers && seed % 3 == 2; i++) free_at(x[1 + (i * 5 + static_cast<unsigned>(iteration)) % kLayers]);   // all are held to the end
    if (ended) join_lanes();
  }

  // What was made is freed by another thread, while this one begins the next iteration.
  void free_by_reaper() {
    reaper = std::thread([this, mine = std::vector<CUdeviceptr>(x + 1, x + kLayers + 1)] {
      CHECK(cuCtxSetCurrent(context));
      for (CUdeviceptr at : mine) CHECK(cuMemFreeAsync(at, stream));
    });
  }

  unsigned sum_of_activations() {
    std::vector<unsigned> all(g_words);
    unsigned sum = 0;
    for (int l = kLayers; l > 0; l--) {
      CHECK(cuMemcpyDtoH(all.data(), x[l], g_words * 4));
      for (unsigned v : all) sum = sum * 31 + v;
    }
    return sum;
  }

  // All that was made is freed only now, in any order. `held_longer`: at times one is read again before, or freed an iteration later.
  void free_held() {
    const bool at_times = kind == "held_longer" && iteration > 24;
    const unsigned now = static_cast<unsigned>(iteration);
    if (at_times && iteration % 4 == 1) launch("back", wide, x[1 + drawn(8, now, kLayers)], g_words, 2u), launch("back", state, wide, g_words, 3u);
    if (left) CHECK(cuMemFreeAsync(std::exchange(left, 0), stream));
    const unsigned first = drawn(9, now, kLayers), step = 1 + 2 * drawn(10, now, kLayers / 2);
    for (unsigned i = 0; i < kLayers; i++) {
      const CUdeviceptr at = x[1 + (first + i * step) % kLayers];
      if (at_times && iteration % 4 == 3 && i == 0) left = at;
      else CHECK(cuMemFreeAsync(at, stream));
    }
  }

  // When the activations were made for the last time, and some were dropped: they are read as the program ends, after what they are
  // made of was overwritten, or in another context, for theirs has ended and the pool is the device's.
  void leave() {
    CHECK(cuStreamSynchronize(stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (kind == "outlived") {
      CUdevice device;
      CUcontext second;
      CHECK(cuDeviceGet(&device, 0));
      CHECK(cuCtxCreate(&second, nullptr, 0, device));
      CHECK(cuDevicePrimaryCtxReset(device));
      CHECK(cuCtxSetCurrent(second));
    }
    const auto look = [this, overwrites = kind == "exiting"] {
      if (overwrites) CHECK(cuMemsetD32Async(input, 77, g_words, stream)), CHECK(cuStreamSynchronize(stream));
      printf("last %08x\n", sum_of_activations());
      fflush(stdout);
    };
    if (kind == "outlived") look();
    else static const Last last{look};   // made after cuInit, so that the driver ends after it
    exit(0);
  }

  // Other work between a few iterations and the next few, for a long time.
  void work_elsewhere() {
    for (int i = 0; i < 170; i++) {
      for (unsigned k = 0; k < 8; k++) launch("pure", input, wide, extra, g_words, 1000u + k);
      CHECK(cuStreamSynchronize(stream));
    }
  }

  unsigned checksum() {
    std::vector<unsigned> all(g_words), part(kSmall);
    CHECK(cuMemcpyDtoHAsync(all.data(), state, g_words * 4, stream));
    CHECK(cuMemcpyDtoHAsync(part.data(), kind == "pointer_table" || kind == "table_writer" ? state : kind == "ends" ? few : extra, kSmall * 4, stream));
    CHECK(cuStreamSynchronize(stream));
    unsigned sum = 0;
    for (unsigned v : all) sum = sum * 31 + v;
    for (unsigned v : part) sum = sum * 31 + v;
    return sum;
  }

  // `evaluated`: an iteration that begins as the others do; many in a row, then two at a time.
  bool evaluates() const { return kind == "evaluated" && iteration >= 6 && (iteration < 18 || iteration % 4 >= 2); }

  void iterate() {
    if (kind == "evaluated") std::this_thread::sleep_for(std::chrono::milliseconds(30));   // so that rounds of a proof begin anywhere
    std::vector<unsigned> host(g_words);
    for (unsigned i = 0; i < g_words; i++) host[i] = fill_word(i, static_cast<unsigned>(iteration));
    const bool turns = kind == "two_streams";
    if (turns) turn();
    if (kind == "told_early" && iteration) CHECK(cuStreamWaitEvent(stream, read, 0));
    ordered({}, {input}, [&] { CHECK(cuMemcpyHtoDAsync(input, host.data(), g_words * 4, stream)); });
    if (turns) turn();
    if (kind == "neighbour") CHECK(cuMemsetD32Async(extra + kSmall * 4, static_cast<unsigned>(iteration), kSmall, stream));
    if (kind == "table_writer") launch("make_table", extra, wide);
    x[0] = input;
    if (kind == "told_early") overwrite_behind_gate();
    if (kind == "graphs" || kind == "lasting_graphs") iterate_by_graphs();
    else if (at_random()) iterate_at_random();
    else for (int l = 0; l < kLayers; l++) {
      if (turns) turn();
      CHECK(cuMemAllocAsync(&x[l + 1], g_words * 4, stream));
      if (kind == "partial" || kind == "rare_keep") CHECK(cuMemcpyDtoDAsync(x[l + 1], wide, g_words * 4, stream));
      forward(l);
      if (reaper.joinable() && l == 3) reaper.join();
    }
    if (kind == "told_early") CHECK(cuStreamWriteValue32(stream, pinned_at, static_cast<unsigned>(iteration) + 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    if (made) CHECK(cuEventRecord(made, stream));
    if (kind == "escaped" || kind == "escaped_small" || (kind == "escapes" && iteration >= 25)) write_elsewhere();
    if (iteration == 30 && kind == "captured") overwrite_beside_capture();
    if (iteration == 39 && (kind == "exiting" || kind == "outlived")) leave();
    if (iteration == 30 && kind == "second_device") use_another_device();
    const CUdeviceptr into = evaluates() ? wide : gradient;
    for (int l = at_random() || kind == "graphs" || kind == "lasting_graphs" ? 0 : kLayers; l > 0; l--) {
      if (gated() && iteration > 24 && iteration % 6 == 1) gate(l);
      if (kind == "helper" && l == 1) back_with_helper();
      else launch(kind == "address" ? "back_address" : "back", into, x[l], g_words, static_cast<unsigned>(l));
      if (in_streams()) back_beside(l);
      if (kind == "led") launch_led(gradient, wide, draw_led(l, 1, 25), g_words);
      if (kind != "loader" && kind != "held" && kind != "held_longer" && kind != "reaper") CHECK(cuMemFreeAsync(x[l], stream));
    }
    if (kind == "held" || kind == "held_longer") free_held();
    if (kind == "reaper") free_by_reaper();
    if (kind == "loader") {
      if (loader.joinable()) gate(0);
      for (int l = kLayers; l > 0; l--) CHECK(cuMemFreeAsync(x[l], stream));
    }
    launch("back", state, into, g_words, 1u);
    if (at_random() || in_streams()) launch("back", state, wide, g_words, 3u);
    if (kind == "table_writer" || kind == "rare_sum") launch("back", state, wide, g_words, 2u);
    if (kind == "global_counter") launch("read_counter", extra);
    printf("%d %08x\n", iteration, checksum());
    if (iteration % 3 == 2 && kind == "bursts") work_elsewhere();
    fflush(stdout);
    iteration++;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: replays KIND ITERATIONS [WORDS [SEED]]\n");
    return 2;
  }
  g_words = argument(argc, argv, 3, g_words);
  Chain chain(argv[1], argument(argc, argv, 4, 1u));
  for (int i = 0; i < atoi(argv[2]); i++) chain.iterate();
  if (chain.reaper.joinable()) chain.reaper.join();
  if (chain.kind == "second_device") CHECK(cuDevicePrimaryCtxReset(0));
  return 0;
}
