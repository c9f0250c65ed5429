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
    struct {
        CUfunction* function;
        const char* name;
    } const kernels[] = {{&hash_, "udnnmem_hash"}, {&hash_bytes_, "udnnmem_hash_bytes"}, {&expect_, "udnnmem_expect"}, {&find_, "udnnmem_find_addresses"}};
    for (const auto& k : kernels)
        if (result == CUDA_SUCCESS) result = insist([&] { return driver_.cuModuleGetFunction(k.function, module_, k.name); });
    if (result == CUDA_SUCCESS && !pinned_) {
        void* memory = nullptr;
        result = insist([&] { return driver_.cuMemHostAlloc(&memory, sizeof(Pinned), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP); });
        pinned_ = static_cast<Pinned*>(memory);
    }
    if (result != CUDA_SUCCESS) return result;
    free_.clear();
    free_searches_.clear();
    for (int i = 0; i < kTickets; ++i) {
        free_.push_back(i);
        dirty_[i] = true;
    }
    for (int i = 0; i < kSearches; ++i) free_searches_.push_back(i);
    return CUDA_SUCCESS;
}

void Hasher::stop() {
    if (module_) insist([&] { return driver_.cuModuleUnload(module_); });
    if (pinned_) insist([&] { return driver_.cuMemFreeHost(pinned_); });
    module_ = nullptr;
    hash_ = find_ = hash_bytes_ = expect_ = nullptr;
    pinned_ = nullptr;
}

bool Hasher::clear_slot(int ticket, CUstream stream) {
    const CUdeviceptr slot = scratch_ + static_cast<CUdeviceptr>(ticket) * 32;
    if (dirty_[ticket] && insist([&] { return driver_.cuMemsetD8Async(slot, 0, 32, stream); }) != CUDA_SUCCESS) return false;
    return dirty_[ticket] = true;  // until all of it is queued
}

int Hasher::queue(CUdeviceptr at, std::size_t bytes, CUstream stream) {
    if (free_.empty() || !clear_slot(free_.back(), stream)) return -1;
    const int ticket = free_.back();
    CUdeviceptr slot = scratch_ + static_cast<CUdeviceptr>(ticket) * 32, answer = reinterpret_cast<CUdeviceptr>(pinned_->answers[ticket]);
    std::uint64_t length = bytes, begin = arena_begin_, size = arena_bytes_, blocks = std::clamp<std::uint64_t>(bytes / (8 * 256 * 16), 1, 1024);
    void* args[] = {&at, &length, &begin, &size, &slot, &blocks, &answer};
    if (insist([&] { return driver_.cuLaunchKernel(hash_bytes_, static_cast<unsigned>(blocks), 1, 1, 256, 1, 1, 0, stream, args, nullptr); }) != CUDA_SUCCESS) return -1;
    dirty_[ticket] = false;
    free_.pop_back();
    return ticket;
}

int Hasher::queue(const std::vector<Frame*>& frames, CUstream stream) {
    if (free_.empty()) return -1;
    const int ticket = free_.back();
    CUdeviceptr slot = scratch_ + static_cast<CUdeviceptr>(ticket) * 32, answer = reinterpret_cast<CUdeviceptr>(pinned_->answers[ticket]);
    auto blocks_for = [](std::uint64_t words) { return static_cast<unsigned>(std::clamp<std::uint64_t>(words / (256 * 16), 1, 1024)); };
    if (!clear_slot(ticket, stream)) return -1;
    std::uint64_t first = 0, blocks = 0;
    for (const Frame* frame : frames) blocks += blocks_for(frame->bytes / 8);
    for (const Frame* frame : frames) {
        CUdeviceptr data = frame->alias;
        std::uint64_t words = frame->bytes / 8, begin = arena_begin_, bytes = arena_bytes_;
        void* args[] = {&data, &words, &first, &begin, &bytes, &slot, &blocks, &answer};
        if (insist([&] { return driver_.cuLaunchKernel(hash_, blocks_for(words), 1, 1, 256, 1, 1, 0, stream, args, nullptr); }) != CUDA_SUCCESS) return -1;
        first += words;
    }
    dirty_[ticket] = false;
    free_.pop_back();
    return ticket;
}

Hash Hasher::read(int ticket, std::uint64_t* addresses) {
    const std::uint64_t* words = pinned_->answers[ticket];
    Hash hash;
    hash.words[0] = words[0];
    hash.words[1] = words[1];
    if (addresses) *addresses = words[2];
    free_.push_back(ticket);
    return hash;
}

std::vector<Hasher::Range> Hasher::ranges_of(const std::vector<Buffer*>& buffers) {
    std::vector<Range> ranges;
    for (const Buffer* b : buffers) {
        std::uint64_t place = b->base;
        for (const Frame* frame : b->device_frames.empty() ? b->host_frames : b->device_frames) {
            ranges.push_back({frame->alias, frame->bytes / 8, place});
            place += frame->bytes;
        }
    }
    return ranges;
}

template <std::uint64_t most>
CUresult Hasher::launch(Search<most>& search, const Range* ranges, std::size_t count, CUstream stream) {
    std::copy_n(ranges, count, search.ranges);
    std::uint64_t longest = 0;
    for (std::size_t i = 0; i < count; ++i) longest = std::max(longest, ranges[i].words);
    CUdeviceptr table = reinterpret_cast<CUdeviceptr>(search.ranges), found = reinterpret_cast<CUdeviceptr>(search.found), number = reinterpret_cast<CUdeviceptr>(&search.count);
    std::uint64_t begin = arena_begin_, bytes = arena_bytes_, room = most;
    void* args[] = {&table, &begin, &bytes, &found, &room, &number};
    const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(longest / (256 * 16), 1, 256));
    return insist([&] { return driver_.cuLaunchKernel(find_, blocks, static_cast<unsigned>(count), 1, 256, 1, 1, 0, stream, args, nullptr); });
}

int Hasher::queue_search(const std::vector<Buffer*>& buffers, CUstream stream) {
    const std::vector<Range> ranges = ranges_of(buffers);
    if (ranges.size() > kMostRanges) return kTooMuch;
    if (free_searches_.empty()) return kBusy;
    const int search = free_searches_.back();
    pinned_->searches[search].count = 0;
    if (launch(pinned_->searches[search], ranges.data(), ranges.size(), stream) != CUDA_SUCCESS) return kTooMuch;
    free_searches_.pop_back();
    return search;
}

bool Hasher::read_search(int search, std::vector<Found>& out) {
    const auto& s = pinned_->searches[search];
    free_searches_.push_back(search);
    if (s.count > kMostFound) return false;
    out.assign(s.found, s.found + s.count);
    return true;
}

CUresult Hasher::find_addresses(const std::vector<Buffer*>& buffers, CUstream stream, std::vector<Found>& out) {
    const std::vector<Range> ranges = ranges_of(buffers);
    auto& s = pinned_->thorough;
    s.count = 0;
    for (std::size_t at = 0; at < ranges.size(); at += kMostRanges) {
        CUresult result = launch(s, ranges.data() + at, std::min(kMostRanges, ranges.size() - at), stream);
        const CUresult passed = insist([&] { return driver_.cuStreamSynchronize(stream); });
        if (result == CUDA_SUCCESS) result = passed;
        if (result != CUDA_SUCCESS) return result;
    }
    if (s.count > kMostAddresses) return CUDA_ERROR_INVALID_VALUE;
    out.assign(s.found, s.found + s.count);
    return CUDA_SUCCESS;
}

}  // namespace udnnmem::pager
