// What drivers later than 13.0 export, of what hooks and we ourselves use, declared here so that a toolkit of 13.0 builds
// them: a newer toolkit's runtime asks its driver for these by name, whatever we were built with. Facts of the ABI: where
// cuda.h has a function too, the compiler compares the two; types that it would define again are left to it from the
// version on that has them.
#pragma once

#include <cuda.h>

typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;  // read by nobody but the driver
typedef cuuint32_t CUlogicalEndpointId;

#if CUDA_VERSION < 13030
// The numbers are those of cuda.h's CUgraphRecaptureStatus.
typedef int CUgraphRecaptureStatus;
typedef CUresult(CUDA_CB* CUgraphRecaptureCallback)(void* data, CUgraphNode node, const CUgraphNodeParams* original,
                                                    const CUgraphNodeParams* recaptured, CUgraphRecaptureStatus status);
#endif

#if CUDA_VERSION < 13050
typedef int CUtensorMapAllocClass;
// One side of a copy over a fabric: memory, or a place behind a logical endpoint.
typedef enum CUfabricCpyOperandType_enum {
    CU_FABRIC_COPY_OPERAND_TYPE_POINTER = 1,
    CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT = 2,
    CU_FABRIC_COPY_OPERAND_TYPE_MAX = 0x7FFFFFFF
} CUfabricCpyOperandType;
typedef struct CUfabricCpyOperand_st {
    CUfabricCpyOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUlogicalEndpointId id;
            cuuint64_t offset;
        } le;
    } op;
} CUfabricCpyOperand;
typedef struct CUDA_FABRIC_COPY_BATCH_OP_st {
    CUfabricCpyOperand src, dst;
    size_t size;
    unsigned int flags;
} CUDA_FABRIC_COPY_BATCH_OP;
#endif

// Nodes of graphs that are lists of copies: their type, and what CUgraphNodeParams holds of them. Under names of our own, for
// they came with no entry point that would date them.
inline constexpr int kMemcpyBatchNode = 14, kFabricBatchNode = 18;
constexpr bool is_list_of_copies(int node_type) { return node_type == kMemcpyBatchNode || node_type == kFabricBatchNode; }
struct MemcpyBatchNodeParams {
    size_t count;
    CUdeviceptr *to, *from;
    size_t* bytes;
    CUmemcpyAttributes* attributes;
    size_t* indices;
    size_t attribute_count;
    CUcontext context;
};
struct FabricBatchNodeParams {
    size_t count;
    CUDA_FABRIC_COPY_BATCH_OP* ops;
    unsigned long long flags;
    CUcontext context;
};

template <class Params>
Params params_as(const CUgraphNodeParams& p) {
    Params params;
    static_assert(sizeof params <= sizeof p.reserved1);
    __builtin_memcpy(&params, &p.reserved1, sizeof params);
    return params;
}

extern "C" {

// 13.1
CUresult CUDAAPI cuLaunchHostFunc_v2(CUstream, CUhostFn, void* data, unsigned int sync_mode);
CUresult CUDAAPI cuLaunchHostFunc_v2_ptsz(CUstream, CUhostFn, void* data, unsigned int sync_mode);
CUresult CUDAAPI cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice, size_t offset, CUdeviceptr,
                                        size_t bytes, unsigned long long flags);
CUresult CUDAAPI cuStreamBeginCaptureToCig(CUstream, CUstreamCigCaptureParams*);
CUresult CUDAAPI cuStreamBeginCaptureToCig_ptsz(CUstream, CUstreamCigCaptureParams*);
CUresult CUDAAPI cuStreamEndCaptureToCig(CUstream);
CUresult CUDAAPI cuStreamEndCaptureToCig_ptsz(CUstream);

// 13.2
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes*, CUstream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes*, CUstream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long flags, CUstream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long flags, CUstream);
CUresult CUDAAPI cuGraphNodeGetParams(CUgraphNode, CUgraphNodeParams*);

// 13.3
CUresult CUDAAPI cuLogicalEndpointBindAddr(CUlogicalEndpointId, CUdevice, cuuint64_t offset, void* address, cuuint64_t bytes,
                                           unsigned long long flags);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream, CUstreamCaptureMode, CUgraph, CUgraphRecaptureCallback, void* data);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph_ptsz(CUstream, CUstreamCaptureMode, CUgraph, CUgraphRecaptureCallback, void* data);

// 13.4
CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode*, CUgraph, const CUgraphNode* after, const CUgraphEdgeData*, size_t count,
                                   CUgraphNodeParams*);
CUresult CUDAAPI cuGraphNodeSetParams_v2(CUgraphNode, CUgraphNodeParams*);

// 13.5
CUresult CUDAAPI cuFabricCpyBatchAsync(size_t count, CUDA_FABRIC_COPY_BATCH_OP*, unsigned long long flags, CUstream);
CUresult CUDAAPI cuFabricCpyBatchAsync_ptsz(size_t count, CUDA_FABRIC_COPY_BATCH_OP*, unsigned long long flags, CUstream);
CUresult CUDAAPI cuTensorMapSetAllocationClass(CUtensorMap*, CUtensorMapAllocClass, CUtensorMapAllocClass* in_force);

}
