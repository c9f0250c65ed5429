// Copies, memsets, stream memory operations, and calls on managed memory: each is told as the spans that it reads and
// writes. The copies to and from CUDA arrays tell of their linear side alone: arrays are never ours.
#include "interpose/internal.hpp"

#include "interpose/spans.hpp"

namespace udnnmem::interpose {

static constexpr Access R = Access::read, O = Access::overwrite, W = Access::write;
#define AT(pointer) address_of(pointer)

// ---- one range to one range ----
// Between devices memory of the driver's own is copied by any call, mapped memory by those for peers alone, unless each may reach the
// other's.
#define COPY(symbol, peer_symbol, PARAMS, ARGS, PEER_ARGS, STREAM, BLOCKING)                                           \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        const Span spans[] = {{from, n, R}, {to, n, O}};                                                               \
        CUcontext there = nullptr, here = nullptr;                                                                     \
        auto peers = [&] { return REAL(peer_symbol) PEER_ARGS; };                                                      \
        if (up->between_devices && up->between_devices(to, from, there, here))                                         \
            return tell(up, WorkKind::copy, #peer_symbol, STREAM, BLOCKING, spans, std::size(spans), peers);           \
        return tell(up, WorkKind::copy, #symbol, STREAM, BLOCKING, spans, std::size(spans), real);                     \
    }
#define SYNC_COPY(symbol)                                                                                              \
    COPY(symbol, cuMemcpyPeer, (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n), (to, there, from, here, n), \
         CU_STREAM_LEGACY, true)                                                                                       \
    COPY(symbol##_ptds, cuMemcpyPeer_ptds, (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n),                \
         (to, there, from, here, n), CU_STREAM_PER_THREAD, true)
#define ASYNC_COPY(symbol)                                                                                             \
    COPY(symbol, cuMemcpyPeerAsync, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream), \
         (to, there, from, here, n, stream), legacy(stream), false)                                                    \
    COPY(symbol##_ptsz, cuMemcpyPeerAsync_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream),         \
         (to, from, n, stream), (to, there, from, here, n, stream), per_thread(stream), false)
SYNC_COPY(cuMemcpy)
ASYNC_COPY(cuMemcpyAsync)
SYNC_COPY(cuMemcpyDtoD_v2)
ASYNC_COPY(cuMemcpyDtoDAsync_v2)
SYNC_WORK(copy, cuMemcpyPeer, (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t n),
          (to, there, from, here, n), {from, n, R}, {to, n, O})
ASYNC_WORK(copy, cuMemcpyPeerAsync,
           (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t n, CUstream stream),
           (to, there, from, here, n, stream), {from, n, R}, {to, n, O})
SYNC_WORK(copy, cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t n), (to, from, n), {AT(from), n, R}, {to, n, O})
ASYNC_WORK(copy, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t n, CUstream stream), (to, from, n, stream),
           {AT(from), n, R}, {to, n, O})
SYNC_WORK(copy, cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t n), (to, from, n), {from, n, R}, {AT(to), n, O})
ASYNC_WORK(copy, cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream),
           {from, n, R}, {AT(to), n, O})
ASYNC_WORK(copy, cuMemcpyWithAttributesAsync,
           (CUdeviceptr to, CUdeviceptr from, size_t n, CUmemcpyAttributes* attributes, CUstream stream),
           (to, from, n, attributes, stream), {from, n, R}, {to, n, O})

// ---- arrays on one side ----
SYNC_WORK(copy, cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t n), (to, offset, from, n), {from, n, R})
SYNC_WORK(copy, cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t n), (to, from, offset, n), {to, n, O})
SYNC_WORK(copy, cuMemcpyHtoA_v2, (CUarray to, size_t offset, const void* from, size_t n), (to, offset, from, n),
          {AT(from), n, R})
SYNC_WORK(copy, cuMemcpyAtoH_v2, (void* to, CUarray from, size_t offset, size_t n), (to, from, offset, n), {AT(to), n, O})
ASYNC_WORK(copy, cuMemcpyHtoAAsync_v2, (CUarray to, size_t offset, const void* from, size_t n, CUstream stream),
           (to, offset, from, n, stream), {AT(from), n, R})
ASYNC_WORK(copy, cuMemcpyAtoHAsync_v2, (void* to, CUarray from, size_t offset, size_t n, CUstream stream),
           (to, from, offset, n, stream), {AT(to), n, O})

// ---- rectangles and boxes ----
#define BOX_WORK(symbol, PARAMS, ARGS, STREAM, BLOCKING)                                                               \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        if (!up || copy == nullptr) return real();                                                                     \
        const Span spans[] = {source_of(*copy), destination_of(*copy)};                                                \
        return tell(up, WorkKind::copy, #symbol, STREAM, BLOCKING, spans, std::size(spans), real);                     \
    }
#define SYNC_BOX(symbol, TYPE)                                                                                         \
    BOX_WORK(symbol, (const TYPE* copy), (copy), CU_STREAM_LEGACY, true)                                               \
    BOX_WORK(symbol##_ptds, (const TYPE* copy), (copy), CU_STREAM_PER_THREAD, true)
#define ASYNC_BOX(symbol, TYPE)                                                                                        \
    BOX_WORK(symbol, (const TYPE* copy, CUstream stream), (copy, stream), legacy(stream), false)                       \
    BOX_WORK(symbol##_ptsz, (const TYPE* copy, CUstream stream), (copy, stream), per_thread(stream), false)
SYNC_BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D)
SYNC_BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D)
ASYNC_BOX(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D)
SYNC_BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D)
ASYNC_BOX(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
SYNC_BOX(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER)
ASYNC_BOX(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER)

// ---- lists ----
// `proven` is false where an element's size cannot be known.
#define LIST_WORK(KIND, symbol, PARAMS, ARGS, STREAM, FILL)                                                            \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        SpanList list;                                                                                                 \
        FILL;                                                                                                          \
        Work work;                                                                                                     \
        work.kind = WorkKind::KIND;                                                                                    \
        work.entry_point = #symbol;                                                                                    \
        work.stream = STREAM;                                                                                          \
        work.proven = list.complete();                                                                                 \
        work.spans = list.data();                                                                                      \
        work.span_count = list.size();                                                                                 \
        return up->work(work, real);                                                                                   \
    }
#define LIST_WORKS(KIND, symbol, PARAMS, ARGS, FILL)                                                                   \
    LIST_WORK(KIND, symbol, PARAMS, ARGS, legacy(stream), FILL)                                                        \
    LIST_WORK(KIND, symbol##_ptsz, PARAMS, ARGS, per_thread(stream), FILL)

LIST_WORKS(copy, cuMemcpyBatchAsync,
           (CUdeviceptr * to, CUdeviceptr* from, size_t* n, size_t count, CUmemcpyAttributes* attributes, size_t* indices,
            size_t attribute_count, size_t* failed, CUstream stream),
           (to, from, n, count, attributes, indices, attribute_count, failed, stream), list.add_copies(to, from, n, count))
LIST_WORKS(copy, cuMemcpyBatchAsync_v2,
           (CUdeviceptr * to, CUdeviceptr* from, size_t* n, size_t count, CUmemcpyAttributes* attributes, size_t* indices,
            size_t attribute_count, CUstream stream),
           (to, from, n, count, attributes, indices, attribute_count, stream), list.add_copies(to, from, n, count))
LIST_WORKS(copy, cuMemcpy3DBatchAsync,
           (size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed, unsigned long long flags, CUstream stream),
           (count, ops, failed, flags, stream), list.add_boxes(ops, count))
LIST_WORKS(copy, cuMemcpy3DBatchAsync_v2,
           (size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, unsigned long long flags, CUstream stream),
           (count, ops, flags, stream), list.add_boxes(ops, count))
LIST_WORKS(copy, cuMemcpy3DWithAttributesAsync, (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream),
           (op, flags, stream), list.add_boxes(op, 1))
LIST_WORKS(copy, cuFabricCpyBatchAsync,
           (size_t count, CUDA_FABRIC_COPY_BATCH_OP* ops, unsigned long long flags, CUstream stream),
           (count, ops, flags, stream), list.add_fabric_copies(ops, count))
LIST_WORKS(other, cuMemBatchDecompressAsync,
           (CUmemDecompressParams * ops, size_t count, unsigned flags, size_t* failed, CUstream stream),
           (ops, count, flags, failed, stream), list.add_decompressions(ops, count))
LIST_WORKS(managed, cuMemPrefetchBatchAsync,
           (CUdeviceptr * at, size_t* n, size_t count, CUmemLocation* places, size_t* indices, size_t place_count,
            unsigned long long flags, CUstream stream),
           (at, n, count, places, indices, place_count, flags, stream), list.add_ranges(at, n, count, R))
LIST_WORKS(managed, cuMemDiscardBatchAsync,
           (CUdeviceptr * at, size_t* n, size_t count, unsigned long long flags, CUstream stream),
           (at, n, count, flags, stream), list.add_ranges(at, n, count, W))
LIST_WORKS(managed, cuMemDiscardAndPrefetchBatchAsync,
           (CUdeviceptr * at, size_t* n, size_t count, CUmemLocation* places, size_t* indices, size_t place_count,
            unsigned long long flags, CUstream stream),
           (at, n, count, places, indices, place_count, flags, stream), list.add_ranges(at, n, count, W))
#define MEMOP_BATCH(symbol)                                                                                            \
    LIST_WORKS(memop, symbol, (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags),        \
               (stream, count, ops, flags), list.add_memops(ops, count))
MEMOP_BATCH(cuStreamBatchMemOp)
LIST_WORK(memop, cuStreamBatchMemOp_v2, (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags),
          (stream, count, ops, flags), legacy(stream), list.add_memops(ops, count))
LIST_WORK(memop, cuStreamBatchMemOp_v2_ptsz, (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags),
          (stream, count, ops, flags), per_thread(stream), list.add_memops(ops, count))

// ---- memsets ----
#define FILL(symbol, PARAMS, ARGS, STREAM, BLOCKING, ...)                                                              \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        const CUDA_MEMSET_NODE_PARAMS_v1 fill = {__VA_ARGS__};                                                         \
        const Span span = rows_span(fill.dst, fill.pitch, fill.width * fill.elementSize, fill.height);                 \
        Work work;                                                                                                     \
        work.kind = WorkKind::fill;                                                                                    \
        work.entry_point = #symbol;                                                                                    \
        work.stream = STREAM;                                                                                          \
        work.blocking = BLOCKING;                                                                                      \
        work.fill = &fill;                                                                                             \
        work.spans = &span;                                                                                            \
        work.span_count = 1;                                                                                           \
        return up->work(work, real);                                                                                   \
    }
#define FILLS(BITS, TYPE)                                                                                              \
    FILL(cuMemsetD##BITS##_v2, (CUdeviceptr to, TYPE value, size_t n), (to, value, n), CU_STREAM_LEGACY, true, to, 0,  \
         value, BITS / 8, n, 1)                                                                                        \
    FILL(cuMemsetD##BITS##_v2_ptds, (CUdeviceptr to, TYPE value, size_t n), (to, value, n), CU_STREAM_PER_THREAD,      \
         true, to, 0, value, BITS / 8, n, 1)                                                                           \
    FILL(cuMemsetD##BITS##Async, (CUdeviceptr to, TYPE value, size_t n, CUstream stream), (to, value, n, stream),      \
         legacy(stream), false, to, 0, value, BITS / 8, n, 1)                                                          \
    FILL(cuMemsetD##BITS##Async_ptsz, (CUdeviceptr to, TYPE value, size_t n, CUstream stream), (to, value, n, stream), \
         per_thread(stream), false, to, 0, value, BITS / 8, n, 1)                                                      \
    FILL(cuMemsetD2D##BITS##_v2, (CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height),              \
         (to, pitch, value, width, height), CU_STREAM_LEGACY, true, to, pitch, value, BITS / 8, width, height)         \
    FILL(cuMemsetD2D##BITS##_v2_ptds, (CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height),         \
         (to, pitch, value, width, height), CU_STREAM_PER_THREAD, true, to, pitch, value, BITS / 8, width, height)     \
    FILL(cuMemsetD2D##BITS##Async, (CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height,             \
         CUstream stream), (to, pitch, value, width, height, stream), legacy(stream), false, to, pitch, value,         \
         BITS / 8, width, height)                                                                                      \
    FILL(cuMemsetD2D##BITS##Async_ptsz, (CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height,        \
         CUstream stream), (to, pitch, value, width, height, stream), per_thread(stream), false, to, pitch, value,     \
         BITS / 8, width, height)
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)

// ---- stream memory operations, and what names managed memory ----
#define VALUE_WORK(symbol, VALUE, BYTES, ACCESS)                                                                       \
    WORK(memop, symbol, (CUstream stream, CUdeviceptr at, VALUE value, unsigned flags), (stream, at, value, flags),    \
         legacy(stream), false, {at, BYTES, ACCESS})                                                                   \
    WORK(memop, symbol##_ptsz, (CUstream stream, CUdeviceptr at, VALUE value, unsigned flags),                         \
         (stream, at, value, flags), per_thread(stream), false, {at, BYTES, ACCESS})
VALUE_WORK(cuStreamWaitValue32, cuuint32_t, 4, R)
VALUE_WORK(cuStreamWaitValue64, cuuint64_t, 8, R)
VALUE_WORK(cuStreamWriteValue32, cuuint32_t, 4, O)
VALUE_WORK(cuStreamWriteValue64, cuuint64_t, 8, O)
VALUE_WORK(cuStreamWaitValue32_v2, cuuint32_t, 4, R)
VALUE_WORK(cuStreamWaitValue64_v2, cuuint64_t, 8, R)
VALUE_WORK(cuStreamWriteValue32_v2, cuuint32_t, 4, O)
VALUE_WORK(cuStreamWriteValue64_v2, cuuint64_t, 8, O)

ASYNC_WORK(managed, cuMemPrefetchAsync, (CUdeviceptr at, size_t n, CUdevice device, CUstream stream), (at, n, device, stream),
           {at, n, R})
ASYNC_WORK(managed, cuMemPrefetchAsync_v2,
           (CUdeviceptr at, size_t n, CUmemLocation place, unsigned flags, CUstream stream), (at, n, place, flags, stream),
           {at, n, R})
WORK(managed, cuMemAdvise, (CUdeviceptr at, size_t n, CUmem_advise advice, CUdevice device), (at, n, advice, device),
     CU_STREAM_LEGACY, false, {at, n, R})
WORK(managed, cuMemAdvise_v2, (CUdeviceptr at, size_t n, CUmem_advise advice, CUmemLocation place), (at, n, advice, place),
     CU_STREAM_LEGACY, false, {at, n, R})
ASYNC_WORK(managed, cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr at, size_t n, unsigned flags),
           (stream, at, n, flags), {at, n, R})

}  // namespace udnnmem::interpose
