// graph_steps GRAPHS BUFFERS STEPS [REPEATS]: a training step as TinyJit makes it: its input is copied in, a few captured graphs run one after
// the other, a word of the result is read. Each graph has BUFFERS buffers of its own and one in common with the others; each is
// made REPEATS times in a row, which makes it dearer to compute and not to move. Prints a checksum.
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

namespace {
constexpr unsigned kWords = 16384;
}

int main(int argc, char** argv) {
  const unsigned long graphs = argument(argc, argv, 1, 2), buffers = argument(argc, argv, 2, 16), steps = argument(argc, argv, 3, 40), repeats = argument(argc, argv, 4, 1);
  Program p;
  CUfunction blend;
  CHECK(cuModuleGetFunction(&blend, p.module, "blend"));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr input = p.allocate(kWords * 4), common = p.allocate(kWords * 4);
  CHECK(cuMemsetD32(common, 1, kWords));
  std::vector<CUdeviceptr> own;
  std::vector<CUgraphExec> made;
  for (unsigned long g = 0; g < graphs; g++) {
    for (unsigned long b = 0; b < buffers; b++) {
      own.push_back(p.allocate(kWords * 4));
      p.launch(p.fill, own.back(), static_cast<unsigned>(own.size()), kWords);
    }
    CUgraph graph;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned long b = 0; b < buffers; b++) {
      CUdeviceptr from = b ? own[own.size() - buffers + b - 1] : input, to = own[own.size() - buffers + b], with = common;
      unsigned words = kWords, salt = static_cast<unsigned>(b);
      void* list[] = {&from, &with, &to, &words, &salt};
      for (unsigned long r = 0; r < repeats; r++) CHECK(cuLaunchKernel(blend, 32, 1, 1, 128, 1, 1, 0, stream, list, nullptr));
    }
    CUdeviceptr last = own.back(), with = input, to = common;
    unsigned words = kWords, salt = 7;
    void* list[] = {&last, &with, &to, &words, &salt};
    CHECK(cuLaunchKernel(blend, 32, 1, 1, 128, 1, 1, 0, stream, list, nullptr));
    CHECK(cuStreamEndCapture(stream, &graph));
    made.emplace_back();
    CHECK(cuGraphInstantiate(&made.back(), graph, 0));
    CHECK(cuGraphDestroy(graph));
  }
  std::vector<unsigned> host(kWords);
  unsigned sum = 0;
  for (unsigned long i = 0; i < steps; i++) {
    for (unsigned k = 0; k < kWords; k++) host[k] = fill_word(k, static_cast<unsigned>(i));
    CHECK(cuMemcpyHtoDAsync(input, host.data(), kWords * 4, stream));
    for (CUgraphExec graph : made) CHECK(cuGraphLaunch(graph, stream));
    CHECK(cuStreamSynchronize(stream));
    unsigned word = 0;
    CHECK(cuMemcpyDtoH(&word, common, 4));
    sum = sum * 31 + word;
  }
  for (const CUdeviceptr b : own) sum = sum * 31 + p.total(b, kWords);
  printf("checksum %08x\n", sum);
  return 0;
}
