// Streams, events and peers: what exists in one form whatever the default stream is.
#include "tests/softgpu/cudart/driver.hpp"
#include <cstring>

using namespace cudart;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  if (!out) return note(cudaErrorInvalidValue);
  return call([&] { return DRIVER(cuStreamCreateWithPriority, 5050)(out, flags, priority); });
}
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
EXPORT cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0); }
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s) { return call([&] { return DRIVER(cuStreamDestroy, 4000)(s); }); }
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call([&] { return DRIVER(cuThreadExchangeStreamCaptureMode, 10010)(reinterpret_cast<CUstreamCaptureMode*>(mode)); });
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  if (!out) return note(cudaErrorInvalidValue);
  return call([&] { return DRIVER(cuEventCreate, 2000)(out, flags); });
}
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) { return call([&] { return DRIVER(cuEventDestroy, 4000)(e); }); }
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e) { return call([&] { return DRIVER(cuEventSynchronize, 2000)(e); }); }
EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) { return call([&] { return DRIVER(cuEventQuery, 2000)(e); }); }
EXPORT cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return call([&] { return DRIVER(cuEventElapsedTime, 12080)(ms, from, to); });
}

EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t e) {
  return call([&] { return DRIVER(cuIpcGetEventHandle, 4010)(reinterpret_cast<CUipcEventHandle*>(handle), e); });
}
EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* out, cudaIpcEventHandle_t handle) {
  return call([&] {
    CUipcEventHandle h;
    memcpy(&h, &handle, sizeof h);
    return DRIVER(cuIpcOpenEventHandle, 4010)(out, h);
  });
}

EXPORT cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  return call([&] { return DRIVER(cuMemcpyPeer, 4000)(address(to), primary_context(to_device), address(from), primary_context(from_device), bytes); });
}
EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t s) {
  return call([&] {
    return DRIVER(cuMemcpyPeerAsync, 4000)(address(to), primary_context(to_device), address(from), primary_context(from_device), bytes, s);
  });
}
