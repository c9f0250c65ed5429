// Reading JSON Lines strictly: files of text (plain or zstd) as a string, lines as records, and fields
// of a record by type and range. Traces and plans are read with it, so that every complaint has the
// same shape: "NAME: line 12: op.reads: names buffer 7, which no earlier line defines".
//
// Invariants: a trace cut short (a crash, a full disk) is read up to its last whole line, which is no
// error but is noted; unknown keys are nobody's business here. No function of this file throws.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "profiler/trace/error.hpp"

namespace udnnmem::profiler {

inline constexpr std::int64_t most_value = std::int64_t{1} << 62;   // of any size or time, and of their sums

// The text of a file ("-": of standard input), decompressed if it begins with zstd's magic number. A compressed file that
// ends early gives what could be decompressed, and half a line where it ends within a block; what is damaged later than its
// first line gives what comes before the damaged block, and a line "damaged" there. What
// cannot be JSON Lines is given up after a MiB or so. Error: cannot be opened or read, damaged, gzip, plans that a run
// stored, or above 8 GiB.
Expected<std::string> read_text(const std::string& path);

// Writes the file whole or not at all (a temporary file beside it, renamed; where a symbolic link points; the permissions
// of what it replaces); what is no regular file, a device or a pipe, is written into. Not `replace`: a regular file that is
// there is left as it is, which is an error. Error: the system's reason.
Expected<void> write_file(const std::string& path, const std::string& data, bool replace);

// The same, compressed if the path ends in ".zst", over what is there.
Expected<void> write_text(const std::string& path, const std::string& text);

// One line of a JSON Lines file: an object, whose "kind" says what it is.
class Record {
public:
    Record(const std::string& file, std::int64_t line, const nlohmann::json& object) : file_(file), line_(line), object_(object) {}

    std::int64_t line() const { return line_; }
    const std::string& kind() const { return object_.at("kind").get_ref<const std::string&>(); }
    bool has(const char* field) const { return object_.contains(field); }
    const nlohmann::json& json() const { return object_; }

    // Each reads a field into `to`; false and an error() if it is missing (where no default is given), of
    // another type, or outside the range (`low` and `high` are allowed).
    bool read_integer(const char* field, std::int64_t low, std::int64_t high, std::int64_t& to);
    bool read_integer_or(const char* field, std::int64_t low, std::int64_t high, std::int64_t otherwise, std::int64_t& to);
    bool read_number_or(const char* field, double low, double otherwise, double& to);
    bool read_text_or(const char* field, std::string_view otherwise, std::string& to);
    bool read_text(const char* field, std::string& to);
    bool read_flag_or(const char* field, bool otherwise, bool& to);
    bool read_integers(const char* field, std::int64_t low, std::int64_t high, std::vector<std::int64_t>& to);

    // Whether this may be the first record of a file, "header" of a trace or "plan" of a plan; if not, notes what the file is.
    bool begins(const char* wanted);

    // Notes an error about a field, in this file's shape; returns false, to be returned on.
    bool fail(const char* field, const std::string& rule);
    const Error& error() const { return error_; }

private:
    const std::string& file_;
    std::int64_t line_;
    const nlohmann::json& object_;
    Error error_;
};

// From where on a file could not be read.
struct Damage {
    std::int64_t line = 0;    // 0: all of it could
    bool cut_short = false;   // the file ends there
    std::string why;          // of a record that is not as it must be: "op.reads: must be a list, is 3"; "": the line is no record at all
};

// What a record that is not as it must be does to its file: it is an error, or the damage.
enum class Invalid : std::uint8_t { refused, damage };

// Calls `each` for every record of `text` in order until it returns false, then hands back that
// record's error. Blank lines are passed over. A last line without a line end is read if it is whole.
// A later line that is no JSON object ends it, as does half of a last one: that is the damage; with Invalid::damage
// so is a later record that `each` returns false for, or whose kind is missing or no text.
// Error: the first line is no JSON object, so that it is not `what` ("a trace"), or a record is wrong.
Expected<Damage> read_records(const std::string& file, const char* what, std::string_view text, const std::function<bool(Record&)>& each, Invalid invalid = Invalid::refused);

// The same of a plan, where a damaged line is an error: half of one is none.
Expected<void> for_each_record(const std::string& file, std::string_view text, const std::function<bool(Record&)>& each);

}  // namespace udnnmem::profiler
