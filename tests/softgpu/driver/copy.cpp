// Copies and memsets of every kind: each entry point describes itself as one 3D copy or one memset.
// As CUDA documents: a synchronous copy returns when it is done (device to device: when it is
// enqueued), an asynchronous one from pageable memory when that has been staged, to pageable memory
// when it is done. A memset is asynchronous, but for a synchronous one of memory that the host sees too (pinned, managed).
#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/listing.hpp"
#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/streams.hpp"
#include "tests/softgpu/driver/work.hpp"

namespace softgpu {
namespace {

enum class Mode { sync, async, read_now };  // the last: asynchronous but for the source, which is read before the call returns

CUresult copy(Default d, CUstream handle, const CUDA_MEMCPY3D& p, Mode mode, bool peers = false) {
    CUstream s;
    TRY(find_stream(d, handle, &s));
    if (mode == Mode::sync) TRY(refuse_under_capture());
    if (!p.WidthInBytes || !p.Height || !p.Depth) return CUDA_SUCCESS;
    REQUIRE((p.srcMemoryType != CU_MEMORYTYPE_HOST || !refuses_copies(p.srcHost)) && (p.dstMemoryType != CU_MEMORYTYPE_HOST || !refuses_copies(p.dstHost)));
    std::shared_ptr<CopyWork> w;
    TRY(make_copy(s->context->device, p, mode != Mode::sync && !is_capturing(s), &w, peers));
    bool block = !is_capturing(s) && (w->destination_pageable || mode == Mode::read_now || (mode == Mode::sync && (w->source_host || w->destination_host)));
    const Listed listed(s, *w);
    OpRef op;
    TRY(submit(s, w, &op));
    if (!block) return CUDA_SUCCESS;
    wait(op);
    return sticky(s->context);
}

CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D& p) {
    CUDA_MEMCPY3D q{};
    q.srcXInBytes = p.srcXInBytes;
    q.srcY = p.srcY;
    q.srcMemoryType = p.srcMemoryType;
    q.srcHost = p.srcHost;
    q.srcDevice = p.srcDevice;
    q.srcArray = p.srcArray;
    q.srcPitch = p.srcPitch;
    q.dstXInBytes = p.dstXInBytes;
    q.dstY = p.dstY;
    q.dstMemoryType = p.dstMemoryType;
    q.dstHost = p.dstHost;
    q.dstDevice = p.dstDevice;
    q.dstArray = p.dstArray;
    q.dstPitch = p.dstPitch;
    q.WidthInBytes = p.WidthInBytes;
    q.Height = p.Height;
    q.Depth = 1;
    return q;
}

CUDA_MEMCPY3D flat(const CUDA_MEMCPY3D_PEER& p) {
    CUDA_MEMCPY3D q;
    static_assert(offsetof(CUDA_MEMCPY3D, srcArray) == offsetof(CUDA_MEMCPY3D_PEER, srcArray));
    q = {};
    q.srcXInBytes = p.srcXInBytes, q.srcY = p.srcY, q.srcZ = p.srcZ, q.srcLOD = p.srcLOD;
    q.srcMemoryType = p.srcMemoryType, q.srcHost = p.srcHost, q.srcDevice = p.srcDevice, q.srcArray = p.srcArray;
    q.srcPitch = p.srcPitch, q.srcHeight = p.srcHeight;
    q.dstXInBytes = p.dstXInBytes, q.dstY = p.dstY, q.dstZ = p.dstZ, q.dstLOD = p.dstLOD;
    q.dstMemoryType = p.dstMemoryType, q.dstHost = p.dstHost, q.dstDevice = p.dstDevice, q.dstArray = p.dstArray;
    q.dstPitch = p.dstPitch, q.dstHeight = p.dstHeight;
    q.WidthInBytes = p.WidthInBytes, q.Height = p.Height, q.Depth = p.Depth;
    return q;
}

CUresult set(Default d, CUstream handle, CUdeviceptr to, std::size_t pitch, unsigned value, unsigned element, std::size_t width, std::size_t height,
             Mode mode = Mode::sync) {
    CUstream s;
    TRY(find_stream(d, handle, &s));
    if (!width || !height) return CUDA_SUCCESS;
    std::shared_ptr<MemsetWork> w;
    TRY(make_memset(s->context->device, {to, pitch, value, element, width, height}, &w));
    const Listed listed(s, *w);
    OpRef op;
    TRY(submit(s, w, &op));
    if (mode == Mode::async || is_capturing(s)) return CUDA_SUCCESS;
    auto range = find_range(to);
    if (!range || (range->kind != Kind::pinned && range->kind != Kind::managed && range->kind != Kind::registered)) return CUDA_SUCCESS;
    wait(op);
    return sticky(s->context);
}

Address address(const void* p) { return reinterpret_cast<Address>(p); }
constexpr auto host = CU_MEMORYTYPE_HOST;
constexpr auto device = CU_MEMORYTYPE_DEVICE;
constexpr auto unified = CU_MEMORYTYPE_UNIFIED;

}  // namespace
}  // namespace softgpu

using namespace softgpu;

CUresult impl_cuMemcpyHtoD_v2(Default d, CUdeviceptr to, const void* from, size_t n) {
    ENTER(cuMemcpyHtoD);
    return copy(d, nullptr, linear_copy(device, to, host, address(from), n), Mode::sync);
}
CUresult impl_cuMemcpyDtoH_v2(Default d, void* to, CUdeviceptr from, size_t n) {
    ENTER(cuMemcpyDtoH);
    return copy(d, nullptr, linear_copy(host, address(to), device, from, n), Mode::sync);
}
CUresult impl_cuMemcpyDtoD_v2(Default d, CUdeviceptr to, CUdeviceptr from, size_t n) {
    ENTER(cuMemcpyDtoD);
    return copy(d, nullptr, linear_copy(device, to, device, from, n), Mode::sync);
}
CUresult impl_cuMemcpy(Default d, CUdeviceptr to, CUdeviceptr from, size_t n) {
    ENTER(cuMemcpy);
    return copy(d, nullptr, linear_copy(unified, to, unified, from, n), Mode::sync);
}
CUresult impl_cuMemcpyHtoDAsync_v2(Default d, CUdeviceptr to, const void* from, size_t n, CUstream s) {
    ENTER(cuMemcpyHtoDAsync);
    return copy(d, s, linear_copy(device, to, host, address(from), n), Mode::async);
}
CUresult impl_cuMemcpyDtoHAsync_v2(Default d, void* to, CUdeviceptr from, size_t n, CUstream s) {
    ENTER(cuMemcpyDtoHAsync);
    return copy(d, s, linear_copy(host, address(to), device, from, n), Mode::async);
}
CUresult impl_cuMemcpyDtoDAsync_v2(Default d, CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    ENTER(cuMemcpyDtoDAsync);
    return copy(d, s, linear_copy(device, to, device, from, n), Mode::async);
}
CUresult impl_cuMemcpyAsync(Default d, CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    ENTER(cuMemcpyAsync);
    return copy(d, s, linear_copy(unified, to, unified, from, n), Mode::async);
}
CUresult impl_cuMemcpyPeer(Default d, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t n) {
    ENTER(cuMemcpyPeer);
    if (!valid(to_context) || !valid(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
    return copy(d, nullptr, linear_copy(device, to, device, from, n), Mode::sync, true);
}
CUresult impl_cuMemcpyPeerAsync(Default d, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t n, CUstream s) {
    ENTER(cuMemcpyPeerAsync);
    if (!valid(to_context) || !valid(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
    return copy(d, s, linear_copy(device, to, device, from, n), Mode::async, true);
}
CUresult impl_cuMemcpy2D_v2(Default d, const CUDA_MEMCPY2D* p) {
    ENTER(cuMemcpy2D);
    REQUIRE(p);
    return copy(d, nullptr, flat(*p), Mode::sync);
}
CUresult impl_cuMemcpy2DUnaligned_v2(Default d, const CUDA_MEMCPY2D* p) {
    ENTER(cuMemcpy2DUnaligned);
    REQUIRE(p);
    return copy(d, nullptr, flat(*p), Mode::sync);
}
CUresult impl_cuMemcpy2DAsync_v2(Default d, const CUDA_MEMCPY2D* p, CUstream s) {
    ENTER(cuMemcpy2DAsync);
    REQUIRE(p);
    return copy(d, s, flat(*p), Mode::async);
}
CUresult impl_cuMemcpy3D_v2(Default d, const CUDA_MEMCPY3D* p) {
    ENTER(cuMemcpy3D);
    REQUIRE(p);
    return copy(d, nullptr, *p, Mode::sync);
}
CUresult impl_cuMemcpy3DAsync_v2(Default d, const CUDA_MEMCPY3D* p, CUstream s) {
    ENTER(cuMemcpy3DAsync);
    REQUIRE(p);
    return copy(d, s, *p, Mode::async);
}
CUresult impl_cuMemcpy3DPeer(Default d, const CUDA_MEMCPY3D_PEER* p) {
    ENTER(cuMemcpy3DPeer);
    REQUIRE(p);
    return copy(d, nullptr, flat(*p), Mode::sync, true);
}
CUresult impl_cuMemcpy3DPeerAsync(Default d, const CUDA_MEMCPY3D_PEER* p, CUstream s) {
    ENTER(cuMemcpy3DPeerAsync);
    REQUIRE(p);
    return copy(d, s, flat(*p), Mode::async, true);
}
CUresult impl_cuMemcpyBatchAsync_v2(Default d, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes, size_t* indices,
                                    size_t attribute_count, CUstream s) {
    ENTER(cuMemcpyBatchAsync);
    REQUIRE(to && from && sizes && count && attributes && indices && attribute_count && indices[0] == 0);
    if (reinterpret_cast<std::uintptr_t>(s) <= 1 && d == Default::legacy) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) TRY(copy(d, s, linear_copy(unified, to[i], unified, from[i], sizes[i]), Mode::async));
    return CUDA_SUCCESS;
}
CUresult impl_cuMemcpyBatchAsync(Default d, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes, size_t* indices,
                                 size_t attribute_count, size_t* fail, CUstream s) {
    if (fail) *fail = SIZE_MAX;
    return impl_cuMemcpyBatchAsync_v2(d, to, from, sizes, count, attributes, indices, attribute_count, s);
}
namespace {
Mode mode_of(CUmemcpySrcAccessOrder order) { return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? Mode::read_now : Mode::async; }
bool is_order(CUmemcpySrcAccessOrder order) { return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY; }
CUresult copy(Default d, CUstream s, const CUDA_MEMCPY3D_BATCH_OP& o, Mode mode = Mode::async) {
    if (o.src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || o.dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return CUDA_ERROR_NOT_SUPPORTED;
    auto &from = o.src.op.ptr, &to = o.dst.op.ptr;
    REQUIRE(o.extent.width && o.extent.height && o.extent.depth);
    CUDA_MEMCPY3D p = linear_copy(unified, to.ptr, unified, from.ptr, o.extent.width);
    p.srcPitch = from.rowLength, p.srcHeight = from.layerHeight;
    p.dstPitch = to.rowLength, p.dstHeight = to.layerHeight;
    p.Height = o.extent.height, p.Depth = o.extent.depth;
    return copy(d, s, p, mode);
}
}  // namespace
CUresult impl_cuMemcpy3DBatchAsync_v2(Default d, size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, unsigned long long flags, CUstream s) {
    ENTER(cuMemcpy3DBatchAsync);
    REQUIRE(count && ops && flags == 0);
    if (reinterpret_cast<std::uintptr_t>(s) <= 1 && d == Default::legacy) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) TRY(copy(d, s, ops[i]));
    return CUDA_SUCCESS;
}
CUresult impl_cuMemcpyWithAttributesAsync(Default d, CUdeviceptr to, CUdeviceptr from, size_t n, CUmemcpyAttributes* attributes, CUstream s) {
    ENTER(cuMemcpyWithAttributesAsync);
    REQUIRE(attributes && is_order(attributes->srcAccessOrder));
    return copy(d, s, linear_copy(unified, to, unified, from, n), mode_of(attributes->srcAccessOrder));
}
CUresult impl_cuMemcpy3DWithAttributesAsync(Default d, CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags, CUstream s) {
    ENTER(cuMemcpy3DWithAttributesAsync);
    REQUIRE(op && flags == 0 && is_order(op->srcAccessOrder));
    return copy(d, s, *op, mode_of(op->srcAccessOrder));
}
CUresult impl_cuMemcpy3DBatchAsync(Default d, size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* fail, unsigned long long flags, CUstream s) {
    if (fail) *fail = SIZE_MAX;
    return impl_cuMemcpy3DBatchAsync_v2(d, count, ops, flags, s);
}

CUresult impl_cuMemsetD8_v2(Default d, CUdeviceptr a, unsigned char v, size_t n) { ENTER(cuMemsetD8); return set(d, nullptr, a, 0, v, 1, n, 1); }
CUresult impl_cuMemsetD16_v2(Default d, CUdeviceptr a, unsigned short v, size_t n) { ENTER(cuMemsetD16); return set(d, nullptr, a, 0, v, 2, n, 1); }
CUresult impl_cuMemsetD32_v2(Default d, CUdeviceptr a, unsigned v, size_t n) { ENTER(cuMemsetD32); return set(d, nullptr, a, 0, v, 4, n, 1); }
CUresult impl_cuMemsetD2D8_v2(Default d, CUdeviceptr a, size_t p, unsigned char v, size_t w, size_t h) { ENTER(cuMemsetD2D8); return set(d, nullptr, a, p, v, 1, w, h); }
CUresult impl_cuMemsetD2D16_v2(Default d, CUdeviceptr a, size_t p, unsigned short v, size_t w, size_t h) { ENTER(cuMemsetD2D16); return set(d, nullptr, a, p, v, 2, w, h); }
CUresult impl_cuMemsetD2D32_v2(Default d, CUdeviceptr a, size_t p, unsigned v, size_t w, size_t h) { ENTER(cuMemsetD2D32); return set(d, nullptr, a, p, v, 4, w, h); }
CUresult impl_cuMemsetD8Async(Default d, CUdeviceptr a, unsigned char v, size_t n, CUstream s) { ENTER(cuMemsetD8Async); return set(d, s, a, 0, v, 1, n, 1, Mode::async); }
CUresult impl_cuMemsetD16Async(Default d, CUdeviceptr a, unsigned short v, size_t n, CUstream s) { ENTER(cuMemsetD16Async); return set(d, s, a, 0, v, 2, n, 1, Mode::async); }
CUresult impl_cuMemsetD32Async(Default d, CUdeviceptr a, unsigned v, size_t n, CUstream s) { ENTER(cuMemsetD32Async); return set(d, s, a, 0, v, 4, n, 1, Mode::async); }
CUresult impl_cuMemsetD2D8Async(Default d, CUdeviceptr a, size_t p, unsigned char v, size_t w, size_t h, CUstream s) { ENTER(cuMemsetD2D8Async); return set(d, s, a, p, v, 1, w, h, Mode::async); }
CUresult impl_cuMemsetD2D16Async(Default d, CUdeviceptr a, size_t p, unsigned short v, size_t w, size_t h, CUstream s) { ENTER(cuMemsetD2D16Async); return set(d, s, a, p, v, 2, w, h, Mode::async); }
CUresult impl_cuMemsetD2D32Async(Default d, CUdeviceptr a, size_t p, unsigned v, size_t w, size_t h, CUstream s) { ENTER(cuMemsetD2D32Async); return set(d, s, a, p, v, 4, w, h, Mode::async); }

namespace {
CUresult memops(Default d, CUstream handle, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags) {
    CUstream s;
    TRY(find_stream(d, handle, &s));
    std::shared_ptr<MemOpWork> w;
    TRY(make_memops(s->context, count, ops, flags, &w));
    return submit(s, std::move(w));
}
CUresult memop(Default d, CUstream s, CUstreamBatchMemOpType kind, CUdeviceptr a, cuuint64_t value, unsigned flags) {
    CUstreamBatchMemOpParams p{};
    p.operation = kind;
    if (kind == CU_STREAM_MEM_OP_WAIT_VALUE_32 || kind == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
        p.waitValue.address = a;
        p.waitValue.value64 = value;
        p.waitValue.flags = flags;
    } else {
        p.writeValue.address = a;
        p.writeValue.value64 = value;
        p.writeValue.flags = flags;
    }
    return memops(d, s, 1, &p, 0);
}
}  // namespace

#define MEMORY_OP(name, kind, type)                                                                    \
    CUresult impl_##name(Default d, CUstream s, CUdeviceptr a, type value, unsigned flags) {           \
        ENTER(name);                                                                                   \
        return memop(d, s, kind, a, value, flags);                                                     \
    }
MEMORY_OP(cuStreamWaitValue32, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t)
MEMORY_OP(cuStreamWaitValue32_v2, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t)
MEMORY_OP(cuStreamWaitValue64, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t)
MEMORY_OP(cuStreamWaitValue64_v2, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t)
MEMORY_OP(cuStreamWriteValue32, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t)
MEMORY_OP(cuStreamWriteValue32_v2, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t)
MEMORY_OP(cuStreamWriteValue64, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t)
MEMORY_OP(cuStreamWriteValue64_v2, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t)
CUresult impl_cuStreamBatchMemOp(Default d, CUstream s, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags) {
    ENTER(cuStreamBatchMemOp);
    return memops(d, s, count, ops, flags);
}
CUresult impl_cuStreamBatchMemOp_v2(Default d, CUstream s, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags) {
    ENTER(cuStreamBatchMemOp_v2);
    return memops(d, s, count, ops, flags);
}
