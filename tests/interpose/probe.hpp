// What the probe preload was last told, for the tests that run under it.
#pragma once

#include "interpose/driver.hpp"
#include "interpose/handlers.hpp"

struct Probe {
    unsigned long told = 0;     // handlers called
    const char* handler = "";   // the last one, or its entry point
    bool swallow = false;       // answer instead of making the real call
    udnnmem::interpose::WorkKind kind{};
    CUstream stream = nullptr;
    bool blocking = false, proven = false;
    std::uint32_t span_count = 0, part_count = 0;
    udnnmem::interpose::Span spans[64];
    udnnmem::interpose::Launch launch;
    const udnnmem::interpose::KernelLayout* layout = nullptr;
    udnnmem::interpose::Allocation allocation;
    std::size_t graph_nodes = 0;
    bool graph_issuable = false;
    int unknown_version = 0;
};
