// Legacy IPC of cuMemAlloc memory between processes on the software GPU: the handle names the process,
// its shared-memory file and the place in it; opening it maps the same pages. VMM and pool memory are
// refused, as on a card. Memory once exported is never recycled, so an importer's mapping stays sound.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "tests/softgpu/driver/context.hpp"
#include "tests/softgpu/driver/memory.hpp"

using namespace softgpu;

namespace {
struct Handle {
    std::uint64_t magic;
    std::int32_t process, fd, device, reserved;
    std::uint64_t offset, mapped, bytes;
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle));
constexpr std::uint64_t handle_magic = 0x73676970636d656dull;
}  // namespace

SOFTGPU_API cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr a) {
    ENTER(cuIpcGetMemHandle);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(out);
    auto r = find_range(a);
    REQUIRE(r && r->kind == Kind::linear);
    {
        std::lock_guard lock(memory_mutex());
        r->frame->exported = true;
    }
    Handle h{handle_magic, ::getpid(), r->frame->extent.fd, r->device, 0, r->frame->extent.offset, r->mapped, r->bytes};
    std::memset(out, 0, sizeof *out);
    std::memcpy(out, &h, sizeof h);
    return CUDA_SUCCESS;
}

SOFTGPU_API cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
    ENTER(cuIpcOpenMemHandle_v2);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(out && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    Handle h;
    std::memcpy(&h, &handle, sizeof h);
    REQUIRE(h.magic == handle_magic);
    if (h.process == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // only another process may open it
    std::string path = "/proc/" + std::to_string(h.process) + "/fd/" + std::to_string(h.fd);
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_MAP_FAILED;
    Range r;
    r.frame = std::make_shared<Frame>();
    r.frame->extent = {fd, h.offset, h.mapped};
    r.bytes = h.bytes;
    r.mapped = h.mapped;
    r.kind = Kind::ipc;
    r.context = c;
    r.device = c->device;
    static std::uint64_t next_id = 1ull << 55;
    std::lock_guard lock(memory_mutex());
    r.id = next_id++;
    r.address = take_addresses(r.mapped, page, 0, true);
    if (!r.address) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!map_pages(r.address, r.mapped, r.device, r.frame->extent, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        give_addresses(r.address, r.mapped);
        return CUDA_ERROR_MAP_FAILED;
    }
    *out = r.address;
    ranges_locked()[r.address] = std::move(r);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) { return cuIpcOpenMemHandle_v2(out, handle, flags); }

SOFTGPU_API cuIpcCloseMemHandle(CUdeviceptr a) {
    ENTER(cuIpcCloseMemHandle);
    CUcontext c;
    TRY(usable_context(&c));
    auto r = find_range(a);
    REQUIRE(r && r->kind == Kind::ipc && r->address == a);
    TRY(synchronise_device(r->device));
    return release(a, [](const Range& range) { return range.kind == Kind::ipc; });
}
