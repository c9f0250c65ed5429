// The host's time for each launch of an iteration that is followed by plan: OPS ops, of which every 32nd names a large buffer
// that is not always on the device, and all others 8 small ones that are. Prints, for each op of the iteration, the median
// over the last half of ROUNDS iterations, in ns; 0 for those that name a large buffer (they may wait) and for the upload that
// begins the iteration.
//   launch_planned [ROUNDS [OPS]]
#include <algorithm>
#include <chrono>
#include <vector>
#include "tests/workloads/small/driver_program.hpp"

int main(int argc, char** argv) {
  const unsigned rounds = argument(argc, argv, 1, 80), ops = argument(argc, argv, 2, 512);
  Program p;
  CUfunction nothing;
  CHECK(cuModuleGetFunction(&nothing, p.module, "nothing"));
  CUdeviceptr small[64];   // each op names others: nothing shorter than the iteration repeats
  for (CUdeviceptr& b : small) {
    b = p.allocate(1 << 16);
    CHECK(cuMemsetD32(b, 0, 1 << 14));
  }
  std::vector<CUdeviceptr> large(ops / 32);
  for (CUdeviceptr& b : large) {
    b = p.allocate(1 << 20);
    CHECK(cuMemsetD32(b, 1, 1 << 18));
  }
  CUstream s;
  CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  std::vector<std::vector<double>> times(ops);
  const unsigned word = 7;
  for (unsigned r = 0; r < rounds; r++) {
    CHECK(cuMemcpyHtoDAsync(small[0], &word, sizeof word, s));
    for (unsigned k = 1; k < ops; k++) {
      CUdeviceptr a[8];
      for (unsigned i = 0; i < 8; i++) a[i] = small[(k * 2654435761u >> (3 * i)) % 64];
      const bool names_large = k % 32 == 31;
      if (names_large) a[7] = large[k / 32];
      void* list[] = {&a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6], &a[7]};
      const auto start = std::chrono::steady_clock::now();
      CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, s, list, nullptr));
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
      if (!names_large && r >= rounds / 2) times[k].push_back(took.count());
    }
    CHECK(cuStreamSynchronize(s));
  }
  for (auto& t : times) {
    if (t.empty()) {
      printf("0\n");
      continue;
    }
    std::nth_element(t.begin(), t.begin() + static_cast<long>(t.size() / 2), t.end());
    printf("%.1f\n", t[t.size() / 2]);
  }
}
