#include "policy/planner.hpp"

#include "policy/planners/published.hpp"
#include "policy/udnn/udnn.hpp"

namespace udnnmem::policy {

const std::vector<Planner>& planners() {
    static const auto& table = *new std::vector<Planner>{  // never destroyed: a planner may be at work while a process ends
        {"demand", "paging on demand, least recently used out first", false, plan_demand},
        {"belady", "paging on demand, next used last out first", false, plan_belady},
        {"vdnn", "feature maps offloaded after the forward pass, back one layer ahead (MICRO 2016)", false, plan_vdnn},
        {"capuchin", "swaps by free time, recomputes by memory saved per second (ASPLOS 2020)", false, plan_capuchin},
        {"g10", "largest bytes x time above the memory, transfers booked on the links (MICRO 2023)", false, plan_g10},
        {"delta", "filter by bytes x staleness, director between offload and recompute (2022)", false, plan_delta},
        {"chen", "checkpoints at every sqrt(n)-th layer, the rest recomputed (2016)", true, plan_chen},
        {"checkpoint-n3", "the best checkpoints if all are held to the end, O(n^3)", true, plan_checkpoint_n3},
        {"checkpoint-n2", "the best checkpoints if they are freed on the way back, O(n^2)", true, plan_checkpoint_n2},
        {"pofo", "keep, offload or recompute each layer, by dynamic programming (NeurIPS 2021)", false, plan_pofo},
        {"udnn", "ours: swaps and replays by their price on the critical path, local search on the simulator", false, plan_udnn},
    };
    return table;
}

const Planner* find_planner(std::string_view name) {
    for (const Planner& planner : planners())
        if (planner.name == name) return &planner;
    return nullptr;
}

}  // namespace udnnmem::policy
