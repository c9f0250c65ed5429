// Traps: processes (fork, two that wait for each other, memory shared between them), the end of the process, and
// questions about memory.
#include "tests/e2e/traps/traps.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>

namespace traps {
namespace {

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The child of a process that has not used CUDA uses it as if alone.
void fork_before(unsigned seed) {
  fflush(stdout);
  const pid_t child = fork();
  if (child) tell("child", wait_for(child));
  World w(seed);
  const CUdeviceptr x = w.stepped();
  w.press(w.stream());
  tell(child ? "parent" : "child", 0);
  tell("x", read(x, kWords));
  if (!child) _exit(0);
}

// The child of one that has cannot, and must be told so rather than hang; the parent goes on.
void fork_after(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUstream s = w.stream();
  w.press(s);
  launch(s, w.kernel("late_fill"), 1, x, kWords, 1u, w.toil_ns());
  for (int round = 0; round < 3; round++) {
    const pid_t child = fork();
    if (!child) {
      CUdeviceptr p;
      const bool refused = cuInit(0) != CUDA_SUCCESS || cuMemAlloc(&p, 1 << 20) != CUDA_SUCCESS;
      _exit(refused ? 3 : 4);
    }
    w.press(s);
    tell("child", wait_for(child));
  }
  tell("x", read(x, kWords));
}

// Two processes, each behind a gate that the other has opened after launches that have to wait for memory.
void wait_for_each_other(unsigned seed) {
  fflush(stdout);
  int pipes[2][2];
  if (pipe(pipes[0]) || pipe(pipes[1])) exit(1);
  const pid_t child = fork();
  const int me = child ? 0 : 1;
  World w(seed);
  const CUdeviceptr x = w.stepped();
  unsigned* gate;
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 4, CU_MEMHOSTALLOC_DEVICEMAP));
  *gate = 0;
  CUdeviceptr at;
  CHECK(cuMemHostGetDevicePointer(&at, gate, 0));
  std::thread porter([&] {
    unsigned round;
    while (::read(pipes[me][0], &round, sizeof round) == sizeof round && round) __atomic_store_n(gate, round, __ATOMIC_SEQ_CST);
  });
  auto open = [&](int whose, unsigned round) {
    if (write(pipes[whose][1], &round, sizeof round) != sizeof round) exit(1);
  };
  const CUstream a = w.stream(), b = w.stream();
  for (unsigned round = 1; round < 4; round++) {
    CHECK(cuStreamWaitValue32(a, at, round, CU_STREAM_WAIT_VALUE_GEQ));
    for (CUdeviceptr f : w.fillers) launch_wide(a, w.fill, f, round, static_cast<unsigned>(kBudget / 8 / 4));
    launch_wide(b, w.add, x, x, x, kWords);
    open(1 - me, round);
    CHECK(cuCtxSynchronize());
  }
  open(me, 0);
  porter.join();
  const auto words = traps::read(x, kWords);
  if (!child) _exit(words[1] == 8 ? 0 : 9);
  tell("x", words);
  tell("child", wait_for(child));
}

// Work after main has returned, as late as the driver allows: its own end at exit comes right after.
struct Late {
  CUcontext context = nullptr;
  CUdeviceptr x = 0;
  CUfunction add = nullptr;
  ~Late() {
    if (!context) return;
    CHECK(cuCtxSetCurrent(context));
    launch_wide(nullptr, add, x, x, x, kWords);
    tell("late", read(x, kWords));
    CHECK(cuMemFree(x));
    CUdeviceptr p;
    CHECK(cuMemAlloc(&p, kWords * 4ul));
    CHECK(cuMemsetD32(p, 1, kWords));
    tell("later", read(p, kWords));
    CHECK(cuMemFree(p));
  }
};
void static_destructor(unsigned seed) {
  CHECK(cuInit(0));
  static Late late;
  World w(seed);
  late.x = w.stepped();
  late.add = w.add;
  launch_wide(nullptr, w.add, late.x, late.x, late.x, kWords);
  late.context = w.context;
  w.press(w.stream());
}
// Work in the last destructors of a thread, and of the main thread, while everything that is done is looked at.
struct Latest {
  CUcontext context = nullptr;
  CUdeviceptr x = 0;
  ~Latest() {
    if (!x) return;
    CHECK(cuCtxSetCurrent(context));
    std::vector<unsigned> words(kWords);
    CHECK(cuMemcpyDtoH(words.data(), x, kWords * 4ul));
    tell("latest", words);
    CHECK(cuMemsetD32(x, 1, kWords));
    std::vector<std::string> kept;  // what was written over shows on the heap
    for (int i = 0; i < 100; i++) kept.push_back(std::string(20 + i, 'x'));
  }
};
thread_local Latest latest;
void last_destructor(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), y = w.stepped();
  const CUstream s = w.stream();
  for (const bool own : {true, false}) {
    const auto body = [&] {
      CHECK(cuCtxSetCurrent(w.context));
      latest.context = w.context;  // made before anything of the library's, and so destroyed after it
      w.press(s);
      launch_wide(nullptr, w.add, x, y, y, kWords);
      CHECK(cuCtxSynchronize());
      latest.x = own ? x : y;
    };
    if (own) std::thread(body).join();
    else body();
  }
}
// Ends without a word, with work under way.
void sudden_end(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUstream s = w.stream();
  w.press(s);
  tell("x", read(x, kWords));
  launch(s, w.kernel("late_fill"), 1, x, kWords, 1u, w.toil_ns());
  for (CUdeviceptr f : w.fillers) launch_wide(s, w.fill, f, 1u, 10u);
  puts("end");
  fflush(stdout);
  _exit(0);
}

// Destroyed last of all, for it was made first: by then the driver has ended.
struct Waits {
  std::atomic<bool> refused{false};
  bool wanted = false;
  ~Waits() {
    for (int ms = 0; wanted && !refused && ms < 20'000; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (wanted) tell("refused", refused);
  }
} waits;

// Ends while a thread goes on: until the driver has ended too everything is done, and then everything is refused by that name.
void exit_under_way(unsigned seed) {
  static auto& w = *new World(seed);   // static: who looks for leaks finds it
  const CUdeviceptr x = w.stepped();
  w.press(w.stream());
  tell("x", read(x, kWords));
  waits.wanted = true;
  std::thread([x, s = w.stream()] {
    CUresult result = cuCtxSetCurrent(w.context);
    const unsigned words = static_cast<unsigned>(kBudget / 8 / 4);
    for (unsigned i = 0; result == CUDA_SUCCESS; i++) {
      unsigned turn = i;
      CUdeviceptr at = i % 9 ? w.fillers[i % w.fillers.size()] : x;
      unsigned used = i % 9 ? words : 10u;
      void* list[] = {&at, &turn, &used};
      result = cuLaunchKernel(w.fill, 8, 1, 1, 64, 1, 1, 0, s, list, nullptr);
      if (result == CUDA_SUCCESS && i % 4 == 0) result = cuStreamSynchronize(s);
    }
    if (result != CUDA_ERROR_DEINITIALIZED) tell("other", result);
    waits.refused = true;
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(20 + seed % 20));
}

// What memory looks like to who asks.
void questions(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  size_t total = 0, before = 0, after = 0;
  CHECK(cuMemGetInfo(&before, &total));
  const CUdeviceptr x = w.stepped(), small = w.allocate(1000);
  CHECK(cuMemGetInfo(&after, nullptr));
  printf("less %zu\n", (before - after) / (64 << 10));
  struct {
    unsigned types, beside;
  } handles{7, 7};
  const CUdeviceptr untouched = w.allocate(kWords * 4ul);
  int decompresses = 7, mapped_still = 7;
  tell("handles", cuPointerGetAttribute(&handles, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, untouched));
  printf("%u %u\n", handles.types, handles.beside);
  tell("decompresses", cuPointerGetAttribute(&decompresses, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, untouched));
  CHECK(cuMemFree(untouched));
  tell("mapped still", cuPointerGetAttribute(&mapped_still, CU_POINTER_ATTRIBUTE_MAPPED, untouched));
  printf("%d %d\n", decompresses, mapped_still);
  CUstreamBatchMemOpParams one{};
  printf("far too many %d\n", cuStreamBatchMemOp(s, 0x7fffffff, &one, 0));
  for (const bool pushed : {false, true}) {
    if (pushed) w.press(s), w.press(s);
    for (const CUdeviceptr at : {x, x + 4000, x + kWords * 4ul - 1, small, small + 999}) {
      const CUdeviceptr start = at >= x && at < x + kWords * 4ul ? x : small;
      CUdeviceptr base = 0;
      size_t bytes = 0;
      CHECK(cuMemGetAddressRange(&base, &bytes, at));
      printf("range %lld %zu\n", static_cast<long long>(base - start), bytes);
      CUcontext context = nullptr;
      CUdeviceptr device = 0, begin = 0;
      unsigned type = 0, managed = 7, mapped = 7;
      int ordinal = 7;
      size_t size = 0;
      void* host = &host;
      CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at));
      CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
      CHECK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
      CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
      CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
      CHECK(cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
      CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
      CHECK(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at));
      printf("single %d %u %lld %u %d %lld %zu %u host %d\n", context == w.context, type, static_cast<long long>(device - at), managed,
             ordinal, static_cast<long long>(begin - start), size, mapped, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
      CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                     CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                     CU_POINTER_ATTRIBUTE_ACCESS_FLAGS};
      int access = 7;
      void* data[] = {&context, &type, &device, &host, &managed, &ordinal, &access};
      const CUresult result = cuPointerGetAttributes(7, names, data, at);
      printf("many %d: %d %u %lld %p %u %d %d\n", result, context == w.context, type, static_cast<long long>(device - at), host, managed, ordinal, access);
      CHECK(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
      printf("access %d\n", access);
    }
  }
  const auto id_of = [](CUdeviceptr at) {
    unsigned long long id = 0;
    CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
    return id;
  };
  std::set<unsigned long long> ids;
  for (int i = 0; i < 3; i++) {
    const CUdeviceptr again[] = {w.allocate(1000), w.allocate(1000), w.allocate(kWords * 4ul)};
    for (const CUdeviceptr at : again) ids.insert(id_of(at));
    tell("one id", id_of(again[0]) == id_of(again[0] + 999) && id_of(again[2]) == id_of(again[2] + 999));
    for (const CUdeviceptr at : again) CHECK(cuMemFree(at));
  }
  tell("ids", static_cast<int>(ids.size()));
  // What registers memory with a network card asks for this; on the way there it sets an attribute, and that brings the memory in.
  CUdeviceptr ordered;
  CHECK(cuMemAllocAsync(&ordered, kWords * 4ul, s));
  w.press(s);
  for (const CUdeviceptr at : {x, small, ordered}) {
    int capable = 7;
    const unsigned yes = 1;
    CHECK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at));
    printf("network %d %d", capable, cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    unsigned is = 7;
    CHECK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    printf(" %u\n", is);
  }
  CHECK(cuMemFreeAsync(ordered, s));
  CUdeviceptr base;
  size_t bytes;
  tell("beyond", cuMemGetAddressRange(&base, &bytes, 16) == CUDA_SUCCESS);
  CHECK(cuMemFree(small));
  CHECK(cuMemFree(x));
  unsigned type;
  tell("freed", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, x));
  tell("freed range", cuMemGetAddressRange(&base, &bytes, x));
  CUcontext context = nullptr;
  CUdeviceptr device = 1;
  int ordinal = 7;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* data[] = {&context, &type, &device, &ordinal};
  const CUresult many = cuPointerGetAttributes(4, names, data, x);
  printf("freed, many %d: %p %u %llu %d\n", many, static_cast<void*>(context), type, device, ordinal);
  tell("freed memset", cuMemsetD8Async(x, 1, 100, s));
  unsigned host = 0;
  tell("freed copy", cuMemcpyDtoH(&host, x, sizeof host));
  CHECK(cuMemGetInfo(&after, nullptr));
  printf("same %d\n", after == before);
}

// PyTorch's memory figures rest on these.
void pool_figures(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  CUmemoryPool pool, current, own;
  CHECK(cuDeviceGetDefaultMemPool(&pool, w.device));
  CHECK(cuDeviceGetMemPool(&current, w.device));
  tell("default is current", pool == current);
  cuuint64_t keep = UINT64_MAX;
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.device};
  CHECK(cuMemPoolCreate(&own, &props));
  auto figures = [&](const char* when) {
    for (CUmemoryPool p : {pool, own}) {
      printf("%s:", when);
      for (CUmemPool_attribute a : {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH}) {
        cuuint64_t value = 0;
        CHECK(cuMemPoolGetAttribute(p, a, &value));
        printf(" %llu", static_cast<unsigned long long>(value));
      }
      cuuint64_t reserved = 0, used = 0;
      CHECK(cuMemPoolGetAttribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
      CHECK(cuMemPoolGetAttribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
      printf(" covers %d\n", reserved >= used);
    }
  };
  figures("empty");
  std::vector<CUdeviceptr> all(6);
  for (size_t i = 0; i < all.size(); i++)
    CHECK(i % 2 ? cuMemAllocFromPoolAsync(&all[i], 100'096 * (i + 1), own, s) : cuMemAllocAsync(&all[i], 65'536 * (i + 1), s));
  for (CUdeviceptr at : all) CHECK(cuMemsetD8Async(at, 1, 60'000, s));
  figures("allocated");
  w.press(s);
  figures("pushed");
  CUmemoryPool of = nullptr;
  CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, all[1] + 5));
  tell("of own pool", of == own);
  CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, all[0]));
  tell("of default pool", of == pool);
  for (CUdeviceptr at : all) CHECK(cuMemFreeAsync(at, s));
  CHECK(cuStreamSynchronize(s));
  figures("freed");
  cuuint64_t zero = 0;
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  CHECK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  figures("reset");
  CHECK(cuMemPoolTrimTo(pool, 0));
  CHECK(cuMemPoolDestroy(own));
}

// What the driver refuses is refused.
void refusals(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  CUdeviceptr at = 0;
  tell("no pool", cuMemAllocFromPoolAsync(&at, 4096, nullptr, s));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {w.device}};
  props.maxSize = 1 << 20;
  CUmemoryPool limited;
  CHECK(cuMemPoolCreate(&limited, &props));
  tell("beyond the limit", cuMemAllocFromPoolAsync(&at, 3 << 20, limited, s));
  tell("within it", cuMemAllocFromPoolAsync(&at, 1 << 19, limited, s));
  CHECK(cuMemFreeAsync(at, s));
  CHECK(cuStreamSynchronize(s));
  const CUdeviceptr x = w.stepped(), y = w.allocate(100'000), whole = w.allocate(4 << 16);
  CHECK(cuMemsetD32(whole, 1, 1 << 16));
  CUmemAccessDesc none{};
  none.location = {CU_MEM_LOCATION_TYPE_DEVICE, {w.device}};
  for (const std::size_t bytes : {1ul << 16, 2ul << 16, 4ul << 16}) {   // however it is made up, it is no mapping of the program's
    tell("access taken away", cuMemSetAccess(whole, bytes, &none, 1));
    tell("unmapped", cuMemUnmap(whole, bytes));
  }
  tell("whole", read(whole, 1 << 16));
  for (const CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED})
    for (const bool frees : {false, true}) {
      CUgraph graph = nullptr;
      CHECK(cuStreamBeginCapture(s, mode));
      tell("captured", cuMemsetD32Async(x, 1, 100, s));
      CUdeviceptr made = y;
      const CUresult result = frees && mode != CU_STREAM_CAPTURE_MODE_RELAXED ? cuMemFree(y) : cuMemAlloc(&made, 70'000);
      tell(frees ? "free" : "allocate", result);
      tell("capture", cuStreamEndCapture(s, &graph));
      if (graph) CHECK(cuGraphDestroy(graph));
      if (made != y) CHECK(cuMemFree(made));
      tell("afterwards", cuMemsetD8(y, 1, 100'000));
    }
  CUdeviceptr ordered;
  CHECK(cuMemAllocAsync(&ordered, 100'000, s));
  CHECK(cuStreamSynchronize(s));
  CHECK(cuCtxSetCurrent(nullptr));
  tell("nowhere", cuMemAllocAsync(&at, 100'000, nullptr));
  tell("free nowhere", cuMemFreeAsync(ordered, nullptr));
  tell("on a stream", cuMemAllocAsync(&at, 100'000, s));
  CUipcMemHandle shared;
  tell("share nowhere", cuIpcGetMemHandle(&shared, x));
  CHECK(cuCtxSetCurrent(w.context));
  CHECK(cuMemFreeAsync(ordered, s));
  CHECK(cuMemFreeAsync(at, s));
  tell("x", read(x, kWords));
}

// A context ends while memory that is not its own is on its way out, behind an op that nobody asks about any more.
void context_ends_in_a_move(unsigned seed) {
  World w(seed);
  constexpr std::size_t kBig = 600 << 10;
  const CUstream s = w.stream(), other = w.stream();
  CUdeviceptr first, second;
  CHECK(cuMemAllocAsync(&first, kBig, s));
  CHECK(cuMemAllocAsync(&second, kBig, other));
  CHECK(cuMemsetD32Async(first, seed, kBig / 4, s));
  CHECK(cuStreamSynchronize(s));
  std::thread copies([&] {
    CHECK(cuCtxSetCurrent(w.context));
    CHECK(cuLaunchHostFunc(nullptr, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(1200)); }, nullptr));
    std::vector<unsigned> host(kBig / 4);
    CHECK(cuMemcpyDtoH(host.data(), first, kBig));
    tell("first", host);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  std::thread fills([&] {
    CHECK(cuCtxSetCurrent(w.context));
    CHECK(cuMemsetD32Async(second, 1, kBig / 4, other));
  });
  fills.join();
  copies.join();
  CHECK(cuDevicePrimaryCtxReset(w.device));
}

// Contexts end, one after the other, while memory of another's waits to go out behind their ops: is that asked about meanwhile?
void other_context_ends(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUstream mine = w.stream();
  for (unsigned round = 0; round < 12; round++) {
    CUcontext other;
    CUmodule module;
    CUfunction late;
    CUstream s;
    CHECK(cuCtxCreate(&other, nullptr, 0, w.device));
    CHECK(cuModuleLoadData(&module, traps_ptx));
    CHECK(cuModuleGetFunction(&late, module, "late_fill"));
    CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    launch(s, late, 1, x, kWords, round, w.toil_ns());
    for (const CUdeviceptr f : w.fillers) launch(s, late, 1, f, 10u, round, 0ull);   // so that nothing is idle
    std::thread presses([&] {
      CHECK(cuCtxSetCurrent(w.context));
      w.press(mine);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(cuCtxDestroy(other));
    presses.join();
    CHECK(cuCtxSetCurrent(w.context));
  }
  tell("x", read(x, kWords));
}

}  // namespace

const std::vector<Trap> process_traps = {
    {"fork-before", Needs::moves, fork_before},
    {"fork-after", Needs::moves, fork_after},
    {"wait-for-each-other", Needs::moves, wait_for_each_other},
    {"static-destructor", Needs::moves, static_destructor},
    {"last-destructor", Needs::moves, last_destructor},
    {"exit-under-way", Needs::moves, exit_under_way},
    {"context-ends-in-a-move", Needs::nothing, context_ends_in_a_move},
    {"other-context-ends", Needs::moves, other_context_ends},
    {"sudden-end", Needs::nothing, sudden_end},
    {"questions", Needs::moves, questions},
    {"refusals", Needs::nothing, refusals},
    {"pool-figures", Needs::nothing, pool_figures},
};

}  // namespace traps
