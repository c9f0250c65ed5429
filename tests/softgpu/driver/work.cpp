// What copies, memsets, host functions and memory operations do when an engine runs them.
#include "tests/softgpu/driver/work.hpp"

#include <algorithm>
#include <cstdio>

#include "tests/softgpu/driver/memory.hpp"

namespace softgpu {

Address unview(void* address, int device) {
    auto a = reinterpret_cast<Address>(address);
    return in_window(a - view(device)) ? a - view(device) : a;
}

CUresult HostWork::run() {
    if (callback) callback(callback_stream, sticky(context), data);
    else params.fn(params.userData);
    return CUDA_SUCCESS;
}

CUresult CopyWork::run() {
    const char* from = staged.empty() ? source : staged.data();
    const std::uint64_t width = params.WidthInBytes, height = params.Height;
    for (std::size_t z = 0; z < params.Depth; ++z) {
        const char* s = from + z * source_slice;
        char* d = destination + z * destination_slice;
        if (height <= 1 || (source_pitch == width && destination_pitch == width)) {
            std::memmove(d, s, width * height);
            continue;
        }
        for (std::size_t y = 0; y < height; ++y) std::memmove(d + y * destination_pitch, s + y * source_pitch, width);
    }
    auto& f = figures();
    if (source_host && !destination_host) f.to_device += bytes();
    else if (!source_host && destination_host) f.to_host += bytes();
    else if (!source_host) f.on_device += bytes();
    return CUDA_SUCCESS;
}

std::string CopyWork::describe() const {
    char text[160];
    auto end = [&](const void* p, bool host) { return host && !in_window(unview(const_cast<void*>(p), device)) ? reinterpret_cast<Address>(p) : unview(const_cast<void*>(p), device); };
    std::snprintf(text, sizeof text, "copy of %llu bytes from %s %#llx to %s %#llx", (unsigned long long)bytes(), source_host ? "host" : "device",
                  (unsigned long long)end(source, source_host), destination_host ? "host" : "device", (unsigned long long)end(destination, destination_host));
    return text;
}

CUresult MemsetWork::run() {
    for (std::size_t y = 0; y < params.height; ++y) {
        auto* p = static_cast<char*>(at(params.dst + y * params.pitch, device));
        switch (params.elementSize) {
            case 1: std::memset(p, static_cast<int>(params.value), params.width); break;
            case 2: std::fill_n(reinterpret_cast<std::uint16_t*>(p), params.width, static_cast<std::uint16_t>(params.value)); break;
            default: std::fill_n(reinterpret_cast<std::uint32_t*>(p), params.width, params.value); break;
        }
    }
    return CUDA_SUCCESS;
}

std::string MemsetWork::describe() const {
    char text[96];
    std::snprintf(text, sizeof text, "memset of %zu x %zu elements of %u bytes at %#llx", static_cast<std::size_t>(params.width), static_cast<std::size_t>(params.height),
                  params.elementSize, (unsigned long long)params.dst);
    return text;
}

bool MemOpWork::step() {
    auto reached = [](auto value, auto wanted, unsigned flags) {
        using Signed = std::make_signed_t<decltype(value)>;
        switch (flags & 3) {
            case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<Signed>(value - wanted) >= 0;
            case CU_STREAM_WAIT_VALUE_EQ: return value == wanted;
            case CU_STREAM_WAIT_VALUE_AND: return (value & wanted) != 0;
            default: return static_cast<decltype(value)>(~(value | wanted)) != 0;
        }
    };
    for (; next < ops.size(); ++next) {
        auto& o = ops[next];
        auto pointer = [&](CUdeviceptr a) { return in_window(a) ? at(a, device) : reinterpret_cast<void*>(a); };
        switch (o.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                if (!reached(__atomic_load_n(static_cast<std::uint32_t*>(pointer(o.waitValue.address)), __ATOMIC_ACQUIRE), static_cast<std::uint32_t>(o.waitValue.value), o.waitValue.flags)) return false;
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                if (!reached(__atomic_load_n(static_cast<std::uint64_t*>(pointer(o.waitValue.address)), __ATOMIC_ACQUIRE), static_cast<std::uint64_t>(o.waitValue.value64), o.waitValue.flags)) return false;
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                __atomic_store_n(static_cast<std::uint32_t*>(pointer(o.writeValue.address)), static_cast<std::uint32_t>(o.writeValue.value), __ATOMIC_RELEASE);
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                __atomic_store_n(static_cast<std::uint64_t*>(pointer(o.writeValue.address)), static_cast<std::uint64_t>(o.writeValue.value64), __ATOMIC_RELEASE);
                break;
            default: break;  // flushes and barriers: everything before is done already
        }
    }
    ++figures().ops;
    return true;
}

std::shared_ptr<Work> host_work(int device, CUhostFn function, void* data) {
    auto w = std::make_shared<HostWork>();
    w->device = device;
    w->params = {function, data};
    return w;
}

std::shared_ptr<Work> callback_work(CUstream handle, CUcontext context, CUstreamCallback callback, void* data) {
    auto w = std::make_shared<HostWork>();
    w->device = context->device;
    w->callback = callback;
    w->callback_stream = handle;
    w->context = context;
    w->data = data;
    return w;
}

static std::shared_ptr<Work> event_work(CUevent event, bool record) {
    auto w = std::make_shared<EventWork>();
    w->event = event;
    w->record = record;
    return w;
}
std::shared_ptr<Work> event_record_work(CUevent event) { return event_work(event, true); }
std::shared_ptr<Work> event_wait_work(CUevent event) { return event_work(event, false); }

namespace {

struct End {
    char* pointer = nullptr;
    bool host = true, pageable = true;
    bool managed = false, reached = true;   // memory of ours; the copy's device has access there ...
    bool seen = true;                       // ... and so has the CPU, which may be who makes copies from and to host memory
    std::uint64_t pitch = 0, slice = 0;
};

CUresult resolve_end(int device, CUmemorytype type, const void* host, CUdeviceptr address, std::size_t x, std::size_t y, std::size_t z, std::size_t pitch,
                     std::size_t rows, const CUDA_MEMCPY3D& p, End* end) {
    if (type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
    end->pitch = p.Height > 1 || p.Depth > 1 ? (pitch ? pitch : p.WidthInBytes + x) : p.WidthInBytes;
    end->slice = end->pitch * (rows ? rows : p.Height + y);
    Address a = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<Address>(host) : address;
    if (!a) return CUDA_ERROR_INVALID_VALUE;
    a += z * end->slice + y * end->pitch + x;
    if (!in_window(a)) {
        if (type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        end->pointer = reinterpret_cast<char*>(a);
        end->pageable = !find_registered(end->pointer, 1);
        return CUDA_SUCCESS;
    }
    auto r = find_range(a);
    if (!r) return CUDA_ERROR_INVALID_VALUE;
    int through = device;
    end->managed = true;
    end->reached = r->kind != Kind::mapping || r->access[device];
    end->seen = r->kind != Kind::mapping || !r->frame->host || r->access[cpu_view];
    if (r->kind == Kind::mapping ? !r->access[device] : r->device != device && !r->frame->host) through = r->device;
    end->pointer = static_cast<char*>(at(a, through));
    end->host = r->frame->host;
    end->pageable = false;
    return CUDA_SUCCESS;
}

}  // namespace

CUDA_MEMCPY3D linear_copy(CUmemorytype to, Address destination, CUmemorytype from, Address source, std::uint64_t bytes) {
    CUDA_MEMCPY3D p{};
    p.srcMemoryType = from;
    p.dstMemoryType = to;
    p.srcHost = from == CU_MEMORYTYPE_HOST ? reinterpret_cast<void*>(source) : nullptr;
    p.srcDevice = from == CU_MEMORYTYPE_HOST ? 0 : source;
    p.dstHost = to == CU_MEMORYTYPE_HOST ? reinterpret_cast<void*>(destination) : nullptr;
    p.dstDevice = to == CU_MEMORYTYPE_HOST ? 0 : destination;
    p.WidthInBytes = bytes;
    p.Height = p.Depth = 1;
    return p;
}

CUresult make_copy(int device, const CUDA_MEMCPY3D& p, bool snapshot, std::shared_ptr<CopyWork>* out, bool peers) {
    auto w = std::make_shared<CopyWork>();
    w->device = device;
    w->params = p;
    End source, destination;
    if (p.srcLOD || p.dstLOD) return CUDA_ERROR_INVALID_VALUE;
    TRY(resolve_end(device, p.srcMemoryType, p.srcHost, p.srcDevice, p.srcXInBytes, p.srcY, p.srcZ, p.srcPitch, p.srcHeight, p, &source));
    TRY(resolve_end(device, p.dstMemoryType, p.dstHost, p.dstDevice, p.dstXInBytes, p.dstY, p.dstZ, p.dstPitch, p.dstHeight, p, &destination));
    // As on a card: what the calls for peers alone know how to do, for they are told in which contexts the ends lie.
    if (!peers && source.managed && destination.managed && !(source.reached && destination.reached)) {
        say("a copy on device %d between ranges of which one is mapped without access for that device: it takes a call for peers", device);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!source.seen || !destination.seen) {
        say("a copy of host memory that is mapped without access for the CPU");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (p.Height > 1 && (source.pitch < p.WidthInBytes || destination.pitch < p.WidthInBytes)) return CUDA_ERROR_INVALID_VALUE;
    w->source = source.pointer;
    w->destination = destination.pointer;
    w->source_pitch = source.pitch;
    w->source_slice = source.slice;
    w->destination_pitch = destination.pitch;
    w->destination_slice = destination.slice;
    w->source_host = source.host;
    w->destination_host = destination.host;
    w->destination_pageable = destination.host && destination.pageable;
    w->kind = source.host ? EngineKind::to_device : destination.host ? EngineKind::to_host : EngineKind::compute;
    if (snapshot && source.host && source.pageable) {
        const std::uint64_t last = p.Depth && p.Height && p.WidthInBytes ? (p.Depth - 1) * source.slice + (p.Height - 1) * source.pitch + p.WidthInBytes : 0;
        w->staged.assign(source.pointer, source.pointer + last);
    }
    *out = std::move(w);
    return CUDA_SUCCESS;
}

CUresult make_memset(int device, const CUDA_MEMSET_NODE_PARAMS& p, std::shared_ptr<MemsetWork>* out) {
    if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
    if (p.dst % p.elementSize || (p.height > 1 && p.pitch < p.width * p.elementSize)) return CUDA_ERROR_INVALID_VALUE;
    auto r = find_range(p.dst);
    if (!r) return CUDA_ERROR_INVALID_VALUE;
    auto w = std::make_shared<MemsetWork>();
    w->device = device;
    w->params = p;
    *out = std::move(w);
    return CUDA_SUCCESS;
}

CUresult make_memops(CUcontext c, unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags, std::shared_ptr<MemOpWork>* out) {
    if (!ops || count >= 256 || flags) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
        auto kind = ops[i].operation;
        bool wide = kind == CU_STREAM_MEM_OP_WAIT_VALUE_64 || kind == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        bool plain = kind == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES || kind == CU_STREAM_MEM_OP_BARRIER;
        if (!wide && !plain && kind != CU_STREAM_MEM_OP_WAIT_VALUE_32 && kind != CU_STREAM_MEM_OP_WRITE_VALUE_32) return CUDA_ERROR_INVALID_VALUE;
        if (plain) continue;
        CUdeviceptr a = ops[i].waitValue.address;
        if (a % (wide ? 8 : 4)) return CUDA_ERROR_INVALID_VALUE;
        auto r = in_window(a) ? find_range(a) : find_registered(reinterpret_cast<void*>(a), 1);
        if (!r || r->kind == Kind::managed) return CUDA_ERROR_INVALID_VALUE;
    }
    auto w = std::make_shared<MemOpWork>();
    w->device = c->device;
    w->context = c;
    w->ops.assign(ops, ops + count);
    w->flags = flags;
    *out = std::move(w);
    return CUDA_SUCCESS;
}

}  // namespace softgpu
