// Plans in a file, for the next start of the program: its sequences, each with the orders in force. JSON Lines in a zstd
// frame, as traces are, behind a skippable frame with the checksum (XXH3, 128 bits) of all that follows: a file with one
// byte changed or cut is refused.
//
// The buffers that outlive an iteration are known by their sizes alone; the next run finds its own (Follower).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/trace/error.hpp"
#include "shim/executor/rows.hpp"
#include "shim/executor/sequence.hpp"

namespace udnnmem::executor {

struct StoredCourse {
    Sequence sequence;
    profiler::Trace seen;                   // the sequence's plan_trace, with what was seen of its writes
    std::shared_ptr<replay::Known> known;   // null: nothing was proven
    std::shared_ptr<const Rows> rows;
};
struct StoredPlans {
    std::string device, policy;
    Bytes granule;
    bool node_by_node = false;   // graphs were launched so at the end
    std::set<std::uint64_t> denied;   // replay::Replayer::denied()
    std::vector<StoredCourse> courses;
};

// Lines of a file: what it is for, and each course.
std::string plans_line(const std::string& device, const std::string& policy, Bytes granule, bool node_by_node);
std::string denied_line(std::uint64_t code);
// `seen`: the sequence's own trace, or what is known of it by now. `known`: null for none.
std::string course_lines(const Sequence& sequence, const profiler::Trace& seen, const replay::Known* known, const Rows& rows);
// Whether a proof is of use to another run: one that is about a kernel needs to know its code.
bool storable(const replay::KnownOp& op);

// What is at a path. Nothing but a plan is ever written over, and only what begins as one counts as that.
enum class PlanFile { none, plans, other };   // none: not there, or empty; plans: maybe damaged

// Writes the file whole or not at all (a temporary one beside it, renamed), where a symbolic link leads; a file that is
// replaced leaves it its permissions. Error: the system's reason, or that something else is there.
Expected<void> write_plans(const std::string& path, const std::string& lines);

// Error: one line that says why the file is of no use. Waits for nobody: pipes and devices are not opened.
Expected<StoredPlans> read_plans(const std::string& path, PlanFile& is);

}  // namespace udnnmem::executor
