// Paging on demand, the way a driver's page-fault handler or a cache does it: nothing moves until an op
// lacks room; then whole buffers go out, the least recently used first (`demand`), or the one whose next
// use is farthest (`belady`: L. A. Belady, "A study of replacement algorithms for a virtual-storage
// computer", 1966; optimal in the number of misses for pages of one size). What is missing is fetched
// when the op comes up.
#include "policy/planners/published.hpp"

#include "policy/player.hpp"

namespace udnnmem::policy {
namespace {

Plan page(const char* name, const profiler::Trace& trace, const Machine& machine, PlayOptions::Order order) {
    const Liveness live(trace);
    std::vector<Gap> gaps = Player::keep_all(live);
    Plan plan = Player(trace, live, machine).play(gaps, {order});
    plan.policy = name;
    return plan;
}

}  // namespace

Plan plan_demand(const profiler::Trace& trace, const Machine& machine, const PlannerOptions&) { return page("demand", trace, machine, PlayOptions::Order::recency); }

Plan plan_belady(const profiler::Trace& trace, const Machine& machine, const PlannerOptions&) { return page("belady", trace, machine, PlayOptions::Order::next_use); }

}  // namespace udnnmem::policy
