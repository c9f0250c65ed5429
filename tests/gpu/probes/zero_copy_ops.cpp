// What kernels do to memory besides loading and storing it: atomics of every width, asynchronous copies, bulk copies. Right, and
// at what speed, on device memory (the control), on pinned host memory, and on host frames mapped as the pager maps them?
#include "common.hpp"

extern "C" const char host_ops_75_ptx[], host_ops_80_ptx[], host_ops_90_ptx[];

struct Modules {
  CUmodule all = nullptr, sm80 = nullptr, sm90 = nullptr;
  explicit Modules(const Gpu& gpu) {
    CHECK(cuModuleLoadData(&all, host_ops_75_ptx));
    if (gpu.sm >= 80) CHECK(cuModuleLoadData(&sm80, host_ops_80_ptx));
    if (gpu.sm >= 90) CHECK(cuModuleLoadData(&sm90, host_ops_90_ptx));
  }
  static CUfunction get(CUmodule m, const char* name) { CUfunction f; CHECK(cuModuleGetFunction(&f, m, name)); return f; }
};

struct Bench {
  const Gpu& gpu; const Modules& modules; size_t bytes;
  CUstream stream = newStream();
  Stopwatch watch{stream};
  CUdeviceptr scratch = 0;   // device memory of `bytes`
  unsigned blocks = 0;
  Bench(const Gpu& g, const Modules& m, size_t b) : gpu(g), modules(m), bytes(b), blocks((unsigned)std::max(1, g.processors) * 4) { CHECK(cuMemAlloc(&scratch, bytes)); }
};

template <class... A> static void launch(const Bench& b, CUfunction f, unsigned blocks, A... a) {
  void* list[] = {&a...};
  CHECK(cuLaunchKernel(f, blocks, 1, 1, 256, 1, 1, 0, b.stream, list, nullptr));
}

// Words of T that are not `wanted` after `rounds` of a kernel on zeroed memory, and its rate.
template <class T> static void atomics(Bench& b, const Part& j, const char* name, CUmodule module, CUdeviceptr at, unsigned words, unsigned rounds, unsigned blocks, T wanted) {
  phase() = name;
  CUfunction f = Modules::get(module, name);
  CHECK(cuMemsetD8Async(at, 0, words * sizeof(T), b.stream));
  launch(b, f, blocks, at, words, rounds); CHECK(cuStreamSynchronize(b.stream));
  std::vector<T> found(words);
  CHECK(cuMemcpyDtoH(found.data(), at, words * sizeof(T)));
  u64 wrong = 0; for (T v : found) wrong += memcmp(&v, &wanted, sizeof v) != 0;
  const double us = b.watch.medianUs([&] { launch(b, f, blocks, at, words, rounds); }, 3e5);
  const double ops = std::string(name).find("contended") != std::string::npos ? 256.0 * blocks * rounds : (double)words * rounds;
  const Part k = j.sub(name); k["wrong_words"] = wrong; k["mops"] = ops / us;
  say("  %-22s %llu wrong, %.1f Mop/s", name, wrong, ops / us);
}

struct Wide { u64 low, high; };

static void copies(Bench& b, const Part& j, const char* name, CUmodule module, CUdeviceptr from) {
  phase() = name;
  CUfunction f = Modules::get(module, name);
  const u64 count = b.bytes / 16;
  std::vector<u64> in(b.bytes / 8), out(b.bytes / 8);
  for (size_t i = 0; i < in.size(); i++) in[i] = i * 0x9e3779b97f4a7c15ull;
  CHECK(cuMemcpyHtoD(from, in.data(), b.bytes)); CHECK(cuMemsetD8(b.scratch, 0, b.bytes));
  launch(b, f, b.blocks, from, b.scratch, count); CHECK(cuStreamSynchronize(b.stream));
  CHECK(cuMemcpyDtoH(out.data(), b.scratch, b.bytes));
  u64 wrong = 0; for (size_t i = 0; i < in.size(); i++) wrong += in[i] != out[i];
  const double us = b.watch.medianUs([&] { launch(b, f, b.blocks, from, b.scratch, count); }, 3e5);
  const Part k = j.sub(name); k["wrong_words"] = wrong; k["gb_s"] = b.bytes / us / 1e3;
  say("  %-22s %llu wrong, %.2f GB/s", name, wrong, b.bytes / us / 1e3);
}

static void onMemory(Bench& b, const char* kind, CUdeviceptr at) {
  say("%s:", kind);
  const Part j{{kind}};
  const unsigned words = 1 << 16, rounds = 64;
  const unsigned short half = 0x5400;   // 64 in half precision
  struct Pair { unsigned short a, b; };
  atomics<Pair>(b, j, "add_half2", b.modules.all, at, words, rounds, b.blocks, Pair{half, half});
  atomics<float>(b, j, "add_float", b.modules.all, at, words, rounds, b.blocks, 64.f);
  atomics<float>(b, j, "add_float_contended", b.modules.all, at, 32, 16, 64, 64.f * 16 * 256 / 32);
  atomics<u64>(b, j, "add_long", b.modules.all, at, words, rounds, b.blocks, 64ull);
  atomics<u64>(b, j, "cas_long", b.modules.all, at, words, rounds, b.blocks, 64ull);
  if (b.modules.sm80) copies(b, j, "copy_async", b.modules.sm80, at);
  if (b.modules.sm90) {
    copies(b, j, "copy_bulk", b.modules.sm90, at);
    phase() = "exchange_128";
    CUfunction f = Modules::get(b.modules.sm90, "exchange_128");
    launch(b, f, b.blocks, at, words, rounds); CHECK(cuStreamSynchronize(b.stream));
    std::vector<Wide> found(words); CHECK(cuMemcpyDtoH(found.data(), at, words * sizeof(Wide)));
    u64 wrong = 0; for (unsigned i = 0; i < words; i++) wrong += found[i].low != rounds || found[i].high != i;
    const double us = b.watch.medianUs([&] { launch(b, f, b.blocks, at, words, rounds); }, 3e5);
    const Part k = j.sub("exchange_128"); k["wrong_words"] = wrong; k["mops"] = (double)words * rounds / us;
    say("  %-22s %llu wrong, %.1f Mop/s", "exchange_128", wrong, (double)words * rounds / us);
  }
}

int main(int argc, char** argv) {
  Deadline whole(option(argc, argv, "--limit-s", 55), giveUp("zero_copy_ops"));
  const int ordinal = (int)option(argc, argv, "--device", 0);
  const std::string trial = trialInChild(kHostNuma, -1, ordinal);
  Gpu gpu("zero_copy_ops", argc, argv);
  report()["host_numa_trial"] = trial;
  Modules modules(gpu);
  Bench b(gpu, modules, gpu.room(option(argc, argv, "--mib", 64) / 1024, 2 * MiB));
  { CUdeviceptr device; CHECK(cuMemAlloc(&device, b.bytes)); onMemory(b, "device", device); CHECK(cuMemFree(device)); }
  { Pinned pinned(b.bytes); onMemory(b, "pinned", pinned.at); }
  if (trial == "works") {
    const int node = std::max(0, gpu.attribute(134));
    CUmemGenericAllocationHandle h;
    CHECK(gpu.tryCreate(&h, b.bytes, kHostNuma, node));
    const CUdeviceptr va = gpu.reserve(b.bytes);
    gpu.map(va, b.bytes, h);
    CHECK(gpu.allow(va, b.bytes, kHostNuma, node));
    onMemory(b, "host_frame", va);
  } else {
    say("host frames: %s", trial.c_str());
  }
  finish(0);
}
