#include "shim/preload/launch_source.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "interpose/kernel_code.hpp"
#include "shim/preload/accesses.hpp"

namespace udnnmem::preload {
namespace {

// Attributes that say how a kernel runs, and nothing of what else it waits for or signals.
bool repeatable(CUlaunchAttributeID id) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: return true;
        default: return false;
    }
}
// It may begin before the launch in front of it has ended: left out, it begins after it.
bool overlaps(CUlaunchAttributeID id) { return id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION; }

// A copy of one range to another one of the same context.
bool plain_copy(const interpose::Work& w) {
    const bool linear = w.span_count == 2 && w.spans[0].access == interpose::Access::read && w.spans[1].access == interpose::Access::overwrite && w.spans[0].bytes == w.spans[1].bytes;
    return w.kind == interpose::WorkKind::copy && linear && !std::strstr(w.entry_point, "Peer");
}
template <class Arguments>
void set_arguments(replay::Launch& out, const Arguments& arguments) {
    out.arguments.resize(sizeof arguments);
    std::memcpy(out.arguments.data(), &arguments, sizeof arguments);
}

}  // namespace

const char* WorkLaunch::tied() const {
    if (plain_copy(work_) || work_.fill) return nullptr;
    const interpose::Launch* l = work_.launch;
    if (!l || work_.part_count || work_.kind != interpose::WorkKind::kernel) return "is no kernel launch";
    if (!work_.proven) return "may touch memory that its arguments do not name";
    if (!l->layout->known) return "takes arguments whose layout is not known";
    for (unsigned i = 0; i < l->attribute_count; ++i)
        if (!repeatable(l->attributes[i].id) && !overlaps(l->attributes[i].id)) return "is launched with an attribute that ties it to other work";
    return nullptr;
}

const char* WorkLaunch::refused() const {
    if (const char* why = tied()) return why;
    if (!work_.launch) return nullptr;
    const interpose::KernelCode code = interpose::kernel_code(work_.launch->layout->name);
    // A module's variables are no part of what is named: a kernel may count there each time that it runs.
    return code.images ? code.hazard : "comes from an image that was not read: too large, or of an unknown kind";
}

// Where there is no code to read, what was seen has to do; where there is machine code beside PTX, what the PTX says is added.
bool WorkLaunch::may_write(std::uint32_t offset) const {
    if (work_.fill) return true;
    if (!work_.launch) return offset == offsetof(replay::CopyArguments, to);
    return interpose::kernel_code(work_.launch->layout->name).writes.count(offset);
}

bool WorkLaunch::may_steer(std::uint32_t offset) const {
    if (!work_.launch) return false;
    const interpose::KernelCode code = interpose::kernel_code(work_.launch->layout->name);
    return !code.writes_known || code.steers.count(offset);
}

bool WorkLaunch::may_leave_out(std::uint32_t offset) const { return work_.launch && interpose::kernel_code(work_.launch->layout->name).scattered.count(offset); }

bool WorkLaunch::stray(std::uint32_t offset) const { return work_.launch && is_stray(work_.launch->layout->name, offset); }

bool WorkLaunch::inspected() const { return !work_.launch || interpose::kernel_code(work_.launch->layout->name).writes_known; }

std::uint64_t WorkLaunch::code() const {
    if (!work_.launch) return 0;
    const std::uint64_t images = interpose::kernel_code(work_.launch->layout->name).images;
    return images ? images ^ work_.launch->layout->fingerprint : 0;
}

bool WorkLaunch::again(const replay::Launch& launch) const {
    const interpose::Launch* const l = work_.launch;
    if (!l || work_.part_count || work_.kind != interpose::WorkKind::kernel || !work_.proven || !l->params || l->buffer || l->attribute_count || l->cooperative) return false;
    if (launch.kind != replay::Launch::Kind::kernel || l->function != launch.function || !launch.attributes.empty() || l->shared_bytes != launch.shared_bytes) return false;
    if (!std::equal(l->grid, l->grid + 3, launch.grid) || !std::equal(l->block, l->block + 3, launch.block)) return false;
    void* const* param = l->params;
    for (const auto& p : l->layout->params) {
        if (p.offset + p.size > launch.arguments.size()) return false;
        if (std::memcmp(launch.arguments.data() + p.offset, *param++, p.size) != 0) return false;
    }
    return true;
}

bool WorkLaunch::copy(replay::Launch& out) const {
    out.function = nullptr;
    out.name = work_.entry_point;
    if (plain_copy(work_)) {
        out.kind = replay::Launch::Kind::copy;
        out.parameters.assign({{offsetof(replay::CopyArguments, from), 8}, {offsetof(replay::CopyArguments, to), 8}});
        set_arguments(out, replay::CopyArguments{work_.spans[0].address, work_.spans[1].address, work_.spans[0].bytes});
        return true;
    }
    if (work_.fill) {
        out.kind = replay::Launch::Kind::fill;
        out.parameters.assign({{offsetof(replay::FillArguments, dst), 8}});
        set_arguments(out, *work_.fill);
        return true;
    }
    const interpose::Launch* l = work_.launch;
    if (!l || !l->layout->known) return false;
    out.kind = replay::Launch::Kind::kernel;
    out.function = l->function;
    out.name = l->layout->name;
    std::copy_n(l->grid, 3, out.grid);
    std::copy_n(l->block, 3, out.block);
    out.shared_bytes = l->shared_bytes;
    out.attributes.clear();
    for (unsigned i = 0; i < l->attribute_count; ++i)
        if (!overlaps(l->attributes[i].id)) out.attributes.push_back(l->attributes[i]);
    if (l->cooperative && std::none_of(out.attributes.begin(), out.attributes.end(), [](const auto& a) { return a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE; })) {
        CUlaunchAttribute cooperative{};
        cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        cooperative.value.cooperative = 1;
        out.attributes.push_back(cooperative);
    }
    out.parameters.clear();
    std::uint32_t bytes = 0;
    for (const auto& p : l->layout->params) {
        out.parameters.emplace_back(p.offset, p.size);
        bytes = std::max(bytes, p.offset + p.size);
    }
    out.arguments.resize(bytes);
    if (l->buffer) {
        if (l->buffer_bytes < bytes) return false;
        std::memcpy(out.arguments.data(), l->buffer, bytes);
    } else {
        if (bytes && !l->params) return false;
        std::memset(out.arguments.data(), 0, bytes);   // between parameters
        std::size_t i = 0;
        for (const auto& p : l->layout->params) std::memcpy(out.arguments.data() + p.offset, l->params[i++], p.size);
    }
    return true;
}

}  // namespace udnnmem::preload
