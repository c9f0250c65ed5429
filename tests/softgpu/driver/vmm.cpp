// Virtual memory management, as strict as the header says: offset 0 and whole handles only, no access
// before cuMemSetAccess, unmapping of whole mappings, release deferred while mapped. None of these calls
// waits for a stream: an op that runs on what is being unmapped faults.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/softgpu/driver/clock.hpp"
#include "tests/softgpu/driver/context.hpp"
#include "tests/softgpu/driver/memory.hpp"

namespace softgpu {
namespace {

struct Handles {
    std::unordered_map<std::uint64_t, std::shared_ptr<Frame>> live;
    std::unordered_map<const Frame*, std::uint64_t> number;
    std::uint64_t next = 0x5f0000001;
};
Handles& handles() {  // with memory_mutex held
    static auto* const h = new Handles;
    return *h;
}

CUmemGenericAllocationHandle number_of(const std::shared_ptr<Frame>& f) {
    auto& h = handles();
    auto [it, fresh] = h.number.try_emplace(f.get(), h.next);
    if (fresh) ++h.next;
    h.live[it->second] = f;
    ++f->handle_references;
    return it->second;
}

// SOFTGPU_HOST_FRAMES: as drivers that cannot do it, whatever their attributes say. 0: no such memory is made; uncopied: copies
// between host and device do not take it.
bool host_frames(const char* how) {
    static const char* const text = std::getenv("SOFTGPU_HOST_FRAMES");
    return text && !std::strcmp(text, how);
}

bool valid_location(const CUmemLocation& l) {
    if (l.type == CU_MEM_LOCATION_TYPE_DEVICE) return l.id >= 0 && l.id < options().devices;
    if (l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) return is_node(l.id);
    return false;
}

// A record of the shared file's header: what a descriptor's position means to an importing process.
struct ExportRecord {
    std::uint64_t magic, offset, bytes;
    std::int32_t device, host;
};
constexpr std::uint64_t export_magic = 0x736f66746770756dull;

// The mappings that cover [a, a+n) without a gap, or none.
std::vector<Range*> covering(Address a, std::uint64_t n) {
    std::vector<Range*> found;
    auto& all = ranges_locked();
    auto it = all.upper_bound(a);
    if (it == all.begin()) return {};
    --it;
    Address at = a;
    for (; at < a + n; ++it) {
        if (it == all.end() || it->second.kind != Kind::mapping || it->first > at || it->first + it->second.mapped <= at) return {};
        found.push_back(&it->second);
        at = it->first + it->second.mapped;
    }
    return found;
}

// A driver takes its time for each frame that is mapped there, though it be one call (an H200: 16 of 2 MiB 340 us for access, one 27).
std::int64_t frames_at(Address a, std::size_t size) {
    std::lock_guard lock(memory_mutex());
    return static_cast<std::int64_t>(covering(a, size).size());
}

}  // namespace

bool refuses_copies(const void* host) {
    if (!host_frames("uncopied")) return false;
    const auto r = find_range(reinterpret_cast<Address>(host));
    return r && r->kind == Kind::mapping;
}
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* p, CUmemAllocationGranularity_flags) {
    ENTER(cuMemGetAllocationGranularity);
    REQUIRE(granularity && p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && valid_location(p->location));
    *granularity = options().granularity;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* p, unsigned long long flags) {
    ENTER(cuMemCreate);
    REQUIRE(handle && p && size && flags == 0 && size % options().granularity == 0);
    REQUIRE(p->type == CU_MEM_ALLOCATION_TYPE_PINNED && valid_location(p->location));
    if (p->requestedHandleTypes & ~static_cast<int>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) return CUDA_ERROR_NOT_SUPPORTED;
    bool host = p->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (host && host_frames("0")) return CUDA_ERROR_NOT_SUPPORTED;
    spend(options().create_ns);
    if (host && !take_node(p->location.id, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    std::shared_ptr<Frame> frame;
    TRY(make_frame(size, size, host ? 0 : p->location.id, host, &frame));
    if (host && !options().numa.empty()) frame->node = p->location.id;
    frame->is_handle = true;
    frame->exportable = p->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    frame->properties = *p;
    std::lock_guard lock(memory_mutex());
    *handle = number_of(frame);
    ++figures().frames;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER(cuMemRelease);
    std::shared_ptr<Frame> last;
    std::lock_guard lock(memory_mutex());
    auto& h = handles();
    auto it = h.live.find(handle);
    REQUIRE(it != h.live.end());
    if (--it->second->handle_references == 0) {
        last = std::move(it->second);
        h.number.erase(last.get());
        h.live.erase(it);
        --figures().frames;
    }
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
    ENTER(cuMemAddressReserve);
    REQUIRE(out && size && flags == 0 && size % options().granularity == 0 && (alignment & (alignment - 1)) == 0);
    std::lock_guard lock(memory_mutex());
    Address a = take_addresses(size, std::max({std::uint64_t{alignment}, options().granularity, std::uint64_t{2 << 20}}), hint, false);
    if (!a) return CUDA_ERROR_OUT_OF_MEMORY;
    reservations_locked()[a] = size;
    *out = a;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemAddressFree(CUdeviceptr a, size_t size) {
    ENTER(cuMemAddressFree);
    std::lock_guard lock(memory_mutex());
    auto& all = reservations_locked();
    auto it = all.find(a);
    REQUIRE(it != all.end() && it->second == size);
    auto inside = ranges_locked().lower_bound(a);
    REQUIRE(inside == ranges_locked().end() || inside->first >= a + size);  // still mapped
    all.erase(it);
    give_addresses(a, size);
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemMap(CUdeviceptr a, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    ENTER(cuMemMap);
    static std::uint64_t next_id = 1ull << 40;
    REQUIRE(offset == 0 && flags == 0 && size && a % options().granularity == 0);
    std::lock_guard lock(memory_mutex());
    auto& h = handles();
    auto it = h.live.find(handle);
    REQUIRE(it != h.live.end() && it->second->extent.bytes == size && is_reserved_locked(a, size));
    auto& all = ranges_locked();
    auto after = all.lower_bound(a);
    REQUIRE(after == all.end() || after->first >= a + size);
    REQUIRE(after == all.begin() || std::prev(after)->first + std::prev(after)->second.mapped <= a);
    Range r;
    r.address = a;
    r.bytes = r.mapped = size;
    r.kind = Kind::mapping;
    r.frame = it->second;
    r.device = it->second->device;
    r.id = next_id++;
    all.emplace_hint(after, a, std::move(r));
    ++figures().mappings;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemUnmap(CUdeviceptr a, size_t size) {
    ENTER(cuMemUnmap);
    spend(options().unmap_ns * frames_at(a, size));
    std::vector<std::shared_ptr<Frame>> last;
    std::lock_guard lock(memory_mutex());
    auto found = covering(a, size);
    REQUIRE(size && !found.empty() && found.front()->address == a && found.back()->address + found.back()->mapped == a + size);
    for (int d = 0; d <= cpu_view; ++d) {  // one call a view and stretch that has access
        for (std::size_t i = 0; i < found.size();) {
            std::size_t j = i;
            while (j < found.size() && found[j]->access[d] != CU_MEM_ACCESS_FLAGS_PROT_NONE) ++j;
            if (j > i) unmap_pages(found[i]->address, found[j - 1]->address + found[j - 1]->mapped - found[i]->address, d);
            i = j + 1;
        }
    }
    for (Range* r : found) {
        last.push_back(std::move(r->frame));
        ranges_locked().erase(r->address);
        --figures().mappings;
    }
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemSetAccess(CUdeviceptr a, size_t size, const CUmemAccessDesc* desc, size_t count) {
    ENTER(cuMemSetAccess);
    REQUIRE(size && desc && count && a % options().granularity == 0 && size % options().granularity == 0);
    spend(options().access_ns * frames_at(a, size));
    std::lock_guard lock(memory_mutex());
    auto found = covering(a, size);
    REQUIRE(!found.empty());
    for (std::size_t i = 0; i < count; ++i) {
        auto& l = desc[i].location;
        bool cpu = l.type == CU_MEM_LOCATION_TYPE_HOST || (l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && is_node(l.id));
        REQUIRE(cpu || (l.type == CU_MEM_LOCATION_TYPE_DEVICE && l.id >= 0 && l.id < options().devices));
        REQUIRE(desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (cpu)
            for (Range* r : found)
                if (!r->frame->host || (l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && l.id != r->frame->properties.location.id)) return CUDA_ERROR_NOT_SUPPORTED;
    }
    // Whole mappings: access of part of a handle does not exist.
    REQUIRE(found.front()->address == a && found.back()->address + found.back()->mapped == a + size);
    for (std::size_t i = 0; i < count; ++i) {
        int d = desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE ? desc[i].location.id : cpu_view;
        for (Range* r : found) {
            if (!map_pages(r->address, r->mapped, d, r->frame->extent, desc[i].flags)) return CUDA_ERROR_OUT_OF_MEMORY;
            r->access[d] = desc[i].flags;
        }
    }
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* l, CUdeviceptr a) {
    ENTER(cuMemGetAccess);
    REQUIRE(flags && l);
    auto r = find_range(a);
    REQUIRE(r && r->kind == Kind::mapping);
    REQUIRE(l->type != CU_MEM_LOCATION_TYPE_DEVICE || (l->id >= 0 && l->id < options().devices));
    *flags = r->access[l->type == CU_MEM_LOCATION_TYPE_DEVICE ? l->id : cpu_view];
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    ENTER(cuMemRetainAllocationHandle);
    REQUIRE(handle);
    auto r = find_range(reinterpret_cast<Address>(address));
    REQUIRE(r && r->kind == Kind::mapping);
    std::lock_guard lock(memory_mutex());
    if (r->frame->handle_references == 0) ++figures().frames;
    *handle = number_of(r->frame);
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* p, CUmemGenericAllocationHandle handle) {
    ENTER(cuMemGetAllocationPropertiesFromHandle);
    std::lock_guard lock(memory_mutex());
    auto it = handles().live.find(handle);
    REQUIRE(p && it != handles().live.end());
    *p = it->second->properties;
    return CUDA_SUCCESS;
}

// A descriptor of the shared file, opened anew so that its position is its own: the position says which
// record of the file's header describes the handle. It works in any process that receives it.
SOFTGPU_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
    ENTER(cuMemExportToShareableHandle);
    static std::uint64_t next_record = 0;
    REQUIRE(out && flags == 0);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    std::lock_guard lock(memory_mutex());
    auto it = handles().live.find(handle);
    REQUIRE(it != handles().live.end() && it->second->exportable);
    Frame& f = *it->second;
    ExportRecord record{export_magic, f.extent.offset, f.extent.bytes, f.device, f.host};
    const auto position = static_cast<off_t>(next_record++ % ((1 << 20) / sizeof record) * sizeof record);
    std::string path = "/proc/self/fd/" + std::to_string(f.extent.fd);
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (::pwrite(fd, &record, sizeof record, position) != sizeof record || ::lseek(fd, position, SEEK_SET) != position) {
        ::close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    f.exported = true;
    *static_cast<int*>(out) = fd;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType type) {
    ENTER(cuMemImportFromShareableHandle);
    REQUIRE(handle);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
    ExportRecord record;
    off_t position = ::lseek(fd, 0, SEEK_CUR);
    REQUIRE(position >= 0 && ::pread(fd, &record, sizeof record, position) == sizeof record && record.magic == export_magic);
    int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    auto frame = std::make_shared<Frame>();
    frame->extent = {own, record.offset, record.bytes};
    frame->device = record.device < options().devices ? record.device : 0;
    frame->host = record.host;
    frame->is_handle = true;
    frame->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    frame->properties.location = {record.host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE, {record.host ? 0 : frame->device}};
    frame->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::lock_guard lock(memory_mutex());
    *handle = number_of(frame);
    ++figures().frames;
    return CUDA_SUCCESS;
}
