// The types that an option can have, and how each reads its text. A parser answers with what it expected,
// so that every complaint about an option has one shape: what, where, what was expected.
//
// Invariants: no parser throws (save for want of memory) and none reads anything but its text; "" is never
// handed to one (an empty variable counts as unset).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/trace/error.hpp"
#include "profiler/trace/units.hpp"

namespace udnnmem {

// Bytes as a user states them: absolute, a share of something known later, or left to the library.
struct Size {
    enum class Form : std::uint8_t { automatic, absolute, share };
    Form form = Form::automatic;
    Bytes bytes;       // absolute
    double share = 0;  // share: 0 to 1

    // The bytes meant, where `whole` is what a share refers to and `automatic` what the library would choose.
    Bytes resolve(Bytes whole, Bytes automatic) const;
};

// On a miss alone, or by a plan of the planner of that name (policy/planner.hpp).
enum class Policy : std::uint8_t { demand, belady, vdnn, capuchin, g10, delta, chen, checkpoint_n3, checkpoint_n2, pofo, udnn };
inline constexpr const char* policy_names[] = {"demand", "belady", "vdnn", "capuchin", "g10", "delta", "chen", "checkpoint-n3", "checkpoint-n2", "pofo", "udnn"};
inline const char* name_of(Policy p) { return policy_names[static_cast<int>(p)]; }

// Where the library finds that it may, or not at all.
enum class When : std::uint8_t { off, automatic };

// What is mapped to its host frames as it is evicted: all but what a plan fetches again, or all.
enum class Landing : std::uint8_t { unplanned, always };

// Ascending verbosity.
enum class Level : std::uint8_t { error, warn, info, trace };

// An output file with %h, %p, %q{VAR}, %% in its name (pattern.hpp); empty: off (also none, and a switch's words for no).
struct Pattern {
    std::string text;
    bool off() const { return text.empty(); }
};

// Any text; empty: off.
struct Name {
    std::string text;
    bool off() const { return text.empty(); }
};

using Share = double;   // 0 to 1
using Switch = bool;

struct Globs {
    std::vector<std::string> patterns;
    bool match(std::string_view name) const;  // by fnmatch(3); any of them
};

// Each reads `text` into `to`; where it cannot, the error says what was expected.
Expected<void> parse_value(std::string_view text, Size& to);
Expected<void> parse_value(std::string_view text, Policy& to);
Expected<void> parse_value(std::string_view text, When& to);
Expected<void> parse_value(std::string_view text, Landing& to);
Expected<void> parse_value(std::string_view text, Level& to);
Expected<void> parse_value(std::string_view text, Pattern& to);
Expected<void> parse_value(std::string_view text, Name& to);
Expected<void> parse_value(std::string_view text, Share& to);
Expected<void> parse_value(std::string_view text, Switch& to);
Expected<void> parse_value(std::string_view text, Globs& to);

}  // namespace udnnmem
