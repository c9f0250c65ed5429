// A writer of Python's pickle format, protocol 2, as far as dictionaries, lists, tuples of two, text, integers, flags and None go.
// https://docs.python.org/3/library/pickletools.html has the opcodes. A text that comes again is written once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace udnnmem::cli {

class Pickle {
  public:
    Pickle() : bytes_("\x80\x02") {}

    void text(std::string_view value);      // UTF-8
    void integer(std::int64_t value);
    void flag(bool value) { bytes_ += value ? '\x88' : '\x89'; }
    void none() { bytes_ += 'N'; }
    void pair(std::int64_t first, std::int64_t second) { integer(first), integer(second), bytes_ += '\x86'; }

    // What is written between the two is alternately a key and its value, or an entry.
    void begin_dictionary() { bytes_ += "}("; }
    void end_dictionary() { bytes_ += 'u'; }
    void begin_list() { bytes_ += "]("; }
    void end_list() { bytes_ += 'e'; }

    void entry(std::string_view key, std::int64_t value) { text(key), integer(value); }
    void entry(std::string_view key, std::string_view value) { text(key), text(value); }

    std::string finish() { return std::move(bytes_ += '.'); }

  private:
    void number(std::uint32_t value);       // four bytes, the lowest first
    std::string bytes_;
    std::map<std::string, std::uint32_t, std::less<>> memo_;
};

}  // namespace udnnmem::cli
