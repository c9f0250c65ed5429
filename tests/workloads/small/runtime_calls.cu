// A check of our own runtime on whatever driver there is: every group of its calls once, by effect. Compiled twice,
// for the legacy and for the per-thread default stream. Prints `N passed, N failed`.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

__device__ int counter;
__constant__ int factors[4];

__global__ void scale(const int* in, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * factors[i & 3];
}
__global__ void count() { atomicAdd(&counter, 1); }
struct Packed { int* to; int value; int n; };
__global__ void set(Packed p) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.to[i] = p.value;
}
__global__ void reversed(int* data) {
  extern __shared__ int held[];
  held[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

static int passed, failed;
static void expect(bool holds, const char* what) {
  ++(holds ? passed : failed);
  if (!holds) printf("FAILED: %s\n", what);
}
#define EXPECT(what) expect((what), #what)
#define OK(call) do { cudaError_t e_ = (call); expect(e_ == cudaSuccess, #call); if (e_) printf("    %s\n", cudaGetErrorName(e_)); } while (0)

constexpr int n = 1000;

static void kernels_and_symbols() {
  const int values[4] = {1, 10, 100, 1000};
  OK(cudaMemcpyToSymbol(factors, values, sizeof values));
  size_t bytes = 0;
  OK(cudaGetSymbolSize(&bytes, factors));
  EXPECT(bytes == sizeof values);
  std::vector<int> host(n), back(n);
  for (int i = 0; i < n; i++) host[i] = i;
  int *in, *out;
  OK(cudaMalloc(reinterpret_cast<void**>(&in), n * sizeof(int)));
  OK(cudaMalloc(reinterpret_cast<void**>(&out), n * sizeof(int)));
  OK(cudaMemcpy(in, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  scale<<<(n + 127) / 128, 128>>>(in, out, n);
  OK(cudaGetLastError());
  OK(cudaMemcpy(back.data(), out, n * sizeof(int), cudaMemcpyDefault));
  bool right = true;
  for (int i = 0; i < n; i++) right &= back[i] == i * values[i & 3];
  EXPECT(right);

  int zero = 0, counted = 0;
  OK(cudaMemcpyToSymbol(counter, &zero, sizeof zero));
  count<<<3, 32>>>();
  OK(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
  EXPECT(counted == 96);

  reversed<<<1, 64, 64 * sizeof(int)>>>(in);
  OK(cudaMemcpy(back.data(), in, 64 * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(back[0] == 63 && back[63] == 0);

  cudaLaunchConfig_t config{};
  config.gridDim = dim3(8);
  config.blockDim = dim3(128);
  OK(cudaLaunchKernelEx(&config, set, Packed{out, 42, n}));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(back.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(back[0] == 42 && back[n - 1] == 42);

  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, scale));
  EXPECT(attributes.maxThreadsPerBlock >= 128);
  int blocks = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 128, 0));
  EXPECT(blocks > 0);
  const char* name = nullptr;
  OK(cudaFuncGetName(&name, reinterpret_cast<const void*>(count)));
  EXPECT(name && strstr(name, "count"));
  int not_a_kernel;
  EXPECT(cudaLaunchKernel(&not_a_kernel, dim3(1), dim3(1), nullptr, 0, nullptr) == cudaErrorInvalidDeviceFunction);
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidDeviceFunction && cudaGetLastError() == cudaErrorInvalidDeviceFunction && cudaGetLastError() == cudaSuccess);
  OK(cudaFree(in));
  OK(cudaFree(out));
  OK(cudaFree(nullptr));
}

static void copies_and_memory() {
  char host[64 * 8], back[64 * 8];
  for (size_t i = 0; i < sizeof host; i++) host[i] = static_cast<char>(i);
  void* pitched;
  size_t pitch;
  OK(cudaMallocPitch(&pitched, &pitch, 64, 8));
  EXPECT(pitch >= 64);
  OK(cudaMemset2D(pitched, pitch, 7, 64, 8));
  OK(cudaMemcpy2D(pitched, pitch, host, 64, 32, 8, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2D(back, 64, pitched, pitch, 64, 8, cudaMemcpyDeviceToHost));
  bool right = true;
  for (int y = 0; y < 8; y++)
    for (int x = 0; x < 64; x++) right &= back[y * 64 + x] == (x < 32 ? host[y * 64 + x] : 7);
  EXPECT(right);
  cudaMemcpy3DParms p{};
  p.srcPtr = make_cudaPitchedPtr(pitched, pitch, 64, 8);
  p.dstPtr = make_cudaPitchedPtr(back, 64, 64, 8);
  p.extent = make_cudaExtent(64, 8, 1);
  p.kind = cudaMemcpyDeviceToHost;
  memset(back, 0, sizeof back);
  OK(cudaMemcpy3D(&p));
  EXPECT(back[31] == host[31] && back[32] == 7);
  EXPECT(cudaMemcpy(back, pitched, 8, static_cast<cudaMemcpyKind>(9)) == cudaErrorInvalidMemcpyDirection);

  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, pitched));
  EXPECT(a.type == cudaMemoryTypeDevice && a.devicePointer == pitched && a.device == 0);
  OK(cudaPointerGetAttributes(&a, host));
  EXPECT(a.type == cudaMemoryTypeUnregistered);
  void* pinned;
  OK(cudaMallocHost(&pinned, 4096));
  OK(cudaPointerGetAttributes(&a, pinned));
  EXPECT(a.type == cudaMemoryTypeHost);
  memset(pinned, 5, 4096);
  OK(cudaMemcpy(pitched, pinned, 64, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(back, pitched, 64, cudaMemcpyDeviceToHost));
  EXPECT(back[63] == 5);
  OK(cudaFreeHost(pinned));
  OK(cudaFree(pitched));

  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  EXPECT(total > 0 && free <= total);
  void* huge = nullptr;
  EXPECT(cudaMalloc(&huge, size_t{1} << 50) == cudaErrorMemoryAllocation && !huge);
  EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);

  cudaMemPool_t pool;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long threshold = 1 << 20, read = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &read));
  EXPECT(read == threshold);
}

static void device_queries() {
  int count = 0, device = -1, driver = 0, runtime = 0, multiprocessors = 0;
  OK(cudaGetDeviceCount(&count));
  EXPECT(count >= 1);
  OK(cudaSetDevice(0));
  OK(cudaGetDevice(&device));
  EXPECT(device == 0);
  EXPECT(cudaSetDevice(count) == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  OK(cudaDriverGetVersion(&driver));
  OK(cudaRuntimeGetVersion(&runtime));
  EXPECT(driver >= 12040 && runtime == CUDART_VERSION);
  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 0));
  OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  EXPECT(p.name[0] && p.warpSize == 32 && p.totalGlobalMem > 0 && p.multiProcessorCount == multiprocessors && p.maxThreadsPerBlock >= 1024);
  int least, greatest;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT(least >= greatest);
  EXPECT(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
  EXPECT(strlen(cudaGetErrorString(cudaErrorMemoryAllocation)) > 5);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &found));
  EXPECT(entry && found == cudaDriverEntryPointSuccess);
  OK(cudaGetDriverEntryPointByVersion("cuNoSuchEntry", &entry, 12000, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSymbolNotFound);
}

static void streams_and_events() {
  cudaStream_t a, b;
  cudaEvent_t begin, done;
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreateWithFlags(&done, cudaEventDefault));
  int *data, *pinned;
  OK(cudaMallocAsync(reinterpret_cast<void**>(&data), n * sizeof(int), a));
  OK(cudaHostAlloc(reinterpret_cast<void**>(&pinned), n * sizeof(int), cudaHostAllocDefault));
  OK(cudaEventRecord(begin, a));
  OK(cudaMemsetAsync(data, 0, n * sizeof(int), a));
  set<<<8, 128, 0, a>>>(Packed{data, 17, n});
  OK(cudaEventRecord(done, a));
  OK(cudaStreamWaitEvent(b, done, 0));
  OK(cudaMemcpyAsync(pinned, data, n * sizeof(int), cudaMemcpyDeviceToHost, b));
  int called = 0;
  OK(cudaLaunchHostFunc(b, [](void* p) { *static_cast<int*>(p) += 1; }, &called));
  OK(cudaStreamAddCallback(b, [](cudaStream_t, cudaError_t e, void* p) { *static_cast<int*>(p) += e == cudaSuccess ? 10 : 100; }, &called, 0));
  OK(cudaStreamSynchronize(b));
  EXPECT(pinned[0] == 17 && pinned[n - 1] == 17 && called == 11);
  EXPECT(cudaStreamQuery(b) == cudaSuccess && cudaEventQuery(done) == cudaSuccess);
  float ms = -1;
  OK(cudaEventSynchronize(done));
  OK(cudaEventElapsedTime(&ms, begin, done));
  EXPECT(ms >= 0);
  unsigned flags = 9;
  OK(cudaStreamGetFlags(b, &flags));
  EXPECT(flags == cudaStreamNonBlocking);
  OK(cudaFreeAsync(data, a));
  OK(cudaStreamSynchronize(a));
  OK(cudaFreeHost(pinned));
  OK(cudaEventDestroy(begin));
  OK(cudaEventDestroy(done));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
}

static void graphs() {
  cudaStream_t s;
  cudaGraph_t captured, made;
  cudaGraphExec_t exec;
  int *data, host = 0;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaMalloc(reinterpret_cast<void**>(&data), n * sizeof(int)));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status;
  OK(cudaStreamIsCapturing(s, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  set<<<8, 128, 0, s>>>(Packed{data, 5, n});
  count<<<1, 32, 0, s>>>();
  OK(cudaStreamEndCapture(s, &captured));
  size_t nodes = 0;
  OK(cudaGraphGetNodes(captured, nullptr, &nodes));
  EXPECT(nodes == 2);
  OK(cudaGraphInstantiate(&exec, captured, 0));
  for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpyFromSymbol(&host, counter, sizeof host));
  EXPECT(host == 96 + 3 * 32);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(captured));

  OK(cudaGraphCreate(&made, 0));
  cudaGraphNode_t kernel, copy;
  Packed argument{data, 23, n};
  void* list[] = {&argument};
  cudaKernelNodeParams p{};
  p.func = reinterpret_cast<void*>(set);
  p.gridDim = dim3(8);
  p.blockDim = dim3(128);
  p.kernelParams = list;
  OK(cudaGraphAddKernelNode(&kernel, made, nullptr, 0, &p));
  OK(cudaGraphAddMemcpyNode1D(&copy, made, &kernel, 1, &host, data + n - 1, sizeof host, cudaMemcpyDeviceToHost));
  cudaKernelNodeParams got{};
  OK(cudaGraphKernelNodeGetParams(kernel, &got));
  EXPECT(got.func == p.func && got.gridDim.x == 8);
  OK(cudaGraphInstantiateWithFlags(&exec, made, 0));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  EXPECT(host == 23);
  argument.value = 24;
  OK(cudaGraphExecKernelNodeSetParams(exec, kernel, &p));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  EXPECT(host == 24);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(made));
  OK(cudaFree(data));
  OK(cudaStreamDestroy(s));
}

int main() {
  device_queries();
  kernels_and_symbols();
  copies_and_memory();
  streams_and_events();
  graphs();
  // A thread of its own finds the device without being told.
  std::thread([] {
    void* p = nullptr;
    OK(cudaMalloc(&p, 4096));
    OK(cudaMemset(p, 1, 4096));
    OK(cudaFree(p));
  }).join();
  OK(cudaDeviceSynchronize());
  printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed;
}
