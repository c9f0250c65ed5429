// The options of commands that plan: memory, links, host memory, as people write them.
#pragma once

#include <string>

#include "policy/machine.hpp"
#include "profiler/trace/error.hpp"

namespace udnnmem::cli {

struct Links {
    double in = 0, out = 0;  // bytes per second
};

// "15.75" or "55,50": GB/s into the device, out of it. Error: what was expected.
Expected<Links> parse_links(const std::string& text);

// "12GiB", "800MB", "50%" of `whole`, as given with `option`. Error: what was expected.
Expected<Bytes> parse_memory(const char* option, const std::string& text, Bytes whole);

}  // namespace udnnmem::cli
