#include "shim/cli/format.hpp"

#include <cmath>

#include <fmt/format.h>

namespace udnnmem::cli {

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
    return fmt::format("{} h {:02} min {:02} s", time.value / 3'600'000'000'000, time.value / 60'000'000'000 % 60, time.value / 1'000'000'000 % 60);
}

std::string human_rate(double bytes_per_second) { return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9); }

std::string human_share(double share) { return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-"; }

std::string human_count(std::int64_t count) {
    std::string digits = fmt::format("{}", count);
    for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
    return digits;
}

}  // namespace udnnmem::cli
