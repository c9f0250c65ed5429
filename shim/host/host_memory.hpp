// What this machine allows a process to take of its memory: free memory, cgroup, ranks, locked memory.
// Read from the kernel now; each answers nothing where it cannot be read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/trace/units.hpp"

namespace udnnmem::host {

std::optional<Bytes> memory_available();  // MemAvailable

struct CgroupMemory {
    std::string path;   // of the tightest limit's folder
    Bytes limit, used;
};
// The tightest memory limit of this process' cgroup and those above it (version 2 or 1); none: unlimited.
std::optional<CgroupMemory> cgroup_memory();

// What one rank may take: the smaller of MemAvailable and what the cgroup leaves, divided by the job's ranks on this machine
// (launcher.hpp).
// Shares (UDNNMEM_HOST_BUDGET=80%) are of this.
std::optional<Bytes> usable_memory();

// NUMA nodes with memory and with processors (cards and expanders may be nodes of memory alone); none: nobody says.
std::vector<int> memory_nodes();
// "0-2,5" as the kernel writes lists of nodes; what is none ends it.
std::vector<int> node_list(std::string_view text);

// RLIMIT_MEMLOCK; Bytes::max() for unlimited.
std::optional<Bytes> locked_memory_limit();

}  // namespace udnnmem::host
