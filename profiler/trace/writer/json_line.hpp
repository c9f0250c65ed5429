// One line of JSON Lines put together without a JSON library, for the preload: an object with text,
// numbers and flags. Text of any bytes comes out as valid JSON in valid UTF-8; a number that JSON cannot
// hold (infinite, not a number) comes out as 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/trace/units.hpp"

namespace udnnmem::profiler {

class JsonLine {
  public:
    explicit JsonLine(std::string_view kind);

    JsonLine& add(std::string_view key, std::string_view text);
    JsonLine& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
    JsonLine& add(std::string_view key, std::int64_t number);
    JsonLine& add(std::string_view key, double number);
    JsonLine& add(std::string_view key, bool flag);
    JsonLine& add(std::string_view key, std::int32_t number) { return add(key, static_cast<std::int64_t>(number)); }
    JsonLine& add(std::string_view key, Bytes bytes) { return add(key, bytes.value); }
    JsonLine& add(std::string_view key, Nanoseconds time) { return add(key, time.value); }
    JsonLine& add(std::string_view key, BufferId id) { return add(key, static_cast<std::int64_t>(id.value)); }

    template <class Tag>
    JsonLine& add(std::string_view key, const std::vector<Identity<Tag, std::int32_t>>& ids) {
        std::vector<std::int64_t> numbers;
        for (const auto id : ids) numbers.push_back(id.value);
        return add(key, numbers);
    }
    JsonLine& add(std::string_view key, const std::vector<std::int64_t>& numbers);

    // The whole line with its line end. Nothing can be added after.
    std::string finish() { line_ += "}\n"; return std::move(line_); }

  private:
    void key(std::string_view name);
    void text(std::string_view text);
    std::string line_;
};

}  // namespace udnnmem::profiler
