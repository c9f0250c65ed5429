// Where the library that belongs to this tool is: beside it (build/), or in ../lib of it (installed).
#pragma once

#include <string>

#include "profiler/trace/error.hpp"

namespace udnnmem::cli {

// The absolute path of libudnnmem.so, or of the one that exports none of the driver's names. Error: where it was looked for, or that LD_PRELOAD cannot name it.
Expected<std::string> find_library(bool hidden_exports = false);

}  // namespace udnnmem::cli
