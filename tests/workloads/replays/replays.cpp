// replays KIND ITERATIONS: a chain of activations, each made from the one before by a kernel of that kind and read again on
// the way back, as a training iteration would. Prints a checksum of its state after each iteration. What a kind needs beside
// its activations (state, statistics, variables, tables) is part of the checksum.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

extern "C" const char replays_ptx[];

namespace {

constexpr int kLayers = 16;
constexpr unsigned kWords = 8192;      // of an activation
constexpr unsigned kSmall = 128;       // of what lies in a slab

struct Chain {
  CUcontext context;
  CUmodule module, again = nullptr;
  CUstream stream;
  std::string kind;
  int iteration = 0;
  unsigned salt = 0;                   // differs between launches, the same in each iteration unless a kind says so
  CUdeviceptr state, gradient, input, extra, wide, pinned_at = 0;
  unsigned* pinned = nullptr;
  CUdeviceptr x[kLayers + 1];

  CUfunction function(const char* name) {
    CUfunction f;
    CHECK(cuModuleGetFunction(&f, module, name));
    return f;
  }
  template <class... A>
  void launch(const char* name, A... arguments) {
    void* list[] = {&arguments...};
    CHECK(cuLaunchKernel(function(name), 16, 1, 1, 128, 1, 1, 0, stream, list, nullptr));
  }
  void activation(const char* name, CUdeviceptr in, CUdeviceptr out) { launch(name, in, out, extra, kWords, salt); }

  explicit Chain(const char* k) : kind(k) {
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, replays_ptx));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* p : {&state, &gradient, &input, &wide}) CHECK(cuMemAlloc(p, kWords * 4));
    CHECK(cuMemAlloc(&extra, 2 * kSmall * 4));
    CHECK(cuMemsetD32(extra + kSmall * 4, 9, kSmall));
    for (CUdeviceptr p : {state, gradient, wide}) CHECK(cuMemsetD32(p, 5, kWords));
    CHECK(cuMemsetD32(extra, 3, kSmall));
    if (kind == "pinned") {
      CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kSmall * 4, CU_MEMHOSTALLOC_DEVICEMAP));
      CHECK(cuMemHostGetDevicePointer(&pinned_at, pinned, 0));
    }
    if (kind == "pointer_table") CHECK(cuMemcpyHtoD(extra, &wide, 8));
  }

  void variable(const char* name, unsigned value) {
    CUdeviceptr at;
    size_t bytes;
    CHECK(cuModuleGetGlobal(&at, &bytes, module, name));
    CHECK(cuMemsetD32Async(at, value, bytes / 4, stream));
  }

  void forward(int l) {
    const CUdeviceptr in = x[l], out = x[l + 1];
    salt = static_cast<unsigned>(l);
    if (kind == "varying") salt += static_cast<unsigned>(iteration) * 100;
    if ((kind == "rare_write" || kind == "rare_keep" || kind == "rare_scalar") && iteration > 24) salt += 5000;
    if (kind == "in_place") activation("pure", in, out), activation("in_place", in, out);
    else if (kind == "update") activation("zero", in, out), activation("update", in, out);
    else if (kind == "integer_atomics") activation("zero", in, out), activation("integer_atomics", in, out);
    else if (kind == "copied") CHECK(cuMemcpyDtoDAsync(out, in, kWords * 4, stream));
    else if (kind == "filled") CHECK(cuMemsetD32Async(out, salt, kWords, stream)), launch("update", in, out, extra, kWords, salt);
    else if (kind == "varying" || kind == "rare_scalar") activation("pure", in, out);
    else if (kind == "partial") activation("partial", in, out);
    else if (kind == "with_state") activation("with_state", in, out), activation("advance", in, out);
    else if (kind == "pinned") pinned[0] = static_cast<unsigned>(iteration * kLayers + l), launch("with_state", in, out, pinned_at, kWords, salt), CHECK(cuStreamSynchronize(stream));
    else if (kind == "module_variable") variable("scale", static_cast<unsigned>(iteration + l)), activation("module_variable", in, out);
    else if (kind == "constant") variable("table", static_cast<unsigned>(iteration + l)), activation("constant", in, out);
    else if (kind == "mask") launch("mask", in, out, wide, kWords, salt);
    else if (kind == "struct") launch("by_struct", std::array<unsigned long long, 4>{3, in, 0, out}, kWords, salt);
    else if (kind == "aliasing") launch("aliasing", out, in, in, out, kWords, salt);
    else if (kind == "address") activation(l ? "undo_address" : "address", in, out);
    else if (kind == "cooperative") {
      void* list[] = {const_cast<CUdeviceptr*>(&in), const_cast<CUdeviceptr*>(&out), &extra, const_cast<unsigned*>(&kWords_), &salt};
      CHECK(cuLaunchCooperativeKernel(function("pure"), 16, 1, 1, 128, 1, 1, 0, stream, list));
    } else if (kind == "buffer") {
      struct { CUdeviceptr in, out, extra; unsigned count, salt; } packed{in, out, extra, kWords, salt};
      size_t bytes = sizeof packed;
      void* more[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
      CHECK(cuLaunchKernel(function("pure"), 16, 1, 1, 128, 1, 1, 0, stream, nullptr, more));
    } else if (kind == "attributes") {
      CUlaunchAttribute attribute{};
      attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
      CUlaunchConfig config{16, 1, 1, 128, 1, 1, 0, stream, &attribute, 1};
      void* list[] = {const_cast<CUdeviceptr*>(&in), const_cast<CUdeviceptr*>(&out), &extra, const_cast<unsigned*>(&kWords_), &salt};
      CHECK(cuLaunchKernelEx(&config, function("pure"), list, nullptr));
    } else if (kind == "unloaded") {
      // Unloaded in the middle of an iteration, when activations that it made may have been dropped.
      if (again && iteration == 30 && l == kLayers / 2) {
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuModuleUnload(again));
        again = nullptr;
      }
      if (!again) CHECK(cuModuleLoadData(&again, replays_ptx));
      CUfunction f;
      CHECK(cuModuleGetFunction(&f, again, "pure"));
      void* list[] = {const_cast<CUdeviceptr*>(&in), const_cast<CUdeviceptr*>(&out), &extra, const_cast<unsigned*>(&kWords_), &salt};
      CHECK(cuLaunchKernel(f, 16, 1, 1, 128, 1, 1, 0, stream, list, nullptr));
    } else activation(kind.c_str(), in, out);
  }

  unsigned checksum() {
    std::vector<unsigned> all(kWords), few(kSmall);
    CHECK(cuMemcpyDtoHAsync(all.data(), state, kWords * 4, stream));
    CHECK(cuMemcpyDtoHAsync(few.data(), kind == "pointer_table" || kind == "table_writer" ? state : extra, kSmall * 4, stream));
    CHECK(cuStreamSynchronize(stream));
    unsigned sum = 0;
    for (unsigned v : all) sum = sum * 31 + v;
    for (unsigned v : few) sum = sum * 31 + v;
    return sum;
  }

  void iterate() {
    std::vector<unsigned> host(kWords);
    for (unsigned i = 0; i < kWords; i++) host[i] = fill_word(i, static_cast<unsigned>(iteration));
    CHECK(cuMemcpyHtoDAsync(input, host.data(), kWords * 4, stream));
    if (kind == "neighbour") CHECK(cuMemsetD32Async(extra + kSmall * 4, static_cast<unsigned>(iteration), kSmall, stream));
    if (kind == "table_writer") launch("make_table", extra, wide);
    x[0] = input;
    for (int l = 0; l < kLayers; l++) {
      CHECK(cuMemAllocAsync(&x[l + 1], kWords * 4, stream));
      if (kind == "partial" || kind == "rare_keep") CHECK(cuMemcpyDtoDAsync(x[l + 1], wide, kWords * 4, stream));
      forward(l);
    }
    for (int l = kLayers; l > 0; l--) {
      launch(kind == "address" ? "back_address" : "back", gradient, x[l], kWords, static_cast<unsigned>(l));
      CHECK(cuMemFreeAsync(x[l], stream));
    }
    launch("back", state, gradient, kWords, 1u);
    if (kind == "table_writer") launch("back", state, wide, kWords, 2u);
    if (kind == "global_counter") launch("read_counter", extra);
    printf("%d %08x\n", iteration, checksum());
    fflush(stdout);
    iteration++;
  }
  static constexpr unsigned kWords_ = kWords;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: replays KIND ITERATIONS\n");
    return 2;
  }
  Chain chain(argv[1]);
  for (int i = 0; i < atoi(argv[2]); i++) chain.iterate();
  return 0;
}
