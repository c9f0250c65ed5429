// The special registers (%tid.x and so on) and how translated code reads each.
#include <array>

#include "tests/softgpu/ptx/ast.hpp"

namespace softgpu::ptx {
namespace {
constexpr Type w = Type::u32, q = Type::u64;
constexpr std::string_view zero = "0u", one = "1u";
constexpr std::array specials{
    Special{"%tid.x", w, "tid_x"}, Special{"%tid.y", w, "tid_y"}, Special{"%tid.z", w, "tid_z"}, Special{"%tid.w", w, zero},
    Special{"%ntid.x", w, "ntid_x"}, Special{"%ntid.y", w, "ntid_y"}, Special{"%ntid.z", w, "ntid_z"}, Special{"%ntid.w", w, one},
    Special{"%ctaid.x", w, "ctaid_x"}, Special{"%ctaid.y", w, "ctaid_y"}, Special{"%ctaid.z", w, "ctaid_z"}, Special{"%ctaid.w", w, zero},
    Special{"%nctaid.x", w, "nctaid_x"}, Special{"%nctaid.y", w, "nctaid_y"}, Special{"%nctaid.z", w, "nctaid_z"}, Special{"%nctaid.w", w, one},
    Special{"%laneid", w, "LANE"}, Special{"%warpid", w, "(LINEAR >> 5)"}, Special{"%nwarpid", w, "((ntid_x * ntid_y * ntid_z + 31) >> 5)"},
    Special{"%lanemask_eq", w, "(1u << LANE)"}, Special{"%lanemask_lt", w, "((1u << LANE) - 1u)"},
    Special{"%lanemask_le", w, "((2u << LANE) - 1u)"}, Special{"%lanemask_gt", w, "(~((2u << LANE) - 1u))"},
    Special{"%lanemask_ge", w, "(~((1u << LANE) - 1u))"},
    Special{"%smid", w, zero}, Special{"%nsmid", w, one}, Special{"%gridid", q, "1ull"},
    Special{"%clock", w, "((u32)++B->clock)"}, Special{"%clock_hi", w, "((u32)(++B->clock >> 32))"}, Special{"%clock64", q, "(++B->clock)"},
    Special{"%globaltimer", q, "(++B->clock)"}, Special{"%globaltimer_lo", w, "((u32)++B->clock)"}, Special{"%globaltimer_hi", w, zero},
    Special{"%dynamic_smem_size", w, "L->dynamic_shared"}, Special{"%total_smem_size", w, "L->total_shared"},
    Special{"%aggr_smem_size", w, "L->total_shared"},
    // The grid's workspace for cooperative groups: its address, in two halves.
    Special{"%envreg1", w, "((u32)(L->grid_workspace >> 32))"}, Special{"%envreg2", w, "((u32)L->grid_workspace)"},
    Special{"%envreg0", w, zero}, Special{"%envreg3", w, zero}, Special{"%envreg4", w, zero}, Special{"%envreg5", w, zero},
    // Without clusters every block is a cluster of its own.
    Special{"%cluster_ctaid.x", w, zero}, Special{"%cluster_ctaid.y", w, zero}, Special{"%cluster_ctaid.z", w, zero},
    Special{"%cluster_nctaid.x", w, one}, Special{"%cluster_nctaid.y", w, one}, Special{"%cluster_nctaid.z", w, one},
    Special{"%cluster_ctarank", w, zero}, Special{"%cluster_nctarank", w, one},
    Special{"%clusterid.x", w, "ctaid_x"}, Special{"%clusterid.y", w, "ctaid_y"}, Special{"%clusterid.z", w, "ctaid_z"},
    Special{"%nclusterid.x", w, "nctaid_x"}, Special{"%nclusterid.y", w, "nctaid_y"}, Special{"%nclusterid.z", w, "nctaid_z"},
    Special{"%is_explicit_cluster", Type::pred, "0"},
};
}  // namespace

const Special* special(std::string_view name) {
    for (const Special& s : specials)
        if (s.name == name) return &s;
    return nullptr;
}
const Special& special(std::uint32_t index) { return specials[index]; }
std::uint32_t index_of(const Special& s) { return static_cast<std::uint32_t>(&s - specials.data()); }

}  // namespace softgpu::ptx
