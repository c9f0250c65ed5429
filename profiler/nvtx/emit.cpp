#include "profiler/nvtx/emit.hpp"

#include <fmt/core.h>
#include <nvtx3/nvToolsExt.h>

#include "profiler/nvtx/injection.hpp"

namespace udnnmem::profiler::nvtx {
namespace {

// Null: no tool.
nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t d = [] {
        OwnClient own;
        return nvtxDomainCreateA("udnnmem");
    }();
    return d;
}

}  // namespace

std::uint64_t begin(const char* what, std::int64_t buffer, std::uint64_t bytes) noexcept {
    const nvtxDomainHandle_t to = domain();
    if (!to) return 0;
    char text[64];
    *fmt::format_to_n(text, sizeof text - 1, "{} {}", what, buffer).out = '\0';
    nvtxEventAttributes_t e{};
    e.version = NVTX_VERSION;
    e.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    e.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    e.payload.ullValue = bytes;
    e.messageType = NVTX_MESSAGE_TYPE_ASCII;
    e.message.ascii = text;
    return nvtxDomainRangeStartEx(to, &e);
}

void end(std::uint64_t range) noexcept {
    if (range) nvtxDomainRangeEnd(domain(), range);
}

}  // namespace udnnmem::profiler::nvtx
