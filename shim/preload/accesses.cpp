#include "shim/preload/accesses.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "interpose/driver.hpp"
#include "interpose/kernel_code.hpp"
#include "shim/log/log.hpp"
#include "shim/pager/rules.hpp"
#include "shim/preload/stray_words.hpp"
#include "shim/preload/unmanaged_ranges.hpp"

namespace udnnmem::preload {
namespace {

using interpose::Access;
using interpose::Launch;
using interpose::Outside;
using interpose::Span;
using interpose::Work;
using interpose::WorkKind;
using pager::Buffer;
using pager::holds;

// Larger copies are looked at here and there: where no address is, they are data. The hash at their first eviction looks at all
// of them; until then what they may lead to is found in host memory, or where the device does not reach that, all is searched.
constexpr std::size_t kScannedCopy = 1 << 20, kSampleEvery = 256 << 10, kSample = 4096;
constexpr std::size_t kTensorMapBytes = 128;

// Descriptors by their bytes' hash; few, made once a tensor shape.
std::mutex g_tensor_maps_mutex;
auto& g_tensor_maps = *new std::unordered_map<std::size_t, CUdeviceptr>;   // never destroyed: programs use it as they end
std::atomic<bool> g_any_tensor_map{false};

std::size_t hash_bytes(const void* data) {
    return std::hash<std::string_view>{}({static_cast<const char*>(data), kTensorMapBytes});
}

bool is_in(std::uint64_t word, std::span<const Span> spans) {
    return std::any_of(spans.begin(), spans.end(), [word](const Span& s) { return word - s.address < s.bytes; });
}

auto& g_stray_words = *new StrayWords;   // never destroyed, likewise

// Where what an op names goes.
struct Naming {
    pager::Pager& pager;
    pager::Op& op;
    Touches* touches = nullptr;
    std::span<const Span> own = {};   // of memory outside the arena
    const Launch* launch = nullptr;   // the words are its parameters'
};
constexpr std::size_t kNoParameter = SIZE_MAX;

[[gnu::noinline]] void name_outside(const Naming& n, std::uint64_t word, std::size_t offset) {
    const auto kind = unmanaged_ranges.at(word);
    if (!kind || is_in(word, n.own)) return;
    if (*kind == Outside::variable) {
        if (!n.launch || offset == kNoParameter || !interpose::kernel_may_write(n.launch->layout->name, offset) || !holds("variable-written")) return;
        unmanaged_ranges.written(word);
    }
    if (holds("unmanaged")) n.op.everything = true;
}

[[gnu::noinline]] void touch(const Naming& n, const Buffer* b, std::uint64_t word, Access access, std::uint64_t bytes, std::size_t inside) {
    const profiler::Mode mode = access == Access::read ? profiler::Mode::read : access == Access::overwrite ? profiler::Mode::write : profiler::Mode::read_write;
    n.touches->push_back({std::clamp<std::uint64_t>(word, b->base, b->base + b->bytes - 1), mode, bytes, false, static_cast<std::uint16_t>(inside <= UINT16_MAX ? inside : 0)});
}

// Of each word of each launch: nothing is called as long as nobody records. `inside`: a structure; else it is all of a parameter.
[[gnu::always_inline]] inline void name_word(const Naming& n, std::uint64_t word, Access access = Access::read_write, std::uint64_t bytes = 0, std::size_t offset = kNoParameter, bool inside = false) {
    if (!n.pager.in_arena(word)) [[likely]] {
        if (unmanaged_ranges.may_contain(word)) [[unlikely]]
            name_outside(n, word, offset);
        return;
    }
    Buffer* b = n.pager.find(word);
    if (!b) return;
    n.op.name(b);
    if (n.touches) [[unlikely]]
        touch(n, b, word, access, bytes, inside ? offset : 0);
    if (b->slab) n.op.name_in_slab(word);
}

// A word inside a structure that leads into the arena. True: that is all there is to say of it.
[[gnu::noinline]] bool names_loosely(const Naming& n, const StrayWords::Offsets* strays, std::uint64_t word, std::size_t offset) {
    Buffer* const b = n.pager.find(word);
    const bool known = strays && std::find(strays->begin(), strays->end(), offset) != strays->end();
    if (!b || (!b->live && !b->slab)) {
        if (const std::size_t words = known ? 0 : g_stray_words.note(n.launch->layout->name, offset))
            log::info("kernel {}: the word at byte {} of its parameters led to freed memory: {}", n.launch->layout->name, offset,
                      words <= StrayWords::most ? "what it leads to only has to be reachable" : "so have many, all of them count again");
        return known;
    }
    if (!known) return false;
    n.op.note_stray(word);
    if (b->slab) n.op.name(b), n.op.name_in_slab(word);
    else if (holds("stray")) n.op.name_loosely(b);
    return true;
}

// Pointers inside a parameter are aligned to 8 bytes of the parameter buffer.
inline void scan(const Naming& n, const char* data, std::size_t offset, std::size_t bytes, bool structure = false) {
    const StrayWords::Offsets* const strays = structure ? g_stray_words.of(n.launch->layout->name) : nullptr;
    for (std::size_t at = first_address(offset); at + 8 <= bytes; at += 8) {
        std::uint64_t word;
        std::memcpy(&word, data + at, 8);
        if (structure && n.pager.in_arena(word) && names_loosely(n, strays, word, offset + at)) [[unlikely]] continue;
        name_word(n, word, Access::read_write, 0, offset + at, structure);
    }
    if (may_hold_tensor_map(bytes)) [[unlikely]] {
        std::lock_guard lock(g_tensor_maps_mutex);
        for (std::size_t at = 0; at + kTensorMapBytes <= bytes; at += 64)
            if (auto it = g_tensor_maps.find(hash_bytes(data + at)); it != g_tensor_maps.end()) name_word(n, it->second);
    }
}

// The launch whose touches are those from `before` on; somebody learns what the program does.
[[gnu::noinline]] void count_leading(const Naming& n, std::size_t before) {
    StrayWords::Offsets leading;
    for (std::size_t i = before; i < n.touches->size(); ++i)
        if (const profiler::Touch& t = (*n.touches)[i]; t.word) leading.push_back(t.word);
    g_stray_words.count(n.launch->layout->name, leading);
}

[[gnu::always_inline]] inline void name_launch(Naming n, const Launch& launch) {
    n.launch = &launch;
    if (launch.layout->follows_variables && holds("follows-variables")) [[unlikely]]
        n.op.everything = true;
    if (launch.buffer) {
        scan(n, static_cast<const char*>(launch.buffer), 0, launch.buffer_bytes);
        return;
    }
    if (!launch.layout->known) {
        n.op.everything = true;
        return;
    }
    if (!launch.params) return;
    const std::size_t before = n.touches ? n.touches->size() : 0;
    std::size_t i = 0;
    for (const auto& param : launch.layout->params) {
        if (param.size == 8 && param.offset % 8 == 0) {
            std::uint64_t word;
            std::memcpy(&word, launch.params[i], 8);
            name_word(n, word, Access::read_write, 0, param.offset);
        } else if (param.size >= 8) {
            scan(n, static_cast<const char*>(launch.params[i]), param.offset, param.size, true);
        }
        ++i;
    }
    if (n.touches) [[unlikely]] count_leading(n, before);
}

// Where the host can read what is at `address`; null: nowhere. A pointer that the driver does not know is ordinary memory, or where the call
// says that it is the device's, nothing at all. Registered memory may have another address on the device.
const char* host_readable(const pager::Pager& pager, const Work& work, CUdeviceptr address) {
    const auto* const itself = reinterpret_cast<const char*>(address);
    if (pager.in_arena(address) || address < 4096) return nullptr;  // a null source is the driver's to refuse
    if (std::strstr(work.entry_point, "HtoD") && address == work.spans[0].address) return itself;
    if (std::strstr(work.entry_point, "DtoH")) return nullptr;
    // Of what a graph allocates the driver knows nothing before its launch.
    if (unmanaged_ranges.may_contain(address))
        if (const auto kind = unmanaged_ranges.at(address); kind && *kind != Outside::host) return nullptr;
    unsigned type = 0;
    const char* host = nullptr;
    static const auto ask = UDNNMEM_REAL(cuPointerGetAttribute);
    if (!ask || ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) return std::strstr(work.entry_point, "DtoD") ? nullptr : itself;
    if (type != CU_MEMORYTYPE_HOST) return nullptr;
    return ask(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address) == CUDA_SUCCESS && host ? host : itself;
}

// The words of the `bytes` bytes of `data` that point into the arena; `at` is where the bytes go, to which pointers are aligned.
struct Pointer {
    std::size_t offset;
    CUdeviceptr word;
    Buffer* target;
};
std::vector<Pointer> pointers_in(const pager::Pager& pager, const char* data, std::size_t bytes, CUdeviceptr at, bool thorough = false) {
    const CUdeviceptr begin = pager.arena().begin();
    const std::size_t size = pager.arena().bytes(), first = (8 - at % 8) % 8;
    std::vector<Pointer> found;
    const auto any_in = [&](std::size_t start, std::size_t end) {   // without a branch
        bool any = false;
        for (std::size_t i = start; i + 8 <= end; i += 8) {
            std::uint64_t word;
            std::memcpy(&word, data + i, 8);
            any |= word - begin < size;
        }
        return any;
    };
    if (bytes > kScannedCopy && !thorough) {
        std::size_t start = first;
        while (start < bytes && !any_in(start, std::min(bytes, start + kSample))) start += kSampleEvery;
        if (start >= bytes) return found;
    }
    for (std::size_t start = first; start + 8 <= bytes; start += kSample) {
        const std::size_t end = std::min(bytes, start + kSample);
        if (!any_in(start, end)) continue;
        for (std::size_t i = start; i + 8 <= end; i += 8) {
            std::uint64_t word;
            std::memcpy(&word, data + i, 8);
            if (word - begin >= size) continue;
            if (Buffer* target = pager.find(word)) found.push_back({i, word, target});
        }
    }
    return found;
}

// Calls body(from, to) for each copy from one span to another.
template <class Body>
void for_each_copy(const Work& work, Body body) {
    const Span* from = nullptr;
    for (std::uint32_t i = 0; i < work.span_count; ++i) {
        const Span& span = work.spans[i];
        if (span.access == Access::read) from = &span;
        else if (from && from->content() == span.content() && span.content() >= 8) body(*from, span);
    }
}

// Of such a copy, calls body(from, to, bytes) for each stretch, by their offsets in the two spans: what lies between rows is not copied.
template <class Body>
void for_each_row(const Span& from, const Span& to, Body body) {
    if (from.bytes == from.content() && to.bytes == to.content()) return body(std::size_t{0}, std::size_t{0}, from.bytes);
    const interpose::Rows &a = from.rows, &b = to.rows;
    for (std::size_t z = 0; z < a.depth; ++z)
        for (std::size_t y = 0; y < a.height; ++y) body(z * a.slice + y * a.pitch, z * b.slice + y * b.pitch, a.width);
}

// Calls body(at, word, target) for each word of what such a copy brings that points into the arena; `data` is what it copies. Of much a
// sample is looked at first, as in pointers_in().
template <class Body>
void for_each_pointer(const pager::Pager& pager, const char* data, const Span& from, const Span& to, bool thorough, Body body) {
    bool looks = thorough || from.bytes == from.content() || from.content() <= kScannedCopy;
    std::size_t passed = 0, next = 0;
    if (!looks)
        for_each_row(from, to, [&](std::size_t here, std::size_t there, std::size_t bytes) {
            if (!looks && passed >= next) looks = !pointers_in(pager, data + here, std::min(bytes, kSample), to.address + there).empty(), next = passed + kSampleEvery;
            passed += bytes;
        });
    if (!looks) return;
    for_each_row(from, to, [&](std::size_t here, std::size_t there, std::size_t bytes) {
        for (const auto& [i, word, target] : pointers_in(pager, data + here, bytes, to.address + there, thorough)) body(to.address + there + i, word, target);
    });
}

// Says once of a kernel that its parameters are not known; of the first few kernels.
void name_unknown(const interpose::KernelLayout& layout) {
    constinit static std::atomic<const interpose::KernelLayout*> told[64];
    for (auto& slot : told) {
        const interpose::KernelLayout* there = nullptr;
        if (slot.compare_exchange_strong(there, &layout, std::memory_order_relaxed)) {
            log::info("parameters of kernel {} are not known: it counts as using everything", *layout.name ? layout.name : "(without a name)");
            return;
        }
        if (there == &layout) return;
    }
}

// Whether a copy brings what nobody can look at, from device memory that may hold any address, to memory of ours.
bool carries_unknown(const Naming& n, const Work& work, const Span& from) {
    if (work.kind != WorkKind::copy || from.access != Access::read || !unmanaged_ranges.may_contain(from.address)) return false;
    const auto kind = unmanaged_ranges.at(from.address);
    if (kind != Outside::device && kind != Outside::graph) return false;
    return !is_in(from.address, n.own) && holds("carried") &&
           std::any_of(work.spans, work.spans + work.span_count, [&](const Span& to) { return to.access != Access::read && to.bytes >= 8 && n.pager.in_arena(to.address); });
}

// Whether a span of the work, or of its parts, reads what is in `b`.
bool reads(const pager::Pager& pager, const Work& work, const Buffer* b) {
    for (std::uint32_t i = 0; i < work.span_count; ++i)
        if (const Span& s = work.spans[i]; s.access != Access::overwrite && s.bytes && pager.in_arena(s.address) && pager.find(s.address) == b) return true;
    for (std::uint32_t i = 0; i < work.part_count; ++i)
        if (reads(pager, work.parts[i], b)) return true;
    return false;
}

// `whole`: what `work` is a part of, or itself.
void name_part(const Naming& n, const Work& whole, const Work& work) {
    if (work.launch) [[likely]]
        name_launch(n, *work.launch);
    for (std::uint32_t i = 0; i < work.span_count; ++i) {
        const Span& span = work.spans[i];
        if (!span.bytes) continue;
        if (!n.pager.in_arena(span.address)) {
            if (carries_unknown(n, work, span)) [[unlikely]] n.op.everything = true;
            continue;
        }
        Buffer* b = n.pager.find(span.address);
        if (!b) continue;
        name_word(n, span.address, span.access, span.bytes);
        // A whole buffer written over need not be brought back first. Slabs hold more than one allocation.
        if (span.access == Access::overwrite && !b->slab && ((span.address == b->base && span.bytes >= b->bytes) || !holds("partial")) &&
            b->residency.load(std::memory_order_relaxed) != pager::Residency::device && !reads(n.pager, whole, b))
            n.op.overwrites.push_back(b);
    }
    for (std::uint32_t i = 0; i < work.part_count; ++i) name_part(n, whole, work.parts[i]);
    if (!work.proven) n.op.everything = true;
    if (work.launch && !work.launch->layout->known && !work.proven) name_unknown(*work.launch->layout);
}

}  // namespace

void name_accesses(pager::Pager& pager, const Work& work, pager::Op& op, Touches* touches, std::span<const Span> own) { name_part({pager, op, touches, own}, work, work); }

bool is_stray(const char* kernel, std::size_t offset) {
    const StrayWords::Offsets* const strays = g_stray_words.of(kernel);
    return strays && std::find(strays->begin(), strays->end(), offset) != strays->end();
}

bool leads_by_chance(const char* kernel, std::uint16_t word) {
    if (!g_stray_words.varies(kernel, word)) return false;
    log::info("kernel {}: the word at byte {} of its parameters leads somewhere now and then, each time elsewhere: what it leads to only has to be reachable", kernel, word);
    return true;
}

void drop_repeats(pager::Op& op) {
    if (op.more.empty()) [[likely]] return;
    std::unordered_set<const Buffer*> seen;
    std::erase_if(op.more, [&](const Buffer* b) { return !seen.insert(b).second; });
}

void name_carried(pager::Pager& pager, const Work& work, pager::Op& op) {
    for_each_copy(work, [&](const Span& from, const Span& to) {
        if (!pager.in_arena(to.address)) return;
        const char* const data = host_readable(pager, work, from.address);
        if (data) for_each_pointer(pager, data, from, to, false, [&](CUdeviceptr, CUdeviceptr word, Buffer*) { name_word({pager, op}, word); });
    });
}

void name_led(pager::Pager& pager, const Work& work, Touches& touches) {
    if (!work.launch) return;
    pager::Op op;
    name_accesses(pager, work, op);
    std::vector<CUdeviceptr> addresses;
    pager.led_to(op, addresses);
    for (const CUdeviceptr at : addresses) touches.push_back({at, profiler::Mode::read_write, UINT64_MAX, true});
}

void note_pointers_copied(pager::Pager& pager, const Work& work) {
    if (!holds("host-tables")) return;
    for_each_copy(work, [&](const Span& from, const Span& to) {
        Buffer* table = pager.find(to.address);
        if (!table) return;
        Buffer* const source = pager.find(from.address);
        const char* const data = source ? nullptr : host_readable(pager, work, from.address);
        if (!source && !data) return;
        std::vector<Buffer::Drag> targets;
        std::vector<pager::DevicePager::Stretch> written;
        if (source && source->table.load(std::memory_order_acquire)) {
            const std::vector<Buffer::Drag> held = source->device->pointers_of(source, from.address, from.bytes);
            if (!held.empty())
                for_each_row(from, to, [&](std::size_t here, std::size_t there, std::size_t bytes) {
                    for (const Buffer::Drag& d : held)
                        if (d.at - from.address - here < bytes) targets.push_back({d.at - from.address - here + to.address + there, d.address, d.target});
                });
        } else if (data) {
            for_each_pointer(pager, data, from, to, !table->device->reaches_host(), [&](CUdeviceptr at, CUdeviceptr word, Buffer* target) {
                if (target != table || table->slab) targets.push_back({at, word, target});
            });
        }
        if (targets.empty() && !table->table.load(std::memory_order_relaxed)) return;
        for_each_row(from, to, [&](std::size_t, std::size_t there, std::size_t bytes) { written.push_back({to.address + there, bytes}); });
        table->device->wrote_pointers(table, std::move(written), targets);
    });
}

CUresult pointers_escaping(pager::Pager& pager, const Work& work, const std::function<CUresult(CUdeviceptr)>& escaping) {
    CUresult result = CUDA_SUCCESS;
    if (!holds("variables")) return result;
    for_each_copy(work, [&](const Span& from, const Span& to) {
        if (pager.in_arena(to.address)) return;
        std::vector<CUdeviceptr> addresses;
        if (Buffer* source = pager.find(from.address)) {
            if (!source->table.load(std::memory_order_acquire)) return;
            for_each_row(from, to, [&](std::size_t here, std::size_t, std::size_t bytes) {
                for (const Buffer::Drag& d : source->device->pointers_of(source, from.address + here, bytes)) addresses.push_back(d.address);
            });
        } else if (const char* const data = host_readable(pager, work, from.address)) {
            for_each_pointer(pager, data, from, to, false, [&](CUdeviceptr, CUdeviceptr word, Buffer*) { addresses.push_back(word); });
        }
        const bool from_host = std::strstr(work.entry_point, "HtoD"), to_host = std::strstr(work.entry_point, "DtoH");
        if (addresses.empty() || to_host || (!from_host && host_readable(pager, work, to.address))) return;
        for (const CUdeviceptr at : addresses)
            if (result == CUDA_SUCCESS) result = escaping(at);
    });
    return result;
}

void remember_tensor_map(pager::Pager& pager, const void* descriptor, CUdeviceptr address) {
    if (!pager.in_arena(address)) return;
    std::lock_guard lock(g_tensor_maps_mutex);
    g_tensor_maps[hash_bytes(descriptor)] = address;
    g_any_tensor_map.store(true);
}

bool may_hold_tensor_map(std::size_t bytes) { return bytes >= kTensorMapBytes && g_any_tensor_map.load(std::memory_order_relaxed); }

void forward_tensor_map(const void* before, const void* after) {
    std::lock_guard lock(g_tensor_maps_mutex);
    if (const auto known = g_tensor_maps.find(hash_bytes(before)); known != g_tensor_maps.end()) g_tensor_maps[hash_bytes(after)] = CUdeviceptr{known->second};
}

}  // namespace udnnmem::preload
