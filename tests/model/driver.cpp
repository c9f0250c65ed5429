#include "tests/model/driver.hpp"

#include "tests/model/image.hpp"
#include "tests/model/scheduler.hpp"

namespace model {

FakeDriver* driver = nullptr;

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ (a >> 31)) * 0x9e3779b97f4a7c15u + b;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
CUstream stream_of(std::uintptr_t n) { return reinterpret_cast<CUstream>(n); }
CUfunction hash_function() { return reinterpret_cast<CUfunction>(1); }
CUfunction find_function() { return reinterpret_cast<CUfunction>(2); }

}  // namespace

FakeDriver::FakeDriver(std::size_t device_granules, bool lands) : device_memory(device_granules * granule), landing(lands) {}

void FakeDriver::submit(CUstream stream, StreamOp op) {
    note(mix(40, reinterpret_cast<std::uintptr_t>(stream)));
    queues[stream].push_back(std::move(op));
    begin(stream);
}

// An op begins as soon as it can and ends when the explorer says: whatever changes in between is seen.
void FakeDriver::begin(CUstream stream) {
    auto& queue = queues[stream];
    // What tells that something has ended is true at once.
    while (!queue.empty() && queue.front().kind == StreamOp::Kind::event) {
        pending_of_event[static_cast<std::size_t>(queue.front().event)]--;
        queue.pop_front();
    }
    if (queue.empty() || queue.front().begun) return;
    StreamOp& op = queue.front();
    op.begun = true;
    if (op.kind != StreamOp::Kind::kernel && op.kind != StreamOp::Kind::fill) return;
    for (CUdeviceptr at : op.touches) {
        op.frames.push_back(behind(at));
        if (!op.frames.back()) violation("an op runs on memory that is not mapped");
    }
}

std::vector<CUstream> FakeDriver::streams() const {
    std::vector<CUstream> all;
    for (const auto& [stream, queue] : queues) all.push_back(stream);
    return all;
}
bool FakeDriver::can_step(CUstream stream) const {
    const auto& queue = queues.at(stream);
    if (queue.empty() || (queue.front().kind == StreamOp::Kind::gate && !gate_open)) return false;
    return queue.front().kind != StreamOp::Kind::wait || !pending_of_event[static_cast<std::size_t>(queue.front().event)];
}
std::uint64_t FakeDriver::bits(CUstream stream) const {
    std::uint64_t own = 1;
    for (const auto& [s, queue] : queues) {
        if (s == stream) break;
        own <<= 1;
    }
    for (const StreamOp& op : queues.at(stream))
        if (op.kind == StreamOp::Kind::wait && pending_of_event[static_cast<std::size_t>(op.event)]) own |= bits_behind(op.event);
    return own;
}
std::uint64_t FakeDriver::bits_behind(int event) const {
    std::uint64_t all = 0;
    for (const auto& [stream, queue] : queues)
        if (std::any_of(queue.begin(), queue.end(), [&](const StreamOp& op) { return op.kind == StreamOp::Kind::event && op.event == event; })) all |= bits(stream);
    return all;
}
bool FakeDriver::idle() const {
    return std::all_of(queues.begin(), queues.end(), [](const auto& q) { return q.second.empty(); });
}
std::uint64_t FakeDriver::word_at(CUdeviceptr at, int word) const {
    auto it = physical.find(behind(at));
    return it == physical.end() ? UINT64_MAX : it->second.data[word];
}

void FakeDriver::step(CUstream stream) {
    const bool movers = reinterpret_cast<std::uintptr_t>(stream) < 50;
    do end(stream);
    while (movers && can_step(stream) && queues[stream].front().kind != StreamOp::Kind::event);
    begin(stream);
}

void FakeDriver::end(CUstream stream) {
    StreamOp& op = queues[stream].front();
    switch (op.kind) {
        case StreamOp::Kind::kernel:
        case StreamOp::Kind::fill:
            for (std::size_t i = 0; i < op.touches.size(); ++i) {
                if (behind(op.touches[i]) != op.frames[i]) return violation("the memory behind an address changed under a running op");
                auto& data = physical.at(op.frames[i]).data;
                if (op.pointer) {
                    if (i == 0) data[pointer_word] = op.pointer;
                } else if (op.kind == StreamOp::Kind::kernel) {
                    ++data[op.word];
                }
                else {
                    std::fill(std::begin(data), std::end(data), op.value);
                }
            }
            break;
        case StreamOp::Kind::copy: {
            auto from = physical.find(behind(op.from)), to = physical.find(behind(op.to));
            if (from == physical.end() || to == physical.end()) return violation("a copy of the mover's meets memory that is not mapped");
            std::copy(std::begin(from->second.data), std::end(from->second.data), std::begin(to->second.data));
            break;
        }
        case StreamOp::Kind::hash: {
            auto from = physical.find(behind(op.from));
            if (from == physical.end()) return violation("a hash of the mover's meets memory that is not mapped");
            std::uint64_t h = 1;
            for (std::uint64_t w : from->second.data) h = mix(h, w);
            op.answer[0] = h;
            op.answer[1] = ~h;
            op.answer[2] = is_pointer(from->second.data[pointer_word]);
            break;
        }
        case StreamOp::Kind::find:
            for (const auto& [alias, place] : op.looks) {
                auto at = physical.find(behind(alias));
                if (at == physical.end()) return violation("a search of the mover's meets memory that is not mapped");
                if (const std::uint64_t word = at->second.data[pointer_word]; is_pointer(word)) {
                    op.found[2 * *op.answer] = place + 8 * pointer_word;
                    op.found[2 * *op.answer + 1] = word;
                    ++*op.answer;
                }
            }
            break;
        case StreamOp::Kind::event:
        case StreamOp::Kind::wait:
        case StreamOp::Kind::gate: break;
    }
    queues[stream].pop_front();
}

bool FakeDriver::answered(const std::uint64_t* answer) const {
    for (const auto& [stream, queue] : queues)
        for (const StreamOp& op : queue)
            if (op.answer == answer) return false;
    return true;
}

std::uint64_t FakeDriver::hash(const std::map<std::uint64_t, std::uint64_t>& names) const {
    auto name_behind = [&](CUdeviceptr at) {
        auto it = names.find(behind(at));
        return it == names.end() ? 0 : it->second;
    };
    std::uint64_t h = gate_open;
    for (const auto& [handle, name] : names)
        if (auto p = physical.find(handle); p != physical.end())
            for (std::uint64_t w : p->second.data) h += mix(w, name);
    for (const auto& [stream, queue] : queues) {
        h = mix(h, reinterpret_cast<std::uintptr_t>(stream));
        for (const StreamOp& op : queue) {
            h = mix(h, static_cast<std::uint64_t>(op.kind) * 2 + op.begun);
            h = mix(h, name_behind(op.from) << 20 | name_behind(op.to));
            h = mix(h, op.value * 2 + (op.kind == StreamOp::Kind::wait && pending_of_event[static_cast<std::size_t>(op.event)]));
            for (CUdeviceptr at : op.touches) h = mix(h, at + op.pointer);
            for (const auto& [alias, place] : op.looks) h = mix(h, name_behind(alias) + place);
        }
    }
    return h;
}

pager::Driver FakeDriver::table() {
    pager::Driver d;
    d.cuCtxGetCurrent = [](CUcontext* context) { return *context = reinterpret_cast<CUcontext>(1), CUDA_SUCCESS; };
    d.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    d.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    d.cuCtxPopCurrent_v2 = [](CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; };
    d.cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
    d.cuDeviceGetCount = [](int* count) { return *count = 1, CUDA_SUCCESS; };
    d.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; };
    d.cuMemGetInfo_v2 = [](std::size_t* free, std::size_t* total) {
        *total = driver->device_memory;
        *free = driver->device_memory - driver->device_bytes;
        return CUDA_SUCCESS;
    };
    d.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    d.cuMemAddressReserve = [](CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
        if (bytes > (1ull << 30)) return CUDA_ERROR_OUT_OF_MEMORY;
        *at = driver->next_address;
        driver->next_address += (bytes + (1 << 20) - 1) >> 20 << 20;
        return CUDA_SUCCESS;
    };
    d.cuMemAddressFree = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
    d.cuMemGetAllocationGranularity = [](std::size_t* out, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) { return *out = granule, CUDA_SUCCESS; };
    d.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* prop, unsigned long long) {
        const bool host = prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
        if (host ? !driver->landing : driver->device_bytes + bytes > driver->device_memory) return CUDA_ERROR_OUT_OF_MEMORY;
        *handle = driver->next_handle++;
        driver->physical[*handle] = {.bytes = bytes, .host = host};
        if (!host) driver->device_bytes += bytes;
        return CUDA_SUCCESS;
    };
    d.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
        auto it = driver->physical.find(handle);
        if (!it->second.host) driver->device_bytes -= it->second.bytes;
        driver->physical.erase(it);
        return CUDA_SUCCESS;
    };
    d.cuMemMap = [](CUdeviceptr at, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
        if (bytes != granule) violation("the model knows frames of one granule");
        if (std::exchange(driver->hole, 0) != at) point();
        if (!driver->mapped.emplace(at, handle).second) {
            violation("memory is mapped where some is");
            return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
    };
    d.cuMemUnmap = [](CUdeviceptr at, std::size_t bytes) {
        point();  // once for the hole: what is in it when it closes began before it opened
        driver->hole = at;
        for (std::size_t i = 0; i < bytes; i += granule)
            if (!driver->mapped.erase(at + i)) violation("what is not mapped is unmapped");
        return CUDA_SUCCESS;
    };
    d.cuMemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; };
    d.cuMemHostAlloc = [](void** memory, std::size_t bytes, unsigned) {
        if (bytes != granule) {  // the hasher's
            *memory = large_memory(bytes, false);  // its answers come first
            return CUDA_SUCCESS;
        }
        // A frame that only copies reach.
        const CUdeviceptr at = driver->next_address;
        driver->next_address += 1 << 20;
        driver->mapped[at] = driver->next_handle;
        driver->physical[driver->next_handle++] = {.bytes = bytes, .host = true};
        *memory = reinterpret_cast<void*>(at);
        return CUDA_SUCCESS;
    };
    d.cuMemFreeHost = [](void*) { return CUDA_SUCCESS; };
    d.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, std::size_t, CUstream stream) {
        driver->submit(stream, {.kind = StreamOp::Kind::copy, .to = to, .from = reinterpret_cast<CUdeviceptr>(from)});
        return CUDA_SUCCESS;
    };
    d.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, std::size_t, CUstream stream) {
        driver->submit(stream, {.kind = StreamOp::Kind::copy, .to = reinterpret_cast<CUdeviceptr>(to), .from = from});
        return CUDA_SUCCESS;
    };
    d.cuMemsetD8Async = [](CUdeviceptr, unsigned char, std::size_t, CUstream) { return CUDA_SUCCESS; };
    d.cuStreamCreate = [](CUstream* stream, unsigned) {
        *stream = stream_of(driver->next_stream++);
        driver->queues[*stream];
        return CUDA_SUCCESS;
    };
    d.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    d.cuStreamSynchronize = [](CUstream stream) {
        if (!driver->queues[stream].empty()) point(driver->bits(stream));
        while (!driver->queues[stream].empty()) driver->step(stream);
        return CUDA_SUCCESS;
    };
    d.cuStreamQuery = [](CUstream) { return CUDA_ERROR_NOT_READY; };   // of the legacy stream, where nothing is submitted
    d.cuStreamGetCtx = [](CUstream, CUcontext* context) { return *context = reinterpret_cast<CUcontext>(1), CUDA_SUCCESS; };
    d.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) { return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS; };
    d.cuEventCreate = [](CUevent* event, unsigned) {
        driver->pending_of_event.push_back(0);
        *event = reinterpret_cast<CUevent>(driver->pending_of_event.size());
        return CUDA_SUCCESS;
    };
    d.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    d.cuEventRecord = [](CUevent event, CUstream stream) {
        const int n = static_cast<int>(reinterpret_cast<std::uintptr_t>(event)) - 1;
        driver->pending_of_event[static_cast<std::size_t>(n)]++;
        driver->submit(stream, {.kind = StreamOp::Kind::event, .event = n});
        return CUDA_SUCCESS;
    };
    d.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
        driver->submit(stream, {.kind = StreamOp::Kind::wait, .event = static_cast<int>(reinterpret_cast<std::uintptr_t>(event)) - 1});
        return CUDA_SUCCESS;
    };
    d.cuEventQuery = [](CUevent event) {
        const int n = static_cast<int>(reinterpret_cast<std::uintptr_t>(event)) - 1;
        if (driver->pending_of_event[static_cast<std::size_t>(n)]) point(driver->bits_behind(n));
        const bool passed = driver->pending_of_event[reinterpret_cast<std::uintptr_t>(event) - 1] == 0;
        note(passed);
        return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    d.cuModuleLoadData = [](CUmodule* module, const void*) { return *module = reinterpret_cast<CUmodule>(1), CUDA_SUCCESS; };
    d.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
    d.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
        *function = std::strstr(name, "find") ? find_function() : hash_function();
        return CUDA_SUCCESS;
    };
    d.cuLaunchKernel = [](CUfunction function, unsigned, unsigned count, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream stream, void** arguments, void**) {
        if (function == find_function()) {
            // (ranges, arena, bytes, found, room, number)
            StreamOp op{.kind = StreamOp::Kind::find, .answer = *static_cast<std::uint64_t**>(arguments[5]), .found = *static_cast<CUdeviceptr**>(arguments[3])};
            const auto* ranges = *static_cast<const std::uint64_t**>(arguments[0]);  // of three words: alias, words, place
            for (unsigned i = 0; i < count; ++i) op.looks.emplace_back(ranges[3 * i], ranges[3 * i + 2]);
            keep(op.answer, 8), keep(op.found, 64);
            driver->submit(stream, std::move(op));
            return CUDA_SUCCESS;
        }
        // (data, words, first, arena, bytes, slot, blocks, answer)
        driver->submit(stream, {.kind = StreamOp::Kind::hash, .from = *static_cast<CUdeviceptr*>(arguments[0]), .answer = *static_cast<std::uint64_t**>(arguments[7])});
        return CUDA_SUCCESS;
    };
    return d;
}

}  // namespace model
