#include "shim/ipc/sharing.hpp"

#include <unistd.h>

#include <cstring>

namespace udnnmem::ipc {
namespace {

using pager::insist;
constexpr char kMagic[8] = {'u', 'd', 'n', 'n', 'm', 'e', 'm', 1};  // the last: the version of what follows

}  // namespace

CUresult Sharing::get(CUipcMemHandle& out, CUdeviceptr at) {
    pager::Buffer* b = pager_.find(at);
    const auto offered = b ? b->device->allocation_at(at) : std::nullopt;
    if (!offered || offered->pool) return CUDA_ERROR_INVALID_VALUE;   // the driver has no such handles for the memory of pools
    Handle handle{};
    std::memcpy(handle.magic, kMagic, sizeof kMagic);
    handle.process = getpid();
    handle.offset = offered->base - b->base;
    handle.bytes = offered->bytes;
    std::lock_guard lock(mutex_);
    auto it = offered_.find(offered->base);
    if (it == offered_.end()) {
        std::vector<pager::DevicePager::Shared> frames;
        if (const CUresult result = b->device->share(b, frames); result != CUDA_SUCCESS) return result;
        std::vector<Piece> pieces;
        for (const auto& frame : frames) pieces.push_back({frame.descriptor, frame.bytes});
        const std::uint64_t number = handover_.offer(std::move(pieces));
        if (!number) return CUDA_ERROR_OUT_OF_MEMORY;
        any_.store(true);
        it = offered_.emplace(offered->base, Offered{number, offered->context}).first;
    }
    handle.key = handover_.key();
    handle.number = it->second.number;
    out = {};
    std::memcpy(&out, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

bool Sharing::ours(const CUipcMemHandle& handle) { return std::memcmp(&handle, kMagic, sizeof kMagic) == 0; }

// The pieces one after another, with access for the current device.
CUresult Sharing::map(std::vector<Piece>& pieces, CUdeviceptr& at, std::size_t& size) {
    const pager::Driver& d = pager_.driver();
    if (!d.cuMemImportFromShareableHandle) return CUDA_ERROR_NOT_SUPPORTED;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (const CUresult result = d.cuCtxGetDevice(&access.location.id); result != CUDA_SUCCESS) return result;
    size = 0;
    for (const Piece& p : pieces) size += p.bytes;
    if (const CUresult result = insist([&] { return d.cuMemAddressReserve(&at, size, 0, 0, 0); }); result != CUDA_SUCCESS) return result;
    std::size_t mapped = 0;
    CUresult result = CUDA_SUCCESS;
    for (const Piece& p : pieces) {
        CUmemGenericAllocationHandle handle = 0;
        auto* descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(p.descriptor));
        result = insist([&] { return d.cuMemImportFromShareableHandle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR); });
        if (result != CUDA_SUCCESS) break;
        result = insist([&] { return d.cuMemMap(at + mapped, p.bytes, 0, handle, 0); });
        insist([&] { return d.cuMemRelease(handle); });  // the mapping keeps it
        if (result != CUDA_SUCCESS) break;
        mapped += p.bytes;
    }
    if (result == CUDA_SUCCESS) result = insist([&] { return d.cuMemSetAccess(at, size, &access, 1); });
    if (result == CUDA_SUCCESS) return result;
    if (mapped) insist([&] { return d.cuMemUnmap(at, mapped); });
    insist([&] { return d.cuMemAddressFree(at, size); });
    return result;
}

CUresult Sharing::open(CUdeviceptr& out, const CUipcMemHandle& given) {
    Handle handle;
    std::memcpy(&handle, &given, sizeof handle);
    CUcontext context = nullptr;
    if (insist([&] { return pager_.driver().cuCtxGetCurrent(&context); }) != CUDA_SUCCESS || !context) return CUDA_ERROR_INVALID_CONTEXT;
    std::lock_guard lock(mutex_);
    if (handle.process == getpid() && handle.key == handover_.key()) return CUDA_ERROR_INVALID_CONTEXT;   // in another pid namespace the number may be another's
    for (auto& [at, opened] : opened_)
        if (opened.context == context && !std::memcmp(&opened.handle, &handle, sizeof handle)) {
            ++opened.count;
            out = at;
            return CUDA_SUCCESS;
        }
    std::vector<Piece> pieces = fetch(handle.process, handle.key, handle.number);
    if (pieces.empty()) return CUDA_ERROR_MAP_FAILED;
    Opened opened{handle, context, 0, 0};
    const CUresult result = map(pieces, opened.mapped, opened.size);
    discard(pieces);
    if (result != CUDA_SUCCESS) return result;
    if (handle.offset + handle.bytes > opened.size) {
        unmap(opened);
        return CUDA_ERROR_INVALID_VALUE;
    }
    out = opened.mapped + handle.offset;
    opened_.emplace(out, opened);
    any_.store(true);
    return CUDA_SUCCESS;
}

void Sharing::unmap(const Opened& o) {
    const pager::Driver& d = pager_.driver();
    if (insist([&] { return d.cuMemUnmap(o.mapped, o.size); }) == CUDA_SUCCESS) insist([&] { return d.cuMemAddressFree(o.mapped, o.size); });
}

bool Sharing::close(CUdeviceptr at, CUresult& result) {
    if (!any_.load()) return false;
    std::unique_lock lock(mutex_);
    auto it = opened_.find(at);
    if (it == opened_.end()) return false;
    result = CUDA_SUCCESS;
    if (it->second.count == 1) {   // its work may wait for what another thread does next, which may need the lock
        const CUcontext context = it->second.context;
        lock.unlock();
        {
            const pager::Within there(pager_.driver(), context);
            result = pager_.driver().cuCtxSynchronize();
        }
        if (result != CUDA_SUCCESS) return true;   // it may be in use
        lock.lock();
        if (it = opened_.find(at); it == opened_.end()) return true;   // another thread has closed it meanwhile
    }
    if (--it->second.count) return true;
    unmap(it->second);
    opened_.erase(it);
    return true;
}

bool Sharing::range_of(CUdeviceptr at, CUdeviceptr& base, std::size_t& bytes) {
    if (!any_.load()) return false;
    std::lock_guard lock(mutex_);
    auto it = opened_.upper_bound(at);
    if (it == opened_.begin() || at >= (--it)->first + it->second.handle.bytes) return false;
    base = it->first;
    bytes = it->second.handle.bytes;
    return true;
}

void Sharing::freed(CUdeviceptr base) {
    if (!any_.load()) return;
    std::lock_guard lock(mutex_);
    if (auto it = offered_.find(base); it != offered_.end()) {
        handover_.withdraw(it->second.number);
        offered_.erase(it);
    }
}

void Sharing::context_destroying(CUcontext context) {
    if (!any_.load()) return;
    std::lock_guard lock(mutex_);
    std::erase_if(offered_, [&](const auto& o) {
        if (o.second.context != context) return false;
        handover_.withdraw(o.second.number);
        return true;
    });
    const pager::Driver& d = pager_.driver();
    CUcontext popped;
    const bool pushed = insist([&] { return d.cuCtxPushCurrent_v2(context); }) == CUDA_SUCCESS;
    if (pushed) insist([&] { return d.cuCtxSynchronize(); });
    std::erase_if(opened_, [&](const auto& o) {
        if (o.second.context != context) return false;
        unmap(o.second);
        return true;
    });
    if (pushed) insist([&] { return d.cuCtxPopCurrent_v2(&popped); });
}

}  // namespace udnnmem::ipc
