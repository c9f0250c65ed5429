// Trace files: JSON Lines, plain or zstd, one object a line (profiler/trace/README.md has the fields).
//
// What is read is normalised: access sets ascending without repeats; a free_op past the last op (the
// file was cut short) means the last op, and so does none of a buffer that no op names. Keys and kinds that this version does not know are ignored.
#pragma once

#include <string>
#include <string_view>

#include "profiler/trace/error.hpp"
#include "profiler/trace/trace.hpp"

namespace udnnmem::profiler {

// Reads a trace file. Error: one line that names file, line, field and rule. Thread-safe.
// 100,000 ops take about a second.
Expected<Trace> read_trace(const std::string& path);

// The same for text in memory; `name` stands for the file in errors.
Expected<Trace> parse_trace(const std::string& name, std::string_view text);

// The same, up to a later record that is not as it must be, which is then the damage: for a report. Nothing is planned of that.
Expected<Trace> parse_trace_to_damage(const std::string& name, std::string_view text);

// As traces have it: "unknown" for what is not known.
const char* name_of(Phase phase);

// The invariants of Trace (trace.hpp), and that sums of all sizes and of all times fit in 62 bits.
// Error: one line that names the buffer or op, the field and the rule.
Expected<void> validate(const Trace& trace);

// The text of a trace file; parse_trace() of it gives an equal trace.
std::string format_trace(const Trace& trace);

// Writes a trace file, compressed if the path ends in ".zst". Error: the system's reason.
Expected<void> write_trace(const std::string& path, const Trace& trace);

}  // namespace udnnmem::profiler
