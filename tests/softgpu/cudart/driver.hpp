// How this runtime reaches the driver: dlopen("libcuda.so.1"), one dlsym of cuGetProcAddress_v2, then the 440
// requests of requests.def, all at the first use. No other symbol of the driver is ever looked up, in the shared
// and in the static build alike; that is how the real runtime does it, and what a preload has to see through.
//
// Also the state that all entry points share: the context of the calling thread and its last error.
// Thread-safe: loading happens once, what it fills is never changed afterwards.
#pragma once
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <array>
#include <cstddef>
#include <string_view>

namespace cudart {

struct Request { std::string_view name; int version; int flags; };
inline constexpr Request requests[] = {
#define REQUEST(name, version, flags) {name, version, flags},
#include "tests/softgpu/cudart/requests.def"
#undef REQUEST
};
inline constexpr size_t request_count = sizeof requests / sizeof requests[0];

consteval size_t slot_of(std::string_view name, int version, int flags) {
  for (size_t i = 0; i < request_count; i++)
    if (requests[i].name == name && requests[i].version == version && requests[i].flags == flags) return i;
  throw "the runtime does not ask the driver for this entry point";
}

// Answers of the driver, by slot; an entry that the driver lacks answers CUDA_ERROR_NOT_FOUND when called.
extern std::array<void*, request_count> slots;

// The entry point NAME of version VERSION; and, for calls that take a stream, the form that fits how this file is
// compiled: per-thread default stream (CUDA_API_PER_THREAD_DEFAULT_STREAM) or legacy. DRIVER_AS is for the few whose
// type cudaTypedefs.h does not have under the version that is asked for. None of these may be built on another: cuda.h
// defines many of the names as macros, and only # and ## keep the name from being replaced.
#define DRIVER_AS(type, name, version) (reinterpret_cast<type>(::cudart::slots[::cudart::slot_of(#name, version, 0)]))
#define DRIVER(name, version) (reinterpret_cast<PFN_##name##_v##version>(::cudart::slots[::cudart::slot_of(#name, version, 0)]))
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define DRIVER_STREAM(name, version, ptds_version) \
  (reinterpret_cast<PFN_##name##_v##version>(::cudart::slots[::cudart::slot_of(#name, ptds_version, 2)]))
#else
#define DRIVER_STREAM(name, version, ptds_version) \
  (reinterpret_cast<PFN_##name##_v##version>(::cudart::slots[::cudart::slot_of(#name, version, 0)]))
#endif

// Loads the driver and calls cuInit; the result is kept for the life of the process.
cudaError_t load_driver();
// Makes the primary context of the thread's device current, unless the thread has a context of its own already.
cudaError_t ready();
// Makes `device` the thread's device and its primary context current.
cudaError_t use_device(int device);
int current_device();
CUcontext primary_context(int device);
// The device's primary context is gone (reset); every thread retains it anew at its next use.
void drop_primary(int device);

// Driver and runtime errors have had the same numbers since CUDA 10.1.
inline cudaError_t to_runtime(CUresult r) { return static_cast<cudaError_t>(r); }
// Keeps an error as the thread's last one, and hands it on.
cudaError_t note(cudaError_t e);
inline cudaError_t note(CUresult r) { return note(to_runtime(r)); }
cudaError_t last_error(bool reset);

// The body of an entry point: a context first, then the call; errors are remembered.
template <class Body>
cudaError_t call(Body body) {
  if (cudaError_t e = ready()) return note(e);
  return note(body());
}
// The same for calls that need the driver but no context.
template <class Body>
cudaError_t call_driver(Body body) {
  if (cudaError_t e = load_driver()) return note(e);
  return note(body());
}

inline CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
inline void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

}  // namespace cudart
