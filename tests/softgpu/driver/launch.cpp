// Kernel launches in every form, and what can be asked about functions. Parameters are copied at the
// call. The limits of a card are checked here, so that a program that a card would refuse is refused.
#include <algorithm>

#include "tests/softgpu/driver/listing.hpp"
#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/module.hpp"
#include "tests/softgpu/driver/streams.hpp"

namespace softgpu {

namespace {
constexpr int shared_default = 48 << 10;
int shared_optin() { return options().sm >= 90 ? 227 << 10 : options().sm >= 80 ? 99 << 10 : 64 << 10; }
}  // namespace

CUresult KernelWork::run() {
    ++figures().kernels;
    auto done = code->run(function->index, dims, params());
    if (done) {
        Figures& f = figures();
        f.bytes_read += done->bytes_read, f.bytes_written += done->bytes_written;
        f.operations += done->operations, f.unwritten += done->unwritten;
        return CUDA_SUCCESS;
    }
    // A wrong access to what has been mapped again since: the translator could not repeat it for us.
    if (done.error().message.ends_with("wrong memory access")) {
        ++figures().faults;
        say("fault: %s on device %d touched memory that was not mapped (CUDA_ERROR_ILLEGAL_ADDRESS)", describe().c_str(), device);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    say("%s on device %d: %s (CUDA_ERROR_LAUNCH_FAILED)", describe().c_str(), device, done.error().message.c_str());
    return CUDA_ERROR_LAUNCH_FAILED;
}

std::int64_t KernelWork::table_ns() const {
    const auto& table = options().table;
    if (table.empty()) return -1;
    const auto& kernel = code->kernels()[function->index];
    const auto found = table.find(kernel.name);
    if (found == table.end()) return -1;
    if (found->second.parameter < 0) return found->second.ns;
    const auto at = static_cast<std::size_t>(found->second.parameter);
    std::int64_t ns = 0;
    if (at >= kernel.params.size() || kernel.params[at].offset + sizeof ns > param_bytes) return -1;
    std::memcpy(&ns, (large ? large.get() : small) + kernel.params[at].offset, sizeof ns);
    return ns;
}

std::string KernelWork::describe() const { return "kernel " + code->kernels()[function->index].name; }

CUresult make_kernel(CUcontext c, const CUDA_KERNEL_NODE_PARAMS& p, bool cooperative, std::shared_ptr<KernelWork>* out) {
    CUfunction f;
    TRY(resolve_function(p.func ? p.func : reinterpret_cast<CUfunction>(p.kern), c, &f));
    if (f->module->context != c) return CUDA_ERROR_INVALID_HANDLE;
    const auto& k = *f->kernel;
    REQUIRE(p.gridDimX && p.gridDimY && p.gridDimZ && p.blockDimX && p.blockDimY && p.blockDimZ);
    REQUIRE(p.gridDimX <= 0x7fffffff && p.gridDimY <= 65535 && p.gridDimZ <= 65535);
    const std::uint64_t threads = std::uint64_t{p.blockDimX} * p.blockDimY * p.blockDimZ;
    REQUIRE(p.blockDimX <= 1024 && p.blockDimY <= 1024 && p.blockDimZ <= 64 && threads <= 1024);
    if (threads > k.max_threads_per_block) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    const int allowed = f->max_dynamic_shared ? f->max_dynamic_shared : std::max<int>(0, shared_default - static_cast<int>(k.static_shared_bytes));
    REQUIRE(p.sharedMemBytes <= static_cast<unsigned>(allowed));

    auto w = std::make_shared<KernelWork>();
    w->device = c->device;
    w->function = f;
    w->handle = p.func ? p.func : reinterpret_cast<CUfunction>(p.kern);
    w->code = f->module->code;
    w->dims = {{p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes, cooperative};
    w->param_bytes = k.param_bytes;
    if (k.param_bytes > sizeof w->small) w->large = std::make_unique<char[]>(k.param_bytes);
    char* to = w->params();
    if (p.kernelParams) {
        REQUIRE(!p.extra);
        for (std::size_t i = 0; i < k.params.size(); ++i) {
            REQUIRE(p.kernelParams[i]);
            std::memcpy(to + k.params[i].offset, p.kernelParams[i], k.params[i].size);
        }
    } else if (p.extra) {
        const void* buffer = nullptr;
        std::size_t size = 0;
        for (void** e = p.extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
            if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = e[1];
            else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<std::size_t*>(e[1]);
            else return CUDA_ERROR_INVALID_VALUE;
        }
        // Programs may leave out the padding at the end, not a parameter.
        const std::size_t needed = k.params.empty() ? 0 : k.params.back().offset + k.params.back().size;
        REQUIRE(size >= needed && (buffer || !size));
        if (size) std::memcpy(to, buffer, std::min<std::size_t>(size, k.param_bytes));
    } else {
        REQUIRE(k.params.empty());
    }
    *out = std::move(w);
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

namespace {
CUresult launch(Default d, CUstream handle, const CUDA_KERNEL_NODE_PARAMS& p, bool cooperative, unsigned count = 0, CUlaunchAttribute* attributes = nullptr) {
    CUstream s;
    TRY(find_stream(d, handle, &s));
    std::shared_ptr<KernelWork> w;
    for (unsigned i = 0; i < count; ++i) {
        auto& a = attributes[i];
        if (a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) cooperative |= a.value.cooperative != 0;
        if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && a.value.clusterDim.x * a.value.clusterDim.y * a.value.clusterDim.z > 1) return CUDA_ERROR_NOT_SUPPORTED;
    }
    TRY(make_kernel(s->context, p, cooperative, &w));
    for (unsigned i = 0; i < count; ++i) w->attributes[attributes[i].id] = attributes[i].value;
    if (cooperative) w->attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative = 1;
    const Listed listed(s, *w);
    return submit(s, w);
}
}  // namespace

CUresult impl_cuLaunchKernel(Default d, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
                             void** params, void** extra) {
    ENTER(cuLaunchKernel);
    return launch(d, s, {f, gx, gy, gz, bx, by, bz, shared, params, extra, nullptr, nullptr}, false);
}
CUresult impl_cuLaunchCooperativeKernel(Default d, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                        CUstream s, void** params) {
    ENTER(cuLaunchCooperativeKernel);
    return launch(d, s, {f, gx, gy, gz, bx, by, bz, shared, params, nullptr, nullptr, nullptr}, true);
}
CUresult impl_cuLaunchKernelEx(Default d, const CUlaunchConfig* c, CUfunction f, void** params, void** extra) {
    ENTER(cuLaunchKernelEx);
    REQUIRE(c && (c->attrs || !c->numAttrs));
    return launch(d, c->hStream,
                  {f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes, params, extra, nullptr, nullptr}, false,
                  c->numAttrs, c->attrs);
}

SOFTGPU_API cuFuncSetBlockShape(CUfunction f, int x, int y, int z) {
    ENTER(cuFuncSetBlockShape);
    if (!f || f->magic != function_magic) return CUDA_ERROR_INVALID_HANDLE;
    f->block[0] = x, f->block[1] = y, f->block[2] = z;
    return CUDA_SUCCESS;
}

namespace {
CUresult attribute(CUfunction handle, CUcontext c, CUfunction_attribute a, int* value) {
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    REQUIRE(value);
    const auto& k = *f->kernel;
    switch (a) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = static_cast<int>(k.max_threads_per_block); break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(k.static_shared_bytes); break;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
            *value = 0;
            for (auto& g : f->module->code->globals()) *value += g.constant ? static_cast<int>(g.bytes) : 0;
            break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = static_cast<int>(k.local_bytes); break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = std::clamp<int>(static_cast<int>(k.registers), 8, 255); break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = k.sm_version; break;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = options().sm; break;
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = 0; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = f->max_dynamic_shared ? f->max_dynamic_shared : std::max<int>(0, shared_default - static_cast<int>(k.static_shared_bytes));
            break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = f->carveout; break;
        default:
            if (a < 0 || a >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
            *value = 0;
    }
    return CUDA_SUCCESS;
}
CUresult set_attribute(CUfunction handle, CUcontext c, CUfunction_attribute a, int value) {
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        REQUIRE(value >= 0 && value + static_cast<int>(f->kernel->static_shared_bytes) <= shared_optin());
        f->max_dynamic_shared = value;
    } else if (a == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
        REQUIRE(value >= -1 && value <= 100);
        f->carveout = value;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
CUresult device_context(CUdevice device, CUcontext* out) {
    CUcontext c = current_context();
    if (c && c->alive && c->device == device) {
        *out = c;
        return CUDA_SUCCESS;
    }
    if (device < 0 || device >= options().devices) return CUDA_ERROR_INVALID_DEVICE;
    *out = primary_of(device);
    if (!*out || !(*out)->alive) TRY(cuDevicePrimaryCtxRetain(out, device));
    return CUDA_SUCCESS;
}
CUresult param_info(CUfunction handle, size_t index, size_t* offset, size_t* size) {
    CUcontext c;
    TRY(usable_context(&c));
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    REQUIRE(offset && index < f->kernel->params.size());
    *offset = f->kernel->params[index].offset;
    if (size) *size = f->kernel->params[index].size;
    return CUDA_SUCCESS;
}
}  // namespace

SOFTGPU_API cuFuncGetAttribute(int* value, CUfunction_attribute a, CUfunction f) {
    ENTER(cuFuncGetAttribute);
    CUcontext c;
    TRY(usable_context(&c));
    return attribute(f, c, a, value);
}
SOFTGPU_API cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int value) {
    ENTER(cuFuncSetAttribute);
    CUcontext c;
    TRY(usable_context(&c));
    return set_attribute(f, c, a, value);
}
SOFTGPU_API cuKernelGetAttribute(int* value, CUfunction_attribute a, CUkernel k, CUdevice device) {
    ENTER(cuKernelGetAttribute);
    CUcontext c;
    TRY(device_context(device, &c));
    return attribute(reinterpret_cast<CUfunction>(k), c, a, value);
}
SOFTGPU_API cuKernelSetAttribute(CUfunction_attribute a, int value, CUkernel k, CUdevice device) {
    ENTER(cuKernelSetAttribute);
    CUcontext c;
    TRY(device_context(device, &c));
    return set_attribute(reinterpret_cast<CUfunction>(k), c, a, value);
}
SOFTGPU_API cuFuncSetCacheConfig(CUfunction f, CUfunc_cache) {
    ENTER(cuFuncSetCacheConfig);
    CUcontext c;
    TRY(usable_context(&c));
    return resolve_function(f, c, &f);
}
SOFTGPU_API cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) {
    ENTER(cuKernelSetCacheConfig);
    return CUDA_SUCCESS;
}
SOFTGPU_API cuFuncSetSharedMemConfig(CUfunction f, CUsharedconfig) {
    ENTER(cuFuncSetSharedMemConfig);
    CUcontext c;
    TRY(usable_context(&c));
    return resolve_function(f, c, &f);
}
SOFTGPU_API cuFuncGetModule(CUmodule* out, CUfunction handle) {
    ENTER(cuFuncGetModule);
    REQUIRE(out);
    CUcontext c;
    TRY(usable_context(&c));
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    *out = f->module;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuFuncGetName(const char** name, CUfunction handle) {
    ENTER(cuFuncGetName);
    REQUIRE(name);
    CUcontext c;
    TRY(usable_context(&c));
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    *name = f->kernel->name.c_str();
    return CUDA_SUCCESS;
}
// The header has no other error for what is wrong with any argument: a handle of the other kind, or an index too large.
SOFTGPU_API cuFuncGetParamInfo(CUfunction f, size_t index, size_t* offset, size_t* size) {
    ENTER(cuFuncGetParamInfo);
    REQUIRE(f && f->magic == function_magic);
    return param_info(f, index, offset, size);
}
SOFTGPU_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction) {
    ENTER(cuFuncIsLoaded);
    REQUIRE(state);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuFuncLoad(CUfunction f) {
    ENTER(cuFuncLoad);
    CUcontext c;
    TRY(usable_context(&c));
    return resolve_function(f, c, &f);
}
SOFTGPU_API cuKernelGetFunction(CUfunction* out, CUkernel k) {
    ENTER(cuKernelGetFunction);
    REQUIRE(out);
    CUcontext c;
    TRY(usable_context(&c));
    return resolve_function(reinterpret_cast<CUfunction>(k), c, out);
}
SOFTGPU_API cuKernelGetLibrary(CUlibrary* out, CUkernel k) {
    ENTER(cuKernelGetLibrary);
    REQUIRE(out);
    if (!k || k->magic != kernel_magic) return CUDA_ERROR_INVALID_HANDLE;
    *out = k->library;
    return CUDA_SUCCESS;
}
SOFTGPU_API cuKernelGetName(const char** name, CUkernel k) {
    ENTER(cuKernelGetName);
    REQUIRE(name);
    if (!k || k->magic != kernel_magic) return CUDA_ERROR_INVALID_HANDLE;
    *name = k->name.c_str();
    return CUDA_SUCCESS;
}
SOFTGPU_API cuKernelGetParamInfo(CUkernel k, size_t index, size_t* offset, size_t* size) {
    ENTER(cuKernelGetParamInfo);
    REQUIRE(k && k->magic == kernel_magic);
    return param_info(reinterpret_cast<CUfunction>(k), index, offset, size);
}

// Occupancy of a plausible multiprocessor: 1024 threads of 64 Ki registers, 16 blocks at most.
namespace {
CUresult blocks_per_processor(int* blocks, CUfunction handle, int threads, size_t dynamic) {
    CUcontext c;
    TRY(usable_context(&c));
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    REQUIRE(blocks && threads > 0);
    const auto& k = *f->kernel;
    int by_threads = threads > static_cast<int>(k.max_threads_per_block) ? 0 : 1024 / static_cast<int>(round_up(static_cast<unsigned>(threads), 32));
    const std::size_t shared = k.static_shared_bytes + dynamic;
    int by_shared = shared ? static_cast<int>(static_cast<std::size_t>(shared_optin()) / shared) : 16;
    *blocks = std::min({by_threads, by_shared, 16});
    return CUDA_SUCCESS;
}
}  // namespace
SOFTGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction f, int threads, size_t dynamic, unsigned) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    return blocks_per_processor(blocks, f, threads, dynamic);
}
SOFTGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int threads, size_t dynamic) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, dynamic, 0);
}
SOFTGPU_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize dynamic_of, size_t dynamic, int limit, unsigned) {
    ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
    REQUIRE(grid && block);
    CUcontext c;
    TRY(usable_context(&c));
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    int best = 0, most = std::min(limit > 0 ? limit : 1024, static_cast<int>(f->kernel->max_threads_per_block));
    for (int threads = most; threads > 0; threads = threads > 32 ? (threads - 1) / 32 * 32 : 0) {
        int blocks = 0;
        TRY(blocks_per_processor(&blocks, f, threads, dynamic_of ? dynamic_of(threads) : dynamic));
        if (blocks * threads > best) {
            best = blocks * threads;
            *block = threads;
            *grid = blocks * 40;
        }
    }
    return best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SOFTGPU_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction f, CUoccupancyB2DSize dynamic_of, size_t dynamic, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, dynamic_of, dynamic, limit, 0);
}
SOFTGPU_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
    ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
    REQUIRE(bytes && blocks > 0 && threads > 0);
    CUcontext c;
    TRY(usable_context(&c));
    CUfunction f;
    TRY(resolve_function(handle, c, &f));
    int each = std::min(shared_default, shared_optin() / blocks) - static_cast<int>(f->kernel->static_shared_bytes);
    *bytes = static_cast<size_t>(std::max(0, each));
    return CUDA_SUCCESS;
}
