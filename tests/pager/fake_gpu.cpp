#include "tests/pager/fake_gpu.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

namespace udnnmem::pager::test {
namespace {

FakeGpu* g_gpu = nullptr;
thread_local int t_context = 1;
thread_local std::vector<int> t_pushed;
CUcontext context_of(int number) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(number)); }
// A thread remembers what it knew of a stream, whichever pager it was with: no two GPUs have one in common.
std::uintptr_t g_streams = 0;
template <class Handle>
Handle handle_of(std::uint64_t number) { return reinterpret_cast<Handle>(number); }
enum Kernel : std::uintptr_t { hash = 1, hash_bytes, find };

}  // namespace

CUstream stream_of(int number) { return reinterpret_cast<CUstream>(g_streams + static_cast<std::uintptr_t>(number)); }

FakeGpu::FakeGpu() { g_gpu = this, g_streams += 1000; }
FakeGpu::~FakeGpu() { g_gpu = nullptr; }

void FakeGpu::set_context(int number) { t_context = number; }

void FakeGpu::set_aside(int stream) {
    std::lock_guard lock(mutex_);
    aside_.insert(stream_of(stream));
}

void FakeGpu::hold(int stream) {
    std::lock_guard lock(mutex_);
    held_.insert(stream_of(stream));
}

void FakeGpu::let_go(int stream) {
    std::lock_guard lock(mutex_);
    held_.erase(stream_of(stream));
    std::erase_if(pending_, [&](const auto& p) { return p.second == stream_of(stream); });
}

void FakeGpu::hold_moves(bool yes) {
    std::lock_guard lock(mutex_);
    for (const CUstream s : movers_) {
        if (yes) held_.insert(s);
        else held_.erase(s), std::erase_if(pending_, [s](const auto& p) { return p.second == s; });
    }
}

void FakeGpu::fill_up(std::size_t granules) {
    std::lock_guard lock(mutex_);
    left_ = granules;
}

FakeGpu::Page* FakeGpu::page(CUdeviceptr at) {
    const auto it = mapped_.find(at / granule * granule);
    return it == mapped_.end() ? nullptr : &it->second;
}

std::atomic_ref<std::uint64_t> FakeGpu::word(CUdeviceptr at) {
    std::lock_guard lock(mutex_);
    static std::uint64_t nowhere;
    Page* p = page(at);
    if (!p) violations_.push_back("an op finds nothing mapped");
    return std::atomic_ref(p ? memory_.at(p->handle)[p->index] : nowhere);
}

bool FakeGpu::mapped(CUdeviceptr at) {
    std::lock_guard lock(mutex_);
    return page(at);
}

bool FakeGpu::cpu_reaches(CUdeviceptr at) {
    std::lock_guard lock(mutex_);
    const Page* p = page(at);
    return p && p->cpu;
}

std::size_t FakeGpu::times_mapped(CUdeviceptr at) {
    std::lock_guard lock(mutex_);
    return times_mapped_[at];
}

FakeGpu::Place FakeGpu::behind(CUdeviceptr at) {
    std::lock_guard lock(mutex_);
    const Page* p = page(at);
    return p ? Place{p->handle, p->index} : Place{};
}

void FakeGpu::refuse_to_map(CUdeviceptr at, std::size_t bytes, int times) {
    std::lock_guard lock(mutex_);
    refused_ = at, refused_bytes_ = bytes, refused_times_ = times;
}

int FakeGpu::refusals_left() {
    std::lock_guard lock(mutex_);
    return refused_times_;
}

void FakeGpu::copies_in_never_end() {
    std::lock_guard lock(mutex_);
    unending_ = movers_.at(movers_.size() - 3);
}

std::vector<std::string> FakeGpu::violations() {
    std::lock_guard lock(mutex_);
    return violations_;
}

bool FakeGpu::waits(int stream, int of) {
    std::lock_guard lock(mutex_);
    return waited_[{stream_of(stream), stream_of(of)}] > 0;
}

std::vector<int> FakeGpu::contexts_of_streams() {
    std::lock_guard lock(mutex_);
    return made_streams_;
}

// The driver's side: plain functions, of the GPU that there is.
struct FakeGpu::Calls {
    static FakeGpu& g() { return *g_gpu; }
    using Lock = std::lock_guard<std::recursive_mutex>;

    static CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* prop, unsigned long long) {
        Lock lock(g().mutex_);
        if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE && !g().lands) return CUDA_ERROR_NOT_SUPPORTED;
        const bool there = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        if (!there && g().host_refused()) return CUDA_ERROR_OUT_OF_MEMORY;
        if (there && bytes / granule > g().left_) return CUDA_ERROR_OUT_OF_MEMORY;
        *handle = g().next_++;
        if (there) g().left_ -= bytes / granule, g().on_device_.insert(*handle);
        g().memory_[*handle].resize(bytes / granule, 0xdead);
        return CUDA_SUCCESS;
    }
    static CUresult release(CUmemGenericAllocationHandle handle) {
        Lock lock(g().mutex_);
        if (g().on_device_.erase(handle)) g().left_ += g().memory_.at(handle).size();
        return CUDA_SUCCESS;
    }
    static CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
        Lock lock(g().mutex_);
        if (bytes > (1ull << 34)) return CUDA_ERROR_OUT_OF_MEMORY;
        *at = g().next_address_;
        g().next_address_ += bytes + granule;
        return CUDA_SUCCESS;
    }
    static CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
        Lock lock(g().mutex_);
        if (g().refused_times_ > 0 && at - g().refused_ < g().refused_bytes_) return --g().refused_times_, CUDA_ERROR_UNKNOWN;
        ++g().times_mapped_[at];
        for (std::size_t i = 0; i < bytes / granule; ++i)
            if (!g().mapped_.emplace(at + i * granule, Page{handle, i}).second) g().violations_.push_back("memory is mapped where some is");
        return CUDA_SUCCESS;
    }
    static CUresult unmap(CUdeviceptr at, std::size_t bytes) {
        Lock lock(g().mutex_);
        for (std::size_t i = 0; i < bytes; i += granule)
            if (!g().mapped_.erase(at + i)) g().violations_.push_back("what is not mapped is unmapped");
        return CUDA_SUCCESS;
    }
    static CUresult host_alloc(void** memory, std::size_t bytes, unsigned) {
        Lock lock(g().mutex_);
        if (!std::has_single_bit(bytes)) {  // of our kernels
            *memory = g().pinned_.emplace_back(bytes / 8 + 1).data();
            return CUDA_SUCCESS;
        }
        if (g().host_refused()) return CUDA_ERROR_OUT_OF_MEMORY;
        CUdeviceptr at = 0;  // a frame that only copies reach
        reserve(&at, bytes, 0, 0, 0);
        const CUmemGenericAllocationHandle handle = g().next_++;
        g().memory_[handle].resize(bytes / granule);
        map(at, bytes, 0, handle, 0);
        *memory = reinterpret_cast<void*>(at);
        return CUDA_SUCCESS;
    }
    static CUresult set_access(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* who, std::size_t) {
        Lock lock(g().mutex_);
        for (std::size_t i = 0; i < bytes; i += granule)
            if (!g().mapped_.contains(at + i)) return CUDA_ERROR_INVALID_VALUE;
        if (who->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            for (std::size_t i = 0; i < bytes; i += granule) g().mapped_.at(at + i).cpu = true;
        return CUDA_SUCCESS;
    }
    static CUresult free_host(void* memory) {
        while (g().frees_wait) std::this_thread::yield();
        Lock lock(g().mutex_);
        const bool ours = std::erase_if(g().pinned_, [&](const auto& p) { return p.data() == memory; });
        if (!ours && g().unending_) g().violations_.push_back("host memory is freed that a copy may read");
        return CUDA_SUCCESS;
    }
    static CUresult synchronize(CUstream stream) {
        Lock lock(g().mutex_);
        return stream == g().unending_ ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
    }
    static CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
        Lock lock(g().mutex_);
        for (std::size_t i = 0; i < bytes; i += granule) g().word(to + i) = g().word(from + i).load();
        return CUDA_SUCCESS;
    }
    static CUresult copy_out(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
        Lock lock(g().mutex_);
        auto hashed = g().hashed_.upper_bound(from);   // the frame that the piece is of
        const bool any = hashed != g().hashed_.begin() && from + bytes <= (--hashed)->first + hashed->second.bytes;
        const Point when = any ? hashed->second.when : Point{};
        if (!any || (when.stream != stream && g().waited_[{stream, when.stream}] < when.number))
            g().violations_.push_back("what is copied out was not hashed before");
        g().bytes_out_ += bytes;
        return copy(to, from, bytes);
    }
    static CUresult wait(CUstream stream, CUevent event, unsigned) {
        Lock lock(g().mutex_);
        const Point& p = g().recorded_[event];
        std::uint64_t& waited = g().waited_[{stream, p.stream}];
        waited = std::max(waited, p.number);
        return CUDA_SUCCESS;
    }
    static CUresult launch(CUfunction function, unsigned, unsigned rows, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream stream, void** arguments, void**) {
        Lock lock(g().mutex_);
        const auto kernel = reinterpret_cast<std::uintptr_t>(function);
        if (kernel == find) return find_addresses(arguments, rows), CUDA_SUCCESS;
        const bool frame = kernel == hash;        // (data, words, first, ...), (data, bytes, ...); the answer comes last
        const auto data = *static_cast<CUdeviceptr*>(arguments[0]);
        const std::size_t bytes = *static_cast<std::uint64_t*>(arguments[1]) * (frame ? 8 : 1);
        auto* answer = *static_cast<std::uint64_t**>(arguments[frame ? 7 : 6]);
        g().hashed_[data] = {{stream, ++g().calls_}, bytes};
        const bool goes_on = frame && *static_cast<std::uint64_t*>(arguments[2]);
        std::uint64_t h = goes_on ? answer[0] : 1, addresses = goes_on ? answer[2] : 0;
        for (std::size_t i = 0; i < bytes; i += granule) {
            const std::uint64_t word = g().word(data + i);
            h = (h ^ word) * 0x9e3779b97f4a7c15u + 1;
            if (frame) addresses += word - *static_cast<std::uint64_t*>(arguments[3]) < *static_cast<std::uint64_t*>(arguments[4]);
        }
        answer[0] = h, answer[1] = ~h, answer[2] = addresses;
        return CUDA_SUCCESS;
    }
    // (ranges, arena, its bytes, found, room, count), a row of blocks for each range.
    static void find_addresses(void** arguments, unsigned ranges) {
        struct Range {
            CUdeviceptr data;
            std::uint64_t words, place;
        };
        const auto value = [&](int i) { return *static_cast<std::uint64_t*>(arguments[i]); };
        const Range* const table = reinterpret_cast<const Range*>(value(0));
        auto* const found = reinterpret_cast<std::uint64_t*>(value(3));
        auto& count = *reinterpret_cast<std::uint64_t*>(value(5));
        for (unsigned r = 0; r < ranges; ++r)
            for (std::size_t i = 0; i < table[r].words * 8; i += granule) {
                const std::uint64_t word = g().word(table[r].data + i);
                if (word - value(1) >= value(2)) continue;
                for (std::uint64_t times = g().each_counts; times; --times, ++count)
                    if (count < value(4)) found[2 * count] = table[r].place + i, found[2 * count + 1] = word;
            }
    }
    static CUresult record(CUevent event, CUstream stream) {
        Lock lock(g().mutex_);
        g().pending_.erase(event);
        g().recorded_[event] = {stream, ++g().calls_};
        if (g().held_.count(stream)) g().pending_[event] = stream;
        return CUDA_SUCCESS;
    }
    static CUresult query(CUevent event) {
        Lock lock(g().mutex_);
        return g().pending_.count(event) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    }
    static CUresult wait_for(CUevent event) {
        while (query(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
        return CUDA_SUCCESS;
    }
    static CUresult query_stream(CUstream stream) {
        Lock lock(g().mutex_);
        return g().held_.count(stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    }
    static CUresult make_stream(CUstream* stream, unsigned) {
        Lock lock(g().mutex_);
        g().made_streams_.push_back(t_context);
        *stream = handle_of<CUstream>((1u << 30) + g().next_++);
        g().movers_.push_back(*stream);
        return CUDA_SUCCESS;
    }
    static CUresult make_event(CUevent* event, unsigned) {
        Lock lock(g().mutex_);
        if (!t_context) return CUDA_ERROR_INVALID_CONTEXT;
        return *event = handle_of<CUevent>(g().next_++), CUDA_SUCCESS;
    }
};

Driver FakeGpu::driver() {
    Driver d;
    d.cuCtxGetCurrent = [](CUcontext* context) { return *context = context_of(t_context), CUDA_SUCCESS; };
    d.cuCtxSetCurrent = [](CUcontext context) { return t_context = static_cast<int>(reinterpret_cast<std::uintptr_t>(context)), CUDA_SUCCESS; };
    d.cuCtxPushCurrent_v2 = [](CUcontext context) {
        t_pushed.push_back(t_context);
        return t_context = static_cast<int>(reinterpret_cast<std::uintptr_t>(context)), CUDA_SUCCESS;
    };
    d.cuCtxPopCurrent_v2 = [](CUcontext* context) {
        *context = context_of(std::exchange(t_context, t_pushed.back()));
        return t_pushed.pop_back(), CUDA_SUCCESS;
    };
    d.cuStreamGetCtx = [](CUstream, CUcontext* context) { return *context = context_of(t_context), CUDA_SUCCESS; };
    d.cuCtxGetDevice = [](CUdevice* device) { return *device = t_context == 3, t_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; };
    d.cuDeviceGetCount = [](int* count) { return *count = 2, CUDA_SUCCESS; };
    d.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; };
    // Half a GiB of device 0, an eighth of one of device 1.
    d.cuMemGetInfo_v2 = [](std::size_t* free, std::size_t* total) {
        *total = (t_context == 3 ? 2048 : 8192) * granule;
        return *free = std::min(*total, Calls::g().left_ * granule), CUDA_SUCCESS;
    };
    d.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    d.cuMemGetAllocationGranularity = [](std::size_t* out, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) { return *out = granule, CUDA_SUCCESS; };
    d.cuMemAddressReserve = Calls::reserve;
    d.cuMemAddressFree = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
    d.cuMemCreate = Calls::create;
    d.cuMemRelease = Calls::release;
    d.cuMemMap = Calls::map;
    d.cuMemUnmap = Calls::unmap;
    d.cuMemSetAccess = Calls::set_access;
    d.cuMemHostAlloc = Calls::host_alloc;
    d.cuMemFreeHost = Calls::free_host;
    d.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, std::size_t bytes, CUstream) { return Calls::copy(to, reinterpret_cast<CUdeviceptr>(from), bytes); };
    d.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) { return Calls::copy_out(reinterpret_cast<CUdeviceptr>(to), from, bytes, stream); };
    d.cuMemsetD8Async = [](CUdeviceptr, unsigned char, std::size_t, CUstream) { return CUDA_SUCCESS; };
    d.cuStreamCreate = Calls::make_stream;
    d.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    d.cuStreamSynchronize = Calls::synchronize;
    d.cuStreamGetFlags = [](CUstream stream, unsigned* flags) {
        const Calls::Lock lock(Calls::g().mutex_);
        return *flags = Calls::g().aside_.count(stream) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT, CUDA_SUCCESS;
    };
    d.cuStreamQuery = Calls::query_stream;
    d.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) { return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS; };
    d.cuStreamWaitEvent = Calls::wait;
    d.cuEventCreate = Calls::make_event;
    d.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    d.cuEventRecord = Calls::record;
    d.cuEventQuery = Calls::query;
    d.cuEventSynchronize = Calls::wait_for;
    if (times) d.cuEventElapsedTime = [](float* ms, CUevent, CUevent) { return *ms = 1, CUDA_SUCCESS; };
    d.cuModuleLoadData = [](CUmodule* module, const void*) { return *module = handle_of<CUmodule>(1), CUDA_SUCCESS; };
    d.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
    d.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
        *function = handle_of<CUfunction>(std::strstr(name, "find") ? find : std::strstr(name, "bytes") ? hash_bytes : hash);
        return CUDA_SUCCESS;
    };
    d.cuLaunchKernel = Calls::launch;
    return d;
}

struct Paged::Lines final : Sink {
    Paged& of;
    explicit Lines(Paged& paged) : of(paged) {}
    void line(Level level, const std::string& text) override {
        if (level == Level::info) return;
        std::lock_guard lock(of.lines_mutex_);
        of.lines.push_back(text);
    }
    void event(const profiler::RunEvent&) override {}
    void thread_started() override {}
    std::uint64_t move_began(const char*, BufferId, Bytes) override { return ++of.moves_begun; }
};

// What a pager has made is never given back (launching threads may look at it without a lock), nor is it here.
Paged::Paged(Limits limits) {
    FakeGpu::set_context(1);
    gpu.lands = limits.lands;
    gpu.times = limits.times;
    Settings settings;
    settings.device_budget = limits.device * granule;
    settings.host_budget = limits.host * granule;
    settings.small_below = limits.small_below;
    settings.deadline_ns = limits.deadline_ns;
    settings.always_land = limits.always_land;
    static auto& kept = *new std::vector<std::pair<Sink*, Pager*>>;
    auto* sink = new Lines(*this);
    pager = new Pager(gpu.driver(), settings, *sink);
    kept.emplace_back(sink, pager);
    device = pager->device(0);
}

Paged::~Paged() { pager->stop(); }

std::size_t Paged::said(const std::string& text) {
    std::lock_guard lock(lines_mutex_);
    return static_cast<std::size_t>(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(text) != std::string::npos; }));
}

CUdeviceptr Paged::allocate(std::size_t granules, CUmemoryPool pool) {
    CUdeviceptr at = 0;
    DevicePager* const here = pager->current_device();
    return here->allocate(granules * granule, CU_STREAM_LEGACY, false, pool, at) == CUDA_SUCCESS ? at : 0;
}

Buffer* Paged::at(CUdeviceptr at) { return pager->find(at); }

bool Paged::pinned(CUdeviceptr at) {
    device->stats();  // after what the mover did
    return pager->find(at)->pinned;
}

void Paged::order(Order::Kind kind, CUdeviceptr at) {
    pager->streams().mark_tails();
    const Buffer* const b = this->at(at);
    const Order order{kind, this->at(at), b->id, b->last_use.load()};
    device->order(&order, 1);
}

bool Paged::out(CUdeviceptr at) {
    order(Order::Kind::evict, at);
    return soon([&] { return where(at) == Residency::host; });
}

CUresult Paged::begin(Op& op, int stream, const std::vector<CUdeviceptr>& named, bool everything) {
    op.stream = stream_of(stream);
    op.kernel = true;
    op.everything = everything;
    for (CUdeviceptr at : named) op.name(pager->find(at));
    return pager->enter(op);
}

CUresult Paged::launch(int stream, const std::vector<CUdeviceptr>& named, std::uint64_t value) {
    Op op;
    const CUresult result = begin(op, stream, named);
    if (result != CUDA_SUCCESS) return result;
    for (CUdeviceptr at : named) gpu.word(at) = value;
    pager->leave(op, CUDA_SUCCESS);
    return result;
}

CUresult Paged::launch_everything(int stream) {
    Op op;
    const CUresult result = begin(op, stream, {}, true);
    if (result == CUDA_SUCCESS) pager->leave(op, CUDA_SUCCESS);
    return result;
}

void Paged::begin_fill(Op& op, int stream, CUdeviceptr at) {
    op.stream = stream_of(stream);
    Buffer* b = pager->find(at);
    op.name(b);
    if (b->residency.load() != Residency::device) op.overwrites.push_back(b);
}

CUresult Paged::fill(int stream, CUdeviceptr at, std::uint64_t value) {
    Op op;
    begin_fill(op, stream, at);
    const CUresult result = pager->enter(op);
    if (result != CUDA_SUCCESS) return result;
    gpu.word(at) = value;
    pager->leave(op, CUDA_SUCCESS);
    return result;
}

}  // namespace udnnmem::pager::test
