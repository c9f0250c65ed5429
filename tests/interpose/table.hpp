// The table of entry points for tests, which do not link interpose itself: they run under it.
#pragma once

#include "interpose/cuda_symbols.hpp"

#include <string>

struct TableEntry {
    std::string symbol, base;
    int version;
    bool per_thread;
    std::string kind;
    bool hooked() const { return kind != "pass"; }
};
inline const TableEntry table[] = {
#define ENTRY(symbol, base, version, flavour, kind, need) {#symbol, #base, version, #flavour[0] == 'p', #kind},
#include "interpose/entry_points.def"
#undef ENTRY
};
