#include "shim/cli/format.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/core.h>

namespace udnnmem::cli {
namespace {

// The bytes of the character that `text` begins with, and what it is; 0 bytes: no UTF-8 (RFC 3629).
std::size_t decode(std::string_view text, std::uint32_t& point) {
    const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
    point = at(0);
    if (point < 0x80) return 1;
    const std::size_t length = point >= 0xf0 && point < 0xf5 ? 4 : point >= 0xe0 && point < 0xf0 ? 3 : point >= 0xc2 && point < 0xe0 ? 2 : 0;
    if (length == 0 || length > text.size()) return 0;
    point &= 0x7fu >> length;
    for (std::size_t i = 1; i < length; ++i) {
        if ((at(i) & 0xc0) != 0x80) return 0;
        point = point << 6 | (at(i) & 0x3f);
    }
    constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    return point < least[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000) ? 0 : length;
}

bool acts_on_terminals(std::uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string shown(std::string_view text, std::size_t most, Cut cut) {
    std::vector<std::string> characters;  // as they are shown
    std::size_t columns = 0;
    std::vector<std::size_t> widths;
    while (!text.empty()) {
        std::uint32_t point = 0;
        const std::size_t length = decode(text, point);
        const bool spelled = length == 0 || acts_on_terminals(point);
        std::string character(text.substr(0, std::max<std::size_t>(1, length)));
        if (point == '\n') character = "\\n";
        else if (point == '\t') character = "\\t";
        else if (length < 2 && spelled) character = fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
        else if (spelled) character = fmt::format("\\u{:04x}", point);
        text.remove_prefix(std::max<std::size_t>(1, length));
        widths.push_back(spelled ? character.size() : 1);
        columns += widths.back();
        characters.push_back(std::move(character));
    }
    std::size_t from = 0, to = characters.size();
    if (columns > most)
        for (const std::size_t room = most > 3 ? most - 3 : 0; columns > room;) columns -= cut == Cut::back ? widths[--to] : widths[from++];
    std::string out = from ? "..." : "";
    for (std::size_t i = from; i < to; ++i) out += characters[i];
    return to < characters.size() ? out + "..." : out;
}

std::string human(Bytes bytes) {
    if (bytes == Bytes::max()) return "unlimited";
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = static_cast<double>(bytes.value);
    int unit = 0;
    for (; (value >= 1024 || value <= -1024) && unit < 5; ++unit) value /= 1024;
    return unit ? fmt::format("{:.1f} {}", value, units[unit]) : fmt::format("{} B", bytes.value);
}

std::string human(Nanoseconds time) {
    const auto value = static_cast<double>(time.value);
    if (time.value < 0 && time.value > INT64_MIN) return "-" + human(Nanoseconds(-time.value));
    if (value < 1e3) return fmt::format("{} ns", time.value);
    if (value < 1e6) return fmt::format("{:.1f} us", value / 1e3);
    if (value < 1e9) return fmt::format("{:.1f} ms", value / 1e6);
    if (value < 600e9) return fmt::format("{:.2f} s", value / 1e9);
    const std::int64_t seconds = time.value / 1'000'000'000;  // two units: more would not fit the columns of tables
    if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
    return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string human_rate(double bytes_per_second) { return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9); }

std::string human_share(double share) { return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-"; }

std::string human_count(std::int64_t count) {
    std::string digits = fmt::format("{}", count);
    for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
    return digits;
}

std::string counted(std::int64_t count, std::string_view one, std::string_view many) { return fmt::format("{} {}", human_count(count), count == 1 ? one : many); }

}  // namespace udnnmem::cli
