// What `udnnmem advise` finds out about a trace, and how it is shown: text for people, JSON for programs
// (fields are only ever added), one HTML page that needs no network.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policy/simulator.hpp"
#include "shim/cli/machine_options.hpp"

namespace udnnmem::cli {

// Speed is a fraction of what the iteration would run at if everything were resident.
inline constexpr std::array<double, 3> wanted_speeds{0.95, 0.90, 0.80};

struct AdvicePoint {
    Bytes memory;
    double share = 0;            // of peak live
    policy::Outcome outcome;     // not valid: no plan
    Nanoseconds bound;           // no plan without recompute is faster
    const char* binds = "";      // compute, link in, link out, memory
    double speed() const { return outcome.valid ? static_cast<double>(outcome.ideal.value) / static_cast<double>(outcome.time.value) : 0; }
};

struct LinkAdvice {
    Links links;
    std::vector<AdvicePoint> points;                           // ascending memory; speed never falls
    std::array<std::optional<Bytes>, wanted_speeds.size()> smallest;  // memory for each wanted speed; none: not below peak live
};

struct Card {
    const char* name;
    double gib;
    double link;  // GB/s each way, as measured with pinned memory rather than as sold
};

struct LargestBatch {
    std::int64_t batch = 0;
    bool at_least = false;  // no larger one was tried
};

struct CardAdvice {
    Card card;
    Bytes memory;                               // that the program may hold: the card's less what contexts take
    AdvicePoint point;                          // the traced batch on it
    std::optional<LargestBatch> fits, pays;     // none: unknown batch, or none does
};

struct Advice {
    std::string name, file;
    std::int64_t ops = 0, batch = 0;
    Nanoseconds ideal;
    Bytes peak, persistent, largest_op;
    std::int64_t damaged = 0;    // line from which on the file could not be read; 0: all of it could
    std::string damage;          // in words
    Bytes host = Bytes::max();   // for what is evicted
    std::vector<LinkAdvice> links;
    std::vector<CardAdvice> cards;
};

std::string advice_text(std::span<const Advice> advice);
std::string advice_json(std::span<const Advice> advice);  // one object
std::string advice_html(std::span<const Advice> advice);

}  // namespace udnnmem::cli
