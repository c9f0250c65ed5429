#include "policy/planner.hpp"

#include "policy/planners/published.hpp"

namespace udnnmem::policy {

const std::vector<Planner>& planners() {
    static const std::vector<Planner> table{
        {"demand", "paging on demand, least recently used out first", false, plan_demand},
        {"belady", "paging on demand, next used last out first", false, plan_belady},
    };
    return table;
}

const Planner* find_planner(std::string_view name) {
    for (const Planner& planner : planners())
        if (planner.name == name) return &planner;
    return nullptr;
}

}  // namespace udnnmem::policy
