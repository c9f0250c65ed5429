#include "shim/replay/own_work.hpp"

#include <algorithm>
#include <cstring>

namespace udnnmem::replay {
namespace {
constexpr std::size_t kSlots = OwnWork::slots, kSlotBytes = 32;   // as hash.cu has them
constexpr int kTimings = 64;
constexpr int kSharedUnasked = 48 << 10;   // bytes of dynamic shared memory that every kernel may have; for more it has to be allowed them

// The kernel may have so many bytes of dynamic shared memory, as it could when the program launched it: it may have been allowed less
// since. What is more stays: another thread may have allowed its own launch something meanwhile.
void allow_shared(const pager::Driver& d, CUfunction f, int bytes) {
    constexpr CUfunction_attribute allowed = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    int now = 0;
    if (bytes <= kSharedUnasked || !d.cuFuncGetAttribute || !d.cuFuncSetAttribute || d.cuFuncGetAttribute(&now, allowed, f) != CUDA_SUCCESS) return;
    if (now < bytes) d.cuFuncSetAttribute(f, allowed, bytes);
}

CUresult submit_fill(const pager::Driver& d, const FillArguments& f, CUstream stream) {
    if (f.height == 1 && f.elementSize == 1) return d.cuMemsetD8Async(f.dst, static_cast<unsigned char>(f.value), f.width, stream);
    if (f.height == 1 && f.elementSize == 4) return d.cuMemsetD32Async(f.dst, f.value, f.width, stream);
    const std::size_t pitch = f.height == 1 ? f.width * f.elementSize : f.pitch;
    if (f.elementSize == 1 && d.cuMemsetD2D8Async) return d.cuMemsetD2D8Async(f.dst, pitch, static_cast<unsigned char>(f.value), f.width, f.height, stream);
    if (f.elementSize == 2 && d.cuMemsetD2D16Async) return d.cuMemsetD2D16Async(f.dst, pitch, static_cast<unsigned short>(f.value), f.width, f.height, stream);
    if (f.elementSize == 4 && d.cuMemsetD2D32Async) return d.cuMemsetD2D32Async(f.dst, pitch, f.value, f.width, f.height, stream);
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

template <class Submit>
CUresult OwnWork::run(std::span<const CUdeviceptr> addresses, bool dropped, const CUdeviceptr* overwritten, CUstream stream, Submit submit) {
    bool drivers = false;
    CUresult result = run_once(addresses, dropped, overwritten, stream, submit, drivers);
    // The driver may take memory of its own with a launch, as with one of the program's.
    std::size_t lowered = 0;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && drivers && device_.memory().frames && device_.yield_some(lowered) == CUDA_SUCCESS) {
        result = run_once(addresses, dropped, overwritten, stream, submit, drivers);
        if (result != CUDA_SUCCESS) device_.reclaim(lowered);
    }
    return result;
}

// `drivers`: the result is the driver's.
template <class Submit>
CUresult OwnWork::run_once(std::span<const CUdeviceptr> addresses, bool dropped, const CUdeviceptr* overwritten, CUstream stream, Submit& submit, bool& drivers) {
    drivers = false;
    pager::Op op;
    op.stream = stream;
    op.kernel = true;
    op.recomputes = dropped;
    for (const CUdeviceptr at : addresses) {
        pager::Buffer* const b = pager_.find(at);
        if (!b) return CUDA_ERROR_INVALID_VALUE;
        op.name(b);
        if (b->slab) op.name_in_slab(at);
        else if (overwritten && at == *overwritten && b->residency.load() != pager::Residency::device) op.overwrites.push_back(b);
    }
    if (const CUresult result = pager_.enter(op); result != CUDA_SUCCESS) return result;
    const CUresult result = submit();
    drivers = true;
    pager_.leave(op, result);
    return result;
}

bool OwnWork::start() {
    const pager::Driver& d = pager_.driver();
    CUcontext current = nullptr;
    if (d.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current) return false;
    if (context_) return context_ == current;
    kernels_ = device_.kernels(current);
    if (!kernels_.hash_bytes || device_.take_scratch(kSlots * kSlotBytes, slots_) != CUDA_SUCCESS) return false;
    if (pager::Buffer* b = pager_.find(slots_); !b->slab && device_.pin(b) != CUDA_SUCCESS) return false;
    // On a stream that waits for nobody: the program's may wait for the thread that this is.
    CUstream stream = nullptr;
    if (d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return false;
    CUresult cleared = run({&slots_, 1}, false, nullptr, stream, [&] { return d.cuMemsetD8Async(slots_, 0, kSlots * kSlotBytes, stream); });
    if (cleared == CUDA_SUCCESS) cleared = d.cuStreamSynchronize(stream);
    pager_.streams().stream_destroying(stream);
    d.cuStreamDestroy_v2(stream);
    if (cleared == CUDA_SUCCESS) context_ = current;
    return cleared == CUDA_SUCCESS;
}

void OwnWork::context_destroying(CUcontext context) {
    if (context != context_) return;
    context_ = nullptr, slots_ = 0, kernels_ = {};
    std::lock_guard lock(timing_);
    begin_ = end_ = nullptr;
    timing_out_ = false;
}

std::uint64_t* OwnWork::answers(std::size_t count) {
    return static_cast<std::uint64_t*>(pager_.answer_memory().take(count * 3 * sizeof(std::uint64_t)));
}

bool OwnWork::is_address(std::uint64_t word) const {
    if (pager_.find(word)) return true;
    unsigned type = 0;
    const auto ask = pager_.driver().cuPointerGetAttribute;
    return word >= 4096 && ask && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, word) == CUDA_SUCCESS && type;
}

bool OwnWork::leads_elsewhere(const KnownOp& op, const LaunchSource& source) const {
    return op.any_word_beside([&](std::uint32_t at, std::uint64_t word) {
        return std::memcmp(&word, op.proved_with.data() + at, sizeof word) != 0 && is_address(word) && !source.stray(at);
    });
}

std::uint64_t OwnWork::slot_of(CUstream stream) {
    return slots_ + static_cast<std::uint64_t>(pager_.streams().slot(stream).index) % kSlots * kSlotBytes;
}

CUresult OwnWork::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream, bool dropped) {
    const CUdeviceptr both[] = {to, from};
    return run(both, dropped, &to, stream, [&] { return pager_.driver().cuMemcpyDtoDAsync_v2(to, from, bytes, stream); });
}

CUresult OwnWork::fill(CUdeviceptr at, std::uint32_t word, std::size_t bytes, CUstream stream) {
    const pager::Driver& d = pager_.driver();
    return run({&at, 1}, false, nullptr, stream, [&] {
        CUresult result = CUDA_SUCCESS;
        if (bytes / 4) result = d.cuMemsetD32Async(at, word, bytes / 4, stream);
        if (bytes % 4 && result == CUDA_SUCCESS) result = d.cuMemsetD8Async(at + bytes / 4 * 4, static_cast<unsigned char>(word), bytes % 4, stream);
        return result;
    });
}

CUresult OwnWork::flip(CUdeviceptr at, unsigned char bit, CUstream stream) {
    const pager::Driver& d = pager_.driver();
    return run({&at, 1}, true, nullptr, stream, [&] {
        unsigned char byte = 0;
        CUresult result = d.cuMemcpyDtoHAsync_v2(&byte, at, 1, stream);
        if (result == CUDA_SUCCESS) result = d.cuStreamSynchronize(stream);
        if (result == CUDA_SUCCESS) result = d.cuMemsetD8Async(at, static_cast<unsigned char>(byte ^ bit), 1, stream);
        return result;
    });
}

// Submits what looks at so many bytes, between two events where that may tell how fast it is at best: of large pieces, and some of
// them, for other streams are at work beside this one.
template <class Submit>
CUresult OwnWork::timed(std::size_t bytes, CUstream stream, Submit submit) {
    const pager::Driver& d = pager_.driver();
    std::unique_lock lock(timing_);
    if (float ms = 0; timing_out_ && d.cuEventQuery(end_) == CUDA_SUCCESS) {
        timing_out_ = false;
        const double rate = d.cuEventElapsedTime(&ms, begin_, end_) == CUDA_SUCCESS && ms > 0 ? static_cast<double>(timed_bytes_) / (1e-3 * static_cast<double>(ms)) : 0;
        hash_rate_.store(std::max(rate, hash_rate()), std::memory_order_relaxed);
    }
    const auto made = [&d](CUevent& event) { return event || d.cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS; };
    const bool times = bytes > timed_bytes_ / 2 && timings_ < kTimings && !timing_out_ && d.cuEventElapsedTime && made(begin_) && made(end_) && d.cuEventRecord(begin_, stream) == CUDA_SUCCESS;
    if (!times) {
        lock.unlock();
        return submit();
    }
    const CUresult result = submit();
    timing_out_ = d.cuEventRecord(end_, stream) == CUDA_SUCCESS && result == CUDA_SUCCESS;
    if (timing_out_) timed_bytes_ = bytes, ++timings_;
    return result;
}

CUresult OwnWork::hash(CUdeviceptr at, std::size_t bytes, std::uint64_t* answer, CUstream stream) {
    const CUdeviceptr both[] = {at, slots_};
    return run(both, true, nullptr, stream, [&] {
        CUdeviceptr data = at, slot = slot_of(stream), out = reinterpret_cast<CUdeviceptr>(answer);
        std::uint64_t length = bytes, begin = pager_.arena().begin(), size = pager_.arena().bytes(), blocks = std::clamp<std::uint64_t>(bytes / (8 * 256 * 16), 1, 1024);
        void* arguments[] = {&data, &length, &begin, &size, &slot, &blocks, &out};
        return timed(bytes, stream, [&] { return pager_.driver().cuLaunchKernel(kernels_.hash_bytes, static_cast<unsigned>(blocks), 1, 1, 256, 1, 1, 0, stream, arguments, nullptr); });
    });
}

CUresult OwnWork::expect(CUdeviceptr at, std::size_t bytes, const pager::Hash& expected, std::uint64_t* report, std::uint64_t which, CUstream stream) {
    std::uint64_t* const answer = report + 3 * (1 + static_cast<std::uint64_t>(pager_.streams().slot(stream).index) % kSlots);
    if (const CUresult result = hash(at, bytes, answer, stream); result != CUDA_SUCCESS) return result;
    CUdeviceptr got = reinterpret_cast<CUdeviceptr>(answer), out = reinterpret_cast<CUdeviceptr>(report);
    std::uint64_t low = expected.words[0], high = expected.words[1];
    void* arguments[] = {&got, &low, &high, &out, &which};
    return run({}, true, nullptr, stream, [&] { return pager_.driver().cuLaunchKernel(kernels_.expect, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr); });
}

CUresult OwnWork::launch(const Launch& l, std::span<char> arguments, std::span<const CUdeviceptr> addresses, bool dropped, CUstream stream) {
    const pager::Driver& d = pager_.driver();
    std::size_t bytes = arguments.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    return run(addresses, dropped, nullptr, stream, [&] {
        if (l.kind == Launch::Kind::copy) {
            CopyArguments copy;
            std::memcpy(&copy, arguments.data(), sizeof copy);
            return d.cuMemcpyDtoDAsync_v2(copy.to, copy.from, copy.bytes, stream);
        }
        if (l.kind == Launch::Kind::fill) {
            FillArguments fill;
            std::memcpy(&fill, arguments.data(), sizeof fill);
            return submit_fill(d, fill, stream);
        }
        allow_shared(d, l.function, static_cast<int>(l.shared_bytes));
        if (l.attributes.empty())
            return d.cuLaunchKernel(l.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared_bytes, stream, nullptr, extra);
        if (!d.cuLaunchKernelEx) return CUDA_ERROR_NOT_SUPPORTED;
        CUlaunchConfig c{};
        c.gridDimX = l.grid[0], c.gridDimY = l.grid[1], c.gridDimZ = l.grid[2];
        c.blockDimX = l.block[0], c.blockDimY = l.block[1], c.blockDimZ = l.block[2];
        c.sharedMemBytes = l.shared_bytes;
        c.hStream = stream;
        c.attrs = const_cast<CUlaunchAttribute*>(l.attributes.data());
        c.numAttrs = static_cast<unsigned>(l.attributes.size());
        return d.cuLaunchKernelEx(&c, l.function, nullptr, extra);
    });
}

}  // namespace udnnmem::replay
