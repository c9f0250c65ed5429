// Plans in a file, for the next start of the program: its sequences, each with the orders in force. JSON Lines in a zstd
// frame, as traces are, behind a skippable frame with the checksum (XXH3, 128 bits) of all that follows: a file with one
// byte changed or cut is refused.
//
// The buffers that outlive an iteration are known by their sizes alone; the next run finds its own (Follower).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/trace/error.hpp"
#include "shim/executor/rows.hpp"
#include "shim/executor/sequence.hpp"

namespace udnnmem::executor {

struct StoredCourse {
    Sequence sequence;
    std::shared_ptr<const Rows> rows;
};
struct StoredPlans {
    std::string device, policy;
    Bytes granule;
    std::vector<StoredCourse> courses;
};

// Lines of a file: what it is for, and each course.
std::string plans_line(const std::string& device, const std::string& policy, Bytes granule);
// `trace`: the sequence's own, or what is known of it by now.
std::string course_lines(const Sequence& sequence, const profiler::Trace& trace, const Rows& rows);

// Writes the file whole or not at all (a temporary one beside it, renamed). Error: the system's reason.
Expected<void> write_plans(const std::string& path, const std::string& lines);

// Error: one line that says why the file is of no use. `missing`: there is none, which is none.
Expected<StoredPlans> read_plans(const std::string& path, bool& missing);

}  // namespace udnnmem::executor
