// player PROGRAM ITERATIONS [NS]: plays an iteration's ops and allocations from a text file, as a framework with a stream-ordered
// allocator would: one stream, buffers born before their first op and freed after their last. Prints a checksum of the
// persistent buffers after the last iteration. Before each op the program itself takes NS on the modelled clock.
//
// PROGRAM: lines `buffer WORDS` (32-bit ones, numbered from 0; the first `persistent N` of them live throughout), then for
// each op `op NS BORN... ; READ... ; WRITTEN... ; DIES...`.
#include <dlfcn.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

namespace {

struct AccessSet {
  unsigned reads, writes;
  CUdeviceptr address[320];
  unsigned words[320];
};
struct Op {
  unsigned long long ns = 0;
  std::vector<int> part[4];  // born, read, written, dies
};

[[noreturn]] void bad(const std::string& line) {
  fprintf(stderr, "player: %s: expected `buffer WORDS`, `persistent N` or `op NS ... ; ... ; ... ; ...`\n", line.c_str());
  exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) bad("no program");
  std::vector<unsigned> words;
  std::vector<Op> ops;
  size_t persistent = 0;
  std::ifstream in(argv[1]);
  for (std::string text, kind; std::getline(in, text);) {
    std::istringstream line(text);
    line >> kind;
    if (kind == "buffer") {
      words.emplace_back();
      line >> words.back();
    } else if (kind == "persistent") {
      line >> persistent;
    } else if (kind == "op") {
      Op& op = ops.emplace_back();
      line >> op.ns;
      int part = 0;
      for (std::string word; line >> word;) {
        if (word == ";") part++;
        else if (part < 4) op.part[part].push_back(atoi(word.c_str()));
      }
      if (part != 3 || op.part[1].size() + op.part[2].size() > 320) bad(text);
    } else {
      bad(text);
    }
    if (!line && !line.eof()) bad(text);
  }
  Program p;
  CUfunction play;
  CHECK(cuModuleGetFunction(&play, p.module, "play"));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemoryPool pool;
  CHECK(cuDeviceGetDefaultMemPool(&pool, p.device));
  unsigned long long keep = ~0ull;
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  const auto spend = reinterpret_cast<void (*)(int64_t)>(argc > 3 ? dlsym(RTLD_DEFAULT, "softgpu_spend") : nullptr);
  const long long between = argc > 3 ? atoll(argv[3]) : 0;
  std::vector<CUdeviceptr> at(words.size());
  auto allocate = [&](size_t b) { CHECK(cuMemAllocAsync(&at[b], words[b] * 4ul, stream)); };
  for (size_t b = 0; b < persistent; b++) {
    allocate(b);
    CHECK(cuMemsetD32Async(at[b], static_cast<unsigned>(b), words[b], stream));
  }
  for (int i = 0; i < atoi(argv[2]); i++) {
    for (size_t k = 0; k < ops.size(); k++) {
      Op& op = ops[k];
      if (spend) spend(between);
      for (int b : op.part[0]) {
        allocate(b);
      }
      AccessSet set{};
      set.reads = static_cast<unsigned>(op.part[1].size()), set.writes = static_cast<unsigned>(op.part[2].size());
      unsigned n = 0;
      for (int part : {1, 2})
        for (int b : op.part[part]) set.address[n] = at[b], set.words[n++] = words[b];
      unsigned salt = static_cast<unsigned>(k);
      void* list[] = {&op.ns, &salt, &set};
      CHECK(cuLaunchKernel(play, 4, 1, 1, 64, 1, 1, 0, stream, list, nullptr));
      for (int b : op.part[3]) CHECK(cuMemFreeAsync(at[b], stream));
    }
    CHECK(cuStreamSynchronize(stream));  // a framework reads its loss
  }
  unsigned total = 0;
  for (size_t b = 0; b < persistent; b++) total = total * 31 + p.total(at[b], words[b]);
  printf("checksum %08x\n", total);
  return 0;
}
