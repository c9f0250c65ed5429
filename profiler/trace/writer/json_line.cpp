#include "profiler/trace/writer/json_line.hpp"

#include <charconv>
#include <cmath>

namespace udnnmem::profiler {
namespace {

// The length of the valid UTF-8 sequence at the start of `text`, 0 if there is none (overlong forms,
// surrogates and code points past U+10FFFF are none).
std::size_t sequence_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    const std::size_t length = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : first >= 0xF0 && first < 0xF5 ? 4 : 0;
    if (length == 0 || length > text.size()) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xC0) != 0x80) return 0;
    if (length > 2) {
        const unsigned char second = byte(1);
        if (first == 0xE0 && second < 0xA0) return 0;
        if (first == 0xED && second >= 0xA0) return 0;
        if (first == 0xF0 && second < 0x90) return 0;
        if (first == 0xF4 && second >= 0x90) return 0;
    }
    return length;
}

}  // namespace

JsonLine::JsonLine(std::string_view kind) {
    line_ = "{\"kind\":";
    text(kind);
}

void JsonLine::key(std::string_view name) {
    line_ += ',';
    text(name);
    line_ += ':';
}

void JsonLine::text(std::string_view text) {
    line_ += '"';
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        const unsigned char c = static_cast<unsigned char>(text[0]);
        if (length == 0) {
            line_ += "\\ufffd";
        } else if (c == '"' || c == '\\') {
            line_ += '\\';
            line_ += static_cast<char>(c);
        } else if (c < 0x20) {
            constexpr char digits[] = "0123456789abcdef";
            line_ += "\\u00";
            line_ += digits[c >> 4];
            line_ += digits[c & 15];
        } else {
            line_ += text.substr(0, length);
        }
        text.remove_prefix(length ? length : 1);
    }
    line_ += '"';
}

JsonLine& JsonLine::add(std::string_view name, std::string_view value) {
    key(name);
    text(value);
    return *this;
}

JsonLine& JsonLine::add(std::string_view name, std::int64_t number) {
    key(name);
    char digits[24];
    line_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
    return *this;
}

JsonLine& JsonLine::add(std::string_view name, double number) {
    key(name);
    char digits[32];
    line_.append(digits, std::to_chars(digits, digits + sizeof digits, std::isfinite(number) ? number : 0.0).ptr);
    return *this;
}

JsonLine& JsonLine::add(std::string_view name, const std::vector<std::int64_t>& numbers) {
    key(name);
    line_ += '[';
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        char digits[24];
        if (i) line_ += ',';
        line_.append(digits, std::to_chars(digits, digits + sizeof digits, numbers[i]).ptr);
    }
    line_ += ']';
    return *this;
}

JsonLine& JsonLine::add(std::string_view name, bool flag) {
    key(name);
    line_ += flag ? "true" : "false";
    return *this;
}

}  // namespace udnnmem::profiler
