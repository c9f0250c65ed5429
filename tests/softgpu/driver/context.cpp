// Contexts: created, primary, the per-thread stack of current ones. A destroyed context's shell stays,
// marked dead; its streams are waited for, its memory and modules go with it.
#include "tests/softgpu/driver/context.hpp"

#include <unistd.h>

#include <algorithm>

#include "tests/softgpu/driver/graph.hpp"
#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/module.hpp"

namespace softgpu {
namespace {

struct Primary {
    CUcontext context = nullptr;
    int references = 0;
    unsigned flags = 0;
};
struct Contexts {
    std::mutex mutex;
    Primary primary[8];
    std::uint64_t next_id = 1;
    std::vector<CUcontext> all;
};
Contexts& contexts() {
    static auto* const c = new Contexts;
    return *c;
}

// Not destroyed with its thread: static destructors of the main thread still make calls.
thread_local std::vector<CUcontext>& stack = *new std::vector<CUcontext>;

CUcontext make_context(int device, unsigned flags, unsigned version, bool primary) {
    auto* c = new CUctx_st;
    c->device = device;
    c->flags = flags;
    c->version = version;
    c->primary = primary;
    c->id = contexts().next_id++;
    c->legacy = new CUstream_st;
    c->legacy->context = c;
    c->legacy->is_legacy = true;
    c->legacy->id = 1;
    contexts().all.push_back(c);
    return c;
}

constexpr unsigned context_flags = 0xff;

}  // namespace

bool valid(CUcontext c) { return c && c->magic == context_magic && c->alive; }

CUcontext current_context() { return stack.empty() ? nullptr : stack.back(); }

void set_current(CUcontext c) {
    if (!stack.empty()) stack.pop_back();
    if (c) stack.push_back(c);
}

CUresult usable_context(CUcontext* out) {
    CUcontext c = current_context();
    if (!c) [[unlikely]] return CUDA_ERROR_INVALID_CONTEXT;
    if (!c->alive) [[unlikely]] return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = c;
    return sticky(c);
}

CUcontext primary_of(int device) {
    std::lock_guard lock(contexts().mutex);
    return contexts().primary[device].context;
}

CUresult synchronise_device(int device) {
    std::vector<CUcontext> all;
    {
        std::lock_guard lock(contexts().mutex);
        for (CUcontext c : contexts().all)
            if (c->alive && c->device == device) all.push_back(c);
    }
    for (CUcontext c : all) synchronise(c);
    CUcontext current = current_context();
    return current && current->device == device ? sticky(current) : CUDA_SUCCESS;
}

CUresult destroy_context(CUcontext c) {
    synchronise(c);
    c->alive = false;
    ::usleep(20000);  // a card's takes its time too: what others of the process name of it meanwhile is seen
    unload_modules(c);
    release_context(c);
    std::erase(stack, c);
    for (CUstream s : std::vector(c->streams))
        if (s->capture) end_capture(s, nullptr);
    std::lock_guard lock(schedule_mutex());
    for (CUstream s : c->streams) s->magic = 0;
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
    ENTER(cuCtxCreate_v2);
    REQUIRE(out && (flags & ~context_flags) == 0);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard lock(contexts().mutex);
    *out = make_context(device, flags, 3020, false);
    stack.push_back(*out);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) { return cuCtxCreate_v2(out, flags, device); }
SOFTGPU_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device) {
    if (affinity || count) return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(out, flags, device);
}
SOFTGPU_API cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned flags, CUdevice device) {
    if (params && (params->execAffinityParams || params->numExecAffinityParams || params->cigParams)) return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(out, flags, device);
}

SOFTGPU_API cuCtxDestroy_v2(CUcontext c) {
    ENTER(cuCtxDestroy_v2);
    if (!valid(c) || c->primary) return CUDA_ERROR_INVALID_CONTEXT;
    return destroy_context(c);
}
SOFTGPU_API cuCtxDestroy(CUcontext c) { return cuCtxDestroy_v2(c); }
SOFTGPU_API cuCtxDetach(CUcontext c) {
    if (!valid(c) || c != current_context() || c->attached == 0) return cuCtxDestroy_v2(c);
    ENTER(cuCtxDetach);
    --c->attached;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxAttach(CUcontext* out, unsigned flags) {
    ENTER(cuCtxAttach);
    REQUIRE(out && flags == 0);
    if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
    ++current_context()->attached;
    *out = current_context();
    return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxPushCurrent_v2(CUcontext c) {
    ENTER(cuCtxPushCurrent_v2);
    if (!valid(c)) return CUDA_ERROR_INVALID_CONTEXT;
    stack.push_back(c);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxPushCurrent(CUcontext c) { return cuCtxPushCurrent_v2(c); }
SOFTGPU_API cuCtxPopCurrent_v2(CUcontext* out) {
    ENTER(cuCtxPopCurrent_v2);
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (out) *out = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxPopCurrent(CUcontext* out) { return cuCtxPopCurrent_v2(out); }
SOFTGPU_API cuCtxSetCurrent(CUcontext c) {
    ENTER(cuCtxSetCurrent);
    if (c && !valid(c)) return CUDA_ERROR_INVALID_CONTEXT;
    set_current(c);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetCurrent(CUcontext* out) {
    ENTER(cuCtxGetCurrent);
    REQUIRE(out);
    *out = current_context();
    tell_leaving();
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetDevice(CUdevice* out) {
    ENTER(cuCtxGetDevice);
    REQUIRE(out);
    if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
    *out = current_context()->device;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetDevice_v2(CUdevice* out, CUcontext c) {
    if (!c) return cuCtxGetDevice(out);
    ENTER(cuCtxGetDevice_v2);
    REQUIRE(out);
    if (!valid(c)) return CUDA_ERROR_INVALID_CONTEXT;
    *out = c->device;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetFlags(unsigned* flags) {
    ENTER(cuCtxGetFlags);
    REQUIRE(flags);
    if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
    *flags = current_context()->flags;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxSetFlags(unsigned flags) {
    ENTER(cuCtxSetFlags);
    if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
    current_context()->flags = flags;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetId(CUcontext c, unsigned long long* id) {
    ENTER(cuCtxGetId);
    if (!c) c = current_context();
    REQUIRE(id);
    if (!valid(c)) return CUDA_ERROR_INVALID_CONTEXT;
    *id = c->id;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetApiVersion(CUcontext c, unsigned* version) {
    ENTER(cuCtxGetApiVersion);
    if (!c) c = current_context();
    REQUIRE(version);
    if (!valid(c)) return CUDA_ERROR_INVALID_CONTEXT;
    *version = c->version;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxSynchronize() {
    ENTER(cuCtxSynchronize);
    CUcontext c;
    TRY(usable_context(&c));
    TRY(refuse_under_capture());
    return synchronise(c);
}
SOFTGPU_API cuCtxSynchronize_v2(CUcontext c) {
    if (!c) return cuCtxSynchronize();
    ENTER(cuCtxSynchronize_v2);
    if (!valid(c)) return CUDA_ERROR_INVALID_CONTEXT;
    TRY(refuse_under_capture());
    return synchronise(c);
}
SOFTGPU_API cuCtxGetLimit(size_t* value, CUlimit limit) {
    ENTER(cuCtxGetLimit);
    REQUIRE(value);
    CUcontext c;
    TRY(usable_context(&c));
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    static const std::unordered_map<int, size_t> defaults{{CU_LIMIT_STACK_SIZE, 1024}, {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20}, {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20}};
    if (auto it = c->limits.find(limit); it != c->limits.end()) *value = it->second;
    else if (auto d = defaults.find(limit); d != defaults.end()) *value = d->second;
    else *value = 0;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxSetLimit(CUlimit limit, size_t value) {
    ENTER(cuCtxSetLimit);
    CUcontext c;
    TRY(usable_context(&c));
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    c->limits[limit] = value;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetCacheConfig(CUfunc_cache* out) {
    ENTER(cuCtxGetCacheConfig);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(out);
    *out = c->cache;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxSetCacheConfig(CUfunc_cache config) {
    ENTER(cuCtxSetCacheConfig);
    CUcontext c;
    TRY(usable_context(&c));
    c->cache = config;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetSharedMemConfig(CUsharedconfig* out) {
    ENTER(cuCtxGetSharedMemConfig);
    REQUIRE(out);
    *out = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxSetSharedMemConfig(CUsharedconfig) {
    ENTER(cuCtxSetSharedMemConfig);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    ENTER(cuCtxGetStreamPriorityRange);
    if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuCtxResetPersistingL2Cache() {
    ENTER(cuCtxResetPersistingL2Cache);
    return CUDA_SUCCESS;
}

SOFTGPU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    REQUIRE(out);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard lock(contexts().mutex);
    auto& p = contexts().primary[device];
    if (!p.context) p.context = make_context(device, p.flags, 0, true);
    else if (!p.context->alive) {  // the handle of a device's primary context never changes
        p.context->alive = true;
        p.context->sticky = 0;
        p.context->flags = p.flags;
        std::lock_guard schedule(schedule_mutex());
        p.context->streams.clear();
        p.context->legacy->tail.reset();
    }
    ++p.references;
    *out = p.context;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease_v2);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    CUcontext last = nullptr;
    {
        std::lock_guard lock(contexts().mutex);
        auto& p = contexts().primary[device];
        if (!p.references) return CUDA_ERROR_INVALID_CONTEXT;
        if (--p.references == 0) last = p.context;
    }
    return last ? destroy_context(last) : CUDA_SUCCESS;
}
SOFTGPU_API cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
SOFTGPU_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER(cuDevicePrimaryCtxReset_v2);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    CUcontext c = primary_of(device);
    if (!c || !c->alive) return CUDA_SUCCESS;
    destroy_context(c);
    std::lock_guard lock(contexts().mutex);
    contexts().primary[device].references = 0;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
SOFTGPU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    ENTER(cuDevicePrimaryCtxSetFlags_v2);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    REQUIRE((flags & ~context_flags) == 0);
    std::lock_guard lock(contexts().mutex);
    auto& p = contexts().primary[device];
    p.flags = flags;
    if (p.context && p.context->alive) p.context->flags = flags;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) { return cuDevicePrimaryCtxSetFlags_v2(device, flags); }
SOFTGPU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    ENTER(cuDevicePrimaryCtxGetState);
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard lock(contexts().mutex);
    auto& p = contexts().primary[device];
    if (flags) *flags = p.flags;
    if (active) *active = p.context && p.context->alive;
    return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER(cuCtxEnablePeerAccess);
    CUcontext c;
    TRY(usable_context(&c));
    REQUIRE(flags == 0);
    if (!valid(peer) || peer == c) return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == c->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return enable_peer(c->device, peer->device, true);
}
SOFTGPU_API cuCtxDisablePeerAccess(CUcontext peer) {
    ENTER(cuCtxDisablePeerAccess);
    CUcontext c;
    TRY(usable_context(&c));
    if (!valid(peer)) return CUDA_ERROR_INVALID_CONTEXT;
    return enable_peer(c->device, peer->device, false);
}
