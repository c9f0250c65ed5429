// What the traps share: a context with the kernels, buffers with known contents, pressure on the device's memory, and
// the list of traps. Each trap is a function that prints what it found; the same program without the library prints the
// same. A trap that needs memory pushed out says so (Needs::moves): the suite checks that it was; or, where it is
// right that all of it stays (Needs::pressure), that launches ran from host frames for want of room.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

extern "C" const char traps_ptx[];

namespace traps {

// The suite gives the library this much; a plain run has far more.
inline constexpr std::size_t kBudget = 1 << 20;
inline constexpr unsigned kWords = 40000;   // of an ordinary buffer: 3 granules of 64 KiB, the last not full
inline constexpr unsigned kStride = 4000;

struct World : Program {
  CUmodule more;
  std::mt19937 rng;
  std::vector<CUdeviceptr> fillers;
  unsigned turn = 0;
  const bool brief = getenv("TRAPS_BRIEF") != nullptr;

  explicit World(unsigned seed);
  CUfunction kernel(const char* name) {
    CUfunction f;
    CHECK(cuModuleGetFunction(&f, more, name));
    return f;
  }
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream s;
    CHECK(cuStreamCreate(&s, flags));
    return s;
  }
  // A buffer whose words 0, kStride, 2 kStride, ... are first, first + 1, ...; the others hold their index.
  CUdeviceptr stepped(unsigned words = kWords, unsigned first = 7);
  // More than the budget, written over: whatever nothing uses goes out. Waits for its own stream alone.
  void press(CUstream s);
  // Two of toil's: words and repetitions for a buffer of stepped().
  unsigned toil_words(unsigned words = kWords) { return words / 2 / kStride; }
  // So long that memory is pushed out meanwhile. A run without the library, which TRAPS_BRIEF tells, needs not wait for that.
  std::uint64_t long_enough(std::uint64_t ns) { return brief ? ns / 16 : ns; }
  std::uint64_t toil_ns() { return long_enough(200'000'000 + rng() % 200'000'000); }
};

// What a stream waits for until the host lets it go on.
class Gate {
 public:
  Gate() {
    CHECK(cuMemHostAlloc(reinterpret_cast<void**>(const_cast<unsigned**>(&word_)), 4, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&at_, const_cast<unsigned*>(word_), 0));
    open();
  }
  void close(CUstream s) const {
    *word_ = 0;
    CHECK(cuStreamWaitValue32(s, at_, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void open() const { *word_ = 1; }

 private:
  volatile unsigned* word_ = nullptr;
  CUdeviceptr at_ = 0;
};

template <class... A>
void launch(CUstream s, CUfunction f, unsigned threads, A... arguments) {
  void* list[] = {&arguments...};
  CHECK(cuLaunchKernel(f, 1, 1, 1, threads, 1, 1, 0, s, list, nullptr));
}
template <class... A>
void launch_wide(CUstream s, CUfunction f, A... arguments) {
  void* list[] = {&arguments...};
  CHECK(cuLaunchKernel(f, 8, 1, 1, 64, 1, 1, 0, s, list, nullptr));
}

// Prints `name` and a sum over the words.
void tell(const char* name, const std::vector<unsigned>& words);
void tell(const char* name, unsigned value);
std::vector<unsigned> read(CUdeviceptr at, unsigned words);

// Runs `work` on a stream of its own, three times, while another thread pushes everything out and has the second half
// of `x` brought back again and again. `work` toils on the first half. Prints x and what was lost.
void while_pushed(World&, CUdeviceptr x, const std::function<void(CUstream, CUdeviceptr lost)>& work);

enum class Needs { nothing, moves, pressure };
struct Trap {
  const char* name;
  Needs needs;
  void (*run)(unsigned seed);
};
// Each file's own.
extern const std::vector<Trap> memory_traps, table_traps, stream_traps, graph_traps, capture_traps, process_traps, ipc_traps;
// The second process of an ipc trap: traps ipc-owner|ipc-borrower SEED IN OUT.
int ipc_process(int argc, char** argv);

}  // namespace traps
