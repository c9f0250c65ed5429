// What takes a stream, or uses the default one. This file is compiled twice: as it is, and from ordered_ptds.cpp
// with CUDA_API_PER_THREAD_DEFAULT_STREAM. Then the header renames every function here to its _ptds or _ptsz form
// and DRIVER_STREAM takes the driver's entries for per-thread default streams; nothing else may differ.
// A function whose name the header does not rename belongs into another file: here it would be defined twice.
#include "tests/softgpu/cudart/copies.hpp"
#include "tests/softgpu/cudart/images.hpp"
#include <memory>

using namespace cudart;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Launches ------------------------------------------------------------------------------------------------------

cudaError_t launch(CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  // The kernel goes to the launch as it is, cast to a function: the driver takes either.
  return to_runtime(DRIVER_STREAM(cuLaunchKernel, 4000, 7000)(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x, block.y,
                                                              block.z, static_cast<unsigned>(shared), stream, arguments, nullptr));
}

// Copies --------------------------------------------------------------------------------------------------------

CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return CUDA_SUCCESS;
  switch (kind) {
    case cudaMemcpyHostToDevice: return DRIVER_STREAM(cuMemcpyHtoD, 3020, 7000)(address(to), from, bytes);
    case cudaMemcpyDeviceToHost: return DRIVER_STREAM(cuMemcpyDtoH, 3020, 7000)(to, address(from), bytes);
    case cudaMemcpyDeviceToDevice: return DRIVER_STREAM(cuMemcpyDtoD, 3020, 7000)(address(to), address(from), bytes);
    default: return DRIVER_STREAM(cuMemcpy, 4000, 7000)(address(to), address(from), bytes);
  }
}

CUresult copy_async(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return CUDA_SUCCESS;
  switch (kind) {
    case cudaMemcpyHostToDevice: return DRIVER_STREAM(cuMemcpyHtoDAsync, 3020, 7000)(address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost: return DRIVER_STREAM(cuMemcpyDtoHAsync, 3020, 7000)(to, address(from), bytes, stream);
    case cudaMemcpyDeviceToDevice: return DRIVER_STREAM(cuMemcpyDtoDAsync, 3020, 7000)(address(to), address(from), bytes, stream);
    default: return DRIVER_STREAM(cuMemcpyAsync, 4000, 7000)(address(to), address(from), bytes, stream);
  }
}

bool valid(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

// Where `bytes` at `offset` of a variable lie; cudaErrorInvalidValue past its end.
cudaError_t symbol_part(const void* symbol, size_t offset, size_t bytes, void** out) {
  CUdeviceptr at;
  size_t size;
  if (cudaError_t e = find_symbol(symbol, &at, &size)) return e;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  *out = pointer(at + offset);
  return cudaSuccess;
}

}  // namespace

EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    CUkernel kernel;
    if (cudaError_t e = find_kernel(function, &kernel)) return e;
    return launch(kernel, grid, block, arguments, shared, stream);
  });
}

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define LAUNCH_BY_HANDLE __cudaLaunchKernel_ptsz
#else
#define LAUNCH_BY_HANDLE __cudaLaunchKernel
#endif
// What nvcc's host code calls for <<<>>>.
EXPORT cudaError_t LAUNCH_BY_HANDLE(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    return launch(reinterpret_cast<CUkernel>(kernel), grid, block, arguments, shared, stream);
  });
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
  if (!config) return note(cudaErrorInvalidValue);
  return call([&]() -> cudaError_t {
    CUkernel kernel;
    if (cudaError_t e = find_kernel(function, &kernel)) return e;
    CUlaunchConfig c{};
    c.gridDimX = config->gridDim.x; c.gridDimY = config->gridDim.y; c.gridDimZ = config->gridDim.z;
    c.blockDimX = config->blockDim.x; c.blockDimY = config->blockDim.y; c.blockDimZ = config->blockDim.z;
    c.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
    c.hStream = config->stream;
    c.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
    c.numAttrs = config->numAttrs;
    return to_runtime(DRIVER_STREAM(cuLaunchKernelEx, 11060, 11060)(&c, reinterpret_cast<CUfunction>(kernel), arguments, nullptr));
  });
}

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    CUkernel kernel;
    if (cudaError_t e = find_kernel(function, &kernel)) return e;
    return to_runtime(DRIVER_STREAM(cuLaunchCooperativeKernel, 9000, 9000)(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
                                                                           block.y, block.z, static_cast<unsigned>(shared), stream, arguments));
  });
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call([&] { return DRIVER_STREAM(cuLaunchHostFunc, 10000, 10000)(stream, function, data); });
}

EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!valid(kind)) return note(cudaErrorInvalidMemcpyDirection);
  return call([&] { return copy(to, from, bytes, kind); });
}
EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!valid(kind)) return note(cudaErrorInvalidMemcpyDirection);
  return call([&] { return copy_async(to, from, bytes, kind, stream); });
}
EXPORT cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return call([&]() -> cudaError_t {
    void* to;
    if (cudaError_t e = symbol_part(symbol, offset, bytes, &to)) return e;
    return to_runtime(copy(to, from, bytes, kind));
  });
}
EXPORT cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return call([&]() -> cudaError_t {
    void* from;
    if (cudaError_t e = symbol_part(symbol, offset, bytes, &from)) return e;
    return to_runtime(copy(to, from, bytes, kind));
  });
}
EXPORT cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    void* to;
    if (cudaError_t e = symbol_part(symbol, offset, bytes, &to)) return e;
    return to_runtime(copy_async(to, from, bytes, kind, stream));
  });
}
EXPORT cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    void* from;
    if (cudaError_t e = symbol_part(symbol, offset, bytes, &from)) return e;
    return to_runtime(copy_async(to, from, bytes, kind, stream));
  });
}
EXPORT cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY2D c;
    if (cudaError_t e = copy_2d(&c, to, to_pitch, from, from_pitch, width, height, kind)) return e;
    return to_runtime(DRIVER_STREAM(cuMemcpy2DUnaligned, 3020, 7000)(&c));
  });
}
EXPORT cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY2D c;
    if (cudaError_t e = copy_2d(&c, to, to_pitch, from, from_pitch, width, height, kind)) return e;
    return to_runtime(DRIVER_STREAM(cuMemcpy2DAsync, 3020, 7000)(&c, stream));
  });
}
EXPORT cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY3D c;
    if (cudaError_t e = copy_3d(&c, *p)) return e;
    return to_runtime(DRIVER_STREAM(cuMemcpy3D, 3020, 7000)(&c));
  });
}
EXPORT cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY3D c;
    if (cudaError_t e = copy_3d(&c, *p)) return e;
    return to_runtime(DRIVER_STREAM(cuMemcpy3DAsync, 3020, 7000)(&c, stream));
  });
}

EXPORT cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return call([&] { return bytes ? DRIVER_STREAM(cuMemsetD8, 3020, 7000)(address(to), value, bytes) : CUDA_SUCCESS; });
}
EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call([&] { return bytes ? DRIVER_STREAM(cuMemsetD8Async, 3020, 7000)(address(to), value, bytes, stream) : CUDA_SUCCESS; });
}
EXPORT cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return call([&] { return DRIVER_STREAM(cuMemsetD2D8, 3020, 7000)(address(to), pitch, value, width, height); });
}
EXPORT cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return call([&] { return DRIVER_STREAM(cuMemsetD2D8Async, 3020, 7000)(address(to), pitch, value, width, height, stream); });
}

EXPORT cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return call([&] { return DRIVER_STREAM(cuMemAllocAsync, 11020, 11020)(reinterpret_cast<CUdeviceptr*>(out), bytes, stream); });
}
EXPORT cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return call([&] {
    return DRIVER_STREAM(cuMemAllocFromPoolAsync, 11020, 11020)(reinterpret_cast<CUdeviceptr*>(out), bytes, reinterpret_cast<CUmemoryPool>(pool), stream);
  });
}
EXPORT cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  return call([&] { return p ? DRIVER_STREAM(cuMemFreeAsync, 11020, 11020)(address(p), stream) : CUDA_SUCCESS; });
}
EXPORT cudaError_t cudaMemPrefetchAsync(const void* p, size_t bytes, cudaMemLocation location, unsigned flags, cudaStream_t stream) {
  return call([&] {
    CUmemLocation where{static_cast<CUmemLocationType>(location.type), {location.id}};
    return DRIVER_STREAM(cuMemPrefetchAsync, 12020, 12020)(address(p), bytes, where, flags, stream);
  });
}

// Streams and events --------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t s) { return call([&] { return DRIVER_STREAM(cuStreamSynchronize, 2000, 7000)(s); }); }
EXPORT cudaError_t cudaStreamQuery(cudaStream_t s) { return call([&] { return DRIVER_STREAM(cuStreamQuery, 2000, 7000)(s); }); }
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags) {
  return call([&] { return DRIVER_STREAM(cuStreamWaitEvent, 3020, 7000)(s, event, flags); });
}
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority) {
  return call([&] { return DRIVER_STREAM(cuStreamGetPriority, 5050, 7000)(s, priority); });
}
EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* flags) {
  return call([&] { return DRIVER_STREAM(cuStreamGetFlags, 5050, 7000)(s, flags); });
}
EXPORT cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long* id) {
  return call([&] { return DRIVER_STREAM(cuStreamGetId, 12000, 12000)(s, id); });
}
EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t s, int* device) {
  return call([&] { return DRIVER_STREAM(cuStreamGetDevice, 12080, 12080)(s, device); });
}
EXPORT cudaError_t cudaStreamAttachMemAsync(cudaStream_t s, void* p, size_t bytes, unsigned flags) {
  return call([&] { return DRIVER_STREAM(cuStreamAttachMemAsync, 6000, 7000)(s, address(p), bytes, flags); });
}
EXPORT cudaError_t cudaStreamGetAttribute(cudaStream_t s, cudaLaunchAttributeID which, cudaLaunchAttributeValue* value) {
  return call([&] {
    return DRIVER_STREAM(cuStreamGetAttribute, 11000, 11000)(s, static_cast<CUstreamAttrID>(which), reinterpret_cast<CUstreamAttrValue*>(value));
  });
}
EXPORT cudaError_t cudaStreamSetAttribute(cudaStream_t s, cudaLaunchAttributeID which, const cudaLaunchAttributeValue* value) {
  return call([&] {
    return DRIVER_STREAM(cuStreamSetAttribute, 11000, 11000)(s, static_cast<CUstreamAttrID>(which), reinterpret_cast<const CUstreamAttrValue*>(value));
  });
}
EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t callback, void* data, unsigned flags) {
  struct Bound { cudaStreamCallback_t callback; void* data; };
  return call([&] {
    auto bound = std::make_unique<Bound>(Bound{callback, data});
    CUresult r = DRIVER_STREAM(cuStreamAddCallback, 5000, 7000)(s, [](CUstream stream, CUresult status, void* raw) {
      std::unique_ptr<Bound> b(static_cast<Bound*>(raw));
      b->callback(stream, to_runtime(status), b->data);
    }, bound.get(), flags);
    if (r == CUDA_SUCCESS) bound.release();
    return r;
  });
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
  return call([&] { return DRIVER_STREAM(cuEventRecord, 2000, 7000)(event, s); });
}
EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned flags) {
  return call([&] { return DRIVER_STREAM(cuEventRecordWithFlags, 11010, 11010)(event, s, flags); });
}

// Capture and graph launches ------------------------------------------------------------------------------------

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  return call([&] { return DRIVER_STREAM(cuStreamBeginCapture, 10010, 10010)(s, static_cast<CUstreamCaptureMode>(mode)); });
}
EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t graph, const cudaGraphNode_t* after, const cudaGraphEdgeData* edges,
                                                 size_t count, cudaStreamCaptureMode mode) {
  return call([&] {
    return DRIVER_STREAM(cuStreamBeginCaptureToGraph, 12030, 12030)(s, graph, after, reinterpret_cast<const CUgraphEdgeData*>(edges), count,
                                                                    static_cast<CUstreamCaptureMode>(mode));
  });
}
EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  return call([&] { return DRIVER_STREAM(cuStreamEndCapture, 10000, 10000)(s, graph); });
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  return call([&] { return DRIVER_STREAM(cuStreamIsCapturing, 10000, 10000)(s, reinterpret_cast<CUstreamCaptureStatus*>(status)); });
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                                            const cudaGraphNode_t** after, const cudaGraphEdgeData** edges, size_t* count) {
  return call([&] {
    static_assert(sizeof(cuuint64_t) == sizeof(unsigned long long));
    return DRIVER_STREAM(cuStreamGetCaptureInfo, 12030, 12030)(s, reinterpret_cast<CUstreamCaptureStatus*>(status), reinterpret_cast<cuuint64_t*>(id),
                                                               graph, after, reinterpret_cast<const CUgraphEdgeData**>(edges), count);
  });
}
EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t* nodes, const cudaGraphEdgeData* edges, size_t count, unsigned flags) {
  return call([&] {
    return DRIVER_STREAM(cuStreamUpdateCaptureDependencies, 12030, 12030)(s, nodes, reinterpret_cast<const CUgraphEdgeData*>(edges), count, flags);
  });
}
EXPORT cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* out, cudaGraph_t graph, cudaGraphInstantiateParams* p) {
  static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
  return call([&] {
    return DRIVER_STREAM(cuGraphInstantiateWithParams, 12000, 12000)(out, graph, reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(p));
  });
}
EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) { return call([&] { return DRIVER_STREAM(cuGraphUpload, 11010, 11010)(exec, s); }); }
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) { return call([&] { return DRIVER_STREAM(cuGraphLaunch, 10000, 10000)(exec, s); }); }

// The driver's entry points by name, in the form that fits the caller's default stream.
EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned version, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* status) {
  return call_driver([&] {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    if (flags == cudaEnableDefault) flags = cudaEnablePerThreadDefaultStream;
#endif
    CUdriverProcAddressQueryResult found{};
    CUresult r = DRIVER(cuGetProcAddress, 12000)(symbol, out, static_cast<int>(version), flags, &found);
    if (status) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    return r == CUDA_ERROR_NOT_FOUND && status ? CUDA_SUCCESS : r;
  });
}
EXPORT cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** out, unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, out, CUDART_VERSION, flags, status);
}
