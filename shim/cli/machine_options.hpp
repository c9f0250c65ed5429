// The options of commands that plan: memory, links, host memory, batch sizes, as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policy/machine.hpp"
#include "profiler/trace/error.hpp"

namespace udnnmem::cli {

struct Links {
    double in = 0, out = 0;  // bytes per second
};

// "15.75", "15.75GB/s" or "55,50": GB/s into the device, out of it. Error: what was expected.
Expected<Links> parse_links(const std::string& text);

// "12GiB", "800MB", "50%" of `whole`, as given with `option`. Error: what was expected, also of a few bytes without a unit.
Expected<Bytes> parse_memory(const char* option, const std::string& text, Bytes whole);

// --batch: "32,64", as many as there are traces; "": none is given. Error: what was expected.
Expected<std::vector<std::int64_t>> parse_batches(const std::string& text, std::size_t traces);
// "batch sizes unknown: give --batch 512,256"
std::string ask_for_batches(std::size_t traces);

}  // namespace udnnmem::cli
