// vadd [WORDS [BUFFERS]]: a + b over a ring of buffers on the driver API, every launch in turn by `kernelParams` and by
// `extra`. All BUFFERS buffers stay alive, and the ring is walked twice. Prints a sum for each buffer; checks itself.
#include "tests/workloads/small/driver_program.hpp"
#include <vector>

int main(int argc, char** argv) {
  const unsigned words = argument(argc, argv, 1, 1 << 16), buffers = argument(argc, argv, 2, 16);
  Program p;
  std::vector<CUdeviceptr> ring(buffers);
  std::vector<std::vector<unsigned>> expected(buffers, std::vector<unsigned>(words));
  for (unsigned b = 0; b < buffers; b++) {
    ring[b] = p.allocate(words * 4ul);
    p.launch(p.fill, ring[b], b, words);
    for (unsigned i = 0; i < words; i++) expected[b][i] = fill_word(i, b);
  }
  for (unsigned step = 0; step < 2 * buffers; step++) {
    const unsigned a = step % buffers, b = (step + 1) % buffers, to = (step + buffers / 2) % buffers;
    if (step % 2) {
      p.launch(p.add, ring[a], ring[b], ring[to], words);
    } else {
      struct { CUdeviceptr a, b, out; unsigned count; } packed{ring[a], ring[b], ring[to], words};
      size_t bytes = 28;
      void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
      CHECK(cuLaunchKernel(p.add, 32, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
    }
    for (unsigned i = 0; i < words; i++) expected[to][i] = expected[a][i] + expected[b][i];
  }
  bool right = true;
  for (unsigned b = 0; b < buffers; b++) {
    unsigned sum = 0;
    for (unsigned v : expected[b]) sum += v;
    const unsigned got = p.total(ring[b], words);
    std::vector<unsigned> all(words);
    CHECK(cuMemcpyDtoH(all.data(), ring[b], words * 4ul));
    right &= got == sum && all == expected[b];
    printf("buffer %u sum %08x\n", b, got);
  }
  for (CUdeviceptr d : ring) CHECK(cuMemFree(d));
  puts(right ? "right" : "WRONG");
  return right ? 0 : 1;
}
