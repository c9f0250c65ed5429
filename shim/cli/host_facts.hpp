// What this machine allows a process to take of its memory: free memory, cgroup, locked memory. Read
// from the kernel now; each answers nothing where it cannot be read.
#pragma once

#include <optional>
#include <string>

#include "profiler/trace/units.hpp"

namespace udnnmem::cli {

std::optional<Bytes> memory_available();  // MemAvailable

struct CgroupMemory {
    std::string path;   // of the tightest limit's folder
    Bytes limit, used;
};
// The tightest memory limit of this process' cgroup and those above it (version 2 or 1); none: unlimited.
std::optional<CgroupMemory> cgroup_memory();

// RLIMIT_MEMLOCK; Bytes::max() for unlimited.
std::optional<Bytes> locked_memory_limit();

}  // namespace udnnmem::cli
