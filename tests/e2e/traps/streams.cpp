// Traps: launches that the program itself holds up, streams of every kind, contexts, devices.
#include "tests/e2e/traps/traps.hpp"

#include <mutex>

namespace traps {
namespace {

// A host function wants a lock that the launching thread holds while it launches an op that has to wait for memory,
// which is in use by what stands before the host function.
void host_function_wants_lock(unsigned seed) {
  World w(seed);
  struct Shared {
    std::mutex mutex;
    std::atomic<int> ran{0};
  } shared;
  const CUstream a = w.stream(), b = w.stream();
  const CUdeviceptr x = w.stepped();
  for (int round = 0; round < 2; round++) {
    std::unique_lock lock(shared.mutex);
    CHECK(cuLaunchHostFunc(a, [](void* p) {
      auto* s = static_cast<Shared*>(p);
      std::lock_guard inner(s->mutex);
      s->ran++;
    }, &shared));
    // All that the device holds now waits for the host function.
    for (CUdeviceptr f : w.fillers) launch_wide(a, w.fill, f, 1u + round, static_cast<unsigned>(kBudget / 8 / 4));
    launch_wide(b, w.add, x, x, x, kWords);
    lock.unlock();
    CHECK(cuCtxSynchronize());
    tell("ran", shared.ran);
  }
  tell("x", read(x, kWords));
}

// The same with many launches that have to wait: once it was seen that waiting brings nothing, each must not find out again. (At
// a whole deadline each they take longer than a trap may.)
void host_function_wants_lock_long(unsigned seed) {
  World w(seed);
  const CUstream a = w.stream(), b = w.stream();
  const CUdeviceptr x = w.stepped(), y = w.stepped();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  CHECK(cuLaunchHostFunc(a, [](void* p) { std::lock_guard inner(*static_cast<std::mutex*>(p)); }, &mutex));
  for (CUdeviceptr f : w.fillers) launch_wide(a, w.fill, f, 1u, static_cast<unsigned>(kBudget / 8 / 4));
  for (int i = 0; i < 400; i++) launch_wide(b, w.add, i % 2 ? x : y, x, y, kWords);
  lock.unlock();
  CHECK(cuCtxSynchronize());
  tell("x", read(x, kWords));
  // Then all is as before: what waits for ops that end has its memory on the device again.
  for (CUdeviceptr f : w.fillers) launch_wide(a, w.fill, f, 2u, static_cast<unsigned>(kBudget / 8 / 4));
  launch_wide(b, w.add, x, x, y, kWords);
  CHECK(cuCtxSynchronize());
  tell("x", read(x, kWords));
  tell("y", read(y, kWords));
}

// The same where all launches are behind the lock: some find their memory there, for others what is in use behind the lock
// would have to go.
void host_function_wants_lock_behind(unsigned seed) {
  World w(seed);
  const CUstream a = w.stream();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  CHECK(cuLaunchHostFunc(a, [](void* p) { std::lock_guard inner(*static_cast<std::mutex*>(p)); }, &mutex));
  const unsigned words = static_cast<unsigned>(kBudget / 8 / 4);
  for (unsigned i = 0; i < 1200; i++) launch_wide(a, w.add, w.fillers[i % 9], w.fillers[(i + 1) % 9], w.fillers[i % 9], words);
  lock.unlock();
  CHECK(cuCtxSynchronize());
  for (const CUdeviceptr f : w.fillers) tell("filler", read(f, words));
}

// A thread ends in the middle of a capture on its own stream. Nobody captures any more then, and memory moves as ever.
void capture_left_open(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  const CUdeviceptr x = w.stepped();
  std::vector<unsigned> landed(kWords);
  std::thread([&] {
    CHECK(cuCtxSetCurrent(w.context));
    CHECK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
  }).join();
  w.press(s);
  launch_wide(s, w.add, x, x, x, kWords);
  w.press(s);
  CHECK(cuMemcpyDtoHAsync(landed.data(), x, kWords * 4ul, s));   // the legacy stream is not to be used: to the driver the capture goes on
  CHECK(cuStreamSynchronize(s));
  tell("x", landed);
}

// A gate that the launching thread opens only after launches that have to wait for memory behind the gate; or that a kernel
// opens, which may touch anything, for it is given memory of the host's.
template <bool by_kernel>
void gate_opened_later(unsigned seed) {
  World w(seed);
  unsigned* gate;
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 4, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr at;
  CHECK(cuMemHostGetDevicePointer(&at, gate, 0));
  *gate = 0;
  const CUstream a = w.stream(), b = w.stream();
  const CUdeviceptr x = w.stepped();
  for (unsigned round = 1; round < 3; round++) {
    CHECK(cuStreamWaitValue32(a, at, round, CU_STREAM_WAIT_VALUE_GEQ));
    for (CUdeviceptr f : w.fillers) launch_wide(a, w.fill, f, round, static_cast<unsigned>(kBudget / 8 / 4));
    launch_wide(b, w.add, x, x, x, kWords);
    if (by_kernel) launch(b, w.kernel("late_flag"), 1, gate, round, std::uint64_t{0});
    else *static_cast<volatile unsigned*>(gate) = round;
    CHECK(cuCtxSynchronize());
  }
  tell("x", read(x, kWords));
}

// A legacy stream is a barrier between the blocking ones, and nothing of ours may be one where the program has none: while one
// stream waits for a value that another writes, launches wait for memory that the legacy stream has used.
void legacy_no_barrier(unsigned seed) {
  World w(seed);
  const CUstream a = w.stream(CU_STREAM_DEFAULT), b = w.stream(CU_STREAM_DEFAULT), c = w.stream();
  const CUdeviceptr gate = w.allocate(64), x = w.stepped();
  CHECK(cuMemsetD32(gate, 0, 16));
  for (unsigned round = 1; round < 4; round++) {
    CHECK(cuMemsetD32Async(w.fillers[round], round, kBudget / 8 / 4, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    launch_wide(nullptr, w.add, x, x, x, kWords);
    CHECK(cuStreamWaitValue32(a, gate, round, CU_STREAM_WAIT_VALUE_GEQ));
    w.press(c);
    CHECK(cuStreamWriteValue32(b, gate, round, 0));
    CHECK(cuCtxSynchronize());
  }
  tell("x", read(x, kWords));
}

// Gates and their values in managed buffers of the pager's.
void gate_in_buffer(unsigned seed) {
  World w(seed);
  const CUstream a = w.stream(), b = w.stream();
  const CUdeviceptr small = w.allocate(64), large = w.stepped(), x = w.stepped();
  CHECK(cuMemsetD32(small, 0, 16));
  CHECK(cuMemsetD32(large, 0, kWords));
  CHECK(cuCtxSynchronize());
  for (unsigned round = 1; round < 4; round++) {
    const CUdeviceptr gate = round % 2 ? small : large;
    CHECK(cuStreamWaitValue32(a, gate, round, CU_STREAM_WAIT_VALUE_GEQ));
    launch_wide(a, w.add, x, x, x, kWords);
    CHECK(cuStreamWriteValue32(b, gate, round, 0));
    CHECK(cuStreamSynchronize(a));
    w.press(b);
  }
  tell("x", read(x, kWords));
}

// Legacy, per-thread, default and non-blocking streams, with priorities; ordered by nothing but their own rules.
void stream_kinds(unsigned seed) {
  World w(seed);
  int least = 0, most = 0;
  CHECK(cuCtxGetStreamPriorityRange(&least, &most));
  CUstream high, low;
  CHECK(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, most));
  CHECK(cuStreamCreateWithPriority(&low, CU_STREAM_DEFAULT, least));
  const CUdeviceptr x = w.stepped(), y = w.stepped(), z = w.stepped();
  const CUfunction late = w.kernel("late_fill");
  for (unsigned round = 0; round < 4; round++) {
    launch(low, late, 1, x, kWords, round, w.long_enough(2'000'000));
    launch_wide(nullptr, w.add, x, x, y, kWords);   // legacy: after low
    launch_wide(low, w.add, y, x, z, kWords);       // after legacy
    w.press(high);
    CHECK(cuStreamSynchronize(low));
    launch_wide(CU_STREAM_PER_THREAD, w.add, z, z, z, kWords);
    w.press(CU_STREAM_PER_THREAD);
    launch_wide(CU_STREAM_LEGACY, w.add, z, y, z, kWords);
    CHECK(cuCtxSynchronize());
    tell("z", read(z, kWords));
  }
}

// What a thread freed in the order of its own stream is still to be read there when the thread is gone and another, whose
// thread-local data is where the first one's was, allocates on its own stream.
void thread_after_thread(unsigned seed) {
  World w(seed);
  const CUfunction late = w.kernel("late_fill");
  const CUdeviceptr sum = w.allocate(kWords * 4ul);
  const auto in_thread = [&](const std::function<void(CUstream)>& body) {
    std::thread([&] {
      CHECK(cuCtxSetCurrent(w.context));
      body(CU_STREAM_PER_THREAD);
    }).join();
  };
  for (unsigned round = 0; round < 8; round++) {
    const unsigned words = round % 2 ? 50 : kWords;
    in_thread([&](CUstream s) {
      CUdeviceptr x;
      CHECK(cuMemAllocAsync(&x, words * 4ul, s));
      launch(s, late, 1, x, words, seed, w.long_enough(4'000'000));
      launch_wide(s, w.add, x, x, sum, words);
      CHECK(cuMemFreeAsync(x, s));
    });
    in_thread([&](CUstream s) {
      CUdeviceptr y;
      CHECK(cuMemAllocAsync(&y, words * 4ul, s));
      CHECK(cuMemsetD32Async(y, words, words, s));
      CHECK(cuMemFreeAsync(y, s));
    });
    CHECK(cuCtxSynchronize());
    tell("sum", read(sum, words));
  }
  w.press(w.stream());
}

// A kernel on x waits behind a gate, on a stream that may be gone by then; everything else is pushed out and x read
// while the kernel runs.
template <bool destroy>
void late_start(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped(), lost = w.allocate(4);
  CHECK(cuMemsetD32(lost, 0, 1));
  volatile unsigned* gate;  // and a word that tells that it was passed
  CHECK(cuMemHostAlloc((void**)&gate, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr at;
  CHECK(cuMemHostGetDevicePointer(&at, (void*)gate, 0));
  gate[0] = gate[1] = 0;
  void* landing;
  CHECK(cuMemHostAlloc(&landing, kWords * 4ul, 0));
  CHECK(cuCtxSynchronize());
  const CUfunction toil = w.kernel("toil");
  const CUstream others = w.stream();
  for (unsigned round = 1; round < 4; round++) {
    const CUstream s = w.stream();
    CHECK(cuStreamWaitValue32(s, at, round, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(cuStreamWriteValue32(s, at + 4, round, CU_STREAM_WRITE_VALUE_DEFAULT));
    launch(s, toil, 1, x, w.toil_words(), kStride, w.long_enough(500'000'000), lost);
    if (destroy) CHECK(cuStreamDestroy(s));
    w.press(others);
    w.press(others);
    gate[0] = round;
    while (gate[1] != round) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    for (int again = 0; again < 3; again++) {  // as often as the kernel lasts, and more: one of them must meet it
      CHECK(cuMemcpyDtoHAsync(landing, x + kWords * 2ul, kWords * 2ul, others));
      w.press(others);
    }
    CHECK(cuCtxSynchronize());
    tell("half", std::vector<unsigned>(static_cast<unsigned*>(landing), static_cast<unsigned*>(landing) + kWords / 2));
    tell("lost", read(lost, 1)[0]);
    tell("x", read(x, kWords));
  }
}

// More streams than there are bits to tell them apart by.
void many_streams(unsigned seed) {
  World w(seed);
  const CUstream press = w.stream();
  std::vector<CUstream> streams;
  for (int i = 0; i < 400; i++) streams.push_back(w.stream());
  const CUdeviceptr x = w.stepped(), y = w.stepped();
  for (unsigned i = 0; i < streams.size(); i++) {
    launch_wide(streams[i], w.add, x, y, x, kWords);
    if (i % 50 == 0) w.press(press);
    CHECK(cuStreamSynchronize(streams[i]));
  }
  launch(streams[149], w.kernel("late_fill"), 1, y, kWords, 1u, w.toil_ns());
  w.press(press);
  CHECK(cuCtxSynchronize());
  tell("x", read(x, kWords));
  tell("y", read(y, kWords));
}

// A thread that has never touched CUDA, and one that only ever sets the context, at work while others push.
void fresh_threads(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUstream s = w.stream();
  for (int i = 0; i < 20; i++) {
    std::thread([&] {
      CUcontext none;
      CHECK(cuCtxGetCurrent(&none));
      if (none) exit(1);
      CUdeviceptr p;
      if (cuMemAlloc(&p, 64) != CUDA_ERROR_INVALID_CONTEXT) exit(1);
      if (i % 2) CHECK(cuCtxSetCurrent(w.context));
      else CHECK(cuCtxPushCurrent(w.context));
      launch_wide(i % 3 ? CU_STREAM_PER_THREAD : s, w.add, x, x, x, kWords);
      CHECK(cuStreamSynchronize(i % 3 ? CU_STREAM_PER_THREAD : s));
      if (i % 4 == 0) w.press(CU_STREAM_PER_THREAD);
    }).join();
  }
  tell("x", read(x, kWords));
}

// Two contexts of one device take turns; one dies with memory that is out, and its memory with it.
void two_contexts(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  w.press(w.stream());
  for (int round = 0; round < 3; round++) {
    CUcontext second;
    CUmodule module;
    CUfunction fill, add;
    CHECK(cuCtxCreate(&second, nullptr, 0, w.device));
    CHECK(cuModuleLoadData(&module, small_ptx));
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    CHECK(cuModuleGetFunction(&add, module, "add"));
    std::vector<CUdeviceptr> theirs;
    for (int i = 0; i < 8; i++) {
      theirs.push_back(w.allocate(kWords * 4ul));
      launch_wide(nullptr, fill, theirs.back(), i, kWords);
    }
    launch_wide(nullptr, add, theirs[0], theirs[7], theirs[1], kWords);
    launch_wide(nullptr, add, x, x, x, kWords) ;
    CHECK(cuCtxSynchronize());
    tell("theirs", read(theirs[1], kWords));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(w.context));
    tell("gone", cuMemFree(theirs[3]));
    const CUdeviceptr y = w.allocate(kWords * 4ul);
    CHECK(cuMemsetD32(y, round, kWords));
    w.press(CU_STREAM_PER_THREAD);
    tell("y", read(y, kWords));
    CHECK(cuMemFree(y));
  }
  tell("x", read(x, kWords));
}

// A kernel runs on the stream of a context that is not current: what ends in the current one tells nothing of it.
void other_contexts_stream(unsigned seed) {
  World w(seed);
  const CUstream press = w.stream();
  const CUdeviceptr x = w.stepped(), lost = w.allocate(4);
  CHECK(cuMemsetD32(lost, 0, 1));
  CHECK(cuCtxSynchronize());
  for (unsigned round = 0; round < 3; round++) {
    CUcontext second;
    CUmodule module;
    CUfunction toil;
    CHECK(cuCtxCreate(&second, nullptr, 0, w.device));
    CHECK(cuModuleLoadData(&module, traps_ptx));
    CHECK(cuModuleGetFunction(&toil, module, "toil"));
    const CUstream theirs = w.stream();
    CHECK(cuCtxSetCurrent(w.context));
    const CUdeviceptr other = w.allocate(4);
    for (int i = 0; i < 40; i++) launch(theirs, toil, 1, x, w.toil_words(), kStride, w.long_enough(10'000'000), lost);
    CHECK(cuMemFree(other));
    w.press(press);
    w.press(press);
    CHECK(cuStreamSynchronize(theirs));
    w.press(press);  // out with it: nothing is at work on it any more
    tell("x", read(x, kWords));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(w.context));
  }
  tell("lost", read(lost, 1)[0]);
}

// Memory of a pool belongs to no context: it is there when the context that it was made in has ended, in or out.
void pool_outlives_context(unsigned seed) {
  World w(seed);
  const CUstream s = w.stream();
  for (unsigned round = 0; round < 3; round++) {
    CUcontext second, again;
    CHECK(cuCtxCreate(&second, nullptr, 0, w.device));
    const CUstream theirs = w.stream();
    const CUdeviceptr plain = w.allocate(kWords * 4ul);
    CHECK(cuMemsetD32(plain, round, kWords));
    CHECK(cuCtxAttach(&again, 0));  // held once more, and once less: it goes on
    CHECK(cuCtxDetach(again));
    tell("plain", read(plain, kWords));
    CUdeviceptr pooled[2];
    for (unsigned i = 0; i < 2; i++) {
      const unsigned words = i ? 500 : kWords;
      CHECK(cuMemAllocAsync(&pooled[i], words * 4ul, theirs));
      CHECK(cuMemsetD32Async(pooled[i], 10 * round + i + 3, words, theirs));
    }
    CHECK(cuStreamSynchronize(theirs));
    if (round % 2) {
      CHECK(cuCtxSetCurrent(w.context));
      w.press(s);
    }
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(w.context));
    tell("gone", cuMemFree(plain));
    std::vector<CUdeviceptr> others;
    for (unsigned words : {kWords, 500u, kWords, 500u}) {
      others.push_back(w.allocate(words * 4ul));
      CHECK(cuMemsetD32(others.back(), 77, words));
    }
    w.press(s);
    for (unsigned i = 0; i < 2; i++) {
      const unsigned words = i ? 500 : kWords;
      launch_wide(s, w.add, pooled[i], pooled[i], pooled[i], words);
      w.press(s);
      tell("pooled", read(pooled[i], words));
      CHECK(cuMemFreeAsync(pooled[i], s));
    }
    for (CUdeviceptr o : others) CHECK(cuMemFree(o));
  }
}

// The primary context is reset under everything; then all begins again.
void reset(unsigned seed) {
  for (int round = 0; round < 3; round++) {
    World w(seed + round);
    const CUdeviceptr x = w.stepped();
    w.press(w.stream());
    launch_wide(nullptr, w.add, x, x, x, kWords);
    tell("x", read(x, kWords));
    tell("refused", cuCtxDestroy(w.context));  // a primary context ends by its own call alone: its memory is still there
    tell("refused", cuCtxDetach(w.context));
    tell("x", read(x, kWords));
    if (round == 2) break;
    CHECK(cuDevicePrimaryCtxReset(w.device));
    CHECK(cuDevicePrimaryCtxRetain(&w.context, w.device));
    CHECK(cuCtxSetCurrent(w.context));
    tell("gone", cuMemFree(x));
    CHECK(cuDevicePrimaryCtxRelease(w.device));
  }
}

// Access to a device's pool, all that peers have where memory is allocated in stream order: to what is there and what comes, or
// (`early`) given with another device current, before the pool's own was used.
void pool_access(unsigned seed, bool early) {
  World w(seed);
  const CUdevice other = 1;
  CUcontext there;
  CUmodule module;
  CUfunction add;
  CUmemoryPool pool;
  const CUstream s = w.stream();
  CUdeviceptr before, after, out;
  CHECK(cuDeviceGetDefaultMemPool(&pool, w.device));
  CHECK(cuDevicePrimaryCtxRetain(&there, other));
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {other}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const auto give = [&] {
    CHECK(cuCtxSetCurrent(early ? there : w.context));
    CHECK(cuMemPoolSetAccess(pool, &access, 1));
    CHECK(cuCtxSetCurrent(w.context));
  };
  if (early) give();
  CHECK(cuMemAllocAsync(&before, kWords * 4ul, s));
  CHECK(cuMemsetD32Async(before, seed, kWords, s));
  if (!early) give();
  CHECK(cuMemAllocAsync(&after, kWords * 4ul, s));
  CHECK(cuMemsetD32Async(after, seed + 1, kWords, s));
  w.press(s);
  CHECK(cuCtxSetCurrent(there));
  CHECK(cuModuleLoadData(&module, small_ptx));
  CHECK(cuModuleGetFunction(&add, module, "add"));
  CHECK(cuMemAlloc(&out, kWords * 4ul));
  for (int round = 0; round < 3; round++) {
    launch_wide(nullptr, add, before, after, out, kWords);
    launch_wide(nullptr, add, out, after, before, kWords);
    CHECK(cuCtxSynchronize());
    tell("sum", read(out, kWords));
    CHECK(cuCtxSetCurrent(w.context));
    w.press(s);
    CHECK(cuCtxSetCurrent(there));
  }
  CHECK(cuCtxSetCurrent(w.context));
  tell("written", read(before, kWords));
}

// A buffer of one device used by a kernel of another, and copied between them, while both push.
void two_devices(unsigned seed) {
  World w(seed);
  int can = 0;
  CUdevice other;
  CHECK(cuDeviceGet(&other, 1));
  CHECK(cuDeviceCanAccessPeer(&can, other, w.device));
  tell("peers", can);
  CUcontext there;
  CUmodule module;
  CUfunction fill, add;
  const CUdeviceptr x = w.stepped();
  CHECK(cuDevicePrimaryCtxRetain(&there, other));
  CHECK(cuCtxSetCurrent(there));
  CHECK(cuModuleLoadData(&module, small_ptx));
  CHECK(cuModuleGetFunction(&fill, module, "fill"));
  CHECK(cuModuleGetFunction(&add, module, "add"));
  CHECK(cuCtxEnablePeerAccess(w.context, 0));
  tell("enabled twice", cuCtxEnablePeerAccess(w.context, 0));
  std::vector<CUdeviceptr> theirs;
  for (int i = 0; i < 9; i++) theirs.push_back(w.allocate(kWords * 4ul));
  for (unsigned round = 0; round < 3; round++) {
    CHECK(cuCtxSetCurrent(there));
    for (CUdeviceptr t : theirs) launch_wide(nullptr, fill, t, round, kWords);
    launch_wide(nullptr, add, x, theirs[0], theirs[0], kWords);  // reads the other device's memory
    launch_wide(nullptr, add, theirs[0], theirs[1], x, kWords);  // writes it
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(w.context));
    w.press(nullptr);
    CHECK(cuMemcpyPeer(theirs[2], there, x, w.context, kWords * 4ul));
    CHECK(cuMemcpyDtoD(x, theirs[2], kWords * 4ul));
    const CUdeviceptr fresh = w.stepped(kWords, round);  // allocated after access was given
    CHECK(cuCtxSetCurrent(there));
    launch_wide(nullptr, add, fresh, fresh, theirs[3], kWords);
    tell("theirs", read(theirs[3], kWords));
    CHECK(cuCtxSetCurrent(w.context));
    CHECK(cuMemFree(fresh));
    tell("x", read(x, kWords));
  }
}

// Memory of pools for streams of one device while another is current, and of another device's pool: it lies where the pool is, or
// the stream.
void pools_of_two_devices(unsigned seed) {
  World w(seed);
  CUdevice other;
  CUcontext there;
  CUmodule module;
  CUfunction fill, add;
  CUmemoryPool pools[2];
  CHECK(cuDeviceGet(&other, 1));
  CHECK(cuDevicePrimaryCtxRetain(&there, other));
  CHECK(cuCtxSetCurrent(there));
  CHECK(cuModuleLoadData(&module, small_ptx));
  CHECK(cuModuleGetFunction(&fill, module, "fill"));
  CHECK(cuModuleGetFunction(&add, module, "add"));
  const CUstream theirs = w.stream();
  CHECK(cuCtxSetCurrent(w.context));
  const CUstream ours = w.stream();
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {other}};
  CHECK(cuMemPoolCreate(&pools[0], &props));
  CHECK(cuDeviceGetDefaultMemPool(&pools[1], other));
  for (unsigned round = 0; round < 3; round++) {
    std::vector<CUdeviceptr> all(12);
    for (unsigned i = 0; i < all.size(); i++) {
      const size_t bytes = i % 4 == 3 ? 2048 : 313 * 512;  // pools count in 512s
      if (i % 3 == 0) CHECK(cuMemAllocAsync(&all[i], bytes, theirs));
      else CHECK(cuMemAllocFromPoolAsync(&all[i], bytes, pools[i % 2], i % 3 == 1 ? theirs : ours));
      int ordinal = -1;
      CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, all[i]));
      tell("device", ordinal);
    }
    for (CUmemoryPool p : pools) {
      cuuint64_t used = 0;
      CHECK(cuMemPoolGetAttribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
      tell("used", static_cast<unsigned>(used));
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(there));
    for (unsigned i = 0; i < all.size(); i++) launch_wide(theirs, fill, all[i], seed + i, 512u);
    for (unsigned i = 0; i < all.size(); i++) launch_wide(theirs, add, all[i], all[(i + 1) % all.size()], all[i], 512u);
    CHECK(cuStreamSynchronize(theirs));
    for (CUdeviceptr at : all) tell("there", read(at, 512));
    CHECK(cuCtxSetCurrent(w.context));
    for (CUdeviceptr at : all) CHECK(cuMemFreeAsync(at, theirs));
    CHECK(cuStreamSynchronize(theirs));
    w.press(ours);
  }
}

// A kernel goes astray: every later call answers with its error, those that would have waited for memory too.
void after_a_fault(unsigned seed) {
  World w(seed);
  const CUdeviceptr x = w.stepped();
  const CUstream s = w.stream();
  w.press(s);
  launch_wide(s, w.add, CUdeviceptr{64}, CUdeviceptr{64}, CUdeviceptr{64}, 100u);
  tell("synchronise", cuStreamSynchronize(s));
  unsigned n = kWords;
  CUdeviceptr at = x;
  void* list[] = {&at, &at, &at, &n};
  for (int i = 0; i < 3; i++) tell("launch", cuLaunchKernel(w.add, 8, 1, 1, 64, 1, 1, 0, s, list, nullptr));
  tell("copy", cuMemcpyHtoD(x, list, 8));
  for (CUdeviceptr f : w.fillers) tell("filler", cuMemsetD32Async(f, 1, 1000, s));
  tell("free", cuMemFree(x));
}

}  // namespace

const std::vector<Trap> stream_traps = {
    {"host-function-wants-lock", Needs::moves, host_function_wants_lock},
    {"host-function-wants-lock-long", Needs::moves, host_function_wants_lock_long},
    {"capture-left-open", Needs::moves, capture_left_open},
    {"host-function-wants-lock-behind", Needs::moves, host_function_wants_lock_behind},
    {"gate-opened-later", Needs::moves, gate_opened_later<false>},
    {"gate-opened-by-kernel", Needs::moves, gate_opened_later<true>},
    {"gate-in-buffer", Needs::moves, gate_in_buffer},
    {"legacy-no-barrier", Needs::moves, legacy_no_barrier},
    {"stream-kinds", Needs::moves, stream_kinds},
    {"thread-after-thread", Needs::moves, thread_after_thread},
    {"late-start", Needs::moves, late_start<false>},
    {"stream-destroyed", Needs::moves, late_start<true>},
    {"many-streams", Needs::moves, many_streams},
    {"fresh-threads", Needs::moves, fresh_threads},
    {"two-contexts", Needs::moves, two_contexts},
    {"other-contexts-stream", Needs::moves, other_contexts_stream},
    {"pool-outlives-context", Needs::moves, pool_outlives_context},
    {"reset", Needs::moves, reset},
    {"after-a-fault", Needs::nothing, after_a_fault},
    {"pool-access", Needs::moves, [](unsigned seed) { pool_access(seed, false); }},
    {"pool-access-before", Needs::moves, [](unsigned seed) { pool_access(seed, true); }},
    {"two-devices", Needs::moves, two_devices},
    {"pools-of-two-devices", Needs::moves, pools_of_two_devices},
};

}  // namespace traps
