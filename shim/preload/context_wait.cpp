#include "shim/preload/context_wait.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "interpose/driver.hpp"
#include "interpose/immortal.hpp"
#include "shim/pager/program_streams.hpp"
#include "shim/preload/session.hpp"

namespace udnnmem::preload {
namespace {

constinit interpose::Immortal<pager::ProgramStreams> program_streams;
constinit std::atomic<unsigned> g_named_own{0};   // threads
constinit thread_local bool t_named_own [[gnu::tls_model("initial-exec")]] = false;

// Where nothing of ours is under way there is nothing to tell apart.
bool waits_for_program(pager::Pager& p, CUcontext context) {
    try {
        const auto devices = p.devices();
        return std::any_of(devices.begin(), devices.end(), [](pager::DevicePager* d) { return d->moves(); }) &&
               program_streams->wait(p.driver(), p.streams(), context, {t_named_own, g_named_own.load() > unsigned{t_named_own}});
    } catch (...) {
        return false;
    }
}

}  // namespace

CUresult wait_for_context(Session& s, CUcontext context, interpose::Submit whole) noexcept {
    pager::Pager& p = s.pager();
    if (!context) pager::insist([&] { return p.driver().cuCtxGetCurrent(&context); });
    const std::uint64_t up_to = p.streams().now(), ended = program_streams->mark();
    if (!waits_for_program(p, context)) {
        if (const CUresult result = whole(); result != CUDA_SUCCESS) return result;
        program_streams->waited_for_all(context, ended);
    }
    if (context) p.streams().synchronised_context(context, up_to);
    return CUDA_SUCCESS;
}

void remember_stream(CUstream stream, bool green) noexcept {
    static const auto current = UDNNMEM_REAL(cuCtxGetCurrent);
    static const auto device_of = UDNNMEM_REAL(cuCtxGetDevice);
    CUcontext context = nullptr;
    CUdevice device = 0;
    try {
        if (!green && !(current(&context) == CUDA_SUCCESS && device_of(&device) == CUDA_SUCCESS)) context = nullptr;
        program_streams->made(stream, context, device);
    } catch (...) {   // without memory; where it has ops it is one that nobody knows
    }
}

void forget_stream(CUstream stream) noexcept {
    static const auto query = UDNNMEM_REAL(cuStreamQuery);
    bool idle = false;
    if (Session* const s = Session::get()) {
        const pager::Relaxed ours(s->pager().driver());
        s->pager().streams().unless_capturing([&] { idle = query(stream) == CUDA_SUCCESS; });
    }
    program_streams->ending(stream, idle);
}

void name_own_stream() noexcept {
    if (!std::exchange(t_named_own, true)) g_named_own.fetch_add(1);
}

void forget_streams(CUcontext context) noexcept { program_streams->context_ended(context); }

}  // namespace udnnmem::preload
