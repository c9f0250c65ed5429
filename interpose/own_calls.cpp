#include "interpose/own_calls.hpp"

#ifdef UDNNMEM_BREAKABLE
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace udnnmem::interpose {
namespace {

struct Rule {
    std::string name;
    std::uint64_t at = 0, times = 1, calls = 0;
    CUresult error = CUDA_ERROR_OUT_OF_MEMORY;

    explicit Rule(const std::string& text) {
        const std::size_t colon = text.find(':');
        char* end = nullptr;
        name = text.substr(0, colon);
        at = std::strtoull(text.c_str() + colon + 1, &end, 10);
        if (*end == ':') error = static_cast<CUresult>(std::strtol(end + 1, &end, 10));
        if (*end == ':') times = std::strtoull(end + 1, nullptr, 10);
    }
    bool hits(const char* symbol) { return (name == "*" || name == symbol) && ++calls >= at && calls < at + times; }
};

// Never destroyed: calls go on after static destructors.
struct Faults {
    std::mutex mutex;
    std::vector<Rule> rules;
    std::uint64_t share = 0, random = 0;
    CUresult shared_error = CUDA_ERROR_OUT_OF_MEMORY;
    std::map<std::string, std::uint64_t> counts;
    bool count = false;

    Faults() {
        if (const char* text = std::getenv("UDNNMEM_FAIL")) {
            std::istringstream all(text);
            for (std::string one; std::getline(all, one, ',');) rules.emplace_back(one);
        }
        if (const char* text = std::getenv("UDNNMEM_FAIL_SHARE")) {
            char* end = nullptr;
            share = std::strtoull(text, &end, 10);
            random = std::strtoull(end + 1, &end, 10) * 2 + 1;
            if (*end == ':') shared_error = static_cast<CUresult>(std::atoi(end + 1));
        }
        count = std::getenv("UDNNMEM_FAIL_COUNT") != nullptr;
    }
    bool drawn() {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return random % share == 0;
    }
    CUresult next(const char* symbol) {
        CUresult error = CUDA_SUCCESS;
        for (Rule& rule : rules)
            if (rule.hits(symbol)) error = rule.error;
        if (share && drawn()) error = shared_error;
        return error;
    }
};
Faults& faults() {
    static Faults& f = *new Faults;
    static const bool told = f.count && std::atexit([] {
        for (const auto& [name, calls] : faults().counts) std::fprintf(stderr, "own call %s %llu\n", name.c_str(), static_cast<unsigned long long>(calls));
    }) == 0;
    (void)told;
    return f;
}

}  // namespace

CUresult injected_fault(const char* symbol) noexcept {
    Faults& f = faults();
    std::lock_guard lock(f.mutex);
    if (f.count) ++f.counts[symbol];
    const CUresult error = f.next(symbol);
    if (error != CUDA_SUCCESS) std::fprintf(stderr, "injected: %s fails with %d\n", symbol, static_cast<int>(error));
    return error;
}

}  // namespace udnnmem::interpose
#endif
