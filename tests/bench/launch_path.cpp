// The host's time for one launch with 8 pointer arguments, everything resident: the median over rounds of 100 launches. The
// stream is held by a host function until a round is submitted, as by a device that is behind the host: so the time is that of
// submitting, whatever the device does with it meanwhile, and no queue fills. The clock starts when the stream is held, so
// that the software GPU's threads have woken up for that before. Prints nanoseconds: of all rounds, of the first tenth, of the
// last half, and of that half the fastest tenth. With THREADS > 1 that many threads launch at the same time, each on a stream of
// its own, and the medians are over all.
// With GROUPS > 1 each thread has as many groups of buffers, and its rounds take turns with them; the time is that of the middle
// of a round then, where a plan for less memory than they need has nothing to move. Then each launch is timed by itself too, and the
// median of those of the last half is printed behind the others (0 else). Before that a line for each round of that half (of the
// first thread): how long fixed work took beside it, and the median and the mean of its launches.
// BYTES are those of a buffer.
//   launch_path [ROUNDS [THREADS [GROUPS [BYTES]]]]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>
#include "tests/workloads/small/driver_program.hpp"

constexpr int kTimed = 100, kAtEnds = 10;   // launches

enum Stream : int { free_to_run, held, released };

// ns that a fixed number of additions takes, which keep a core as busy as it can be: about twice as long while something else runs on
// the same core, be it on its other hyperthread and another machine's.
static double fixed_work() {
  const auto start = std::chrono::steady_clock::now();
  unsigned long a = 0, b = 0, c = 0, d = 0;
  for (int i = 0; i < 3000; i++) asm volatile("add $1, %0\n add $1, %1\n add $1, %2\n add $1, %3" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

static void hold(void* stream) {
  auto& state = *static_cast<std::atomic<Stream>*>(stream);
  state = held;
  state.notify_one();
  state.wait(held);
}

int main(int argc, char** argv) {
  const unsigned rounds = argument(argc, argv, 1, 200), threads = argument(argc, argv, 2, 1), groups = argument(argc, argv, 3, 1), bytes = argument(argc, argv, 4, 1 << 18);
  Program p;
  CUfunction nothing;
  CHECK(cuModuleGetFunction(&nothing, p.module, "nothing"));
  std::vector<std::vector<double>> times(threads), one(threads);   // of a launch: in the mean of a round; each by itself, of the last half
  std::vector<double> beside;   // of the first thread's rounds of the last half
  std::atomic<unsigned> ready{0};
  auto body = [&](unsigned t) {
    CHECK(cuCtxSetCurrent(p.context));
    one[t].reserve(rounds * kTimed);
    std::vector<CUdeviceptr> a(8 * groups);
    for (CUdeviceptr& b : a) {
      b = p.allocate(bytes);
      CHECK(cuMemsetD32(b, 0, bytes / 4));
    }
    CUstream s;
    CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    ready++;
    while (ready < threads) std::this_thread::yield();
    std::atomic<Stream> stream;
    for (unsigned r = 0; r < rounds; r++) {
      CUdeviceptr* const b = &a[r % groups * 8];
      void* list[] = {b, b + 1, b + 2, b + 3, b + 4, b + 5, b + 6, b + 7};
      unsigned shared = 0;
      const auto launch = [&](int times, bool timed) {
        for (int i = 0; i < times; i++, shared += 4 * (groups > 1)) {
          const auto start = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
          CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, shared, s, list, nullptr));
          if (timed) one[t].push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
        }
      };
      if (groups > 1) launch(kAtEnds, false);
      stream = free_to_run;
      CHECK(cuLaunchHostFunc(s, hold, &stream));
      stream.wait(free_to_run);
      const bool each = groups > 1 && r >= rounds / 2;
      const double before = each ? fixed_work() : 0;
      const auto start = std::chrono::steady_clock::now();
      launch(kTimed, each);
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
      if (each && !t) beside.push_back(std::max(before, fixed_work()));
      stream = released;
      stream.notify_one();
      if (groups > 1) launch(kAtEnds, false);
      times[t].push_back(took.count() / kTimed);
      CHECK(cuStreamSynchronize(s));
    }
  };
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; t++) others.emplace_back(body, t);
  body(0);
  for (auto& o : others) o.join();
  const auto quantile = [&](unsigned from, unsigned to, std::size_t part, std::size_t parts) {
    std::vector<double> all;
    for (auto& t : times) all.insert(all.end(), t.begin() + from, t.begin() + to);
    const auto there = all.begin() + static_cast<long>(all.size() * part / parts);
    std::nth_element(all.begin(), there, all.end());
    return *there;
  };
  for (std::size_t r = 0; r < beside.size(); r++) {
    const auto begin = one[0].begin() + static_cast<long>(r * kTimed);
    std::vector<double> launches(begin, begin + kTimed);
    std::nth_element(launches.begin(), launches.begin() + kTimed / 2, launches.end());
    printf("%.1f %.1f %.1f\n", beside[r], launches[kTimed / 2], std::accumulate(launches.begin(), launches.end(), 0.0) / kTimed);
  }
  std::vector<double> each;
  for (auto& o : one) each.insert(each.end(), o.begin(), o.end());
  if (each.empty()) each.push_back(0);
  std::nth_element(each.begin(), each.begin() + static_cast<long>(each.size() / 2), each.end());
  printf("%.1f %.1f %.1f %.1f %.1f\n", quantile(0, rounds, 1, 2), quantile(0, std::max(1u, rounds / 10), 1, 2), quantile(rounds / 2, rounds, 1, 2), quantile(rounds / 2, rounds, 1, 10), each[each.size() / 2]);
}
