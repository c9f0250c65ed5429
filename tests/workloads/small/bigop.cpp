// bigop [BYTES]: one op over three buffers of BYTES each, so that its working set alone is larger than a budget below
// 3 x BYTES; then each buffer by itself. Prints the sums; checks them.
#include "tests/workloads/small/driver_program.hpp"

int main(int argc, char** argv) {
  const unsigned words = argument(argc, argv, 1, 16 << 20) / 4;
  Program p;
  const CUdeviceptr a = p.allocate(words * 4ul), b = p.allocate(words * 4ul), c = p.allocate(words * 4ul);
  p.launch(p.fill, a, 1u, words);
  p.launch(p.fill, b, 2u, words);
  for (int round = 0; round < 3; round++) {
    p.launch(p.add, a, b, c, words);   // c = a + b
    p.launch(p.add, b, c, a, words);   // a = b + c
    p.launch(p.add, c, a, b, words);   // b = c + a
  }
  unsigned expected[3] = {};
  for (unsigned i = 0; i < words; i++) {
    unsigned x = fill_word(i, 1), y = fill_word(i, 2), z = 0;
    for (int round = 0; round < 3; round++) { z = x + y; x = y + z; y = z + x; }
    expected[0] += x; expected[1] += y; expected[2] += z;
  }
  bool right = true;
  int i = 0;
  for (CUdeviceptr d : {a, b, c}) {
    const unsigned got = p.total(d, words);
    right &= got == expected[i];
    printf("buffer %d sum %08x\n", i++, got);
  }
  for (CUdeviceptr d : {a, b, c}) CHECK(cuMemFree(d));
  puts(right ? "right" : "WRONG");
  return right ? 0 : 1;
}
