// NVIDIA's tools that a process runs under, by what they put into its environment.
#pragma once

#include <functional>

namespace udnnmem::host {

struct Tool {
    const char* name;
    const char* variable;      // that tells of it
    bool runs_kernels_again;   // or checks every access: then nothing is computed again by us, which it would take for the program's
    const char* advice;
};

// The tool at work here; null: none is known to be.
const Tool* tool_at_work(const std::function<const char*(const char* variable)>& lookup);

}  // namespace udnnmem::host
