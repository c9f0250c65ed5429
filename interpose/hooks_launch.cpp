// Kernel launches in all their forms. This is the path that every op of a program takes: what it adds of its own is
// a thread-local count, one load of the table, one read of the layout hash and a description on the stack; no
// allocation, no lock, no system call.
#include "interpose/internal.hpp"

#include <vector>

#include "interpose/kernel_layouts.hpp"

namespace udnnmem::interpose {
namespace {

// `extra`: a list of tags and values up to the end mark. Bounded: a list without an end is the driver's to refuse.
void read_extra(Launch& launch, void* const* extra) noexcept {
    if (extra == nullptr) return;
    for (int i = 0; i < 8 && extra[0] != CU_LAUNCH_PARAM_END; ++i, extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) launch.buffer = extra[1];
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1]) launch.buffer_bytes = *static_cast<const std::size_t*>(extra[1]);
    }
}

[[gnu::always_inline]] inline void describe(Launch& launch, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                            unsigned by, unsigned bz, unsigned shared, void** params, void** extra) noexcept {
    launch.function = f;
    launch.layout = layout_of(f);
    launch.params = params;
    if (params == nullptr) read_extra(launch, extra);
    launch.grid[0] = gx, launch.grid[1] = gy, launch.grid[2] = gz;
    launch.block[0] = bx, launch.block[1] = by, launch.block[2] = bz;
    launch.shared_bytes = shared;
}

[[gnu::always_inline]] inline void describe(Work& work, const Launch& launch, const char* entry_point, CUstream stream) noexcept {
    work.kind = WorkKind::kernel;
    work.entry_point = entry_point;
    work.stream = stream;
    work.proven = launch.layout->known || launch.buffer != nullptr || launch.params == nullptr;
    work.launch = &launch;
}

[[gnu::always_inline]] inline CUresult tell_launch(Guard& up, const Launch& launch, const char* entry_point, CUstream stream,
                                                   Submit real) noexcept {
    Work work;
    describe(work, launch, entry_point, stream);
    return up->work(work, real);
}

bool is_cooperative(const CUlaunchAttribute* attributes, unsigned count) noexcept {
    for (unsigned i = 0; attributes && i < count; ++i)
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attributes[i].value.cooperative) return true;
    return false;
}

}  // namespace

#define LAUNCH(symbol, STREAM)                                                                                         \
    HOOK(symbol, (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,          \
                  unsigned shared, CUstream stream, void** params, void** extra)) {                                    \
        auto real = [=] { return REAL(symbol)(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra); };            \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        Launch launch;                                                                                                 \
        describe(launch, f, gx, gy, gz, bx, by, bz, shared, params, extra);                                            \
        return tell_launch(up, launch, #symbol, STREAM, real);                                                         \
    }
LAUNCH(cuLaunchKernel, legacy(stream))
LAUNCH(cuLaunchKernel_ptsz, per_thread(stream))

#define LAUNCH_EX(symbol, FLAVOUR)                                                                                     \
    HOOK(symbol, (const CUlaunchConfig* c, CUfunction f, void** params, void** extra)) {                               \
        auto real = [&] { return REAL(symbol)(c, f, params, extra); };                                                 \
        Guard up;                                                                                                      \
        if (!up || c == nullptr) return real();                                                                        \
        Launch launch;                                                                                                 \
        describe(launch, f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,           \
                 c->sharedMemBytes, params, extra);                                                                    \
        launch.attributes = c->attrs;                                                                                  \
        launch.attribute_count = c->attrs ? c->numAttrs : 0;                                                           \
        launch.cooperative = is_cooperative(c->attrs, launch.attribute_count);                                         \
        return tell_launch(up, launch, #symbol, FLAVOUR(c->hStream), real);                                            \
    }
LAUNCH_EX(cuLaunchKernelEx, legacy)
LAUNCH_EX(cuLaunchKernelEx_ptsz, per_thread)

#define LAUNCH_COOPERATIVE(symbol, STREAM)                                                                             \
    HOOK(symbol, (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,          \
                  unsigned shared, CUstream stream, void** params)) {                                                  \
        auto real = [=] { return REAL(symbol)(f, gx, gy, gz, bx, by, bz, shared, stream, params); };                   \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        Launch launch;                                                                                                 \
        describe(launch, f, gx, gy, gz, bx, by, bz, shared, params, nullptr);                                          \
        launch.cooperative = true;                                                                                     \
        return tell_launch(up, launch, #symbol, STREAM, real);                                                         \
    }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, legacy(stream))
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, per_thread(stream))

// One op with a part for each device: they start together or not at all.
HOOK(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * list, unsigned count, unsigned flags)) {
    auto real = [&] { return REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags); };
    Guard up;
    if (!up || list == nullptr || count == 0) return real();
    std::vector<Launch> launches(count);
    std::vector<Work> parts(count);
    for (unsigned i = 0; i < count; ++i) {
        const CUDA_LAUNCH_PARAMS& p = list[i];
        describe(launches[i], p.function, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ,
                 p.sharedMemBytes, p.kernelParams, nullptr);
        launches[i].cooperative = true;
        describe(parts[i], launches[i], "cuLaunchCooperativeKernelMultiDevice", legacy(p.hStream));
    }
    Work work;
    work.kind = WorkKind::kernel;
    work.entry_point = "cuLaunchCooperativeKernelMultiDevice";
    work.stream = parts[0].stream;
    work.launch = &launches[0];
    for (const Work& part : parts) work.proven = work.proven && part.proven;
    work.parts = parts.data();
    work.part_count = count;
    return up->work(work, real);
}

// Launches whose parameters were set one by one before (cuParamSet*): nobody keeps those, so they may touch anything.
#define LAUNCH_BLIND(symbol, STREAM, PARAMS, ARGS)                                                                     \
    HOOK(symbol, PARAMS) {                                                                                             \
        auto real = [&] { return REAL(symbol) ARGS; };                                                                 \
        Guard up;                                                                                                      \
        if (!up) return real();                                                                                        \
        Work work;                                                                                                     \
        work.entry_point = #symbol;                                                                                    \
        work.stream = STREAM;                                                                                          \
        work.proven = false;                                                                                           \
        return up->work(work, real);                                                                                   \
    }
LAUNCH_BLIND(cuLaunch, CU_STREAM_LEGACY, (CUfunction f), (f))
LAUNCH_BLIND(cuLaunchGrid, CU_STREAM_LEGACY, (CUfunction f, int width, int height), (f, width, height))
LAUNCH_BLIND(cuLaunchGridAsync, legacy(stream), (CUfunction f, int width, int height, CUstream stream),
             (f, width, height, stream))

}  // namespace udnnmem::interpose
