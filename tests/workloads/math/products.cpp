// run(BATCH, STEPS, HOW): a training step's worth of matrix products and convolutions by cuBLAS, cuBLASLt and cuDNN. Prints the FLOPs
// of each call of a step, as its sizes say, and a checksum.
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/workloads/math/device.hpp"
#include "tests/workloads/math/math_api.hpp"

namespace {

bool looked_up = false;
// The function that the program is linked with, or the one that a look-up in its library finds.
template <class F>
F* found(F* linked, const char* name) {
  if (!looked_up) return linked;
  static void* const libraries[] = {dlopen("libcublas.so.13", RTLD_LAZY), dlopen("libcudnn.so.9", RTLD_LAZY)};
  for (void* l : libraries)
    if (void* const f = l ? dlsym(l, name) : nullptr) return reinterpret_cast<F*>(f);
  fprintf(stderr, "%s is not there\n", name);
  exit(1);
}
#define FIND(name) found(&name, #name)

void* tensor(const std::vector<std::int64_t>& sizes) {
  void* t;
  cudnnBackendCreateDescriptor(17, &t);
  cudnnBackendSetAttribute(t, 902, 3, static_cast<std::int64_t>(sizes.size()), sizes.data());
  cudnnBackendFinalize(t);
  return t;
}
void link(void* from, int attribute, void* to) { cudnnBackendSetAttribute(from, attribute, 15, 1, &to); }
void* made(int type, std::initializer_list<std::pair<int, void*>> links) {
  void* object;
  cudnnBackendCreateDescriptor(type, &object);
  for (auto [attribute, to] : links) link(object, attribute, to);
  cudnnBackendFinalize(object);
  return object;
}
// By an engine of the program's choice, or by the heuristics'.
void* plan_of(void* operation, bool heuristics) {
  void* const graph = made(15, {{801, operation}});
  if (!heuristics) return made(5, {{401, made(3, {{300, made(2, {{1300, graph}})}})}});
  void* const heuristic = made(4, {{201, graph}});
  void* config = made(3, {});
  std::int64_t count = 0;
  cudnnBackendGetAttribute(heuristic, 202, 15, 1, &count, &config);
  return made(5, {{401, config}});
}
void execute(void* plan, CUdeviceptr x, CUdeviceptr w, CUdeviceptr y) {
  void* pack;
  cudnnBackendCreateDescriptor(16, &pack);
  const void* pointers[] = {reinterpret_cast<void*>(x), reinterpret_cast<void*>(w), reinterpret_cast<void*>(y)};
  cudnnBackendSetAttribute(pack, 1000, 6, 3, pointers);
  FIND(cudnnBackendExecute)(nullptr, plan, pack);
  cudnnBackendDestroyDescriptor(pack);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int run(int batch, int steps, const char* how) {
  looked_up = !strcmp(how, "looked-up");
  const bool captured = !strcmp(how, "captured");
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  const int in = 24, out = 40, channels = 6, filters = 10, side = 12, kernel_side = 3, inner = side - kernel_side + 1;
  CUdeviceptr x, w, y, z;
  for (CUdeviceptr* p : {&x, &w, &y, &z}) {
    CHECK(cuMemAlloc(p, 4ul * 4096 * static_cast<unsigned>(batch)));
    CHECK(cuMemsetD32(*p, 0x3c000000, 4096u * static_cast<unsigned>(batch)));
  }
  const auto at = [](CUdeviceptr p) { return reinterpret_cast<void*>(p); };
  const Shape image{4, {batch, channels, side, side}}, filter{4, {filters, channels / 2, kernel_side, kernel_side}}, result{4, {batch, filters, inner, inner}};  // two groups
  void *const tx = tensor({batch, channels, side, side}), *const tw = tensor({filters, channels, kernel_side, kernel_side}), *const ty = tensor({batch, filters, inner, inner});
  void* const convolution = plan_of(made(10, {{704, tx}, {703, tw}, {705, ty}}), false);
  void* const product = plan_of(made(19, {{1520, tensor({2, batch, in})}, {1521, tensor({2, in, out})}, {1522, tensor({2, batch, out})}}), true);
  LtMatmul transposed{1};
  LtLayout la{0, static_cast<std::uint64_t>(in), static_cast<std::uint64_t>(batch), 2}, lb{0, static_cast<std::uint64_t>(in), static_cast<std::uint64_t>(out), 2}, ld{0, static_cast<std::uint64_t>(batch), static_cast<std::uint64_t>(out), 2};
  const int group_m[] = {batch, 2 * batch}, group_n[] = {out, 8}, group_k[] = {in, 16}, group_sizes[] = {2, 3};
  const auto step = [&](CUstream stream) {
    FIND(cublasSgemm_v2)(nullptr, 0, 0, batch, out, in, nullptr, at(x), in, at(w), out, nullptr, at(y), out);
    FIND(cublasSgemm_v2_64)(nullptr, 0, 1, in, out, batch, nullptr, at(x), in, at(y), out, nullptr, at(w), out);
    FIND(cublasCgemm_v2)(nullptr, 0, 0, batch, out, in, nullptr, at(x), in, at(w), out, nullptr, at(y), out);
    FIND(cublasGemmEx)(nullptr, 0, 0, batch, out, in, nullptr, at(x), 0, in, at(w), 0, out, nullptr, at(y), 0, out, 0, 0);
    FIND(cublasSgemmStridedBatched)(nullptr, 0, 0, batch, 8, 16, nullptr, at(x), 16, batch * 16, at(w), 8, 128, nullptr, at(z), 8, batch * 8, 4);
    FIND(cublasSgemmGroupedBatched)(nullptr, nullptr, nullptr, group_m, group_n, group_k, nullptr, at(x), nullptr, at(w), nullptr, nullptr, at(z), nullptr, 2, group_sizes);
    FIND(cublasLtMatmul)(nullptr, &transposed, nullptr, at(x), &la, at(w), &lb, nullptr, at(y), &ld, at(y), &ld, nullptr, nullptr, 0, nullptr);
    FIND(cudnnConvolutionForward)(nullptr, nullptr, &image, at(x), &filter, at(w), nullptr, 0, nullptr, 0, nullptr, &result, at(y));
    FIND(cudnnConvolutionBackwardData)(nullptr, nullptr, &filter, at(w), &result, at(y), nullptr, 0, nullptr, 0, nullptr, &image, at(z));
    FIND(cudnnConvolutionBackwardFilter)(nullptr, nullptr, &image, at(x), &result, at(y), nullptr, 0, nullptr, 0, nullptr, &filter, at(w));
    execute(convolution, x, w, y);
    execute(product, x, w, z);
    CHECK(cuMemsetD32Async(w, 0x3c000000, 4096u * static_cast<unsigned>(batch), stream));
  };
  CUgraphExec graph = nullptr;
  if (captured) {
    CUstream stream;
    CUgraph made;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    cublasSetStream_v2(nullptr, stream), cudnnSetStream(nullptr, stream);
    step(stream);   // what is loaded at first use cannot be captured
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    step(stream);
    CHECK(cuStreamEndCapture(stream, &made));
    CHECK(cuGraphInstantiate(&graph, made, 0));
    CHECK(cuGraphDestroy(made));
  }
  for (int s = 0; s < steps; s++) {
    if (captured) CHECK(cuGraphLaunch(graph, nullptr));
    else step(nullptr);
    CHECK(cuMemsetD8(y, static_cast<unsigned char>(s), 64));
    CHECK(cuCtxSynchronize());
  }
  const double b = batch, grouped_convolution = 2.0 * b * filters * inner * inner * (channels / 2) * kernel_side * kernel_side;
  printf("cublasSgemm_v2 %.0f\n", 2 * b * out * in);
  printf("cublasSgemm_v2_64 %.0f\n", 2 * b * out * in);
  printf("cublasCgemm_v2 %.0f\n", 8 * b * out * in);
  printf("cublasGemmEx %.0f\n", 2 * b * out * in);
  printf("cublasSgemmStridedBatched %.0f\n", 2 * b * 8 * 16 * 4);
  printf("cublasSgemmGroupedBatched %.0f\n", 2 * (2 * b * out * in + 3 * 2 * b * 8 * 16));
  printf("cublasLtMatmul %.0f\n", 2 * 2 * b * out * in);
  for (const char* pass : {"Forward", "BackwardData", "BackwardFilter"}) printf("cudnnConvolution%s %.0f\n", pass, grouped_convolution);
  printf("cudnnBackendExecute (convolution) %.0f\n", 2 * grouped_convolution);
  printf("cudnnBackendExecute (matmul) %.0f\n", 2 * 2 * b * out * in);
  std::vector<unsigned> words(1024);
  CHECK(cuMemcpyDtoH(words.data(), z, words.size() * 4));
  unsigned sum = 0;
  for (unsigned v : words) sum = sum * 31 + v;
  printf("checksum %08x\n", sum);
  return 0;
}
