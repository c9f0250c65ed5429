// What can be computed again, and by which ops. A dropped buffer is remade by running its writers once
// more; what they read must be there in the version they saw, or be remade as well, and so on back to
// buffers that are alive unchanged.
//
// A version of a buffer is the op that wrote it last (-1: as the iteration found it). All writers up to a
// version are replayed, in place or not: who writes a part of a buffer does not say so. A persistent
// buffer that an op both reads and writes (running statistics) is state: any version of it will do, and
// the replay puts it back.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "policy/liveness.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::policy {

// One replay: ops in ascending order, what it leaves behind, and what it needs while it runs.
struct ReplayChain {
    struct Step {
        std::int32_t op;
        std::vector<std::int32_t> inputs;   // must be resident: not made by the chain
        std::vector<std::int32_t> targets;  // made here for good
        std::int64_t fresh = 0;             // bytes of all that is made here, targets too
        std::int64_t released = 0;          // bytes of intermediates freed after it
        std::int64_t workspace = 0;
    };
    std::vector<Step> steps;
    std::vector<std::int32_t> targets;
    Nanoseconds time;
};

class Recovery {
public:
    Recovery(const profiler::Trace& trace, const Liveness& live);

    // The last op before which buffer b, as it is after its use i, can be remade, whatever else has been
    // dropped meanwhile; -1: never. Only transient buffers are ever remade.
    std::int32_t until(std::size_t buffer, std::size_t use) const { return until_[live_.use_offset(buffer) + use]; }

    // May b be dropped after its use i, to be remade before its next one?
    bool droppable(std::size_t buffer, std::size_t use) const {
        const auto uses = live_.uses_of(buffer);
        return use + 1 < uses.size() && until(buffer, use) >= uses[use + 1].op;
    }

    // The last op before k that writes b; -1: none.
    std::int32_t last_writer(std::size_t buffer, std::int32_t before) const;

    // The chain that makes `targets` before op k. `at_hand(b)` says whether b, alive and in the version it
    // has before op k, is on the device or on the host. k may be the number of ops: after the last. False: cannot be made.
    bool chain(const std::vector<std::int32_t>& targets, std::int32_t k, const std::function<bool(std::int32_t)>& at_hand, ReplayChain& to) const;

private:
    bool alive_as(std::size_t buffer, std::int32_t version, std::int32_t k) const;

    const profiler::Trace& trace_;
    const Liveness& live_;
    std::vector<std::int32_t> until_;   // by use number
    std::vector<std::int32_t> writer_;  // by use number: the last op up to there that writes the buffer; -1: none
};

}  // namespace udnnmem::policy
