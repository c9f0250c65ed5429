// Loading the driver and the primary contexts: see driver.hpp.
#include "tests/softgpu/cudart/driver.hpp"
#include <dlfcn.h>
#include <atomic>
#include <mutex>

namespace cudart {

std::array<void*, request_count> slots;

namespace {

extern "C" CUresult cudart_missing_entry() { return CUDA_ERROR_NOT_FOUND; }

cudaError_t resolve_all() {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (!handle) return cudaErrorInsufficientDriver;
  auto ask = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(handle, "cuGetProcAddress_v2"));
  if (!ask) return cudaErrorInsufficientDriver;
  for (size_t i = 0; i < request_count; i++) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    const Request& r = requests[i];
    if (ask(r.name.data(), &found, r.version, static_cast<cuuint64_t>(r.flags), &status) != CUDA_SUCCESS) found = nullptr;
    slots[i] = found ? found : reinterpret_cast<void*>(&cudart_missing_entry);
  }
  int version = 0;
  if (DRIVER(cuDriverGetVersion, 2020)(&version) || version < 12000) return cudaErrorInsufficientDriver;
  return to_runtime(DRIVER(cuInit, 2000)(0));
}

constexpr int max_devices = 64;
struct Primaries {
  std::mutex mutex;
  CUcontext contexts[max_devices] = {};
};
// Never destroyed: entry points are called from exit handlers.
Primaries& primaries() { static auto* p = new Primaries; return *p; }

thread_local int thread_device = 0;
// A thread has its context if it got it since the last reset of any device.
std::atomic<int> generation{1};
thread_local int thread_bound = 0;
thread_local cudaError_t thread_error = cudaSuccess;

cudaError_t retain(int device, CUcontext* out) {
  Primaries& p = primaries();
  std::lock_guard lock(p.mutex);
  if (device < 0 || device >= max_devices) return cudaErrorInvalidDevice;
  if (!p.contexts[device]) {
    CUdevice d;
    if (CUresult r = DRIVER(cuDeviceGet, 2000)(&d, device)) return to_runtime(r);
    if (CUresult r = DRIVER(cuDevicePrimaryCtxRetain, 7000)(&p.contexts[device], d)) {
      p.contexts[device] = nullptr;
      return to_runtime(r);
    }
  }
  *out = p.contexts[device];
  return cudaSuccess;
}

}  // namespace

cudaError_t load_driver() {
  static const cudaError_t result = resolve_all();
  return result;
}

cudaError_t use_device(int device) {
  if (cudaError_t e = load_driver()) return e;
  int count = 0;
  if (CUresult r = DRIVER(cuDeviceGetCount, 2000)(&count)) return to_runtime(r);
  if (count == 0) return cudaErrorNoDevice;
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  CUcontext context;
  if (cudaError_t e = retain(device, &context)) return e;
  if (CUresult r = DRIVER(cuCtxSetCurrent, 4000)(context)) return to_runtime(r);
  thread_device = device;
  thread_bound = generation.load(std::memory_order_relaxed);
  return cudaSuccess;
}

cudaError_t ready() {
  if (thread_bound == generation.load(std::memory_order_relaxed)) return cudaSuccess;
  if (cudaError_t e = load_driver()) return e;
  CUcontext context = nullptr;
  if (DRIVER(cuCtxGetCurrent, 4000)(&context) == CUDA_SUCCESS && context) {
    CUdevice device = 0;
    if (DRIVER(cuCtxGetDevice, 2000)(&device) == CUDA_SUCCESS) thread_device = device;
    thread_bound = generation.load(std::memory_order_relaxed);
    return cudaSuccess;
  }
  return use_device(thread_device);
}

int current_device() { return thread_device; }

CUcontext primary_context(int device) {
  CUcontext context = nullptr;
  return load_driver() == cudaSuccess && retain(device, &context) == cudaSuccess ? context : nullptr;
}

void drop_primary(int device) {
  Primaries& p = primaries();
  std::lock_guard lock(p.mutex);
  p.contexts[device] = nullptr;
  generation.fetch_add(1, std::memory_order_relaxed);
}

cudaError_t note(cudaError_t e) {
  if (e != cudaSuccess) thread_error = e;
  return e;
}

cudaError_t last_error(bool reset) {
  cudaError_t e = thread_error;
  if (reset) thread_error = cudaSuccess;
  return e;
}

}  // namespace cudart
