// traps --list | NAME [SEED]: one trap, alone in its process.
#include "tests/e2e/traps/traps.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstring>

namespace traps {

World::World(unsigned seed) : rng(seed) {
  CHECK(cuModuleLoadData(&more, traps_ptx));
  for (int i = 0; i < 9; i++) fillers.push_back(allocate(kBudget / 8));
}

CUdeviceptr World::stepped(unsigned words, unsigned first) {
  CUdeviceptr at = allocate(words * 4ul);
  launch_wide(nullptr, kernel("steps"), at, words, kStride, first);
  CHECK(cuStreamSynchronize(nullptr));
  return at;
}

void World::press(CUstream s) {
  for (CUdeviceptr f : fillers) launch_wide(s, fill, f, ++turn, static_cast<unsigned>(kBudget / 8 / 4));
  CHECK(cuStreamSynchronize(s));
}

void tell(const char* name, const std::vector<unsigned>& words) {
  unsigned sum = 0;
  for (unsigned w : words) sum = sum * 31 + w;
  printf("%s %08x\n", name, sum);
  fflush(stdout);
}
void tell(const char* name, unsigned value) {
  printf("%s %u\n", name, value);
  fflush(stdout);
}
std::vector<unsigned> read(CUdeviceptr at, unsigned words) {
  std::vector<unsigned> all(words);
  CHECK(cuMemcpyDtoH(all.data(), at, words * 4ul));
  return all;
}

void while_pushed(World& w, CUdeviceptr x, const std::function<void(CUstream, CUdeviceptr)>& work) {
  CUdeviceptr lost = w.allocate(4);
  CHECK(cuMemsetD32(lost, 0, 1));
  CHECK(cuCtxSynchronize());
  const CUstream mine = w.stream(), theirs = w.stream();
  std::atomic<bool> begun{false}, stop{false};
  unsigned wrong = 0;
  std::thread other([&] {
    CHECK(cuCtxSetCurrent(w.context));
    void* landing;
    const unsigned from = kWords / 2 + 1, words = kWords - from;
    CHECK(cuMemHostAlloc(&landing, words * 4ul, 0));
    begun = true;
    while (!stop) {
      w.press(theirs);
      CHECK(cuMemcpyDtoHAsync(landing, x + from * 4ul, words * 4ul, theirs));
      CHECK(cuStreamSynchronize(theirs));
      for (unsigned i = 0; i < words; i++)
        if ((from + i) % kStride && static_cast<unsigned*>(landing)[i] != from + i) wrong++;
    }
    CHECK(cuMemFreeHost(landing));
  });
  while (!begun) std::this_thread::yield();
  for (int round = 0; round < 3; round++) {
    work(mine, lost);
    CHECK(cuStreamSynchronize(mine));
  }
  stop = true;
  other.join();
  tell("lost", read(lost, 1)[0]);
  tell("wrong", wrong);
  tell("x", read(x, kWords));
}

}  // namespace traps

constexpr unsigned kSeconds = 600;  // a trap takes less than one, on a crowded machine a few minutes

int main(int argc, char** argv) {
  using namespace traps;
  std::vector<Trap> all;
  for (const auto* list : {&memory_traps, &table_traps, &stream_traps, &graph_traps, &capture_traps, &process_traps, &ipc_traps}) all.insert(all.end(), list->begin(), list->end());
  if (argc > 1 && !strncmp(argv[1], "ipc-", 4) && argc == 5) {
    alarm(kSeconds);
    return ipc_process(argc, argv);
  }
  if (argc > 1 && !strcmp(argv[1], "--list")) {
    for (const Trap& t : all) printf("%s%s\n", t.name, t.needs == Needs::moves ? " moves" : t.needs == Needs::pressure ? " pressure" : "");
    return 0;
  }
  for (const Trap& t : all) {
    if (argc < 2 || strcmp(argv[1], t.name)) continue;
    // Nobody may be left behind hanging: not this process, nor any that it forks (which inherits no alarm).
    alarm(kSeconds);
    pthread_atfork(nullptr, nullptr, [] { alarm(kSeconds); });
    t.run(argc > 2 ? static_cast<unsigned>(strtoul(argv[2], nullptr, 10)) : 1);
    puts("end");
    return 0;
  }
  fprintf(stderr, "usage: %s --list | NAME [SEED]\n", argv[0]);
  return 2;
}
