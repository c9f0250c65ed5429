#include "shim/options/option_types.hpp"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "shim/options/pattern.hpp"

namespace udnnmem {
namespace {

tl::unexpected<Error> expected_was(std::string what) { return tl::make_unexpected(Error{std::move(what)}); }

bool same(std::string_view a, const char* b) {
    return a.size() == std::string_view(b).size() && strncasecmp(a.data(), b, a.size()) == 0;
}

// A finite number at the start of `text`, which is cut off; false if there is none. No locale takes part.
bool take_number(std::string_view& text, double& to) {
    if (text.empty() || !(text[0] == '.' || (text[0] >= '0' && text[0] <= '9'))) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to, std::chars_format::fixed);
    if (error != std::errc() || !std::isfinite(to)) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

// Where a glob has a bracket that nothing closes, or a backslash with nothing behind it, which fnmatch(3) does not match as it
// was meant. npos: nowhere.
std::size_t broken_at(std::string_view glob) {
    for (std::size_t at = 0; at < glob.size(); ++at) {
        if (glob[at] == '\\') {
            if (++at == glob.size()) return at - 1;
            continue;
        }
        if (glob[at] != '[') continue;
        std::size_t inside = at + 1;
        if (inside < glob.size() && (glob[inside] == '!' || glob[inside] == '^')) ++inside;
        const std::size_t end = glob.find(']', inside + 1);   // one that comes first stands for itself
        if (end == std::string_view::npos) return at;
        at = end;
    }
    return std::string_view::npos;
}

}  // namespace

Bytes Size::resolve(Bytes whole, Bytes automatic) const {
    if (form == Form::absolute) return bytes;
    if (form == Form::share) return Bytes(static_cast<std::int64_t>(static_cast<double>(whole.value) * share));
    return automatic;
}

Expected<void> parse_value(std::string_view text, Size& to) {
    constexpr const char* wanted = "a size such as 12GiB, 800MiB, 60% or auto";
    if (same(text, "auto")) {
        to = Size{};
        return {};
    }
    double number = 0;
    if (!take_number(text, number)) return expected_was(wanted);
    while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
    if (text == "%") {
        if (number > 100) return expected_was("a share of at most 100%");
        to = Size{Size::Form::share, Bytes(0), number / 100};
        return {};
    }
    struct Unit { const char* name; double bytes; };
    // K, M, G, T alone are the binary ones, as tools that manage memory read them.
    constexpr Unit units[] = {{"", 1}, {"B", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40},
                              {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40},
                              {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                              {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    for (const Unit& unit : units) {
        if (!same(text, unit.name)) continue;
        const double bytes = number * unit.bytes;
        if (bytes >= 0x1p60) return expected_was("a size below 1024 PiB");
        to = Size{Size::Form::absolute, Bytes(static_cast<std::int64_t>(bytes)), 0};
        return {};
    }
    return expected_was(wanted);
}

Expected<void> parse_value(std::string_view text, Policy& to) {
    for (std::size_t i = 0; i < std::size(policy_names); ++i) {
        if (same(text, policy_names[i])) {
            to = static_cast<Policy>(i);
            return {};
        }
    }
    std::string names;
    for (const char* name : policy_names) names += (names.empty() ? "" : name == policy_names[std::size(policy_names) - 1] ? " or " : ", ") + std::string(name);
    return expected_was(names);
}

Expected<void> parse_value(std::string_view text, When& to) {
    if (!same(text, "auto") && !same(text, "off")) return expected_was("auto or off");
    to = same(text, "auto") ? When::automatic : When::off;
    return {};
}

Expected<void> parse_value(std::string_view text, Landing& to) {
    if (!same(text, "unplanned") && !same(text, "always")) return expected_was("unplanned or always");
    to = same(text, "always") ? Landing::always : Landing::unplanned;
    return {};
}

Expected<void> parse_value(std::string_view text, Level& to) {
    constexpr const char* names[] = {"error", "warn", "info", "trace"};
    for (int i = 0; i < 4; ++i) {
        if (same(text, names[i])) {
            to = static_cast<Level>(i);
            return {};
        }
    }
    return expected_was("error, warn, info or trace");
}

Expected<void> parse_value(std::string_view text, Pattern& to) {
    bool on = true;
    if (same(text, "none") || (parse_value(text, on) && !on)) {  // what says no elsewhere is no file's name here
        to.text.clear();
        return {};
    }
    if (text == "-") return expected_was("a file's name (./- for one of that name), or off");
    if (auto checked = check_pattern(text); !checked) return checked;
    to.text = text;
    return {};
}

Expected<void> parse_value(std::string_view text, Name& to) {
    to.text = same(text, "off") ? std::string_view() : text;
    return {};
}

Expected<void> parse_value(std::string_view text, Share& to) {
    double number = 0;
    if (!take_number(text, number) || !text.empty() || number > 1) return expected_was("a share from 0 to 1 in plain decimals, such as 0.01");
    to = number;
    return {};
}

Expected<void> parse_value(std::string_view text, Switch& to) {
    for (const char* yes : {"1", "on", "yes", "true"}) {
        if (same(text, yes)) {
            to = true;
            return {};
        }
    }
    for (const char* no : {"0", "off", "no", "false"}) {
        if (same(text, no)) {
            to = false;
            return {};
        }
    }
    return expected_was("1 or 0 (also on, yes, true and off, no, false)");
}

Expected<void> parse_value(std::string_view text, Globs& to) {
    Globs read;
    while (true) {
        const std::size_t comma = text.find(',');
        std::string_view one = text.substr(0, comma);
        one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
        one = one.substr(0, one.find_last_not_of(' ') + 1);
        if (const std::size_t at = broken_at(one); at != std::string_view::npos)
            return expected_was((one[at] == '[' ? "a ] for the [ of " : "a character behind the \\ of ") + std::string(one) + (one[at] == '[' ? ", or \\[ for a bracket" : ", or \\\\ for a backslash"));
        if (one.empty()) return expected_was("names or globs separated by commas, such as python*,train");
        read.patterns.emplace_back(one);
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    to = std::move(read);
    return {};
}

bool Globs::match(std::string_view name) const {
    const std::string terminated(name);
    for (const std::string& pattern : patterns)
        if (fnmatch(pattern.c_str(), terminated.c_str(), 0) == 0) return true;
    return false;
}

}  // namespace udnnmem
