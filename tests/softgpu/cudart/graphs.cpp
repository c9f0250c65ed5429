// Graphs: nodes by hand, their parameters, executables. Launch and capture take a stream: ordered.cpp.
// A kernel node carries the CUkernel (field `kern`); reading it back gives the host function again.
#include "tests/softgpu/cudart/copies.hpp"
#include "tests/softgpu/cudart/images.hpp"

using namespace cudart;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Node = cudaGraphNode_t;

cudaError_t kernel_params(CUDA_KERNEL_NODE_PARAMS_v2* out, const cudaKernelNodeParams& p) {
  CUkernel kernel;
  if (cudaError_t e = find_kernel(p.func, &kernel)) return e;
  *out = {};
  out->kern = kernel;
  out->gridDimX = p.gridDim.x; out->gridDimY = p.gridDim.y; out->gridDimZ = p.gridDim.z;
  out->blockDimX = p.blockDim.x; out->blockDimY = p.blockDim.y; out->blockDimZ = p.blockDim.z;
  out->sharedMemBytes = p.sharedMemBytes;
  out->kernelParams = p.kernelParams;
  out->extra = p.extra;
  return cudaSuccess;
}

CUcontext context() {
  CUcontext c = nullptr;
  DRIVER(cuCtxGetCurrent, 4000)(&c);
  return c;
}

CUDA_MEMSET_NODE_PARAMS memset_params(const cudaMemsetParams& p) {
  CUDA_MEMSET_NODE_PARAMS out{};
  out.dst = address(p.dst);
  out.pitch = p.pitch;
  out.value = p.value;
  out.elementSize = p.elementSize;
  out.width = p.width;
  out.height = p.height;
  return out;
}

CUDA_HOST_NODE_PARAMS host_params(const cudaHostNodeParams& p) { return {p.fn, p.userData}; }

const CUgraphEdgeData* edge_data(const cudaGraphEdgeData* e) { return reinterpret_cast<const CUgraphEdgeData*>(e); }

}  // namespace

EXPORT cudaError_t cudaGraphCreate(cudaGraph_t* out, unsigned flags) { return call([&] { return DRIVER(cuGraphCreate, 10000)(out, flags); }); }
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t g) { return call([&] { return DRIVER(cuGraphDestroy, 10000)(g); }); }
EXPORT cudaError_t cudaGraphClone(cudaGraph_t* out, cudaGraph_t g) { return call([&] { return DRIVER(cuGraphClone, 10000)(out, g); }); }
EXPORT cudaError_t cudaGraphDestroyNode(Node n) { return call([&] { return DRIVER(cuGraphDestroyNode, 10000)(n); }); }

EXPORT cudaError_t cudaGraphAddKernelNode(Node* out, cudaGraph_t g, const Node* after, size_t count, const cudaKernelNodeParams* p) {
  return call([&]() -> cudaError_t {
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    if (cudaError_t e = kernel_params(&params, *p)) return e;
    return to_runtime(DRIVER(cuGraphAddKernelNode, 12000)(out, g, after, count, &params));
  });
}
EXPORT cudaError_t cudaGraphKernelNodeSetParams(Node n, const cudaKernelNodeParams* p) {
  return call([&]() -> cudaError_t {
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    if (cudaError_t e = kernel_params(&params, *p)) return e;
    return to_runtime(DRIVER(cuGraphKernelNodeSetParams, 12000)(n, &params));
  });
}
EXPORT cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, Node n, const cudaKernelNodeParams* p) {
  return call([&]() -> cudaError_t {
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    if (cudaError_t e = kernel_params(&params, *p)) return e;
    return to_runtime(DRIVER(cuGraphExecKernelNodeSetParams, 12000)(exec, n, &params));
  });
}
EXPORT cudaError_t cudaGraphKernelNodeGetParams(Node n, cudaKernelNodeParams* p) {
  return call([&]() -> cudaError_t {
    CUDA_KERNEL_NODE_PARAMS_v2 d{};
    if (CUresult r = DRIVER(cuGraphKernelNodeGetParams, 12000)(n, &d)) return to_runtime(r);
    *p = {};
    p->func = host_function(d.kern ? d.kern : reinterpret_cast<CUkernel>(d.func));
    p->gridDim = dim3(d.gridDimX, d.gridDimY, d.gridDimZ);
    p->blockDim = dim3(d.blockDimX, d.blockDimY, d.blockDimZ);
    p->sharedMemBytes = d.sharedMemBytes;
    p->kernelParams = d.kernelParams;
    p->extra = d.extra;
    return cudaSuccess;
  });
}

EXPORT cudaError_t cudaGraphAddMemcpyNode(Node* out, cudaGraph_t g, const Node* after, size_t count, const cudaMemcpy3DParms* p) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY3D c;
    if (cudaError_t e = copy_3d(&c, *p)) return e;
    return to_runtime(DRIVER(cuGraphAddMemcpyNode, 10000)(out, g, after, count, &c, context()));
  });
}
EXPORT cudaError_t cudaGraphAddMemcpyNode1D(Node* out, cudaGraph_t g, const Node* after, size_t count, void* to, const void* from, size_t bytes,
                                            cudaMemcpyKind kind) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY3D c;
    if (cudaError_t e = copy_1d(&c, to, from, bytes, kind)) return e;
    return to_runtime(DRIVER(cuGraphAddMemcpyNode, 10000)(out, g, after, count, &c, context()));
  });
}
EXPORT cudaError_t cudaGraphMemcpyNodeSetParams1D(Node n, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY3D c;
    if (cudaError_t e = copy_1d(&c, to, from, bytes, kind)) return e;
    return to_runtime(DRIVER(cuGraphMemcpyNodeSetParams, 10000)(n, &c));
  });
}
EXPORT cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, Node n, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&]() -> cudaError_t {
    CUDA_MEMCPY3D c;
    if (cudaError_t e = copy_1d(&c, to, from, bytes, kind)) return e;
    return to_runtime(DRIVER(cuGraphExecMemcpyNodeSetParams, 10020)(exec, n, &c, context()));
  });
}

EXPORT cudaError_t cudaGraphAddMemsetNode(Node* out, cudaGraph_t g, const Node* after, size_t count, const cudaMemsetParams* p) {
  return call([&] { auto params = memset_params(*p); return DRIVER(cuGraphAddMemsetNode, 10000)(out, g, after, count, &params, context()); });
}
EXPORT cudaError_t cudaGraphMemsetNodeSetParams(Node n, const cudaMemsetParams* p) {
  return call([&] { auto params = memset_params(*p); return DRIVER(cuGraphMemsetNodeSetParams, 10000)(n, &params); });
}
EXPORT cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, Node n, const cudaMemsetParams* p) {
  return call([&] { auto params = memset_params(*p); return DRIVER(cuGraphExecMemsetNodeSetParams, 10020)(exec, n, &params, context()); });
}
EXPORT cudaError_t cudaGraphMemsetNodeGetParams(Node n, cudaMemsetParams* p) {
  return call([&]() -> cudaError_t {
    CUDA_MEMSET_NODE_PARAMS d{};
    if (CUresult r = DRIVER(cuGraphMemsetNodeGetParams, 10000)(n, &d)) return to_runtime(r);
    *p = {};
    p->dst = pointer(d.dst);
    p->pitch = d.pitch;
    p->value = d.value;
    p->elementSize = d.elementSize;
    p->width = d.width;
    p->height = d.height;
    return cudaSuccess;
  });
}

EXPORT cudaError_t cudaGraphAddHostNode(Node* out, cudaGraph_t g, const Node* after, size_t count, const cudaHostNodeParams* p) {
  return call([&] { auto params = host_params(*p); return DRIVER(cuGraphAddHostNode, 10000)(out, g, after, count, &params); });
}
EXPORT cudaError_t cudaGraphAddEmptyNode(Node* out, cudaGraph_t g, const Node* after, size_t count) {
  return call([&] { return DRIVER(cuGraphAddEmptyNode, 10000)(out, g, after, count); });
}
EXPORT cudaError_t cudaGraphAddEventRecordNode(Node* out, cudaGraph_t g, const Node* after, size_t count, cudaEvent_t e) {
  return call([&] { return DRIVER(cuGraphAddEventRecordNode, 11010)(out, g, after, count, e); });
}
EXPORT cudaError_t cudaGraphAddEventWaitNode(Node* out, cudaGraph_t g, const Node* after, size_t count, cudaEvent_t e) {
  return call([&] { return DRIVER(cuGraphAddEventWaitNode, 11010)(out, g, after, count, e); });
}
EXPORT cudaError_t cudaGraphAddChildGraphNode(Node* out, cudaGraph_t g, const Node* after, size_t count, cudaGraph_t child) {
  return call([&] { return DRIVER(cuGraphAddChildGraphNode, 10000)(out, g, after, count, child); });
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t g, Node* nodes, size_t* count) { return call([&] { return DRIVER(cuGraphGetNodes, 10000)(g, nodes, count); }); }
EXPORT cudaError_t cudaGraphGetRootNodes(cudaGraph_t g, Node* nodes, size_t* count) {
  return call([&] { return DRIVER(cuGraphGetRootNodes, 10000)(g, nodes, count); });
}
EXPORT cudaError_t cudaGraphGetEdges(cudaGraph_t g, Node* from, Node* to, cudaGraphEdgeData* data, size_t* count) {
  return call([&] { return DRIVER(cuGraphGetEdges, 12030)(g, from, to, reinterpret_cast<CUgraphEdgeData*>(data), count); });
}
EXPORT cudaError_t cudaGraphNodeGetType(Node n, cudaGraphNodeType* type) {
  return call([&] { return DRIVER(cuGraphNodeGetType, 10000)(n, reinterpret_cast<CUgraphNodeType*>(type)); });
}
EXPORT cudaError_t cudaGraphNodeGetDependencies(Node n, Node* nodes, cudaGraphEdgeData* data, size_t* count) {
  return call([&] { return DRIVER(cuGraphNodeGetDependencies, 12030)(n, nodes, reinterpret_cast<CUgraphEdgeData*>(data), count); });
}
EXPORT cudaError_t cudaGraphNodeGetDependentNodes(Node n, Node* nodes, cudaGraphEdgeData* data, size_t* count) {
  return call([&] { return DRIVER(cuGraphNodeGetDependentNodes, 12030)(n, nodes, reinterpret_cast<CUgraphEdgeData*>(data), count); });
}
EXPORT cudaError_t cudaGraphAddDependencies(cudaGraph_t g, const Node* from, const Node* to, const cudaGraphEdgeData* data, size_t count) {
  return call([&] { return DRIVER(cuGraphAddDependencies, 12030)(g, from, to, edge_data(data), count); });
}
EXPORT cudaError_t cudaGraphRemoveDependencies(cudaGraph_t g, const Node* from, const Node* to, const cudaGraphEdgeData* data, size_t count) {
  return call([&] { return DRIVER(cuGraphRemoveDependencies, 12030)(g, from, to, edge_data(data), count); });
}
EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t g, const char* path, unsigned flags) {
  return call([&] { return DRIVER(cuGraphDebugDotPrint, 11030)(g, path, flags); });
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t g, unsigned long long flags) {
  return call([&] { return DRIVER(cuGraphInstantiateWithFlags, 11040)(out, g, flags); });
}
EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t g, unsigned long long flags) { return cudaGraphInstantiateWithFlags(out, g, flags); }
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return call([&] { return DRIVER(cuGraphExecDestroy, 10000)(exec); }); }
EXPORT cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  return call([&] { return DRIVER(cuGraphExecGetFlags, 12000)(exec, reinterpret_cast<cuuint64_t*>(flags)); });
}
EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t g, cudaGraphExecUpdateResultInfo* info) {
  static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
  return call([&] { return DRIVER(cuGraphExecUpdate, 12000)(exec, g, reinterpret_cast<CUgraphExecUpdateResultInfo*>(info)); });
}
