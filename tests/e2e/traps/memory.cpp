// Traps: moves under work, frees, overwrites, sizes, addresses that escape, and questions about memory.
#include "tests/e2e/traps/traps.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

namespace traps {
namespace {

using namespace std::chrono_literals;

// ---- moves under work ----

// A kernel on x while everything is pushed out; the address is given as it is, in a struct, in a parameter buffer.
template <int form>
void remap(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUfunction toil = w.kernel(form == 1 ? "toil_struct" : "toil");
  while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
    struct { char tag; CUdeviceptr words; } reach{'x', x};
    const unsigned count = w.toil_words(), stride = kStride;
    const std::uint64_t ns = w.toil_ns();
    if (form == 1) return launch(s, toil, 1, reach, count, stride, ns, lost);
    if (form == 0) return launch(s, toil, 1, x, count, stride, ns, lost);
    struct { CUdeviceptr words; unsigned count, stride; std::uint64_t ns; CUdeviceptr lost; } packed{x, count, stride, ns, lost};
    size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(toil, 1, 1, 1, 1, 1, 1, 0, s, nullptr, extra));
  });
}

// Launches by the thousand, without a pause, on buffers that are pushed out under them.
void launch_storm(unsigned seed) {
  World w(seed);
  constexpr int kBuffers = 4, kRounds = 400;
  std::vector<CUdeviceptr> ring;
  for (int i = 0; i < kBuffers; i++) ring.push_back(w.stepped(kWords, 10 * i));
  std::atomic<bool> stop{false};
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(w.context));
    const CUstream s = w.stream();
    while (!stop) w.press(s);
  });
  const CUstream s = w.stream();
  for (int i = 0; i < kRounds; i++) {
    launch_wide(s, w.add, ring[i % kBuffers], ring[(i + 1) % kBuffers], ring[(i + 2) % kBuffers], kWords);
    if (i % 37 == 0) CHECK(cuStreamSynchronize(s));
  }
  CHECK(cuStreamSynchronize(s));
  stop = true;
  other.join();
  for (CUdeviceptr b : ring) tell("ring", read(b, kWords));
}

// Two threads whose ops each need most of the device: neither may starve, neither may take the other's memory.
void two_hungry(unsigned seed) {
  World w(seed);
  constexpr unsigned kMany = kBudget / 16;  // words: a quarter of the budget
  std::vector<CUdeviceptr> mine;
  for (int i = 0; i < 6; i++) {
    mine.push_back(w.allocate(kMany * 4ul));
    CHECK(cuMemsetD32(mine.back(), 3 + i, kMany));
  }
  CHECK(cuCtxSynchronize());
  auto body = [&](int first) {
    CHECK(cuCtxSetCurrent(w.context));
    const CUstream s = w.stream();
    for (int i = 0; i < 40; i++) launch_wide(s, w.add, mine[first], mine[first + 1], mine[first + 2], kMany), launch_wide(s, w.add, mine[first + 2], mine[first + 1], mine[first], kMany);
    CHECK(cuStreamSynchronize(s));
  };
  std::thread other(body, 3);
  body(0);
  other.join();
  for (CUdeviceptr b : mine) tell("hungry", read(b, kMany));
}

// Written at the last moment of a kernel that nobody waits for.
void late_write(unsigned seed) {
  World w(seed);
  const CUstream slow = w.stream(), fast = w.stream();
  for (int round = 0; round < 4; round++) {
    const CUdeviceptr x = w.stepped();
    launch(slow, w.kernel("late_fill"), 1, x, kWords, 5u + round, w.toil_ns());
    w.press(fast);
    w.press(fast);
    CHECK(cuStreamSynchronize(slow));
    tell("late", read(x, kWords));
    CHECK(cuMemFree(x));
  }
}

// Written by kernels that are given no address within the memory, but its end, or the word before its begin.
void named_from_outside(unsigned seed) {
  World w(seed);
  constexpr unsigned kFull = 3 * 16384;  // words: whole granules, so that the end is where another buffer could begin
  const CUfunction toil = w.kernel("toil_outside");
  const CUdeviceptr before = w.stepped(kFull), x = w.stepped(kFull), after = w.stepped(kFull);
  for (const long long outside : {static_cast<long long>(kFull), -1ll})
    while_pushed(w, x, [&](CUstream s, CUdeviceptr lost) {
      launch(s, toil, 1, x + outside * 4, -outside, w.toil_words(kFull), kStride, w.long_enough(250'000'000), lost);
    });
  for (const CUdeviceptr at : {before, after}) tell("neighbour", read(at, kFull));
}

// ---- frees ----

// Freed in stream order behind a kernel of another stream; allocated again by a third, and written at once.
template <unsigned words>
void free_behind(unsigned seed) {
  World w(seed);
  const CUstream a = w.stream(), b = w.stream(), c = w.stream();
  CUevent done;
  CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  const CUdeviceptr changed = w.allocate(4);
  CHECK(cuMemsetD32(changed, 0, 1));
  CHECK(cuCtxSynchronize());
  for (int round = 0; round < 6; round++) {
    CUdeviceptr x, y;
    CHECK(cuMemAllocAsync(&x, words * 4ul, a));
    CHECK(cuMemsetD32Async(x, 77, words, a));
    CHECK(cuEventRecord(done, a));
    CHECK(cuStreamWaitEvent(b, done, 0));
    launch(b, w.kernel("watch"), 1, x, words, w.toil_ns() / 2, changed);
    CHECK(cuEventRecord(done, b));
    CHECK(cuStreamWaitEvent(a, done, 0));
    CHECK(cuMemFreeAsync(x, a));
    CHECK(cuMemAllocAsync(&y, words * 4ul, c));
    CHECK(cuMemsetD32Async(y, round, words, c));
    CHECK(cuStreamSynchronize(c));
    tell("new", read(y, words));
    CHECK(cuMemFreeAsync(y, c));
    CHECK(cuCtxSynchronize());
  }
  tell("changed", read(changed, 1)[0]);
}

// Freed and allocated again on the legacy stream, whose frees come after what other blocking streams do, and whose allocations go before it.
template <unsigned words>
void free_on_legacy(unsigned seed) {
  World w(seed);
  const CUstream a = w.stream(CU_STREAM_DEFAULT), b = w.stream(CU_STREAM_DEFAULT);
  const CUdeviceptr out = w.allocate(words * 4ul);
  const Gate gate;
  for (unsigned round = 0; round < 6; round++) {
    CUdeviceptr x, y;
    CHECK(cuMemAllocAsync(&x, words * 4ul, CU_STREAM_LEGACY));
    CHECK(cuMemsetD32Async(x, 77 + round, words, CU_STREAM_LEGACY));
    gate.close(a);
    CHECK(cuMemcpyDtoDAsync(out, x, words * 4ul, a));
    CHECK(cuMemFreeAsync(x, CU_STREAM_LEGACY));
    CHECK(cuMemAllocAsync(&y, words * 4ul, CU_STREAM_LEGACY));
    CHECK(cuMemsetD32Async(y, round, words, b));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.open();
    CHECK(cuCtxSynchronize());
    tell("old", read(out, words));
    tell("new", read(y, words));
    CHECK(cuMemFreeAsync(y, CU_STREAM_LEGACY));
  }
}

// cuMemFree waits for the device: what a kernel of another stream writes for the host is there afterwards.
void free_waits(unsigned seed) {
  World w(seed);
  unsigned* flag;
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4, CU_MEMHOSTALLOC_DEVICEMAP));
  const CUstream s = w.stream();
  for (unsigned round = 1; round < 5; round++) {
    const CUdeviceptr x = w.allocate(kWords * 4ul);
    launch(s, w.kernel("late_flag"), 1, flag, round, w.toil_ns());
    CHECK(cuMemFree(x));
    tell("flag", *static_cast<volatile unsigned*>(flag));
  }
}

// ... also when another context is current.
void free_waits_elsewhere(unsigned seed) {
  World w(seed);
  unsigned* flag;
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4, CU_MEMHOSTALLOC_DEVICEMAP));
  *flag = 0;
  const CUstream s = w.stream();
  CUcontext second;
  CHECK(cuCtxCreate(&second, nullptr, 0, w.device));
  for (unsigned round = 1; round < 5; round++) {
    CHECK(cuCtxSetCurrent(w.context));
    const CUdeviceptr x = w.allocate(kWords * 4ul);
    launch(s, w.kernel("late_flag"), 1, flag, round, w.long_enough(60'000'000));
    CHECK(cuCtxSetCurrent(second));
    CHECK(cuMemFree(x));
    tell("flag", *static_cast<volatile unsigned*>(flag));
  }
}

// ... but not if the memory is a pool's: what the device has to do then ends only after the free.
void free_of_pool_waits_not(unsigned seed) {
  World w(seed);
  const Gate gate;
  const CUstream a = w.stream(), b = w.stream();
  for (unsigned round = 1; round < 4; round++) {
    for (unsigned words : {kWords, 500u}) {
      const CUdeviceptr y = w.stepped(words);
      CUdeviceptr x;
      CHECK(cuMemAllocAsync(&x, words * 4ul, b));
      CHECK(cuMemsetD32Async(x, round, words, b));
      CHECK(cuStreamSynchronize(b));
      gate.close(a);
      launch_wide(a, w.add, y, y, y, words);
      CHECK(cuMemFree(x));
      tell("twice", cuMemFree(x));
      CHECK(cuMemAllocAsync(&x, words * 4ul, b));
      CHECK(cuMemsetD32Async(x, round + 1, words, b));
      CHECK(cuStreamSynchronize(b));
      gate.open();
      CHECK(cuStreamSynchronize(a));
      tell("new", read(x, words));
      tell("y", read(y, words));
      CHECK(cuMemFreeAsync(x, b));
      CHECK(cuMemFree(y));
    }
  }
}

// Freed twice, freed from within, freed though never allocated.
void free_wrongly(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), small = w.allocate(64);
  tell("within", cuMemFree(x + 4096));
  tell("within small", cuMemFree(small + 4));
  CHECK(cuMemFree(x));
  CHECK(cuMemFree(small));
  tell("twice", cuMemFree(x));
  tell("twice small", cuMemFree(small));
  tell("null", cuMemFree(0));
  tell("zero bytes", cuMemAlloc(&w.fillers[0], 0));
}

// Small allocations, freed again, at once or behind a kernel that still writes to one of them: there is room for a large buffer then that
// would not fit beside them, and nothing of theirs is in it.
void small_then_large(unsigned seed) {
  World w(seed);
  const CUstream a = w.stream(), b = w.stream();
  for (const CUdeviceptr f : w.fillers) CHECK(cuMemFree(f));
  constexpr unsigned kSmall = 7500, kLarge = (16u << 20) / 4 + (384u << 10) / 4;   // words: half of all the memory that there is for both, but for some granules
  for (unsigned round = 0; round < 4; round++) {
    const bool ordered = round % 2;
    std::vector<CUdeviceptr> small(24);
    for (CUdeviceptr& at : small) {
      CHECK(ordered ? cuMemAllocAsync(&at, kSmall * 4ul, a) : cuMemAlloc(&at, kSmall * 4ul));
      CHECK(cuMemsetD32Async(at, round, kSmall, a));
    }
    CHECK(cuStreamSynchronize(a));
    const CUdeviceptr last = small[w.rng() % small.size()];
    tell("small", read(last, kSmall));
    launch(a, w.kernel("late_fill"), 1, last, kSmall, 5u + round, w.toil_ns());
    for (const CUdeviceptr at : small) CHECK(ordered ? cuMemFreeAsync(at, a) : cuMemFree(at));
    CUdeviceptr large = 0;
    tell("large", cuMemAlloc(&large, kLarge * 4ul));
    if (!large) continue;
    CHECK(cuMemsetD32Async(large, 70 + round, kLarge, b));
    CHECK(cuStreamSynchronize(b));
    CHECK(cuStreamSynchronize(a));
    tell("all of it", read(large, kLarge));
    CHECK(cuMemFree(large));
  }
}

// ---- overwrites ----

// Written over, in whole or in part, while it is out.
void overwrite(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  std::vector<unsigned> data(kWords);
  for (unsigned i = 0; i < kWords; i++) data[i] = i ^ seed;
  const CUdeviceptr x = w.stepped(), y = w.stepped(kWords, 3);
  auto out = [&] { w.press(s), w.press(s); };
  out();
  CHECK(cuMemsetD32(x, 5, kWords));
  tell("memset", read(x, kWords));
  out();
  CHECK(cuMemsetD32(x + 400, 6, kWords - 300));
  tell("tail", read(x, kWords));
  out();
  CHECK(cuMemsetD32(x, 7, kWords - 1));
  tell("all but one", read(x, kWords));
  out();
  CHECK(cuMemcpyHtoD(x, data.data(), kWords * 4ul));
  tell("copy", read(x, kWords));
  out();
  CHECK(cuMemcpyHtoD(x + 8, data.data(), 4000));
  tell("part", read(x, kWords));
  out();
  CHECK(cuMemcpyDtoD(x, y, kWords * 4ul));
  tell("device", read(x, kWords));
  out();
  CHECK(cuMemsetD2D32(x, 800, 9, 100, kWords / 200));
  tell("rows", read(x, kWords));
  CHECK(cuCtxSynchronize());
  out();
  launch_wide(s, w.add, x, y, x, kWords);
  CHECK(cuStreamSynchronize(s));
  tell("both", read(x, kWords));
}

// A call that would have overwritten everything and fails: what was there stays.
void overwrite_fails(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  const CUdeviceptr x = w.allocate(kWords * 4ul + 4);
  launch_wide(s, w.kernel("steps"), x, kWords + 1, kStride, 1u);
  CHECK(cuStreamSynchronize(s));
  auto out = [&] { w.press(s), w.press(s); };
  out();
  tell("no source", cuMemcpyHtoD(x, nullptr, kWords * 4ul + 4) != CUDA_SUCCESS);
  tell("kept", read(x, kWords + 1));
  out();
  tell("wild source", cuMemcpyDtoD(x, 4096, kWords * 4ul + 4) != CUDA_SUCCESS);
  tell("kept", read(x, kWords + 1));
}

// ---- sizes ----

// Neighbours that share a granule, or would, written to their very ends by turns.
void neighbours(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  std::vector<CUdeviceptr> at;
  std::vector<unsigned> words;
  for (int i = 0; i < 60; i++) {
    words.push_back(1 + w.rng() % 24000);
    at.push_back(w.allocate(words.back() * 4ul));
    CHECK(cuMemsetD32(at.back(), 1000 + i, words.back()));
  }
  CHECK(cuCtxSynchronize());
  for (int round = 0; round < 60; round++) {
    const unsigned k = w.rng() % at.size();
    CHECK(cuMemsetD32Async(at[k], round, words[k], s));
    if (round % 20 == 0) w.press(s);
  }
  CHECK(cuStreamSynchronize(s));
  for (size_t i = 0; i < at.size(); i++) tell("neighbour", read(at[i], words[i]));
}

// Many sizes, freed and taken again in another order, until what is free is free in the wrong pieces.
void stranded(unsigned seed) {
  World w(seed);
  std::vector<CUdeviceptr> at;
  std::vector<unsigned> words;
  auto granules = [](unsigned n) { return n * 16384 - 100; };
  for (int wave = 0; wave < 3; wave++) {
    for (unsigned n = 1; n <= 13; n += 1 + wave) {
      words.push_back(granules(wave == 1 ? 14 - n : n));
      at.push_back(w.allocate(words.back() * 4ul));
      launch_wide(nullptr, w.fill, at.back(), n + 100 * wave, words.back());
    }
    CHECK(cuCtxSynchronize());
    for (size_t i = wave; i < at.size(); i += 2) {
      tell("stranded", read(at[i], words[i]));
      CHECK(cuMemFree(at[i]));
      at.erase(at.begin() + i), words.erase(words.begin() + i);
    }
  }
  for (size_t i = 0; i < at.size(); i++) tell("left", read(at[i], words[i]));
}

// One buffer, and one op, larger than the device that the library may use.
void larger_than_device(unsigned seed) {
  World w(seed);
  const unsigned words = kBudget / 4 * 3 / 2;
  const CUdeviceptr a = w.allocate(words * 4ul), b = w.allocate(words * 4ul);
  launch_wide(nullptr, w.fill, a, seed, words);
  launch_wide(nullptr, w.fill, b, seed + 1, words);
  launch_wide(nullptr, w.add, a, b, a, words);
  tell("large", read(a, words));
  CUdeviceptr none = 0;
  tell("absurd", cuMemAlloc(&none, std::size_t{1} << 50));
}

// ---- escapes, and memory that is not ours ----

// All of the device but so much, in a piece that does not go through the library's hands. Said is what the driver answers.
CUmemGenericAllocationHandle take_all_but(std::size_t left) {
  size_t granule = 0, free = 0, total = 0;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK(cuMemGetInfo(&free, &total));
  CUmemGenericAllocationHandle handle = 0;
  tell("taken", cuMemCreate(&handle, (free - left) / granule * granule, &prop, 0));
  return handle;
}

// What the program has freed, as cuMemGetInfo counts it, is there for others.
void freed_for_others(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  w.press(nullptr);
  for (unsigned i = 0; i < 7; i++) CHECK(cuMemFree(w.fillers[i]));
  w.fillers.erase(w.fillers.begin(), w.fillers.begin() + 7);
  const CUmemGenericAllocationHandle handle = take_all_but(kBudget / 2);
  launch_wide(nullptr, w.add, x, x, x, kWords);
  w.press(nullptr);
  tell("x", read(x, kWords));
  CHECK(cuMemRelease(handle));
}

// Code takes memory too: a module with a large variable, of which there is enough only with what was freed.
void freed_for_code(unsigned seed) {
  World w(seed);
  w.press(nullptr);
  const CUmemGenericAllocationHandle handle = take_all_but(kBudget / 4);
  for (const CUdeviceptr f : w.fillers) CHECK(cuMemFree(f));
  const std::string image = ".version 6.0\n.target sm_50\n.address_size 64\n.global .align 8 .b8 large[" + std::to_string(kBudget * 3 / 4) + "];\n";
  CUmodule module = nullptr;
  tell("loaded", cuModuleLoadData(&module, image.c_str()));
  if (module) CHECK(cuModuleUnload(module));
  CHECK(cuMemRelease(handle));
}

// The program maps the buffer's physical memory, or memory of its own, where it likes.
void own_mappings(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  size_t granule = 0;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at, mirror;
  CHECK(cuMemCreate(&handle, granule * 4, &prop, 0));
  CHECK(cuMemAddressReserve(&at, granule * 4, 0, 0, 0));
  CHECK(cuMemAddressReserve(&mirror, granule * 4, 0, 0, 0));
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (CUdeviceptr where : {at, mirror}) {
    CHECK(cuMemMap(where, granule * 4, 0, handle, 0));
    CHECK(cuMemSetAccess(where, granule * 4, &access, 1));
  }
  CHECK(cuMemRelease(handle));
  const unsigned words = static_cast<unsigned>(granule);
  const CUdeviceptr x = w.stepped();
  launch_wide(s, w.fill, at, seed, words);
  launch_wide(s, w.add, mirror, mirror, at, words);
  w.press(s);
  launch_wide(s, w.add, at, x, at, std::min(words, kWords));
  CHECK(cuStreamSynchronize(s));
  tell("mirror", read(mirror, words));
  CHECK(cuMemUnmap(at, granule * 4));
  CHECK(cuMemUnmap(mirror, granule * 4));
  CHECK(cuMemAddressFree(at, granule * 4));
  CHECK(cuMemAddressFree(mirror, granule * 4));
  tell("x", read(x, kWords));
}

// Handles of memory: the program's own is exported, imported and mapped once more; of a buffer there is none, nor a dma-buf of it.
void exported(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  const CUdeviceptr x = w.stepped();
  size_t granule = 0;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CHECK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle handles[2];
  CUdeviceptr at[2];
  int file = -1;
  CHECK(cuMemCreate(&handles[0], granule * 4, &prop, 0));
  CHECK(cuMemExportToShareableHandle(&file, handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(cuMemImportFromShareableHandle(&handles[1], reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(file);
  CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (int i = 0; i < 2; i++) {
    CHECK(cuMemAddressReserve(&at[i], granule * 4, 0, 0, 0));
    CHECK(cuMemMap(at[i], granule * 4, 0, handles[i], 0));
    CHECK(cuMemSetAccess(at[i], granule * 4, &access, 1));
    CHECK(cuMemRelease(handles[i]));
  }
  const unsigned words = static_cast<unsigned>(granule);
  for (unsigned round = 0; round < 3; round++) {
    launch_wide(s, w.fill, at[round % 2], seed + round, words);
    launch_wide(s, w.add, at[1 - round % 2], x, x, std::min(words, kWords));
    w.press(s);
  }
  tell("imported", read(at[1], words));
  CUmemGenericAllocationHandle none = 0;
  int descriptor = -1;
  tell("handle of a buffer", cuMemRetainAllocationHandle(&none, reinterpret_cast<void*>(x)));
  tell("dma-buf of a buffer", cuMemGetHandleForAddressRange(&descriptor, x, granule, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  w.press(s);
  tell("x", read(x, kWords));
  for (CUdeviceptr a : at) {
    CHECK(cuMemUnmap(a, granule * 4));
    CHECK(cuMemAddressFree(a, granule * 4));
  }
}

// Managed and registered memory beside ours.
void managed_beside(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  const CUdeviceptr x = w.stepped();
  CUdeviceptr managed;
  CHECK(cuMemAllocManaged(&managed, kWords * 4ul, CU_MEM_ATTACH_GLOBAL));
  std::vector<unsigned> own(kWords, 11);
  CHECK(cuMemHostRegister(own.data(), kWords * 4ul, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr registered;
  CHECK(cuMemHostGetDevicePointer(&registered, own.data(), 0));
  auto* seen = reinterpret_cast<unsigned*>(managed);
  for (unsigned i = 0; i < kWords; i++) seen[i] = i * 3;
  for (int round = 0; round < 3; round++) {
    launch_wide(s, w.add, x, managed, managed, kWords);
    launch_wide(s, w.add, x, registered, registered, kWords);
    w.press(s);
  }
  CHECK(cuStreamSynchronize(s));
  tell("managed", std::vector<unsigned>(seen, seen + kWords));
  tell("registered", own);
  tell("x", read(x, kWords));
  CHECK(cuMemHostUnregister(own.data()));
  CHECK(cuMemFree(managed));
}

// A copy from a buffer to itself, when it is out: nothing changes.
void copy_onto_itself(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), y = w.stepped(kWords, 30);
  const CUstream s = w.stream();
  w.press(s);
  CHECK(cuMemcpyDtoDAsync(x, x, kWords * 4ul, s));
  w.press(s);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = rows.dstDevice = y;
  rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 4000;
  rows.Height = kWords / 1000;
  CHECK(cuMemcpy2DAsync(&rows, s));
  CHECK(cuStreamSynchronize(s));
  tell("x", read(x, kWords));
  tell("y", read(y, kWords));
}

// The copies with attributes, and the host functions that may be waited for busily: a driver of CUDA 13.2 has them, and hands them
// out to who asks for that version or for their names. To memory that was never touched, from memory that is out, and over some.
void copy_with_attributes(unsigned seed) {
  World w(seed);
  using Flat = CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes*, CUstream);
  using Box = CUresult (*)(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);
  using Call = CUresult (*)(CUstream, CUhostFn, void*, unsigned);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const Gate gate;
  const CUstream s = w.stream(), other = w.stream();
  static unsigned calls;
  calls = 0;
  for (unsigned way = 0; way < 4; way++) {
    const auto find = [&](const char* name, const char* symbol, int version) {
      void* found = nullptr;
      if (way >= 2) return dlsym(driver, (std::string(symbol) + (way == 3 ? "_ptsz" : "")).c_str());
      CHECK(cuGetProcAddress(name, &found, version, way == 1 ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0, nullptr));
      return found;
    };
    const auto flat = reinterpret_cast<Flat>(find("cuMemcpyWithAttributesAsync", "cuMemcpyWithAttributesAsync", 13020));
    const auto box = reinterpret_cast<Box>(find("cuMemcpy3DWithAttributesAsync", "cuMemcpy3DWithAttributesAsync", 13020));
    const auto call = reinterpret_cast<Call>(find("cuLaunchHostFunc", "cuLaunchHostFunc_v2", 13010));
    CUmemcpyAttributes order{};
    order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CUDA_MEMCPY3D_BATCH_OP rows{};
    rows.srcAccessOrder = order.srcAccessOrder;
    rows.src.type = rows.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    rows.extent = {4000, kWords / 1000, 1};
    const CUdeviceptr x = w.stepped(kWords, 10 * way), over = w.stepped(kWords, 3), fresh = w.allocate(kWords * 4ul), boxes = w.allocate(kWords * 4ul);
    w.press(other), w.press(other);
    // Behind a gate: what is pushed out meanwhile is not what the copies name.
    gate.close(s);
    CHECK(flat(fresh, x, kWords * 4ul, &order, s));
    CHECK(flat(over + 400, x + 800, 4000, &order, s));
    rows.src.op.ptr.ptr = x, rows.dst.op.ptr.ptr = boxes;
    rows.src.op.ptr.rowLength = rows.dst.op.ptr.rowLength = 4000;
    CHECK(box(&rows, 0, s));
    rows.dst.op.ptr.ptr = over, rows.extent.width = 2000;
    CHECK(box(&rows, 0, s));
    CHECK(call(s, [](void* count) { ++*static_cast<unsigned*>(count); }, &calls, 0));
    w.press(other), w.press(other);
    gate.open();
    CHECK(cuStreamSynchronize(s));
    tell("calls", calls);
    for (const CUdeviceptr at : {x, fresh, over, boxes}) tell("copied", read(at, kWords));
    // Without a stream: the whole of it over what is out.
    w.press(other), w.press(other);
    CHECK(flat(over, x, kWords * 4ul, &order, nullptr));
    CHECK(cuCtxSynchronize());
    tell("over", read(over, kWords));
    for (const CUdeviceptr at : {x, over, fresh, boxes}) CHECK(cuMemFree(at));
  }
}

// A large buffer is allocated, used and freed before many small ones: it takes no room of theirs. All but a few MiB of what the suite
// gives the library are filled.
void large_once(unsigned seed) {
  World w(seed);
  const CUdeviceptr large = w.allocate(14 << 20);
  launch_wide(nullptr, w.fill, large, seed, unsigned{14 << 18});
  tell("large", read(large, 1000));
  CHECK(cuMemFree(large));
  constexpr unsigned kCount = 230, kEach = 1 << 15;   // words: 128 KiB
  std::vector<CUdeviceptr> all;
  for (unsigned i = 0; i < kCount; i++) {
    all.push_back(w.allocate(kEach * 4));
    launch_wide(nullptr, w.fill, all.back(), i, kEach);
  }
  for (unsigned i = 0; i < kCount; i += 50) tell("small", read(all[i], kEach));
}

// Sizes near the largest number there is: nobody has so much, and the next allocation has an address of its own.
void sizes_beyond(unsigned seed) {
  World w(seed);
  for (const std::size_t less : {1ul, 4096ul, 65536ul, 100000ul, 131072ul, 150000ul, 1ul << 40}) {
    CUdeviceptr at = 0;
    tell("beyond", cuMemAlloc(&at, std::size_t{0} - less));
    const CUdeviceptr a = w.allocate(131072), b = w.allocate(131072);
    tell("apart", a + 131072 <= b || b + 131072 <= a);
    CHECK(cuMemFree(a));
    CHECK(cuMemFree(b));
  }
}

// A kernel is given, beside what it uses, an address that was freed, while another thread's memory takes that one's place.
void stale_address(unsigned seed) {
  World w(seed);
  const CUfunction f = w.kernel("not_all");
  const CUdeviceptr x = w.allocate(kWords * 4ul);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(w.context));
    const CUstream s = w.stream();
    for (unsigned n = seed; !stop; n++) {
      CUdeviceptr p;
      CHECK(cuMemAllocAsync(&p, (3 + n % 7) * 65536ul, s));
      CHECK(cuMemsetD32Async(p, 1, (3 + n % 7) * 16384u, s));
      CHECK(cuMemFreeAsync(p, s));
      CHECK(cuStreamSynchronize(s));
    }
  });
  const CUstream s = w.stream();
  for (unsigned n = 0; n < (w.brief ? 50u : 1500u); n++) {
    CUdeviceptr p;
    CHECK(cuMemAllocAsync(&p, (2 + n % 5) * 65536ul, s));
    CHECK(cuMemsetD32Async(p, 1, (2 + n % 5) * 16384u, s));
    CHECK(cuMemFreeAsync(p, s));
    for (int k = 0; k < 4; k++) launch(s, f, 1, x, p);
    CHECK(cuStreamSynchronize(s));
  }
  stop = true;
  other.join();
  tell("x", read(x, 1));
}

// A word of a structure that leads to freed memory, and counts for nothing then, later leads to what the kernel works on: where that
// is, it stays meanwhile.
void stray_counts(unsigned seed) {
  World w(seed);
  struct Perhaps {
    std::uint64_t counts;
    CUdeviceptr words;
  };
  const CUfunction perhaps = w.kernel("toil_perhaps"), toil = w.kernel("toil");
  const CUdeviceptr lost = w.allocate(4), old = w.allocate(kWords * 4ul);
  CHECK(cuMemsetD32(lost, 0, 1));
  CHECK(cuMemFree(old));
  const CUstream s = w.stream(), other = w.stream();
  launch(s, perhaps, 1, Perhaps{0, old}, 1u, kStride, std::uint64_t{0}, lost);
  const CUdeviceptr x = w.stepped();
  if (seed % 2) w.press(other);   // it begins in host memory
  launch(s, perhaps, 1, Perhaps{1, x}, w.toil_words(), kStride, w.toil_ns(), lost);
  if (seed % 4 < 2) w.press(other);
  launch(s, toil, 1, x, w.toil_words(), kStride, std::uint64_t{1}, lost);
  w.press(s);
  tell("x", read(x, kWords));
  tell("lost", read(lost, 1));
}

// The address of freed memory among what is copied to a module's variable: no kernel follows it.
void stale_in_variable(unsigned seed) {
  World w(seed);
  CUdeviceptr at, words[4] = {};
  CHECK(cuModuleGetGlobal(&at, nullptr, w.more, "in_global"));
  words[0] = w.allocate(kWords * 8ul), words[1] = w.allocate(500);
  for (int i = 0; i < 2; i++) {
    CHECK(cuMemsetD32(words[i], 1, 100));
    CHECK(cuMemFree(words[i]));
  }
  words[2] = w.stepped();
  CHECK(cuMemcpyHtoD(at, words, sizeof words));
  const CUstream s = w.stream();
  w.press(s);
  tell("x", read(words[2], kWords));
}

}  // namespace

const std::vector<Trap> memory_traps = {
    {"remap", Needs::moves, remap<0>},
    {"remap-struct", Needs::moves, remap<1>},
    {"remap-packed", Needs::moves, remap<2>},
    {"launch-storm", Needs::moves, launch_storm},
    {"two-hungry", Needs::moves, two_hungry},
    {"late-write", Needs::moves, late_write},
    {"named-from-outside", Needs::moves, named_from_outside},
    {"free-behind", Needs::nothing, free_behind<kWords>},
    {"free-behind-small", Needs::nothing, free_behind<500>},
    {"free-on-legacy", Needs::nothing, free_on_legacy<kWords>},
    {"free-on-legacy-small", Needs::nothing, free_on_legacy<500>},
    {"free-waits", Needs::nothing, free_waits},
    {"free-waits-elsewhere", Needs::nothing, free_waits_elsewhere},
    {"free-of-pool-waits-not", Needs::nothing, free_of_pool_waits_not},
    {"free-wrongly", Needs::nothing, free_wrongly},
    {"small-then-large", Needs::nothing, small_then_large},
    {"overwrite", Needs::moves, overwrite},
    {"overwrite-fails", Needs::moves, overwrite_fails},
    {"copy-onto-itself", Needs::moves, copy_onto_itself},
    {"copy-with-attributes", Needs::moves, copy_with_attributes},
    {"large-once", Needs::moves, large_once},
    {"sizes-beyond", Needs::nothing, sizes_beyond},
    {"stale-address", Needs::moves, stale_address},
    {"stray-counts", Needs::moves, stray_counts},
    {"stale-in-variable", Needs::moves, stale_in_variable},
    {"neighbours", Needs::moves, neighbours},
    {"stranded", Needs::moves, stranded},
    {"larger-than-device", Needs::nothing, larger_than_device},
    {"freed-for-others", Needs::nothing, freed_for_others},
    {"freed-for-code", Needs::nothing, freed_for_code},
    {"own-mappings", Needs::moves, own_mappings},
    {"exported", Needs::moves, exported},
    {"managed-beside", Needs::moves, managed_beside},
};

}  // namespace traps
