// The lines of a plan file, one record each, in this order: plans, denied, then of each course: course, buffers (those that can be
// moved, then small ones), ops, proofs, replays, orders. Whoever reads checks each field; what is not in order is refused.
#pragma once

#include <vector>

#include "profiler/trace/record.hpp"
#include "shim/executor/plan_store.hpp"

namespace udnnmem::executor {

constexpr const char* kOrders[] = {"evict", "clean", "fetch", "drop"};   // by pager::Order::Kind
constexpr const char* kRuns[] = {"kernel", "copy", "fill"};              // by replay::Launch::Kind

class PlanReader {
  public:
    // False: the record has the error.
    bool take(profiler::Record& record);
    // False: it was no plan.
    bool finish();
    StoredPlans plans;

  private:
    bool take_plans(profiler::Record& record);
    bool take_denied(profiler::Record& record);
    bool take_course(profiler::Record& record);
    bool take_buffer(profiler::Record& record);
    bool take_op(profiler::Record& record);
    bool take_proof(profiler::Record& record);
    bool take_replay(profiler::Record& record);
    bool take_order(profiler::Record& record);
    bool end_course();

    bool seen_ = false, stored_ = false;
    StoredCourse course_;
    Rows rows_;
    std::vector<std::int64_t> numbers_;
    std::vector<std::uint64_t> codes_;     // of the course's ops; 0: not known
};

}  // namespace udnnmem::executor
