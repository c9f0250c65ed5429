#include "shim/cli/machine_options.hpp"

#include <charconv>

#include <fmt/core.h>

#include "shim/options/option_types.hpp"

namespace udnnmem::cli {
namespace {

constexpr Bytes least_without_unit(1 << 20);   // below it a unit was forgotten

bool parse_rate(std::string_view text, double& to) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc() || !(value >= 1e-3 && value <= 1e6)) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
    to = value * 1e9;
    return text.empty() || text == "GB/s";
}

}  // namespace

Expected<Links> parse_links(const std::string& text) {
    Links links;
    const std::size_t comma = text.find(',');
    const std::string_view all = text;
    const bool good = parse_rate(all.substr(0, comma), links.in) && (comma == std::string::npos || parse_rate(all.substr(comma + 1), links.out));
    if (!good) return tl::make_unexpected(Error{fmt::format("--link {}: expected GB/s from 0.001 to 1000000, such as 55, or 55,50 for in and out", text)});
    if (comma == std::string::npos) links.out = links.in;
    return links;
}

Expected<Bytes> parse_memory(const char* option, const std::string& text, Bytes whole) {
    Size size;
    const auto parsed = text.empty() ? Expected<void>() : parse_value(text, size);
    if (parsed && size.form == Size::Form::absolute && size.bytes.value > 0 && size.bytes < least_without_unit && text.find_first_not_of("0123456789.") == std::string::npos)
        return tl::make_unexpected(Error{fmt::format("{0} {1}: are bytes, which hold no tensor: {2}", option, text, size.bytes.value <= 100 ? fmt::format("did you mean {0}%, or {0}GiB?", text) : fmt::format("name the unit, as in {}MiB", text))});
    if (parsed && size.form != Size::Form::automatic) return size.resolve(whole, whole);
    const bool particular = !parsed && parsed.error().message.find("auto") == std::string::npos;  // auto is nothing here
    return tl::make_unexpected(Error{fmt::format("{} {}: expected {}", option, text, particular ? parsed.error().message : "a size such as 12GiB, 800MiB or 50% of peak live")});
}

Expected<std::vector<std::int64_t>> parse_batches(const std::string& text, std::size_t traces) {
    std::vector<std::int64_t> batches;
    for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
        std::int64_t batch = 0;
        const auto [next, error] = std::from_chars(at, end, batch);
        if (error != std::errc() || batch <= 0 || batch > INT32_MAX || (next < end && (*next != ',' || next + 1 == end))) return tl::make_unexpected(Error{"--batch " + text + ": expected batch sizes such as 32,64,128"});
        batches.push_back(batch);
        at = next;
    }
    if (!batches.empty() && batches.size() != traces) return tl::make_unexpected(Error{fmt::format("--batch names {} batch sizes for {} traces", batches.size(), traces)});
    return batches;
}

std::string ask_for_batches(std::size_t traces) {
    return traces == 1 ? "batch size unknown: give --batch 512" : fmt::format("batch sizes unknown: give --batch 512,256{}", traces > 2 ? ",..." : "");
}

}  // namespace udnnmem::cli
