#include "shim/pager/hasher.hpp"

#include <algorithm>
#include <cstring>

#include "shim/pager/hash_ptx.hpp"

namespace udnnmem::pager {

CUresult Hasher::start(CUdeviceptr scratch, CUdeviceptr arena_begin, std::size_t arena_bytes) {
    scratch_ = scratch;
    arena_begin_ = arena_begin;
    arena_bytes_ = arena_bytes;
    CUresult result = insist([&] { return driver_.cuModuleLoadData(&module_, kHashPtx); });
    if (result == CUDA_SUCCESS) result = insist([&] { return driver_.cuModuleGetFunction(&hash_, module_, "udnnmem_hash"); });
    if (result == CUDA_SUCCESS) result = insist([&] { return driver_.cuModuleGetFunction(&find_, module_, "udnnmem_find_addresses"); });
    if (result == CUDA_SUCCESS && !results_) {
        void* memory = nullptr;
        result = insist([&] { return driver_.cuMemHostAlloc(&memory, kTickets * 32 + kMostAddresses * 16 + 8, CU_MEMHOSTALLOC_PORTABLE); });
        results_ = static_cast<std::uint64_t*>(memory);
    }
    if (result != CUDA_SUCCESS) return result;
    free_.clear();
    for (int i = 0; i < kTickets; ++i) free_.push_back(i);
    return CUDA_SUCCESS;
}

void Hasher::stop() {
    if (module_) insist([&] { return driver_.cuModuleUnload(module_); });
    if (results_) insist([&] { return driver_.cuMemFreeHost(results_); });
    module_ = nullptr;
    results_ = nullptr;
}

int Hasher::queue(const std::vector<Frame*>& frames, CUstream stream) {
    if (free_.empty()) return -1;
    const int ticket = free_.back();
    CUdeviceptr result = scratch_ + static_cast<CUdeviceptr>(ticket) * 32;
    if (insist([&] { return driver_.cuMemsetD8Async(result, 0, 32, stream); }) != CUDA_SUCCESS) return -1;
    std::uint64_t first = 0;
    for (const Frame* frame : frames) {
        CUdeviceptr data = frame->alias;
        std::uint64_t words = frame->bytes / 8, begin = arena_begin_, bytes = arena_bytes_;
        void* args[] = {&data, &words, &first, &begin, &bytes, &result};
        const unsigned blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(words / (256 * 16), 1, 1024));
        if (insist([&] { return driver_.cuLaunchKernel(hash_, blocks, 1, 1, 256, 1, 1, 0, stream, args, nullptr); }) != CUDA_SUCCESS) return -1;
        first += words;
    }
    if (insist([&] { return driver_.cuMemcpyDtoHAsync_v2(results_ + ticket * 4, result, 32, stream); }) != CUDA_SUCCESS) return -1;
    free_.pop_back();
    return ticket;
}

Hash Hasher::read(int ticket, std::uint64_t* addresses) {
    const std::uint64_t* words = results_ + ticket * 4;
    Hash hash;
    hash.words[0] = words[0];
    hash.words[1] = words[1];
    if (addresses) *addresses = words[2];
    free_.push_back(ticket);
    return hash;
}

CUresult Hasher::find_addresses(const std::vector<Buffer*>& buffers, CUstream stream, std::vector<Found>& out) {
    CUdeviceptr list = scratch_ + kTickets * 32, count = list + kMostAddresses * 16;
    std::uint64_t* host = results_ + kTickets * 4;
    CUresult result = insist([&] { return driver_.cuMemsetD8Async(count, 0, 8, stream); });
    for (const Buffer* b : buffers) {
        std::uint64_t place = b->base;
        for (const Frame* frame : b->device_frames.empty() ? b->host_frames : b->device_frames) {
            CUdeviceptr data = frame->alias;
            std::uint64_t words = frame->bytes / 8, begin = arena_begin_, arena = arena_bytes_, most = kMostAddresses;
            void* args[] = {&data, &words, &place, &begin, &arena, &list, &most, &count};
            const unsigned blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(words / (256 * 16), 1, 1024));
            if (result == CUDA_SUCCESS) result = insist([&] { return driver_.cuLaunchKernel(find_, blocks, 1, 1, 256, 1, 1, 0, stream, args, nullptr); });
            place += frame->bytes;
        }
    }
    if (result == CUDA_SUCCESS) result = insist([&] { return driver_.cuMemcpyDtoHAsync_v2(host, list, kMostAddresses * 16 + 8, stream); });
    if (result == CUDA_SUCCESS) result = insist([&] { return driver_.cuStreamSynchronize(stream); });
    if (result != CUDA_SUCCESS) {
        insist([&] { return driver_.cuStreamSynchronize(stream); });  // what was queued reads frames and writes to `host`
        return result;
    }
    const std::uint64_t found = host[kMostAddresses * 2];
    if (found > kMostAddresses) return CUDA_ERROR_INVALID_VALUE;
    for (std::uint64_t i = 0; i < found; ++i) out.push_back({host[2 * i], host[2 * i + 1]});
    return CUDA_SUCCESS;
}

}  // namespace udnnmem::pager
