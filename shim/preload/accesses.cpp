#include "shim/preload/accesses.hpp"

#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "interpose/driver.hpp"

namespace udnnmem::preload {
namespace {

using interpose::Access;
using interpose::Launch;
using interpose::Span;
using interpose::Work;
using interpose::WorkKind;
using pager::Buffer;

constexpr std::size_t kScannedCopy = 64 << 10;  // larger copies are data; the hash at their first eviction looks at them
constexpr std::size_t kTensorMapBytes = 128;

// Descriptors by their bytes' hash; few, made once a tensor shape.
std::mutex g_tensor_maps_mutex;
std::unordered_map<std::size_t, CUdeviceptr> g_tensor_maps;
std::atomic<bool> g_any_tensor_map{false};

std::size_t hash_bytes(const void* data) {
    return std::hash<std::string_view>{}({static_cast<const char*>(data), kTensorMapBytes});
}

inline void name_word(pager::Pager& pager, std::uint64_t word, pager::Op& op) {
    if (!pager.in_arena(word)) [[likely]]
        return;
    Buffer* b = pager.find(word);
    if (!b) return;
    op.name(b);
    if (b->slab && b->table.load(std::memory_order_relaxed)) [[unlikely]]
        op.in_tables.push_back(word);
}

// Pointers inside a parameter are aligned to 8 bytes of the parameter buffer.
inline void scan(pager::Pager& pager, const char* data, std::size_t offset, std::size_t bytes, pager::Op& op) {
    for (std::size_t at = (8 - offset % 8) % 8; at + 8 <= bytes; at += 8) {
        std::uint64_t word;
        std::memcpy(&word, data + at, 8);
        name_word(pager, word, op);
    }
    if (bytes >= kTensorMapBytes && g_any_tensor_map.load(std::memory_order_relaxed)) [[unlikely]] {
        std::lock_guard lock(g_tensor_maps_mutex);
        for (std::size_t at = 0; at + kTensorMapBytes <= bytes; at += 64)
            if (auto it = g_tensor_maps.find(hash_bytes(data + at)); it != g_tensor_maps.end()) name_word(pager, it->second, op);
    }
}

inline void name_launch(pager::Pager& pager, const Launch& launch, pager::Op& op) {
    if (launch.buffer) {
        scan(pager, static_cast<const char*>(launch.buffer), 0, launch.buffer_bytes, op);
        return;
    }
    if (!launch.layout->known) {
        op.everything = true;
        return;
    }
    if (!launch.params) return;
    std::size_t i = 0;
    for (const auto& param : launch.layout->params) {
        if (param.size == 8 && param.offset % 8 == 0) {
            std::uint64_t word;
            std::memcpy(&word, launch.params[i], 8);
            name_word(pager, word, op);
        } else if (param.size >= 8) {
            scan(pager, static_cast<const char*>(launch.params[i]), param.offset, param.size, op);
        }
        ++i;
    }
}

// Whether the host can read `address`. A pointer that the driver does not know is ordinary memory.
bool host_readable(const pager::Pager& pager, const Work& work, CUdeviceptr address) {
    if (pager.in_arena(address)) return false;
    if (std::strstr(work.entry_point, "HtoD")) return true;
    unsigned type = 0;
    static const auto ask = UDNNMEM_REAL(cuPointerGetAttribute);
    return !ask || ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS || type == CU_MEMORYTYPE_HOST;
}

}  // namespace

void name_accesses(pager::Pager& pager, const Work& work, pager::Op& op) {
    if (work.launch) [[likely]]
        name_launch(pager, *work.launch, op);
    for (std::uint32_t i = 0; i < work.span_count; ++i) {
        const Span& span = work.spans[i];
        if (!span.bytes || !pager.in_arena(span.address)) continue;
        Buffer* b = pager.find(span.address);
        if (!b) continue;
        name_word(pager, span.address, op);
        // A whole buffer written over need not be brought back first. Slabs hold more than one allocation.
        if (span.access == Access::overwrite && !b->slab && span.address == b->base && span.bytes >= b->bytes &&
            b->residency.load(std::memory_order_relaxed) != pager::Residency::device)
            op.overwrites.push_back(b);
    }
    for (std::uint32_t i = 0; i < work.part_count; ++i) name_accesses(pager, work.parts[i], op);
    if (!work.proven) op.everything = true;
}

void note_pointers_copied(pager::Pager& pager, const Work& work) {
    const Span* from = nullptr;
    for (std::uint32_t i = 0; i < work.span_count; ++i) {
        const Span& span = work.spans[i];
        if (span.access == Access::read) {
            from = &span;
            continue;
        }
        Buffer* to = pager.in_arena(span.address) ? pager.find(span.address) : nullptr;
        if (!to || !from || from->bytes != span.bytes || span.bytes > kScannedCopy || span.bytes < 8) continue;
        if (!host_readable(pager, work, from->address)) continue;
        const char* data = reinterpret_cast<const char*>(from->address);
        std::vector<Buffer::Drag> targets;
        for (std::size_t at = (8 - span.address % 8) % 8; at + 8 <= span.bytes; at += 8) {
            std::uint64_t word;
            std::memcpy(&word, data + at, 8);
            if (!pager.in_arena(word)) continue;
            if (Buffer* target = pager.find(word); target && target != to) targets.push_back({span.address + at, target});
        }
        if (!targets.empty() || to->table.load(std::memory_order_relaxed)) to->device->wrote_pointers(to, span.address, span.bytes, targets);
    }
}

void remember_tensor_map(pager::Pager& pager, const void* descriptor, CUdeviceptr address) {
    if (!pager.in_arena(address)) return;
    std::lock_guard lock(g_tensor_maps_mutex);
    g_tensor_maps[hash_bytes(descriptor)] = address;
    g_any_tensor_map.store(true);
}

}  // namespace udnnmem::preload
