// Traps: pointers that reach a kernel through memory. While a kernel toils on what a table leads to, another thread
// pushes memory out.
#include "tests/e2e/traps/traps.hpp"

#include <cstring>

namespace traps {
namespace {

// How the address of x comes to be in `table` (of `entries` words); it stands at entry 3.
using Writing = void (*)(World&, CUdeviceptr table, unsigned entries, CUdeviceptr x);

void through_table(unsigned seed, unsigned entries, Writing write) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), table = w.allocate(entries * 8ul);
  write(w, table, entries, x);
  const CUfunction toil = w.kernel("toil_table");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
    launch(s, toil, 1, table, 3u, 1u, w.toil_words(), kStride, w.toil_ns(), lost);
  });
}

std::vector<CUdeviceptr> words_with(CUdeviceptr x, unsigned entries) {
  std::vector<CUdeviceptr> words(entries, 0x1234);
  words[3] = x;
  return words;
}

void by_host(World&, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  const auto words = words_with(x, entries);
  CHECK(cuMemcpyHtoD(table, words.data(), entries * 8ul));
}
void by_host_later(World& w, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  void* pinned;
  CHECK(cuMemHostAlloc(&pinned, entries * 8ul, 0));
  const auto words = words_with(x, entries);
  memcpy(pinned, words.data(), entries * 8ul);
  const CUstream s = w.stream();
  CHECK(cuMemcpyAsync(table, reinterpret_cast<CUdeviceptr>(pinned), entries * 8ul, s));
  CHECK(cuStreamSynchronize(s));
}
// `width` of each `pitch` bytes, from rows that are `from_pitch` apart.
void copy_rows(CUdeviceptr to, size_t pitch, const void* from, size_t from_pitch, size_t width, size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  copy.srcPitch = from_pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  CHECK(cuMemcpy2D(&copy));
}
void by_rows(World&, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  copy_rows(table, 16, words_with(x, entries).data(), 16, 16, entries / 2);
}
// Two words of three, the first of the second three among them.
void by_rows_apart(World&, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  std::vector<CUdeviceptr> words(entries, 0x1234);
  words[2] = x;
  copy_rows(table, 24, words.data(), 16, 16, entries / 3);
}
// What is copied around it leaves it as it is.
void around(World& w, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  by_host(w, table, entries, x);
  const std::vector<CUdeviceptr> words(entries, 0x1234);
  copy_rows(table + 8, 24, words.data(), 24, 8, entries / 3);
}
void by_kernel(World& w, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  CHECK(cuMemsetD8(table, 1, entries * 8ul));
  launch(nullptr, w.kernel("put_address"), 1, table, 3u, x);
  CHECK(cuStreamSynchronize(nullptr));
}
// And has been out since.
void by_kernel_before(World& w, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  by_kernel(w, table, entries, x);
  const CUstream s = w.stream();
  w.press(s), w.press(s);
}
// From another table, on the device, by a copy.
void by_copy(World& w, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  const CUdeviceptr first = w.allocate(entries * 8ul);
  by_kernel(w, first, entries, x);
  CHECK(cuMemcpyDtoD(table, first, entries * 8ul));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemFree(first));
}
// By a kernel that carries the entries from another table, slowly, and is not waited for.
void by_carrier(World& w, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  const CUdeviceptr first = w.allocate(64);
  by_host(w, first, 8, x);
  launch(nullptr, w.kernel("move_entries"), 1, first, table, 8u, w.long_enough(3'000'000));
  CHECK(cuStreamSynchronize(nullptr));
  (void)entries;
}
// Freed and allocated again: what the table held before counts no more, what it holds now does.
void again(World& w, CUdeviceptr table, unsigned entries, CUdeviceptr x) {
  const CUdeviceptr other = w.stepped(kWords, 99);
  by_host(w, table, entries, other);
  CHECK(cuMemFree(other));
  by_host(w, table, entries, x);
}

// Larger than what is searched throughout as it is copied, and it leads to what nothing has touched yet.
void untouched(unsigned seed) {
  World w(seed);
  const unsigned entries = 3 * kBudget / 16;
  const CUdeviceptr table = w.allocate(entries * 8ul), x = w.allocate(kWords * 4ul);
  by_host(w, table, entries, x);
  launch(nullptr, w.kernel("put_through"), 1, table, 3u, kWords, seed);
  w.press(w.stream());
  tell("x", read(x, kWords));
}

constexpr unsigned kSmall = 16, kLarge = 8192;  // entries: in a slab, in a buffer of its own

template <unsigned entries, Writing write>
void trap(unsigned seed) {
  through_table(seed, entries, write);
}

// Nearly all memory is needed while a kernel toils on what a table leads to. `make` writes the table, all ordered before `s`.
void while_needed(World& w, CUdeviceptr x, const std::function<CUdeviceptr(CUstream s)>& make, bool free_behind) {
  const CUdeviceptr lost = w.allocate(4);
  const unsigned most = kBudget / 4 - 40000;
  const CUdeviceptr big = w.allocate(most * 4ul);
  const CUfunction toil = w.kernel("toil_table"), late = w.kernel("late_fill");
  const CUstream s = w.stream(), other = w.stream();
  CHECK(cuMemsetD32(lost, 0, 1));
  for (unsigned round = 0; round < 4; round++) {
    const CUdeviceptr table = make(s);
    for (int i = 0; i < 6; i++) launch(s, late, 1, lost, 0u, 0u, w.long_enough(1'000'000));  // kernels run one by one here: time for others to come in between
    launch(s, toil, 1, table, 3u, 1u, w.toil_words(), kStride, w.toil_ns(), lost);
    if (free_behind) CHECK(cuMemFreeAsync(table, s));
    CHECK(cuMemsetD32Async(big, round, most, other));
    CHECK(cuCtxSynchronize());
  }
  tell("lost", read(lost, 1)[0]);
  tell("x", read(x, kWords));
}

// Made by a kernel, and freed in stream order while the one that goes through it runs.
template <unsigned entries>
void freed_behind(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUfunction put = w.kernel("put_address");
  const CUstream before = w.stream();
  CUevent done;
  CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  while_needed(w, x, [&](CUstream s) {
    CUdeviceptr table;
    CHECK(cuMemAllocAsync(&table, entries * 8ul, s));
    CHECK(cuMemsetD8Async(table, 1, entries * 8ul, s));
    CHECK(cuStreamSynchronize(s));
    launch(before, put, 1, table, 3u, x);
    CHECK(cuEventRecord(done, before));
    CHECK(cuStreamWaitEvent(s, done, 0));
    return table;
  }, true);
}

// So many addresses that they are not listed once the table has been out; then the host writes a word that is none.
void many_addresses(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), table = w.allocate(16ul * kLarge);
  const CUstream press = w.stream();
  const std::vector<CUdeviceptr> words(2 * kLarge, x);
  const std::uint64_t none = 5;
  CHECK(cuMemcpyHtoD(table, words.data(), 16ul * kLarge));
  while_needed(w, x, [&](CUstream s) {
    w.press(press), w.press(press);
    launch(s, w.kernel("move_entries"), 1, x, x, 0u, std::uint64_t{0});  // on the device again
    CHECK(cuStreamSynchronize(s));
    CHECK(cuMemcpyHtoD(table, &none, 8));
    return table;
  }, false);
}

template <unsigned entries, bool outer_by_kernel>
void two_levels(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), inner = w.allocate(entries * 8), outer = w.allocate(kSmall * 8);
  by_host(w, inner, entries, x);
  const CUdeviceptr at = inner + 3 * 8;
  CHECK(cuMemsetD8(outer, 1, kSmall * 8));
  if (outer_by_kernel) launch(nullptr, w.kernel("put_address"), 1, outer, 2u, at);
  else CHECK(cuMemcpyHtoD(outer + 16, &at, 8));
  CHECK(cuCtxSynchronize());
  const CUfunction toil = w.kernel("toil_table");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
    launch(s, toil, 1, outer, 2u, 2u, w.toil_words(), kStride, w.toil_ns(), lost);
  });
}

// In memory that the host may write at any time.
template <bool managed>
void in_host_memory(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  CUdeviceptr table;
  if (managed) {
    CHECK(cuMemAllocManaged(&table, 128, CU_MEM_ATTACH_GLOBAL));
  } else {
    void* pinned;
    CHECK(cuMemHostAlloc(&pinned, 128, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&table, pinned, 0));
  }
  reinterpret_cast<CUdeviceptr*>(table)[3] = x;
  const CUfunction toil = w.kernel("toil_table");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
    launch(s, toil, 1, table, 3u, 1u, w.toil_words(), kStride, w.toil_ns(), lost);
  });
}

// In a module's own variables.
template <bool constant>
void in_module(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  CUdeviceptr variable;
  size_t bytes;
  CHECK(cuModuleGetGlobal(&variable, &bytes, w.more, constant ? "in_constant" : "in_global"));
  const CUdeviceptr words[4] = {0, constant ? x : 0, constant ? 0 : x, 0};
  CHECK(cuMemcpyHtoD(variable, words, sizeof words));
  const CUfunction toil = w.kernel(constant ? "toil_constant" : "toil_global");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) { launch(s, toil, 1, w.toil_words(), kStride, w.toil_ns(), lost); });
}

// A kernel puts the address where nobody but the next kernel looks: a variable of the module.
void in_module_by_kernel(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  launch(nullptr, w.kernel("put_global"), 1, x);
  CHECK(cuCtxSynchronize());
  const CUfunction toil = w.kernel("toil_global");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) { launch(s, toil, 1, w.toil_words(), kStride, w.toil_ns(), lost); });
}

// Device memory that is not the library's: where it comes from.
CUdeviceptr mapped_by_hand(World& w) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  size_t granule;
  CHECK(cuMemGetAllocationGranularity(&granule, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemCreate(&handle, granule, &p, 0));
  CUdeviceptr at;
  CHECK(cuMemAddressReserve(&at, granule, 0, 0, 0));
  CHECK(cuMemMap(at, granule, 0, handle, 0));
  const CUmemAccessDesc access{p.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemSetAccess(at, granule, &access, 1));
  (void)w;
  return at;
}
CUdeviceptr from_shared_pool(World& w) {
  CUmemPoolProps p{};
  p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool pool;
  CHECK(cuMemPoolCreate(&pool, &p));
  const CUstream s = w.stream();
  CUdeviceptr at;
  CHECK(cuMemAllocFromPoolAsync(&at, 128, pool, s));
  CHECK(cuStreamSynchronize(s));
  return at;
}
template <bool captured>
CUdeviceptr from_graph(World& w) {
  const CUstream s = w.stream();
  CUgraph graph;
  CUdeviceptr at;
  if (captured) {
    CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&at, 128, s));
    CHECK(cuStreamEndCapture(s, &graph));
  } else {
    CHECK(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS p{};
    p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    p.bytesize = 128;
    CUgraphNode node;
    CHECK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    at = p.dptr;
  }
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CHECK(cuGraphLaunch(exec, s));
  CHECK(cuStreamSynchronize(s));
  return at;
}
// One graph allocates it, another frees it, and so again: it is there each time, though the free was seen before.
CUdeviceptr from_two_graphs(World& w) {
  const CUstream s = w.stream();
  CUgraph graph;
  CUgraphExec allocates, frees;
  CUdeviceptr at;
  CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuMemAllocAsync(&at, 128, s));
  CHECK(cuStreamEndCapture(s, &graph));
  CHECK(cuGraphInstantiate(&allocates, graph, 0));
  CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuMemFreeAsync(at, s));
  CHECK(cuStreamEndCapture(s, &graph));
  CHECK(cuGraphInstantiate(&frees, graph, 0));
  for (const CUgraphExec exec : {allocates, frees, allocates}) CHECK(cuGraphLaunch(exec, s));
  CHECK(cuStreamSynchronize(s));
  return at;
}
// A variable, which the kernels are given like any other memory.
CUdeviceptr variable(World& w) {
  CUdeviceptr at;
  CHECK(cuModuleGetGlobal(&at, nullptr, w.more, "in_global"));
  return at;
}
template <CUdeviceptr make(World&)>
void in_unmanaged(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), table = make(w);
  launch(nullptr, w.kernel("put_address"), 1, table, 3u, x);
  CHECK(cuCtxSynchronize());
  const CUfunction toil = w.kernel("toil_table");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
    launch(s, toil, 1, table, 3u, 1u, w.toil_words(), kStride, w.toil_ns(), lost);
  });
}

// A copy brings the table from there, each time, while what it leads to is on its way out or back. It does so only once the launch that uses
// the table was made: until then there is nothing in it to be found.
void carried_from_unmanaged(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), table = w.allocate(kLarge * 8ul), from = mapped_by_hand(w);
  launch(nullptr, w.kernel("put_address"), 1, from, 3u, x);
  CHECK(cuCtxSynchronize());
  const CUfunction toil = w.kernel("toil_table");
  static std::atomic<bool> launched;
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
    CHECK(cuMemsetD8Async(table, 1, kLarge * 8ul, s));
    CHECK(cuStreamSynchronize(s));
    launched = false;
    CHECK(cuLaunchHostFunc(s, [](void*) {
      for (int ms = 0; ms < 100 && !launched; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }, nullptr));
    CHECK(cuMemcpyDtoDAsync(table, from, 128, s));
    launch(s, toil, 1, table, 3u, 1u, w.toil_words(), kStride, w.toil_ns(), lost);
    launched = true;
  });
}

// From memory of the host that has another address on the device, by that one.
void from_registered(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), table = w.allocate(kLarge * 8ul);
  std::vector<CUdeviceptr> words = words_with(x, kLarge);
  CUdeviceptr from;
  CHECK(cuMemHostRegister(words.data(), kLarge * 8ul, CU_MEMHOSTREGISTER_DEVICEMAP));
  CHECK(cuMemHostGetDevicePointer(&from, words.data(), 0));
  const CUfunction toil = w.kernel("toil_table");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
    CHECK(cuMemcpyDtoDAsync(table, from, kLarge * 8ul, s));
    launch(s, toil, 1, table, 3u, 1u, w.toil_words(), kStride, w.toil_ns(), lost);
  });
  CHECK(cuMemHostUnregister(words.data()));
}

}  // namespace

const std::vector<Trap> table_traps = {
    {"table-host", Needs::moves, trap<kSmall, by_host>},
    {"table-host-large", Needs::moves, trap<kLarge, by_host>},
    {"table-host-huge", Needs::moves, trap<4 * kLarge, by_host>},
    {"table-host-untouched", Needs::moves, untouched},
    {"table-pinned-copy", Needs::moves, trap<kSmall, by_host_later>},
    {"table-rows", Needs::moves, trap<kSmall, by_rows>},
    {"table-rows-apart", Needs::moves, trap<kSmall, by_rows_apart>},
    {"table-rows-apart-large", Needs::moves, trap<4 * kLarge, by_rows_apart>},
    {"table-rows-around", Needs::moves, trap<kSmall, around>},
    {"table-rows-around-large", Needs::moves, trap<4 * kLarge, around>},
    {"table-kernel", Needs::moves, trap<kSmall, by_kernel>},
    {"table-kernel-large", Needs::moves, trap<kLarge, by_kernel>},
    {"table-kernel-huge", Needs::moves, trap<4 * kLarge, by_kernel>},
    {"table-kernel-moved", Needs::moves, trap<4 * kLarge, by_kernel_before>},
    {"table-copied", Needs::moves, trap<kSmall, by_copy>},
    {"table-carried", Needs::moves, trap<kSmall, by_carrier>},
    {"table-again", Needs::moves, trap<kSmall, again>},
    {"table-freed", Needs::moves, freed_behind<kSmall>},
    {"table-freed-large", Needs::moves, freed_behind<kLarge>},
    {"table-many", Needs::moves, many_addresses},
    {"table-two-levels", Needs::moves, two_levels<kLarge, false>},
    {"table-two-small-levels", Needs::moves, two_levels<kSmall, false>},
    {"table-two-levels-by-kernel", Needs::moves, two_levels<kLarge, true>},
    {"table-in-pinned", Needs::moves, in_host_memory<false>},
    {"table-in-managed", Needs::moves, in_host_memory<true>},
    {"table-in-constant", Needs::moves, in_module<true>},
    {"table-in-global", Needs::pressure, in_module<false>},
    {"table-in-global-by-kernel", Needs::moves, in_module_by_kernel},
    {"table-in-global-by-address", Needs::moves, in_unmanaged<variable>},
    {"table-from-registered", Needs::moves, from_registered},
    {"table-from-mapped-by-hand", Needs::moves, carried_from_unmanaged},
    {"table-mapped-by-hand", Needs::moves, in_unmanaged<mapped_by_hand>},
    {"table-in-shared-pool", Needs::moves, in_unmanaged<from_shared_pool>},
    {"table-in-graph-memory", Needs::moves, in_unmanaged<from_graph<false>>},
    {"table-in-memory-of-two-graphs", Needs::moves, in_unmanaged<from_two_graphs>},
    {"table-in-captured-memory", Needs::moves, in_unmanaged<from_graph<true>>},
};

}  // namespace traps
