// From CUDA's descriptions of copies to the spans that they touch. A rectangle or box is told as the one range that
// covers it: overwritten where it fills that range without a hole, else written.
#pragma once

#include "interpose/internal.hpp"

#include <vector>

namespace udnnmem::interpose {

// `rows` rows of `width` bytes, `pitch` apart. Pitch matters with more than one row only.
inline Span rows_span(CUdeviceptr at, std::size_t pitch, std::size_t width, std::size_t rows,
                      Access whole = Access::overwrite) noexcept {
    if (width == 0 || rows == 0) return {at, 0, whole};
    const bool dense = rows == 1 || pitch == width;
    const Access partial = whole == Access::overwrite ? Access::write : whole;
    return {at, (rows - 1) * pitch + width, dense ? whole : partial, {width, pitch, rows, 0, 1}};
}

// `depth` slices of `height` rows of `width` bytes; slices are `slice_rows` rows of `pitch` bytes apart. `at`: the
// first byte. Zero pitch or slice height mean: no padding.
inline Span box_span(CUdeviceptr at, std::size_t pitch, std::size_t slice_rows, std::size_t width, std::size_t height,
                     std::size_t depth, Access whole) noexcept {
    if (width == 0 || height == 0 || depth == 0) return {at, 0, whole};
    if (pitch == 0) pitch = width;
    if (slice_rows == 0) slice_rows = height;
    const bool dense_rows = height == 1 || pitch == width;
    const bool dense_slices = depth == 1 || (pitch == width && slice_rows == height);
    const Access partial = whole == Access::overwrite ? Access::write : whole;
    return {at, ((depth - 1) * slice_rows + height - 1) * pitch + width, dense_rows && dense_slices ? whole : partial, {width, pitch, height, slice_rows * pitch, depth}};
}

// The linear memory that one side of a copy names; 0 where it is an array.
inline CUdeviceptr side_base(CUmemorytype type, const void* host, CUdeviceptr device) noexcept {
    switch (type) {
        case CU_MEMORYTYPE_HOST: return address_of(host);
        case CU_MEMORYTYPE_DEVICE:
        case CU_MEMORYTYPE_UNIFIED: return device;
        default: return 0;
    }
}

inline Span side_span(CUdeviceptr base, std::size_t x, std::size_t y, std::size_t z, std::size_t pitch,
                      std::size_t slice_rows, std::size_t width, std::size_t height, std::size_t depth,
                      Access whole) noexcept {
    if (base == 0) return {0, 0, whole};
    if (slice_rows == 0) slice_rows = height;
    if (pitch == 0) pitch = width;
    return box_span(base + (z * slice_rows + y) * pitch + x, pitch, slice_rows, width, height, depth, whole);
}

inline Span source_of(const CUDA_MEMCPY2D& c) noexcept {
    return side_span(side_base(c.srcMemoryType, c.srcHost, c.srcDevice), c.srcXInBytes, c.srcY, 0, c.srcPitch, 0,
                     c.WidthInBytes, c.Height, 1, Access::read);
}
inline Span destination_of(const CUDA_MEMCPY2D& c) noexcept {
    return side_span(side_base(c.dstMemoryType, c.dstHost, c.dstDevice), c.dstXInBytes, c.dstY, 0, c.dstPitch, 0,
                     c.WidthInBytes, c.Height, 1, Access::overwrite);
}
template <class Copy3D>  // CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER
Span source_of(const Copy3D& c) noexcept {
    return side_span(side_base(c.srcMemoryType, c.srcHost, c.srcDevice), c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch,
                     c.srcHeight, c.WidthInBytes, c.Height, c.Depth, Access::read);
}
template <class Copy3D>
Span destination_of(const Copy3D& c) noexcept {
    return side_span(side_base(c.dstMemoryType, c.dstHost, c.dstDevice), c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch,
                     c.dstHeight, c.WidthInBytes, c.Height, c.Depth, Access::overwrite);
}

// The spans of a call that has a list of them: on the stack up to a number, then on the heap.
class SpanList {
  public:
    void add(Span span) {
        if (count_ < std::size(few_)) {
            few_[count_++] = span;
            return;
        }
        if (many_.empty()) many_.assign(few_, few_ + count_);
        many_.push_back(span);
        ++count_;
    }
    void add_copies(const CUdeviceptr* to, const CUdeviceptr* from, const std::size_t* n, std::size_t count) {
        if (!to || !from || !n) return;
        for (std::size_t i = 0; i < count; ++i) {
            add({from[i], n[i], Access::read});
            add({to[i], n[i], Access::overwrite});
        }
    }
    void add_ranges(const CUdeviceptr* at, const std::size_t* n, std::size_t count, Access access) {
        if (!at || !n) return;
        for (std::size_t i = 0; i < count; ++i) add({at[i], n[i], access});
    }
    void add_boxes(const CUDA_MEMCPY3D_BATCH_OP* ops, std::size_t count) {
        for (std::size_t i = 0; ops && i < count; ++i) {
            add_operand(ops[i].src, ops[i], Access::read);
            add_operand(ops[i].dst, ops[i], Access::overwrite);
        }
    }
    // What lies behind a logical endpoint, perhaps in another machine, the call does not say.
    void add_fabric_copies(const CUDA_FABRIC_COPY_BATCH_OP* ops, std::size_t count) {
        for (std::size_t i = 0; ops && i < count; ++i) {
            const auto address = [&](const CUfabricCpyOperand& side) {
                if (side.type == CU_FABRIC_COPY_OPERAND_TYPE_POINTER) return side.op.ptr.ptr;
                complete_ = false;
                return CUdeviceptr{0};
            };
            add({address(ops[i].src), ops[i].size, Access::read});
            add({address(ops[i].dst), ops[i].size, Access::overwrite});
        }
    }
    void add_decompressions(const CUmemDecompressParams* ops, std::size_t count) {
        for (std::size_t i = 0; ops && i < count; ++i) {
            add({address_of(ops[i].src), ops[i].srcNumBytes, Access::read});
            add({address_of(ops[i].dst), ops[i].dstNumBytes, Access::write});
            if (ops[i].dstActBytes) add({address_of(ops[i].dstActBytes), sizeof(*ops[i].dstActBytes), Access::overwrite});
        }
    }
    void add_memops(const CUstreamBatchMemOpParams* ops, unsigned count) {
        if (count >= kMostMemops) return;  // the driver refuses them, and looks at none
        for (unsigned i = 0; ops && i < count; ++i) switch (ops[i].operation) {
                case CU_STREAM_MEM_OP_WAIT_VALUE_32: add({ops[i].waitValue.address, 4, Access::read}); break;
                case CU_STREAM_MEM_OP_WAIT_VALUE_64: add({ops[i].waitValue.address, 8, Access::read}); break;
                case CU_STREAM_MEM_OP_WRITE_VALUE_32: add({ops[i].writeValue.address, 4, Access::overwrite}); break;
                case CU_STREAM_MEM_OP_WRITE_VALUE_64: add({ops[i].writeValue.address, 8, Access::overwrite}); break;
                case CU_STREAM_MEM_OP_BARRIER:
                case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: break;
                default: complete_ = false;  // of a later driver
            }
    }
    // Of a node that is a list of copies.
    void add_copies(const CUgraphNodeParams& p) {
        if (const int type = p.type; type == kMemcpyBatchNode) {
            const auto copies = params_as<MemcpyBatchNodeParams>(p);
            add_copies(copies.to, copies.from, copies.bytes, copies.count);
        } else if (type == kFabricBatchNode) {
            const auto copies = params_as<FabricBatchNodeParams>(p);
            add_fabric_copies(copies.ops, copies.count);
        }
    }
    const Span* data() const { return many_.empty() ? few_ : many_.data(); }
    std::uint32_t size() const { return static_cast<std::uint32_t>(count_); }
    bool complete() const { return complete_; }

  private:
    static constexpr unsigned kMostMemops = 256;  // cuStreamBatchMemOp: "must be less than"
    // Row lengths are in elements, whose size only an array on the other side tells; a copy between pointers is in
    // bytes.
    void add_operand(const CUmemcpy3DOperand& side, const CUDA_MEMCPY3D_BATCH_OP& op, Access whole) {
        if (side.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return;
        if (op.src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op.dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER) {
            complete_ = false;
            return;
        }
        add(box_span(side.op.ptr.ptr, side.op.ptr.rowLength, side.op.ptr.layerHeight, op.extent.width, op.extent.height,
                     op.extent.depth, whole));
    }

    Span few_[32];
    std::vector<Span> many_;
    std::size_t count_ = 0;
    bool complete_ = true;
};

}  // namespace udnnmem::interpose
