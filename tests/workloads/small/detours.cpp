// detours SEED ITERATIONS: forward and backward through layers of a buffer each, the same launches each time; but now and then, once
// those are known by heart, one is given the buffer of another layer, by an argument of its own or in a struct, and once a
// buffer is freed and another allocated in its place. Prints a checksum of each layer.
#include <random>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

namespace {

constexpr unsigned kLayers = 18, kWords = 16384, kKnown = 90;   // kKnown: iterations without a detour; more than are watched for one

struct Pair {   // as kernels.cu has it
  unsigned tag;
  CUdeviceptr from, to;
  unsigned count;
  CUdeviceptr stray = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const unsigned seed = argc > 1 ? atoi(argv[1]) : 1, iterations = argc > 2 ? atoi(argv[2]) : 100;
  Program p;
  CUfunction shift, stir;
  CHECK(cuModuleGetFunction(&shift, p.module, "shift"));
  CHECK(cuModuleGetFunction(&stir, p.module, "stir"));
  std::mt19937 rng(seed);
  std::vector<CUdeviceptr> layer(kLayers);
  for (unsigned i = 0; i < kLayers; i++) {
    layer[i] = p.allocate(4 * kWords);
    p.launch(p.fill, layer[i], i, kWords);
  }
  for (unsigned n = 0; n < iterations; n++) {
    const bool detours = n >= kKnown && rng() % 3 == 0;
    if (n == iterations / 2) {
      CUdeviceptr& b = layer[rng() % kLayers];
      CHECK(cuMemFree(b));
      b = p.allocate(4 * kWords);
      p.launch(p.fill, b, n, kWords);
    }
    unsigned op = 0;
    const unsigned which = rng() % (2 * kLayers);
    const auto step = [&](unsigned to, unsigned from) {
      if (detours && op == which) from = rng() % kLayers;
      switch (op++ % 3) {
        case 0: p.launch(p.add, layer[from], layer[to], layer[to], kWords); break;
        case 1: p.launch(shift, Pair{op, layer[from], layer[to], kWords}); break;
        default: p.launch(stir, layer[to], layer[from]);
      }
    };
    for (unsigned i = 1; i < kLayers; i++) step(i, i - 1);
    for (unsigned i = kLayers - 1; i > 0; i--) step(i - 1, i);
    CHECK(cuCtxSynchronize());
  }
  for (unsigned i = 0; i < kLayers; i++) printf("%08x\n", p.total(layer[i], kWords));
}
