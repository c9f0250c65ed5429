// The probes' kernels (source: kernels.cu), compiled by the driver for whatever card there is.
#pragma once
#include "common.hpp"

extern "C" const char probe_ptx[];  // ptx.cpp

// Counters in device memory (atomics on host memory are not to be trusted on every machine).
struct Tally {
  CUdeviceptr at = 0; int count;
  explicit Tally(int n) : count(n) { CHECK(cuMemAlloc(&at, n * 8)); zero(); }
  ~Tally() { cuMemFree(at); }
  void zero() { CHECK(cuMemsetD8(at, 0, count * 8)); CHECK(cuStreamSynchronize(0)); }
  u64 value(int i = 0) const { u64 v = 0; CHECK(cuMemcpyDtoH(&v, at + i * 8, 8)); return v; }   // only after the stream is idle
};

// The word that probe_fill writes (must agree with patternWord in kernels.cu; host_numa's checks would notice).
inline u64 patternWord(u64 i, u64 seed) {
  u64 v = i ^ (seed * 0x9e3779b97f4a7c15ull + 1);
  v *= 0xff51afd7ed558ccdull; v ^= v >> 32;
  return v * 0xc4ceb9fe1a85ec53ull;
}

class Kernels {
 public:
  explicit Kernels(const Gpu& gpu) : blocks_(gpu.processors > 0 ? gpu.processors * 8 : 64) {
    double us = timeUs([&] { CHECK(cuModuleLoadData(&module_, probe_ptx)); });
    report()["ptx_compile_ms"] = us / 1000;
    const char* names[] = {"probe_fill", "probe_verify", "probe_spin", "probe_copy", "probe_read", "probe_write", "probe_flip", "probe_hash_mix", "probe_hash_nh"};
    for (int i = 0; i < kCount; i++) CHECK(cuModuleGetFunction(&f_[i], module_, names[i]));
    warmUp();
  }
  ~Kernels() { cuModuleUnload(module_); }

  // False on a software driver without kernel bodies: then nothing a kernel was to do may be reported as measured.
  bool alive() const { return alive_; }

  void fill(CUstream s, CUdeviceptr p, size_t bytes, u64 seed) const { launch(kFill, s, grid(bytes), 256, p, (u64)(bytes / 8), seed); }
  // The number of wrong words is added to *wrong.
  void verify(CUstream s, CUdeviceptr p, size_t bytes, u64 seed, CUdeviceptr wrong) const { launch(kVerify, s, grid(bytes), 256, p, (u64)(bytes / 8), seed, wrong); }
  void spin(CUstream s, double ms, CUdeviceptr started, unsigned value) const { launch(kSpin, s, 1, 1, (u64)(ms * 1e6), started, value); }
  void copy(CUstream s, CUdeviceptr to, CUdeviceptr from, size_t bytes) const { launch(kCopy, s, grid(bytes), 256, to, from, (u64)(bytes / 16)); }
  void read(CUstream s, CUdeviceptr p, size_t bytes, CUdeviceptr out) const { launch(kRead, s, grid(bytes), 256, p, (u64)(bytes / 16), out); }
  void write(CUstream s, CUdeviceptr p, size_t bytes, u64 value) const { launch(kWrite, s, grid(bytes), 256, p, (u64)(bytes / 16), value); }
  void flip(CUstream s, CUdeviceptr p, u64 word, u64 mask) const { launch(kFlip, s, 1, 32, p, word, mask); }
  void hash(CUstream s, bool strong, CUdeviceptr p, size_t bytes, CUdeviceptr out) const { launch(strong ? kHashMix : kHashNh, s, grid(bytes), 256, p, (u64)(bytes / 16), out); }

 private:
  enum { kFill, kVerify, kSpin, kCopy, kRead, kWrite, kFlip, kHashMix, kHashNh, kCount };
  unsigned grid(size_t bytes) const { return (unsigned)std::max<size_t>(1, std::min<size_t>(blocks_, bytes / 16 / 256)); }
  template <class... A> void launch(int which, CUstream s, unsigned blocks, unsigned threads, A... args) const {
    void* list[] = {&args...};
    CHECK(cuLaunchKernel(f_[which], blocks, 1, 1, threads, 1, 1, 0, s, list, nullptr));
  }
  // Every kernel once: lazy loading at a first launch may synchronise and would spoil what is timed later.
  void warmUp() {
    const size_t bytes = 64 * KiB;
    Pinned flag(4096); Tally wrong(1);
    CUdeviceptr a, b; CHECK(cuMemAlloc(&a, bytes)); CHECK(cuMemAlloc(&b, bytes));
    CHECK(cuMemsetD8(a, 0, bytes)); CHECK(cuMemsetD8(b, 0, bytes));
    fill(0, a, bytes, 1); copy(0, b, a, bytes); read(0, a, bytes, b); flip(0, b, 77, 4);
    verify(0, b, bytes, 1, wrong.at); spin(0, 0.01, flag.at, 7);
    write(0, a, bytes, 1); hash(0, true, a, bytes, b); hash(0, false, a, bytes, b);
    CHECK(cuCtxSynchronize());
    // Clocks and the link need a moment of work to leave their idle states.
    for (double until = nowUs() + 3e5; nowUs() < until;) { for (int i = 0; i < 20; i++) copy(0, b, a, bytes); CHECK(cuStreamSynchronize(0)); }
    CHECK(cuMemFree(a)); CHECK(cuMemFree(b));
    alive_ = flag.word(0) == 7 && wrong.value() == 1;   // exactly the flipped word is wrong
    report()["kernels_run"] = alive_;
    if (!alive_) say("kernels do nothing here: only driver calls are measured");
  }
  CUmodule module_ = nullptr; CUfunction f_[kCount]; unsigned blocks_; bool alive_ = false;
};
