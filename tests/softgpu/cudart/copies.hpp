// The driver's description of a copy, made from the runtime's: linear and pitched memory only. Copies that name a
// CUDA array are refused with cudaErrorInvalidValue: this runtime has no arrays.
#pragma once
#include "tests/softgpu/cudart/driver.hpp"

namespace cudart {

struct MemoryKinds { CUmemorytype from, to; };
inline cudaError_t memory_kinds(cudaMemcpyKind kind, MemoryKinds* out) {
  constexpr auto host = CU_MEMORYTYPE_HOST, device = CU_MEMORYTYPE_DEVICE, unified = CU_MEMORYTYPE_UNIFIED;
  switch (kind) {
    case cudaMemcpyHostToHost: *out = {host, host}; return cudaSuccess;
    case cudaMemcpyHostToDevice: *out = {host, device}; return cudaSuccess;
    case cudaMemcpyDeviceToHost: *out = {device, host}; return cudaSuccess;
    case cudaMemcpyDeviceToDevice: *out = {device, device}; return cudaSuccess;
    case cudaMemcpyDefault: *out = {unified, unified}; return cudaSuccess;
  }
  return cudaErrorInvalidMemcpyDirection;
}

// A rectangle of `depth` slices; the struct is CUDA_MEMCPY2D or CUDA_MEMCPY3D, which name these fields alike.
template <class Copy>
void fill_sides(Copy& c, MemoryKinds kinds, void* to, size_t to_pitch, const void* from, size_t from_pitch) {
  c.srcMemoryType = kinds.from;
  if (kinds.from == CU_MEMORYTYPE_HOST) c.srcHost = from; else c.srcDevice = address(from);
  c.srcPitch = from_pitch;
  c.dstMemoryType = kinds.to;
  if (kinds.to == CU_MEMORYTYPE_HOST) c.dstHost = to; else c.dstDevice = address(to);
  c.dstPitch = to_pitch;
}

inline cudaError_t copy_2d(CUDA_MEMCPY2D* c, void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
  MemoryKinds kinds;
  if (cudaError_t e = memory_kinds(kind, &kinds)) return e;
  *c = {};
  fill_sides(*c, kinds, to, to_pitch, from, from_pitch);
  c->WidthInBytes = width;
  c->Height = height;
  return cudaSuccess;
}

inline cudaError_t copy_3d(CUDA_MEMCPY3D* c, const cudaMemcpy3DParms& p) {
  if (p.srcArray || p.dstArray) return cudaErrorInvalidValue;
  MemoryKinds kinds;
  if (cudaError_t e = memory_kinds(p.kind, &kinds)) return e;
  *c = {};
  fill_sides(*c, kinds, p.dstPtr.ptr, p.dstPtr.pitch, p.srcPtr.ptr, p.srcPtr.pitch);
  c->srcHeight = p.srcPtr.ysize;
  c->dstHeight = p.dstPtr.ysize;
  c->srcXInBytes = p.srcPos.x; c->srcY = p.srcPos.y; c->srcZ = p.srcPos.z;
  c->dstXInBytes = p.dstPos.x; c->dstY = p.dstPos.y; c->dstZ = p.dstPos.z;
  c->WidthInBytes = p.extent.width;
  c->Height = p.extent.height;
  c->Depth = p.extent.depth;
  return cudaSuccess;
}

inline cudaError_t copy_1d(CUDA_MEMCPY3D* c, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  MemoryKinds kinds;
  if (cudaError_t e = memory_kinds(kind, &kinds)) return e;
  *c = {};
  fill_sides(*c, kinds, to, bytes, from, bytes);
  c->srcHeight = c->dstHeight = c->Height = c->Depth = 1;
  c->WidthInBytes = bytes;
  return cudaSuccess;
}

}  // namespace cudart
